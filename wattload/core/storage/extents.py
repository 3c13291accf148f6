"""The extents of a file: how many it has, where they are, and how many bytes no device holds.

Holes and unwritten blocks are read without the device, so a timed read needs files without them.
Asks FIEMAP (``Documentation/filesystems/fiemap.rst``), which writes dirty pages out first.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import DataError
from wattload.core.files import naming
from wattload.core.record.results import Check
from wattload.core.units import format_bytes

_FS_IOC_FIEMAP = 0xC020660B
"""``_IOWR('f', 11, struct fiemap)`` of ``linux/fs.h``."""

_FIEMAP = struct.Struct("<QQIIII")
"""``struct fiemap``: start, length, flags, mapped extents, room for extents, reserved."""

_EXTENT = struct.Struct("<QQQ16xI12x")
"""``struct fiemap_extent``: logical, physical, length, 2 reserved, flags, 3 reserved."""
_RUN = struct.Struct("<QQQ?")
_FLAG_SYNC = 1
_EXTENT_LAST = 0x1
_EXTENT_UNWRITTEN = 0x800
_WHOLE_FILE = 2**64 - 1
_ROOM = 256
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_FIEMAP = {errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EBADR}


@dataclass(frozen=True, slots=True)
class ExtentMap:
    """Where the bytes of a file are.

    ``unwritten_bytes`` are on no device: holes, and extents that were never written to. It is
    ``None`` if the file system can't say. ``sha256`` is the digest of the map: it changes when a
    part of the file is moved, punched out or unwritten. It is ``None`` without FIEMAP.
    """

    unwritten_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class _Run:
    """Bytes that follow each other in the file and on the device, all written to or none."""

    logical: int
    physical: int
    length: int
    is_written: bool

    def joined(self, after: _Run) -> _Run | None:
        """Return both as one run, ``None`` if the other one does not continue this one."""
        continued = (self.logical + self.length, self.physical + self.length, self.is_written)
        if continued != (after.logical, after.physical, after.is_written):
            return None
        return _Run(self.logical, self.physical, self.length + after.length, self.is_written)


def count_extents(path: Path) -> int:
    """Return the number of extents of a file; writes its dirty pages out first.

    With no room for extents the kernel only counts (``Documentation/filesystems/fiemap.rst``).

    Raises:
        OSError: the file can't be opened, or its file system has no FIEMAP.
    """
    request = bytearray(_FIEMAP.pack(0, _WHOLE_FILE, _FLAG_SYNC, 0, 0, 0))
    descriptor = os.open(path, _FLAGS)
    try:
        with naming(path):
            fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
    finally:
        os.close(descriptor)
    mapped: int = _FIEMAP.unpack(request)[3]
    return mapped


def extent_map(path: Path) -> ExtentMap:
    """Return where a file's bytes are; writes its dirty pages out first.

    A file system without FIEMAP may still report holes by ``lseek(SEEK_HOLE)``. It does not know
    of extents that were never written to, so a file without holes is then unknown.

    Raises:
        OSError: the file can't be opened, or is a symbolic link.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        size_bytes = os.fstat(descriptor).st_size
        try:
            with naming(path):
                runs = list(_joined(_runs(descriptor, size_bytes)))
        except OSError as error:
            if error.errno not in _NO_FIEMAP:
                raise
            return ExtentMap((size_bytes - sum(_data_runs(descriptor, size_bytes))) or None, None)
    finally:
        os.close(descriptor)
    packed = (_RUN.pack(run.logical, run.physical, run.length, run.is_written) for run in runs)
    return ExtentMap(
        unwritten_bytes=size_bytes - sum(run.length for run in runs if run.is_written),
        sha256=hashlib.sha256(b"".join(packed)).hexdigest(),
    )


def _runs(descriptor: int, size_bytes: int) -> Iterator[_Run]:
    """Yield the extents in order, the last one up to the end of the file."""
    position = 0
    while position < size_bytes:
        request = bytearray(_FIEMAP.size + _ROOM * _EXTENT.size)
        _FIEMAP.pack_into(request, 0, position, size_bytes - position, _FLAG_SYNC, 0, _ROOM, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
        count = _FIEMAP.unpack_from(request)[3]
        for number in range(count):
            place = _FIEMAP.size + number * _EXTENT.size
            logical, physical, length, flags = _EXTENT.unpack_from(request, place)
            # An answer starts with the whole extent at its position, of which a part is known.
            skipped = max(position - logical, 0)
            end = min(logical + length, size_bytes)
            if end > logical + skipped:
                is_written = not flags & _EXTENT_UNWRITTEN
                start = logical + skipped
                yield _Run(start, physical + skipped, end - start, is_written)
            position = logical + length
            if flags & _EXTENT_LAST:
                return
        if not count:
            return


def _joined(runs: Iterator[_Run]) -> Iterator[_Run]:
    """Yield runs joined where they continue each other: extents may be reported in parts."""
    last: _Run | None = None
    for run in runs:
        both = last.joined(run) if last else None
        if last and not both:
            yield last
        last = both or run
    if last:
        yield last


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


def written_extents_check(paths: Iterable[Path], *, remedy: str) -> Check:
    """Return the check that files have neither holes nor unwritten extents, before a timed read.

    ``remedy`` ends the sentence of the error. The check is not made where the file system can't
    say.

    Raises:
        DataError: bytes of a file are on no device.
        OSError: a file can't be opened.
    """
    file_count = 0
    unknown: list[Path] = []
    for path in paths:
        file_count += 1
        unwritten_bytes = extent_map(path).unwritten_bytes
        if unwritten_bytes is None:
            unknown.append(path)
        elif unwritten_bytes:
            raise DataError(
                f"{path} has {format_bytes(unwritten_bytes)} in holes or unwritten blocks, which "
                f"would be read as zeros without the drive; {remedy}"
            )
    if unknown:
        return Check(
            name="written_extents",
            verdict="not_checked",
            sentence=(
                f"The file system of {unknown[0]} does not report unwritten extents (FIEMAP), so "
                "reads of them can't be excluded. The files have no holes."
            ),
            figures={"file_count": file_count, "unknown_count": len(unknown)},
        )
    return Check(
        name="written_extents",
        verdict="pass",
        sentence=(
            f"All bytes of the {file_count} files were written to the device before the timed "
            "read: no holes, no unwritten extents."
        ),
        figures={"file_count": file_count, "unwritten_bytes": 0},
    )
