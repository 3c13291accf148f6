"""Every file that wattload writes is opened here: in a folder of ours, following no link.

wattload often runs as root, on targets and in runs folders that other users may write to. So the
owner of a folder must be the user of this process or root, and nobody else may write to it; a file
that exists already has the same owners, is a regular file and has one name. Files are opened by
the folder's descriptor, so that they stay in the folder that was checked.

* ``choose_folder`` opens a folder that the user named: links are followed and nothing is checked.
* ``open_folder`` opens a folder of ours. The path above it is the user's choice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from wattload.core.errors import DataError, ForeignFileError
from wattload.core.host_paths import mounted, run_as

FILE_MODE = 0o644
FOLDER_MODE = 0o755
LOCK_MODE = 0o600
"""Whoever can open a file for reading can lock it."""

_ROOT_UID = 0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY
_WITHOUT_WAIT = os.O_NONBLOCK | os.O_NOCTTY
"""Opening a pipe without another end would block; no effect on a regular file."""

_LONGEST_PID = 20
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)


class Folder:
    """An open folder, a context manager that closes the descriptor.

    Methods that open a file raise ``ForeignFileError`` if a link, a folder, a pipe or somebody
    else's file has its name, and ``OSError`` if the kernel refuses.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def close(self) -> None:
        """Close the descriptor; safe to call twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def enter(self, *names: str) -> Folder:
        """Open the folder at ``names`` below this one; each part of it must be ours."""
        found = Folder(self.path, os.dup(self.descriptor))
        try:
            for name in names:
                above, descriptor = found, found._open(name, _FOLDER_FLAGS)
                found = Folder(above.path / name, descriptor)
                above.close()
                _require_own_folder(found)
        except BaseException:
            found.close()
            raise
        return found

    def make(self, name: str) -> Folder:
        """Open a folder in this one, made durably if it is missing."""
        _require_name(name)
        with suppress(FileExistsError), naming(self.path / name):
            os.mkdir(name, FOLDER_MODE, dir_fd=self.descriptor)
            self.sync()
        return self.enter(name)

    def create(self, name: str, flags: int = os.O_WRONLY, mode: int = FILE_MODE) -> int:
        """Create a file where nothing is, not even a link, and return its descriptor."""
        try:
            return self._open(name, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError as error:
            raise ForeignFileError(
                f"{self.path / name} exists already, where wattload creates a new file; remove it, "
                "or choose another folder"
            ) from error

    def append(self, name: str) -> int:
        """Open a file of ours for reading and appending, created if it is missing."""
        return self._open_own(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def update(self, name: str, flags: int = os.O_RDWR) -> int:
        return self._open_own(name, flags)

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file of ours, ``None`` if it does not exist."""
        try:
            descriptor = self._open_own(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    @contextmanager
    def replacing(self, name: str, mode: int = FILE_MODE) -> Iterator[IO[bytes]]:
        """Yield a new file; at the end of the block it is durable and takes its name.

        If the block fails, no trace of the file is left.
        """
        self.require_own(name)
        temporary = f".{name}.{secrets.token_hex(4)}.tmp"
        with os.fdopen(self.create(temporary, mode=mode), "wb") as file:
            try:
                yield file
                with naming(self.path / name):
                    file.flush()
                    os.fsync(file.fileno())
                self.rename(temporary, name)
            except BaseException:
                self.remove(temporary)
                raise
        self.sync()

    def write(self, name: str, content: str | bytes, mode: int = FILE_MODE) -> None:
        """Write a small file whole and durably."""
        with self.replacing(name, mode) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file, which replaces another, or a folder, which replaces an empty one."""
        for each in (name, new_name):
            _require_name(each)
        with naming(self.path / new_name):
            os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def names(self) -> list[str]:
        with naming(self.path):
            return sorted(os.listdir(self.descriptor))  # noqa: PTH208 - by its descriptor

    def remove(self, *names: str) -> None:
        """Remove files of this folder, as far as they exist and the kernel lets them go."""
        for name in names:
            _require_name(name)
            with suppress(OSError):
                os.unlink(name, dir_fd=self.descriptor)

    def remove_empty(self, name: str) -> None:
        """Remove a folder in this one; it stays if something is in it."""
        _require_name(name)
        with suppress(OSError):
            os.rmdir(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Make the names in the folder durable."""
        with naming(self.path):
            os.fsync(self.descriptor)

    def lock(self, name: str) -> Lock:
        """Take the lock of a file in this folder without waiting; the file is made if missing.

        Raises:
            LockHeldError: another process, or this one, holds it.
        """
        while True:
            descriptor = self._open_own(name, os.O_RDWR | os.O_CREAT, LOCK_MODE)
            try:
                _lock(descriptor)
                found = self._status(name)
                if found is not None and os.path.samestat(found, os.fstat(descriptor)):
                    _write_holder(descriptor)
                    return Lock(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # it was removed: the next process would open another file

    def require_own(self, name: str) -> None:
        """Check that a name is free or a file of ours."""
        _require_name(name)
        found = self._status(name)
        if found is not None:
            _require_own_file(self.path / name, found)

    def _open_own(self, name: str, flags: int, mode: int = FILE_MODE) -> int:
        descriptor = self._open(name, flags | _WITHOUT_WAIT, mode)
        try:
            _require_own_file(self.path / name, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open(self, name: str, flags: int, mode: int = 0) -> int:
        _require_name(name)
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with naming(self.path / name):
                return os.open(name, flags, mode, dir_fd=self.descriptor)
        except FileExistsError:
            raise
        except OSError as error:
            found = self._status(name)
            needed = "folder" if flags & os.O_DIRECTORY else "regular file"
            is_needed = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
            if found is not None and not is_needed(found.st_mode):
                raise _wrong_kind(self.path / name, found, needed) from error
            raise

    def _status(self, name: str) -> os.stat_result | None:
        with suppress(FileNotFoundError), naming(self.path / name):
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        return None


class LockHeldError(BlockingIOError):
    """Another process, or this one, holds a lock; ``holder`` is its process id if it is known."""

    def __init__(self, holder: int | None) -> None:
        process = f" (process {holder})" if holder is not None else ""
        super().__init__(errno.EAGAIN, f"locked by another process{process}")
        self.holder = holder


class Lock:
    """A lock that this process holds until ``release`` or its end.

    An flock belongs to the open file, which a forked process shares and could keep locked after its
    parent's end. So a fork closes the file in the child, which then does not hold the lock. A
    program that is started does not inherit the file at all.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the file without unlocking it, in a forked process, which has no lock."""
        _held.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: set[Lock] = set()


def _leave_locks_to_the_parent() -> None:
    for lock in tuple(_held):
        lock.forget()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a removal: bytes of file data freed, and the listed names that were kept.

    A name is kept if a folder, a link or a device is in its place.
    """

    freed_bytes: int
    left: tuple[str, ...]


def lock_device(node: Path) -> Lock | None:
    """Take the lock of a device node without waiting, ``None`` if the node can't be opened.

    An flock belongs to the inode of a node: a container with a node of its own has another lock.

    Raises:
        LockHeldError: another process, or this one, holds it.
    """
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC | _WITHOUT_WAIT)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LockHeldError(None) from error
    return Lock(descriptor)


def choose_folder(path: Path) -> Folder:
    """Open a folder that the user named; links are followed."""
    return Folder(path, os.open(path, _FOLDER_FLAGS | os.O_CLOEXEC))


def open_folder(path: Path, *below: str) -> Folder:
    """Open a folder of ours, or the one ``below`` it; all are checked.

    Raises:
        ForeignFileError: one is a link, not a folder, somebody else's, or writable by others.
        OSError: the kernel refuses, or it does not exist.
    """
    named = path if path.name not in {"", ".."} else path.absolute()
    with choose_folder(named.parent) as above:
        return above.enter(*filter(None, [named.name]), *below)


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a file that may be anybody's, such as a record.

    Raises:
        DataError: it is not a regular file, or longer than ``limit_bytes``.
        OSError: the kernel refuses.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would keep its reader waiting
        raise DataError(f"{path} is not a regular file")
    with path.open("rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise DataError(f"{path} is longer than {limit_bytes} bytes")
    return content


def checked_parts(name: str) -> tuple[str, ...]:
    """Return the components of a relative file name.

    Raises:
        DataError: the name is empty or absolute, or leads out of its folder.
    """
    parts = tuple(name.split("/"))
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise DataError(
            f"{name!r} is not the name of a file inside a data folder; "
            "names are relative, without empty, . or .. components"
        )
    return parts


def temporary_for(name: str) -> str | None:
    """Return the name that a file of ``Folder.replacing`` was to get, ``None`` for other files.

    A process that is killed leaves such a file.
    """
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match else None


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable; raises ``OSError`` if the kernel refuses."""
    with choose_folder(path) as folder:
        folder.sync()


def walk_names(folder: Folder) -> Iterator[str]:
    """Yield all names below the folder, relative to it; folders end in ``/``, links do not."""
    for path in folder.path.rglob("*"):
        is_folder = path.is_dir() and not path.is_symlink()
        yield str(path.relative_to(folder.path)) + ("/" if is_folder else "")


def remove_listed(folder: Folder, names: Iterable[str]) -> Removal:
    """Remove regular files by name, then the parent folders that this left empty.

    A missing name frees nothing.

    Raises:
        DataError: a name leads out of the folder.
        OSError: the kernel refuses a removal (read-only, no permission).
    """
    freed_bytes = 0
    left: list[str] = []
    parents: set[tuple[str, ...]] = set()
    for name in names:
        *above, last = checked_parts(name)
        parents.update(tuple(above[:depth]) for depth in range(1, len(above) + 1))
        freed = _remove_file(folder, above, last)
        if freed is None:
            left.append(name)
        else:
            freed_bytes += freed
    for parent in sorted(parents, key=len, reverse=True):
        # Not empty, missing, or replaced by a link: in each case nothing of ours is left to remove.
        with suppress(OSError, ForeignFileError), folder.enter(*parent[:-1]) as above_it:
            os.rmdir(parent[-1], dir_fd=above_it.descriptor)
    return Removal(freed_bytes, tuple(left))


def _remove_file(folder: Folder, above: Iterable[str], last: str) -> int | None:
    """Remove one regular file; return its size, 0 if it is missing, ``None`` if not regular."""
    try:
        with folder.enter(*above) as parent, naming(parent.path / last):
            status = os.stat(last, dir_fd=parent.descriptor, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                return None
            os.unlink(last, dir_fd=parent.descriptor)
            return status.st_size
    except FileNotFoundError:
        return 0
    except ForeignFileError:  # a link, or a folder that is not ours
        return None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the kernel name a whole path: a call by descriptor knows at most its end."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _require_name(name: str) -> None:
    if len(checked_parts(name)) != 1:
        raise DataError(f"{name!r} is not the name of a file in a folder: it has a slash")


def _require_own_folder(folder: Folder) -> None:
    found = os.fstat(folder.descriptor)
    _require_owner(folder.path, found)
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise ForeignFileError(
            f"{folder.path} may be written by other users (mode {stat.S_IMODE(found.st_mode):04o}),"
            f" who could redirect what wattload writes; run `chmod go-w {folder.path}`, or choose "
            "another folder"
        )


def _require_own_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _wrong_kind(path, found, "regular file")
    _require_owner(path, found)
    if found.st_nlink > 1:
        raise ForeignFileError(
            f"{path} is one of {found.st_nlink} names of the same file (hard links), so it is not "
            "written; remove this name, or choose another folder"
        )


def _require_owner(path: Path, found: os.stat_result) -> None:
    uid = os.geteuid()
    if found.st_uid in (uid, _ROOT_UID):
        return
    owner, own = user_name(found.st_uid), user_name(uid)
    raise ForeignFileError(
        f"{path} belongs to {owner}, and wattload runs as {own}; "
        f"{run_as(owner, found.st_uid, found.st_gid)}, choose another folder, or have an "
        f"administrator run `chown -R {own} {path}`"
    )


def _wrong_kind(path: Path, found: os.stat_result, needed: str) -> ForeignFileError:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "a pipe, a socket or a device")
    return ForeignFileError(
        f"{path} is {kind}, where wattload needs a {needed} of its own; remove it, or choose "
        "another folder"
    )


def user_name(uid: int) -> str:
    """Return a user's name; in a container the number, since the host has other names."""
    if mounted() and uid != _ROOT_UID:
        return str(uid)
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _LONGEST_PID, 0).strip()
        raise LockHeldError(int(holder) if holder.isdigit() else None) from error


def _write_holder(descriptor: int) -> None:
    """Store the holder's process id; skipped on a full disk, where ``clean`` must work too."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
