"""The folder of all our data on a target, ``wattload-data``: its lock, and ``wattload clean``.

One run, data generation or clean works on a target at a time. A clean deletes our data, and lists
what stays and why.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattload.core.errors import DataError, TargetError
from wattload.core.files import Lock, LockHeldError, choose_folder, open_folder
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.loaders.data.data_folder import DataFolder, list_folders, make_folders

LOCK_NAME = ".wattload-lock"

_ATTEMPTS = 100


class TargetLock:
    """The exclusive right to work on a target; see ``acquire`` and ``release``."""

    def __init__(self, target_path: Path, lock: Lock) -> None:
        self._target_path = target_path
        self._lock = lock

    @classmethod
    def acquire(cls, target_path: Path) -> Self:
        """Lock the target, without waiting; creates its ``wattload-data`` folder if missing.

        Raises:
            TargetError: another process, or this one, holds the lock (the message has its process
                id); or the target is missing, can't be written, or can't be locked.
            ForeignFileError: ``wattload-data`` or the lock's file is not ours.
        """
        for _ in range(_ATTEMPTS):
            try:
                make_folders(target_path)
                with open_folder(target_path / DATA_FOLDER_NAME) as folder:
                    return cls(target_path, folder.lock(LOCK_NAME))
            except FileNotFoundError:
                continue  # a clean has just removed the folder
            except LockHeldError as error:
                process = f" (process {error.holder})" if error.holder is not None else ""
                raise TargetError(
                    f"another wattload run or clean works on {target_path}{process}; "
                    "wait for it or choose another target"
                ) from error
            except TargetError:
                raise
            except PermissionError as error:
                path = target_path / DATA_FOLDER_NAME
                path = path if path.exists() else target_path
                raise TargetError(
                    f"user {os.geteuid()} may not write to {path}, which belongs to user "
                    f"{path.stat().st_uid}; run as a user who may, or choose another target"
                ) from error
            except OSError as error:
                raise TargetError(
                    f"{target_path / DATA_FOLDER_NAME / LOCK_NAME} can't be locked: "
                    f"{error.strerror}; choose a target that is writable, has space, and is "
                    "mounted with flock"
                ) from error
        raise TargetError(
            f"{target_path} can't be locked: {DATA_FOLDER_NAME} was removed {_ATTEMPTS} times just "
            "after it was created; find what else works there, or choose another target"
        )

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        self._lock.release()

    def remove(self) -> None:
        """Remove the lock's file, and the data folder if that leaves it empty, and release."""
        with suppress(OSError, DataError), choose_folder(self._target_path) as target:
            with target.enter(DATA_FOLDER_NAME) as folder:
                os.unlink(LOCK_NAME, dir_fd=folder.descriptor)
            # Fails if anything is in it, such as the lock of a process that started just now.
            os.rmdir(DATA_FOLDER_NAME, dir_fd=target.descriptor)
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFailure:
    """A folder of ours that could not be emptied, and the reason in one sentence."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """The result of a clean: bytes of file data freed, foreign paths that stay, and failures.

    A folder that failed halfway adds nothing to ``freed_bytes``.
    """

    freed_bytes: int
    left: tuple[Path, ...]
    failed: tuple[CleaningFailure, ...]


def clean(target_path: Path) -> Cleaning:
    """Delete the data of all our folders under a target; the target itself stays.

    A folder that can't be emptied does not prevent the removal of others.

    Raises:
        TargetError: another run or clean works on the target, or it can't be locked.
    """
    data_path = target_path / DATA_FOLDER_NAME
    if not data_path.is_dir() or data_path.is_symlink():
        return Cleaning(freed_bytes=0, left=foreign_paths(target_path), failed=())
    with TargetLock.acquire(target_path) as lock:
        freed_bytes, failed = _remove_folders(target_path)
        broken = {failure.path for failure in failed}
        left = _left_in(target_path, without=broken)
        lock.remove()
    return Cleaning(freed_bytes=freed_bytes, left=left, failed=failed)


def foreign_paths(target_path: Path) -> tuple[Path, ...]:
    """Return what is in the target's data folder, is not ours, and would survive ``clean``.

    Raises:
        DataError: the manifest of a folder of ours can't be read.
    """
    return _left_in(target_path, without=set())


def _remove_folders(target_path: Path) -> tuple[int, tuple[CleaningFailure, ...]]:
    freed_bytes = 0
    failed: list[CleaningFailure] = []
    for folder in list_folders(target_path):
        try:
            freed_bytes += folder.remove()
        except DataError as error:
            failed.append(CleaningFailure(path=folder.path, reason=str(error)))
        except OSError as error:
            reason = f"{folder.path} can't be emptied: {error.strerror}"
            failed.append(CleaningFailure(path=folder.path, reason=reason))
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
