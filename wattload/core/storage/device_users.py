"""What else uses a device: processes that have it open, and loop devices over the same file.

The kernel grants a device exclusively although a program writes to it that did not ask for it
exclusively, such as ``dd`` or a virtual machine. Its open files show it, as far as this process may
see other processes. Those of PID namespaces above this one stay hidden; and even root can't see
those of a process with more capabilities than its own, such as the first one of some containers.

The file behind a loop device is known by device and inode number. A path says little about it: it
may have several names, or have lost its name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.sysfs import LIVE, Roots, numbered_block_folder, read_text

_F_OFD_GETLK = 36
_FLOCK = "hhqqi4x"
"""``struct flock`` of fcntl(2): type, whence, start, length, process."""
_ROOT_UID = 0


def writers(device: int, file: tuple[int, int] | None = None, roots: Roots = LIVE) -> Iterator[int]:
    """Yield the other processes that have a device open for writing.

    This process and those that it started are left out.

    Args:
        device: the device number.
        file: the device and inode number of a file that counts, too.
        roots: where procfs is.

    Raises:
        PermissionError: the open files of a process can't be read, but root may be able to.
    """
    own = os.getpid()
    for entry in sorted(roots.proc.iterdir()):
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            with os.scandir(entry / "fd") as files:
                found = any(_is_open(each, device, file) for each in files)
            if found and not _descends(int(entry.name), own, roots):
                yield int(entry.name)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except PermissionError:
            if os.geteuid() != _ROOT_UID:
                raise


def _is_open(entry: os.DirEntry[str], device: int, file: tuple[int, int] | None) -> bool:
    """Return whether an open file is the one that is looked for, and may be written."""
    try:
        if not entry.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
            return False
        if not os.readlink(entry.path).startswith("/"):  # noqa: PTH115 - a socket or the like
            return False
        found = os.stat(entry.path)  # noqa: PTH116 - it is opened by no name
    except (FileNotFoundError, ProcessLookupError):
        return False
    if stat.S_ISBLK(found.st_mode):
        return found.st_rdev == device
    return (found.st_dev, found.st_ino) == file


def _descends(process: int, ancestor: int, roots: Roots) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        # proc_pid_stat(5): the name, in parentheses, may have spaces; the parent is the 2nd after.
        text = read_text(roots.proc / str(process) / "stat")
        process = int(text.rpartition(")")[2].split()[1])
    return False


def lock_holder(descriptor: int) -> int | None:
    """Return the process that has locked bytes of an open file, ``None`` if there is none.

    fcntl(2): it is -1 for a lock that belongs to an open file and not to a process.
    """
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, _F_OFD_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(process)


def process_name(process: int, roots: Roots = LIVE) -> str:
    """Return a process in words, with its name if it can be read."""
    try:
        return f"process {process} ({read_text(roots.proc / str(process) / 'comm')})"
    except OSError:
        return f"process {process}"


_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO_BYTES = 232
"""``struct loop_info64`` of ``linux/loop.h``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What is behind a loop device, as the kernel holds it open.

    ``device`` and ``inode`` are those of the file, ``special`` the device number of a file that is
    a device itself, else 0. ``offset_bytes`` is where the loop device starts in it.
    """

    device: int
    inode: int
    special: int
    offset_bytes: int

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode


def read_backing(node: Path) -> Backing:
    """Return what is behind a loop device; raises ``OSError`` (``ENXIO``: nothing is)."""
    descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        answer = bytearray(_LOOP_INFO_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, answer)
    finally:
        os.close(descriptor)
    device, inode, special, offset_bytes = struct.unpack_from("<4Q", answer)
    return Backing(device=device, inode=inode, special=special, offset_bytes=offset_bytes)


def backing_path(node: Path, folder: Path, backing: Backing, roots: Roots = LIVE) -> Path:
    """Return the path of the regular file behind a loop device.

    Raises:
        TargetError: it is a device, or no longer at its path.
        OSError: sysfs does not show the path.
    """
    if backing.special:
        number = f"{os.major(backing.special)}:{os.minor(backing.special)}"
        below = numbered_block_folder(number, roots)
        name = number if below is None else below.name
        raise TargetError(f"{node} is a loop device over another device ({name}); name that one")
    path = Path(read_text(folder / "loop/backing_file"))
    try:
        found = path.stat()
    except OSError:
        found = None
    if (
        found is None
        or (found.st_dev, found.st_ino) != backing.file
        or not stat.S_ISREG(found.st_mode)
    ):
        raise TargetError(
            f"{node} is a loop device over a file that is not at its path any more (deleted, "
            "replaced, or in another mount namespace), so what else uses it is unknown; "
            "detach it (losetup -d), and attach the file anew"
        )
    return path


def other_loops(folder: Path, backing: Backing, roots: Roots = LIVE) -> tuple[str, ...]:
    """Return the other loop devices over the same file; raises ``OSError`` if one can't be read."""
    found = []
    for each in sorted(roots.sys.glob("block/loop*/loop")):
        name = each.parent.name
        if name == folder.name:
            continue
        try:
            other = read_backing(roots.top / "dev" / name)
        except OSError as error:
            if error.errno == errno.ENXIO:  # it was detached meanwhile
                continue
            raise
        if other.file == backing.file:
            found.append(name)
    return tuple(found)


def holds_data_outside(
    node: Path, path: Path, backing: Backing, size_bytes: int, known: Sequence[tuple[int, int]]
) -> bool:
    """Return whether the backing file has data that is not in the ``known`` ranges of the device.

    A hole of a sparse file proves that nothing is there (``SEEK_DATA`` of lseek(2)). A file system
    without holes reports all bytes as data.

    Raises:
        OSError: the file can't be read, or its holes are not shown.
    """
    with node.open("rb") as device:
        os.fsync(device)  # what was written to the device, and is not in the file yet
    first, end = backing.offset_bytes, backing.offset_bytes + size_bytes
    with path.open("rb") as file:
        at = _next_data(file.fileno(), first)
        while at is not None and at < end:
            inside = [last for start, last in known if start <= at - first < last]
            if not inside:
                return True
            at = _next_data(file.fileno(), first + max(inside))
    return False


def _next_data(descriptor: int, offset: int) -> int | None:
    """Return where the next data of a file starts, ``None`` if a hole reaches up to its end."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise
