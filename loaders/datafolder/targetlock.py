"""The lock of a target: one run, data generation or clean works on it at a time.

The lock is an ``flock`` on ``<target>/wattload-data/.wattload-lock``, which holds the process id of
whoever has it. The kernel gives it back when its holder ends, however it ends; the file stays,
without meaning, until ``clean`` removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from wattload.core.errors import TargetError
from wattload.core.target import DATA_FOLDER_NAME
from wattload.loaders.datafolder.marker import make_folders
from wattload.loaders.datafolder.safefiles import descend, open_regular

LOCK_NAME = ".wattload-lock"

_LONGEST_PID = 20
_ATTEMPTS = 100


class TargetLock:
    """The right to work on a target; take it with ``acquire``, give it back with ``release``.

    An flock belongs to the open file, which a forked process shares and could keep locked after
    its parent's end. So a fork closes the file on the child's side, where the lock is then not
    held; a program that is started does not get the file at all.
    """

    def __init__(self, target_path: Path, descriptor: int) -> None:
        self._target_path = target_path
        self._descriptor: int | None = descriptor
        _held.add(self)

    @classmethod
    def acquire(cls, target_path: Path) -> Self:
        """Lock the target, without waiting; makes its ``wattload-data`` folder where missing.

        Raises:
            TargetError: another process, or this one, holds the lock, which the message says with
                its process id; or the target is missing, can't be written, or can't be locked.
            DataError: a link or a file of somebody else stands in place of ``wattload-data``.
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
            "it was made; see what else works there, or name another target"
        )

    def release(self) -> None:
        """Give the lock back; nothing happens if that was done before."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.forget()

    def remove(self) -> None:
        """Remove the lock's file, and the data folder if that leaves it empty, and release."""
        with suppress(OSError), descend(self._target_path, ()) as target:
            with descend(self._target_path, (DATA_FOLDER_NAME,)) as folder:
                os.unlink(LOCK_NAME, dir_fd=folder)
            # Refused where anything lies in it, be it the lock of a process that came just now.
            os.rmdir(DATA_FOLDER_NAME, dir_fd=target)
        self.release()

    def forget(self) -> None:
        """Close the file without unlocking it: what a forked process does, since it has no lock."""
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
    """Open the lock's file, made where it is missing; ``None`` if a clean took its folder away."""
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
            "remove what stands in its place, or choose a target that is writable and has space"
        ) from error


def _lock(descriptor: int, target_path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _LONGEST_PID, 0).strip()
        process = f" (process {holder.decode()})" if holder.isdigit() else ""
        raise TargetError(
            f"another wattload run or clean works on {target_path}{process}; "
            "wait for it or name another target"
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
    """Note who holds the lock; left unsaid on a full target, where ``clean`` must work too."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
