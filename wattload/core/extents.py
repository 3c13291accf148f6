"""How many extents a file has on its file system, by the FIEMAP ioctl."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_FS_IOC_FIEMAP = 0xC020660B
"""``_IOWR('f', 11, struct fiemap)`` of ``linux/fs.h``."""
_FIEMAP = struct.Struct("<QQIIII")
"""``struct fiemap``: start, length, flags, mapped extents, room for extents, reserved."""
_FLAG_SYNC = 1
_WHOLE_FILE = 2**64 - 1


def count_extents(path: Path) -> int:
    """Return the number of extents of a file; writes its dirty pages out first.

    With no room for extents the kernel only counts (``Documentation/filesystems/fiemap.rst``).

    Raises:
        OSError: the file can't be opened, or its file system has no FIEMAP.
    """
    request = bytearray(_FIEMAP.pack(0, _WHOLE_FILE, _FLAG_SYNC, 0, 0, 0))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
    finally:
        os.close(descriptor)
    mapped: int = _FIEMAP.unpack(request)[3]
    return mapped
