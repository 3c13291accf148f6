"""Whether O_DIRECT works in a directory, and which alignment it needs there."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wattload.core.files import choose_folder

_AT_EMPTY_PATH = 0x1000
_STATX_DIOALIGN = 0x2000
_STATX_BYTES = 256
_MASK_OFFSET = 0
_MEMORY_ALIGN_OFFSET = 152
_OFFSET_ALIGN_OFFSET = 156
"""``struct statx`` of Linux 6.1: ``stx_mask``, ``stx_dio_mem_align``, ``stx_dio_offset_align``."""

PROBED_ALIGNMENTS = (512, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectIo:
    """The alignments that O_DIRECT needs, in bytes, from ``statx(STATX_DIOALIGN)``.

    Without an answer from the kernel they are probed, or are the logical block
    of a device; ``found_by`` is ``statx``, ``probe`` or ``queue``.
    """

    memory_align_bytes: int
    offset_align_bytes: int
    found_by: str


@contextmanager
def scratch_file(folder: Path, flags: int = 0) -> Iterator[int]:
    """Open a new nameless file in ``folder`` for reading and writing; it is gone at the end.

    Args:
        folder: an existing directory.
        flags: further flags of ``open``, such as ``os.O_DIRECT``.

    Raises:
        OSError: the file can't be created, or not with these flags.
    """
    descriptor = _open_nameless(folder, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_nameless(folder: Path, flags: int) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        # Some network file systems lack O_TMPFILE and answer with one of these three errors.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
    name = f".wattload-probe-{secrets.token_hex(8)}"
    with choose_folder(folder) as opened:
        made = opened.create(name, os.O_RDWR, 0o600)
        try:
            return opened.update(name, os.O_RDWR | flags) if flags else os.dup(made)
        finally:
            os.close(made)
            os.unlink(name, dir_fd=opened.descriptor)


def find_direct_io(folder: Path) -> tuple[DirectIo | None, str | None]:
    """Return the alignments that O_DIRECT needs in ``folder``, or ``None`` and the reason.

    Uses ``statx(STATX_DIOALIGN)`` (Linux 6.1). If the file system does not answer, direct writes
    and reads of 512 and 4096 bytes are tried.
    """
    try:
        with scratch_file(folder) as descriptor:
            answer = statx_alignment(descriptor)
    except OSError as error:
        return None, f"no file can be created there: {error.strerror}"
    if answer is None:
        return _probe(folder)
    memory, offset = answer
    if offset == 0:
        return None, "the file system does not support O_DIRECT (statx)"
    return DirectIo(memory_align_bytes=memory, offset_align_bytes=offset, found_by="statx"), None


def device_direct_io(node: Path, logical_block_bytes: int) -> DirectIo:
    """Return the alignments that O_DIRECT needs on a block device, which always supports it.

    Kernels before 6.11 have no answer for a device: the size of its logical blocks is enough.
    """
    descriptor = os.open(node, os.O_PATH | os.O_CLOEXEC)
    try:
        answer = statx_alignment(descriptor)
    finally:
        os.close(descriptor)
    if answer is None or not answer[1]:
        size = logical_block_bytes
        return DirectIo(memory_align_bytes=size, offset_align_bytes=size, found_by="queue")
    return DirectIo(memory_align_bytes=answer[0], offset_align_bytes=answer[1], found_by="statx")


def statx_alignment(descriptor: int) -> tuple[int, int] | None:
    """Return the (memory, offset) alignment in bytes of an open file; (0, 0) without O_DIRECT.

    ``None`` if the C library, the kernel or the file system does not support the query.
    """
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if statx is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, buffer) != 0:
        return None
    mask, memory_align, offset_align = (
        int(ctypes.c_uint32.from_buffer(buffer, offset).value)
        for offset in (_MASK_OFFSET, _MEMORY_ALIGN_OFFSET, _OFFSET_ALIGN_OFFSET)
    )
    return (memory_align, offset_align) if mask & _STATX_DIOALIGN else None


def _probe(folder: Path) -> tuple[DirectIo | None, str | None]:
    try:
        with scratch_file(folder, os.O_DIRECT) as descriptor:
            if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                return None, "the file system ignored O_DIRECT on open without an error"
            return _smallest_alignment(descriptor)
    except OSError as error:
        return None, f"open with O_DIRECT: {error.strerror}"


def _smallest_alignment(descriptor: int) -> tuple[DirectIo | None, str | None]:
    reason = None
    with mmap.mmap(-1, 2 * max(PROBED_ALIGNMENTS)) as memory, memoryview(memory) as view:
        for size in PROBED_ALIGNMENTS:
            # Offset, length and address are multiples of the tested size and of no larger one.
            with view[size : 2 * size] as block:
                try:
                    os.pwritev(descriptor, [block], size)
                    os.preadv(descriptor, [block], size)
                except OSError as error:
                    reason = f"direct I/O of {size} bytes: {error.strerror}"
                    continue
            found = DirectIo(memory_align_bytes=size, offset_align_bytes=size, found_by="probe")
            return found, None
    return None, reason
