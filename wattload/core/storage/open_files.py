"""Which other processes have a device or its backing file open for writing, or locked.

The kernel grants a device exclusively although a program writes to it that did not ask for it
exclusively, such as ``dd`` or a virtual machine. Its open files show it, as far as this process may
see other processes. Those of PID namespaces above this one stay hidden; and even root can't see
those of a process with more capabilities than its own, such as the first one of some containers.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterator

from wattload.core.sysfs import LIVE, Roots, read_text

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
