"""What ``wattload clean`` does to a target: give our data back, name what stays and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import DataError
from wattload.core.target import DATA_FOLDER_NAME
from wattload.loaders.datafolder import DataFolder, list_folders
from wattload.loaders.datafolder.targetlock import LOCK_NAME, TargetLock


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A folder of ours that could not be emptied, and one sentence on why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What a clean did: bytes of file data freed, what is not ours and stays, what failed.

    A folder that failed part of the way counts nothing into ``freed_bytes``.
    """

    freed_bytes: int
    left: tuple[Path, ...]
    failed: tuple[Failure, ...]


def clean(target_path: Path) -> Cleaning:
    """Remove the data of all our folders under a target; the target itself stays.

    A folder that can't be emptied does not keep the others from it.

    Raises:
        TargetError: another run or clean works on the target, or it can't be locked.
    """
    data_path = target_path / DATA_FOLDER_NAME
    if not data_path.is_dir() or data_path.is_symlink():
        return Cleaning(freed_bytes=0, left=leftovers(target_path), failed=())
    with TargetLock.acquire(target_path) as lock:
        freed_bytes, failed = _remove_folders(target_path)
        broken = {failure.path for failure in failed}
        left = _left_in(target_path, without=broken)
        lock.remove()
    return Cleaning(freed_bytes=freed_bytes, left=left, failed=failed)


def leftovers(target_path: Path) -> tuple[Path, ...]:
    """Return what under the target's data folder is not ours and would survive ``clean``.

    Raises ``DataError`` for a folder of ours whose manifest can't be read.
    """
    return _left_in(target_path, without=set())


def _remove_folders(target_path: Path) -> tuple[int, tuple[Failure, ...]]:
    freed_bytes = 0
    failed: list[Failure] = []
    for folder in list_folders(target_path):
        try:
            freed_bytes += folder.remove()
        except DataError as error:
            failed.append(Failure(path=folder.path, reason=str(error)))
        except OSError as error:
            reason = f"{folder.path} can't be emptied: {error.strerror}"
            failed.append(Failure(path=folder.path, reason=reason))
    return freed_bytes, tuple(failed)


def _left_in(target_path: Path, *, without: set[Path]) -> tuple[Path, ...]:
    data_path = target_path / DATA_FOLDER_NAME
    if data_path.is_symlink() or (data_path.exists() and not data_path.is_dir()):
        return (data_path,)
    if not data_path.exists():
        return ()
    ours: dict[Path, DataFolder] = {folder.path: folder for folder in list_folders(target_path)}
    left: list[Path] = []
    for path in sorted(data_path.iterdir()):
        if path in ours and path not in without:
            left += [path / name for name in ours[path].foreign()]
        elif path not in without and path.name != LOCK_NAME:
            left.append(path)
    return tuple(left)
