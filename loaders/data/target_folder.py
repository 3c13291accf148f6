"""The folder of all our data on a target, ``wattload-data``: its lock, and ``wattload clean``.

One run, data generation or clean works on a target at a time. A clean deletes our data, and lists
what stays and why.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from wattload.core.errors import DataError, TargetError
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.loaders.data.data_folder import DataFolder, list_folders, make_folders
from wattload.loaders.data.safe_files import descend, open_regular

LOCK_NAME = ".wattload-lock"

_LONGEST_PID = 20
_ATTEMPTS = 100


class TargetLock:
    """The exclusive right to work on a target; see ``acquire`` and ``release``.

    An flock belongs to the open file, which a forked process shares and could keep locked after its
    parent's end. So a fork closes the file in the child, which then does not hold the lock. A
    program that is started does not inherit the file at all.
    """

    def __init__(self, target_path: Path, descriptor: int) -> None:
        self._target_path = target_path
        self._descriptor: int | None = descriptor
        _held.add(self)

    @classmethod
    def acquire(cls, target_path: Path) -> Self:
        """Lock the target, without waiting; creates its ``wattload-data`` folder if missing.

        Raises:
            TargetError: another process, or this one, holds the lock (the message has its process
                id); or the target is missing, can't be written, or can't be locked.
            DataError: a link or a foreign file is in the place of ``wattload-data``.
        """
        for _ in range(_ATTEMPTS):
            descriptor = _open(target_path)
            if descriptor is None:
                continue
            try:
                _lock(descriptor, target_path)
                if _is_in_place(descriptor, target_path):
                    _write_holder(descriptor)
                    return cls(target_path, descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise TargetError(
            f"{target_path} can't be locked: {LOCK_NAME} was removed {_ATTEMPTS} times just after "
            "it was created; find what else works there, or choose another target"
        )

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.forget()

    def remove(self) -> None:
        """Remove the lock's file, and the data folder if that leaves it empty, and release."""
        with suppress(OSError), descend(self._target_path, ()) as target:
            with descend(self._target_path, (DATA_FOLDER_NAME,)) as folder:
                os.unlink(LOCK_NAME, dir_fd=folder)
            # Fails if anything is in it, such as the lock of a process that started just now.
            os.rmdir(DATA_FOLDER_NAME, dir_fd=target)
        self.release()

    def forget(self) -> None:
        """Close the file without unlocking it, in a forked process, which has no lock."""
        _held.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_held: set[TargetLock] = set()


def _leave_locks_to_the_parent() -> None:
    for lock in tuple(_held):
        lock.forget()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def _open(target_path: Path) -> int | None:
    """Open the lock's file, created if missing; ``None`` if a clean has removed its folder."""
    try:
        make_folders(target_path)
        with descend(target_path, (DATA_FOLDER_NAME,)) as folder:
            return open_regular(LOCK_NAME, os.O_RDWR | os.O_CREAT, folder)
    except FileNotFoundError:
        return None
    except TargetError:
        raise
    except OSError as error:
        raise TargetError(
            f"{target_path / DATA_FOLDER_NAME / LOCK_NAME} can't be opened: {error.strerror}; "
            "remove what is in its place, or choose a target that is writable and has space"
        ) from error


def _lock(descriptor: int, target_path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _LONGEST_PID, 0).strip()
        process = f" (process {holder.decode()})" if holder.isdigit() else ""
        raise TargetError(
            f"another wattload run or clean works on {target_path}{process}; "
            "wait for it or choose another target"
        ) from error
    except OSError as error:
        raise TargetError(
            f"{target_path} can't be locked: {error.strerror}; mount its file system with flock, "
            "or choose another target"
        ) from error


def _is_in_place(descriptor: int, target_path: Path) -> bool:
    """Whether the open file is still the one that the next process will open."""
    with suppress(OSError):
        named = os.lstat(target_path / DATA_FOLDER_NAME / LOCK_NAME)
        return os.path.samestat(named, os.fstat(descriptor))
    return False


def _write_holder(descriptor: int) -> None:
    """Store the holder's process id; skipped on a full target, where ``clean`` must work too."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise


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
