"""Every file that wattload writes is opened here: by descriptor, following no link, only our own.

wattload often runs as root, on targets and in runs folders that other users may write to. So a
folder is *proved* before anything is created in it: it is a folder and not a link, its owner is the
user of this process or root, and nobody else may write to it. Nobody else can then change what
is below it. A file that exists already is proved too, by its open descriptor: it is a regular
file, has one name and the same owners. So there is no time between the check and the use.

* ``choose_folder`` opens a folder that the user named: links are followed and nothing is proved.
* ``open_folder`` opens a folder of ours. The path above it is the user's choice.
* ``Folder.at`` gives libraries that open files by path a path through the descriptor.

A file is new under a temporary name until it is complete (``Folder.replacing``), or created where
nothing is (``Folder.create``), or opened in place after its proof (``Folder.append``,
``Folder.update``). Locks are files that only their owner can open, because whoever can open a file
for reading can lock it.
"""

from __future__ import annotations

import ctypes
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
from functools import cache
from pathlib import Path
from typing import IO, Self

from wattload.core.errors import DataError, ForeignFileError
from wattload.core.host_paths import mounted, run_as

FILE_MODE = 0o644
FOLDER_MODE = 0o755
LOCK_MODE = 0o600

SMALL_BYTES = 1 << 20
"""More than any marker, seal or draft has; see ``Folder.read``."""

_ROOT_UID = 0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY
_FILE_FLAGS = os.O_NONBLOCK | os.O_NOCTTY
"""Without ``O_NONBLOCK``, opening a pipe without another end would block for ever. The flag has no
effect on a regular file."""

_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT, _SYS_OPENAT2 = 430, 431, 432, 437
_CLOEXEC = 1
"""``FSOPEN_CLOEXEC`` and ``FSMOUNT_CLOEXEC`` of ``linux/mount.h``."""
_FSCONFIG_CMD_CREATE = 6
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_NOT_AVAILABLE = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
_REFUSED = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)

_LOCK_ATTEMPTS = 100
_DEEPEST = 100
_LONGEST_PID = 20
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)
_BY_DESCRIPTOR = re.compile(r"/proc/self/fd/(\d+)")

_LIBRARY = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Folder:
    """An open folder. Its files are opened relative to its descriptor, whatever its path becomes.

    ``path`` is for messages. A folder is a context manager that closes the descriptor.
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

    def at(self, name: str = "") -> Path:
        """Return a path through the descriptor; valid in this process while the folder is open.

        For libraries that open files by path. ``as_named`` turns it back for messages.
        """
        return Path(f"/proc/self/fd/{self.descriptor}") / name

    def enter(self, *names: str) -> Folder:
        """Open the folder at ``names`` below this one; each part of it is proved.

        Raises:
            ForeignFileError: a part is a link, no folder, somebody else's, or writable by others.
            OSError: the kernel refuses, or it does not exist.
        """
        found = Folder(self.path, os.dup(self.descriptor))
        try:
            for name in names:
                above, descriptor = found, found._open(name, _FOLDER_FLAGS)
                found = Folder(above.path / name, descriptor)
                above.close()
                _prove_folder(found)
        except BaseException:
            found.close()
            raise
        return found

    def make(self, name: str) -> Folder:
        """Open a folder in this one, made durably if it is missing; raises as ``enter``."""
        _require_name(name)
        with suppress(FileExistsError), naming(self.path / name):
            os.mkdir(name, FOLDER_MODE, dir_fd=self.descriptor)
            self.sync()
        return self.enter(name)

    def create(self, name: str, flags: int = os.O_WRONLY, mode: int = FILE_MODE) -> int:
        """Create a file where nothing is, and return its descriptor.

        Raises:
            ForeignFileError: something is there, be it only a link.
            OSError: the kernel refuses.
        """
        try:
            return self._open(name, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError as error:
            raise ForeignFileError(
                f"{self.path / name} exists already, where wattload creates a new file; remove it, "
                "or choose another folder"
            ) from error

    def append(self, name: str) -> int:
        """Open a file of ours for reading and appending, created if it is missing.

        Raises:
            ForeignFileError: a link, a folder, a pipe or somebody else's file is in its place.
            OSError: the kernel refuses.
        """
        return self._own(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def update(self, name: str, flags: int = os.O_RDWR) -> int:
        """Open an existing file of ours in place; raises as ``append``."""
        return self._own(name, flags)

    def read(self, name: str, limit_bytes: int = SMALL_BYTES) -> bytes | None:
        """Return the content of a small file of ours, ``None`` if it does not exist.

        Raises:
            ForeignFileError: as ``append``.
            DataError: it is longer than ``limit_bytes``.
            OSError: the kernel refuses.
        """
        try:
            descriptor = self._own(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise DataError(f"{self.path / name} is longer than {limit_bytes} bytes")
        return content

    @contextmanager
    def replacing(self, name: str, mode: int = FILE_MODE) -> Iterator[IO[bytes]]:
        """Yield a new file; at the end of the block it is durable and takes its name.

        If the block fails, there is no trace of it. What has the name until then must be a file
        of ours: a link or somebody else's file is not replaced.

        Raises:
            ForeignFileError: as ``append``.
            OSError: the kernel refuses.
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
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=self.descriptor)
                raise
        self.sync()

    def write(self, name: str, content: str | bytes, mode: int = FILE_MODE) -> None:
        """Write a small file whole and durably; raises as ``replacing``."""
        with self.replacing(name, mode) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def rename(self, name: str, new_name: str) -> None:
        """Give a file of this folder another name in it; a file of ours there is replaced.

        Raises:
            ForeignFileError: a link, a pipe or somebody else's file has the new name.
            OSError: the kernel refuses.
        """
        self.require_own(new_name)
        self._rename(name, new_name)

    def rename_folder(self, name: str, new_name: str) -> None:
        """Give a folder in this one another name, which is free or an empty folder's.

        Raises ``OSError`` if the kernel refuses.
        """
        for each in (name, new_name):
            _require_name(each)
        self._rename(name, new_name)

    def _rename(self, name: str, new_name: str) -> None:
        with naming(self.path / new_name):
            os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def names(self) -> list[str]:
        """Return the names in the folder, sorted; raises ``OSError`` if the kernel refuses."""
        with naming(self.path):
            return sorted(os.listdir(self.descriptor))  # noqa: PTH208 - by its descriptor

    def remove(self, *names: str) -> None:
        """Remove files of this folder, as far as they exist and the kernel lets them go."""
        for name in names:
            _require_name(name)
            with suppress(OSError):
                os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: str, opened: Folder) -> None:
        """Remove a folder in this one, which is ``opened``, and the files in it.

        It stays if folders are in it, or if something else has got its name by now.
        """
        opened.remove(*opened.names())
        _require_name(name)
        with suppress(OSError):
            os.rmdir(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Make the names in the folder durable; raises ``OSError`` if the kernel refuses."""
        with naming(self.path):
            os.fsync(self.descriptor)

    def lock(self, name: str) -> Lock:
        """Take the lock of a file in this folder without waiting; the file is made if missing.

        Raises:
            LockHeldError: another process, or this one, holds it.
            ForeignFileError: as ``append``.
            OSError: the kernel refuses, or the file system has no locks.
        """
        for _ in range(_LOCK_ATTEMPTS):
            descriptor = self._own(name, os.O_RDWR | os.O_CREAT, LOCK_MODE)
            try:
                _close_to_others(descriptor)
                _lock(descriptor)
                if self._is_in_place(name, descriptor):
                    _write_holder(descriptor)
                    return Lock(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise OSError(errno.EAGAIN, "it was removed each time it had just been created")

    def _own(self, name: str, flags: int, mode: int = FILE_MODE) -> int:
        descriptor = self._open(name, flags | _FILE_FLAGS, mode)
        try:
            _prove_file(self.path / name, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open(self, name: str, flags: int, mode: int = 0) -> int:
        _require_name(name)
        try:
            return _open_beneath(self.descriptor, name, flags | os.O_CLOEXEC, mode)
        except OSError as error:
            path = self.path / name
            is_needed = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
            found = self._status(name) if error.errno in _REFUSED else None
            if found is not None and not is_needed(found.st_mode):
                needed = "folder" if flags & os.O_DIRECTORY else "regular file"
                raise _wrong_kind(path, found, needed) from error
            raise OSError(error.errno, error.strerror, str(path)) from error

    def require_own(self, name: str) -> None:
        """Check that a name is free or a file of ours; raises ``ForeignFileError`` if not."""
        _require_name(name)
        found = self._status(name)
        if found is not None:
            _prove_file(self.path / name, found)

    def _status(self, name: str) -> os.stat_result | None:
        with suppress(FileNotFoundError), naming(self.path / name):
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        return None

    def _is_in_place(self, name: str, descriptor: int) -> bool:
        """Whether the open file is still the one that the next process will open."""
        found = self._status(name)
        return found is not None and os.path.samestat(found, os.fstat(descriptor))


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
    """Take the lock of a character device without waiting, across containers where possible.

    An flock belongs to the inode of a node, and each container may have its own node for the same
    device. The kernel's devtmpfs has one node per device, which any mount of it shows. A process
    with ``CAP_SYS_ADMIN`` in the first user namespace can open it without attaching it anywhere
    (``fsopen(2)``, Linux 5.2). If that is not permitted, the lock is that of ``node``; on a host,
    where /dev is a devtmpfs, this is the same one.

    Returns ``None`` if neither node can be opened.

    Raises:
        LockHeldError: another process, or this one, holds it.
    """
    try:
        descriptor = _open_kernel_node(node)
    except OSError:
        try:
            descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC | _FILE_FLAGS)
        except OSError:
            return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LockHeldError(None) from error
    return Lock(descriptor)


def choose_folder(path: Path) -> Folder:
    """Open a folder that the user named: links are followed, and nothing is proved.

    Raises ``OSError`` if it is missing or no folder.
    """
    descriptor = os.open(path, _FOLDER_FLAGS | os.O_CLOEXEC)
    return Folder(Path(as_named(path)), descriptor)


def open_folder(path: Path, *below: str) -> Folder:
    """Open a folder of ours, or the one ``below`` it; all are proved.

    Raises:
        ForeignFileError: one is a link, no folder, somebody else's, or writable by others.
        OSError: the kernel refuses, or it does not exist.
    """
    named = path if path.name not in {"", ".."} else path.absolute()
    with choose_folder(named.parent) as above:
        return above.enter(*filter(None, [named.name]), *below)


def read_bounded(path: Path, limit_bytes: int = SMALL_BYTES) -> bytes:
    """Return the content of a file that may be anybody's, such as a record; links are followed.

    It neither waits for a pipe nor fills the memory.

    Raises:
        DataError: it is not a regular file, or longer than ``limit_bytes``.
        OSError: the kernel refuses.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _FILE_FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DataError(f"{path} is not a regular file")
        content = b"" if found.st_size > limit_bytes else file.read(limit_bytes + 1)
    if max(found.st_size, len(content)) > limit_bytes:
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


def as_named(text: object) -> str:
    """Return a text in which paths of ``Folder.at`` are replaced by those of their folders."""

    def real(match: re.Match[str]) -> str:
        try:
            return os.readlink(match[0])  # noqa: PTH115 - a Path would be made for its text
        except OSError:  # it is closed by now
            return match[0]

    return _BY_DESCRIPTOR.sub(real, str(text))


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable; raises ``OSError`` if the kernel refuses."""
    with choose_folder(path) as folder:
        folder.sync()


def walk_names(folder: Folder) -> Iterator[str]:
    """Yield all names below the folder, relative to it; folders end in ``/``, links do not.

    Nothing below ``_DEEPEST`` folders is listed: our own files are not that deep.
    """
    for root, folders, files, descriptor in os.fwalk(dir_fd=folder.descriptor):
        prefix = root.removeprefix("./") + "/" if root != "." else ""
        for name in folders:
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            yield prefix + name + ("/" if stat.S_ISDIR(mode) else "")
        for name in files:
            yield prefix + name
        if prefix.count("/") >= _DEEPEST:
            folders.clear()  # os.fwalk then does not enter them


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


def _open_beneath(folder: int, name: str, flags: int, mode: int) -> int:
    """Open one name in a folder, following no link; the kernel also keeps it beneath the folder."""
    if not _has_openat2():
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    return _openat2(folder, os.fsencode(name), flags | os.O_NOFOLLOW, mode)


def _openat2(folder: int, name: bytes, flags: int, mode: int) -> int:
    """Call openat2(2), which no C library wraps; it refuses a mode without ``O_CREAT``."""
    how = _OpenHow(
        flags, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS
    )
    while True:
        descriptor = _LIBRARY.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            raise OSError(code, os.strerror(code))


def _open_kernel_node(node: Path) -> int:
    """Open the node that the kernel itself has made for a character device."""
    number = os.stat(node).st_rdev  # noqa: PTH116 - the rest of this module uses descriptors
    event = Path(f"/sys/dev/char/{os.major(number)}:{os.minor(number)}/uevent").read_text()
    name = dict(line.split("=", 1) for line in event.splitlines())["DEVNAME"]
    context = _mount_call(_SYS_FSOPEN, ctypes.c_char_p(b"devtmpfs"), ctypes.c_uint(_CLOEXEC))
    try:
        _mount_call(
            _SYS_FSCONFIG,
            ctypes.c_int(context),
            ctypes.c_uint(_FSCONFIG_CMD_CREATE),
            None,
            None,
            ctypes.c_int(0),
        )
        mount = _mount_call(
            _SYS_FSMOUNT, ctypes.c_int(context), ctypes.c_uint(_CLOEXEC), ctypes.c_uint(0)
        )
    finally:
        os.close(context)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | _FILE_FLAGS, dir_fd=mount)
    finally:
        os.close(mount)
    if os.fstat(descriptor).st_rdev != number:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return descriptor


def _mount_call(number: int, *arguments: object) -> int:
    """Call one of fsopen(2), fsconfig(2) and fsmount(2), which older C libraries do not wrap."""
    result = int(_LIBRARY.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@cache
def _has_openat2() -> bool:
    """Whether the kernel has the call (Linux 5.6), and a container's filter lets it through."""
    descriptor = os.open("/", _FOLDER_FLAGS | os.O_CLOEXEC)
    try:
        os.close(_openat2(descriptor, b".", _FOLDER_FLAGS | os.O_CLOEXEC, 0))
    except OSError as error:
        if error.errno not in _NOT_AVAILABLE:
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def _prove_folder(folder: Folder) -> None:
    found = os.fstat(folder.descriptor)
    _prove_owner(folder.path, found)
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise ForeignFileError(
            f"{folder.path} may be written by other users (mode {stat.S_IMODE(found.st_mode):04o}),"
            f" who could redirect what wattload writes; run `chmod go-w {folder.path}`, or choose "
            "another folder"
        )


def _prove_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _wrong_kind(path, found, "regular file")
    _prove_owner(path, found)
    if found.st_nlink > 1:
        raise ForeignFileError(
            f"{path} is one of {found.st_nlink} names of the same file (hard links), so it is not "
            "written; remove this name, or choose another folder"
        )


def _prove_owner(path: Path, found: os.stat_result) -> None:
    uid = os.geteuid()
    if found.st_uid in (uid, _ROOT_UID):
        return
    owner, own = _user_name(found.st_uid), _user_name(uid)
    raise ForeignFileError(
        f"{path} belongs to {owner}, and wattload runs as {own}; "
        f"{run_as(owner, found.st_uid, found.st_gid)}, choose another folder, or have an "
        f"administrator run `chown -R {own} {path}`"
    )


def _wrong_kind(path: Path, found: os.stat_result, needed: str) -> ForeignFileError:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFREG: "a file",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    kind = kinds.get(stat.S_IFMT(found.st_mode), "a device")
    return ForeignFileError(
        f"{path} is {kind}, where wattload needs a {needed} of its own; remove it, or choose "
        "another folder"
    )


def _user_name(uid: int) -> str:
    """Return a user's name; in a container the number, since the host has other names."""
    if mounted() and uid != _ROOT_UID:
        return str(uid)
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _close_to_others(descriptor: int) -> None:
    """Take the lock file of an older version from readers, who could lock it."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) & ~LOCK_MODE:
        os.fchmod(descriptor, LOCK_MODE)


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
