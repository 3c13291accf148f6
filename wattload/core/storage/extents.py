"""The extents of a file: how many it has, and how many of its bytes no device holds.

Asks FIEMAP (``Documentation/filesystems/fiemap.rst``), which writes dirty pages out first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

_FS_IOC_FIEMAP = 0xC020660B
"""``_IOWR('f', 11, struct fiemap)`` of ``linux/fs.h``."""

_FIEMAP = struct.Struct("<QQIIII")
"""``struct fiemap``: start, length, flags, mapped extents, room for extents, reserved."""

_EXTENT = struct.Struct("<QQQ16xI12x")
"""``struct fiemap_extent``: logical, physical, length, 2 reserved, flags, 3 reserved."""
_FLAG_SYNC = 1
_EXTENT_LAST = 0x1
_EXTENT_UNWRITTEN = 0x800
_WHOLE_FILE = 2**64 - 1
_ROOM = 256
_NO_FIEMAP = {errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EBADR}


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


def unwritten_bytes(path: Path) -> int:
    """Return how many of a file's bytes no device holds: holes, and extents never written to.

    Asks FIEMAP (``Documentation/filesystems/fiemap.rst``), which writes dirty pages out first; a
    file system without it reports its holes by ``lseek(SEEK_HOLE)``, which need not know of
    unwritten extents.

    Raises:
        OSError: the file can't be opened, or is a symbolic link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size_bytes = os.fstat(descriptor).st_size
        try:
            return size_bytes - sum(_written_runs(descriptor, size_bytes))
        except OSError as error:
            if error.errno not in _NO_FIEMAP:
                raise
            return size_bytes - sum(_data_runs(descriptor, size_bytes))
    finally:
        os.close(descriptor)


def _written_runs(descriptor: int, size_bytes: int) -> Iterator[int]:
    """Yield the bytes, up to the file's end, of each extent that was written to."""
    position = 0
    while position < size_bytes:
        request = bytearray(_FIEMAP.size + _ROOM * _EXTENT.size)
        _FIEMAP.pack_into(request, 0, position, size_bytes - position, _FLAG_SYNC, 0, _ROOM, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
        count = _FIEMAP.unpack_from(request)[3]
        for number in range(count):
            place = _FIEMAP.size + number * _EXTENT.size
            logical, _, length, flags = _EXTENT.unpack_from(request, place)
            start, position = max(logical, position), logical + length
            if not flags & _EXTENT_UNWRITTEN:
                yield max(min(position, size_bytes) - start, 0)
            if flags & _EXTENT_LAST:
                return
        if not count:
            return


def _data_runs(descriptor: int, size_bytes: int) -> Iterator[int]:
    """Yield the bytes of each run between two holes."""
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # there is no data behind this position
                raise
            return
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield position - start
