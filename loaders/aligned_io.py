"""Memory and files for direct I/O: aligned buffers, and O_DIRECT that is really set."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, TargetError
from wattload.core.files import Folder
from wattload.core.storage.file_system import find_direct_io, statx_alignment
from wattload.core.storage.targets import Target

PAGE_BYTES = 4096
"""The alignment that O_DIRECT accepts on every Linux file system and drive met so far."""

HUGE_PAGE_BYTES = 2 << 20


_alignments: dict[tuple[int, int], int] = {}


def round_up(count: int, alignment: int) -> int:
    """Return the smallest multiple of ``alignment`` (above 0) that is at least ``count``."""
    return -(-count // alignment) * alignment


def round_down(count: int, alignment: int) -> int:
    """Return the largest multiple of ``alignment`` (above 0) that is at most ``count``."""
    return count // alignment * alignment


def aligned_buffer(size_bytes: int, alignment_bytes: int = PAGE_BYTES) -> NDArray[np.uint8]:
    """Return memory as ``reserve`` does, pre-touched.

    It is resident on return: the first touch of a fresh page costs more than the I/O into it. It is
    released with the last view of it.
    """
    _, buffer = reserve(size_bytes, alignment_bytes)
    buffer.fill(0)
    return buffer


def reserve(
    size_bytes: int, alignment_bytes: int = PAGE_BYTES
) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    """Return ``size_bytes`` (1 or more) of zeroed memory, shape ``(size_bytes,)``, in its mapping.

    The memory is anonymous, starts at a multiple of ``alignment_bytes`` (a power of two) and is not
    shared with a forked process. Its pages are allocated when they are first touched, as huge pages
    where the kernel provides them.
    """
    if size_bytes < 1:
        raise ValueError(f"size_bytes must be 1 or more, got {size_bytes}")
    if alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
        raise ValueError(f"alignment_bytes must be a power of two, got {alignment_bytes}")
    spare_bytes = alignment_bytes if alignment_bytes > mmap.PAGESIZE else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, size_bytes + spare_bytes, flags=flags)
    with suppress(OSError):  # without huge pages it is only slower
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    start = -whole.ctypes.data % alignment_bytes
    return memory, whole[start : start + size_bytes]


def aligned_buffers(
    count: int, size_bytes: int, alignment_bytes: int = PAGE_BYTES
) -> list[NDArray[np.uint8]]:
    """Return ``count`` buffers as ``aligned_buffer`` does, cut from one piece of memory.

    One large piece gets huge pages where the kernel provides them; small separate buffers do not.
    The device then sees few long segments instead of one per 4096 bytes.
    """
    stride_bytes = round_up(size_bytes, alignment_bytes)
    memory = aligned_buffer(count * stride_bytes, max(alignment_bytes, HUGE_PAGE_BYTES))
    return [memory[start : start + size_bytes] for start in range(0, memory.size, stride_bytes)]


def create_direct(folder: Folder, name: str) -> int:
    """Create a file for writing by O_DIRECT and return its descriptor; see ``Folder.create``.

    The flag is read back, since some layers drop it without an error. It is necessary for direct
    I/O but does not prove it: tmpfs accepts the flag and reads memory.

    Raises:
        TargetError: the file system refuses O_DIRECT or did not keep the flag.
        OSError: the file can't be created for any other reason.
    """
    path = folder.path / name
    try:
        descriptor = folder.create(name, os.O_WRONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise TargetError(refuses_direct(path)) from error
    if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
        os.close(descriptor)
        raise TargetError(refuses_direct(path))
    return descriptor


def refuses_direct(path: Path | str) -> str:
    """Return the error message for a file on a file system without O_DIRECT."""
    return (
        f"{path}: this file system refuses O_DIRECT; "
        "choose a target on a local disk, or a loader that reads through the page cache"
    )


def direct_alignment(path: Path, least_bytes: int = PAGE_BYTES) -> int:
    """Return the alignment in bytes of offsets, lengths and memory for O_DIRECT.

    ``path`` is a file, or a folder in which one will be created. At least ``least_bytes``, a power
    of two, and more where the file system or the drive needs it; ``least_bytes=512`` gives the
    kernel's own value (``STATX_DIOALIGN``), for reads of single sectors. 4096 where that is
    unknown. Cached per device.
    """
    try:
        status = path.stat()
    except OSError:
        return PAGE_BYTES
    device = (status.st_dev, status.st_rdev)  # the latter of a block device that is used as a file
    if device not in _alignments:
        _alignments[device] = max(_query_alignments(path)) or PAGE_BYTES
    return max(least_bytes, _alignments[device])


def _query_alignments(path: Path) -> tuple[int, int]:
    """Return the (memory, offset) alignment that the file system reports; zeros if unknown."""
    if path.is_dir():
        needs, _ = find_direct_io(path)
        return (needs.memory_align_bytes, needs.offset_align_bytes) if needs else (0, 0)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # opening it for reading reports the error
        return 0, 0
    try:
        return statx_alignment(descriptor) or (0, 0)
    finally:
        os.close(descriptor)


def fill_random(buffers: Sequence[NDArray[np.uint8]], *, seed: int, rank: int) -> None:
    """Fill the buffers with the PCG64 stream of a seed and rank; sizes are multiples of 8 bytes."""
    generator = np.random.PCG64(np.random.SeedSequence([seed, rank]))
    for buffer in buffers:
        words = buffer.view(np.uint64)
        words[:] = generator.random_raw(words.size)


def check_alignment(target: Target, block_bytes: int, setting: str = "loader.block_bytes") -> None:
    """Raise ``ConfigError`` for blocks that a target's O_DIRECT does not accept.

    A target without O_DIRECT is for the caller to refuse; ``setting`` is where the size comes from.
    """
    needs = target.direct_io
    if needs is None:
        return
    align_bytes = max(needs.offset_align_bytes, needs.memory_align_bytes)
    if block_bytes % align_bytes:
        raise ConfigError(
            f"O_DIRECT on {target.path} needs multiples of {align_bytes} bytes; {setting} "
            f"must be one of them, got {block_bytes}"
        )
