"""One block between memory and a file or nothing: the medium that an engine's threads move to."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import Allocation, IOKind
from wattload.loaders.aligned import PAGE_BYTES, open_direct, round_up

_NO_PREALLOCATION = {errno.EOPNOTSUPP, errno.EINVAL}


class Medium(Protocol):
    """Where blocks come from and go to. Calls come from several threads at once."""

    def open(self, path: Path, kind: IOKind, end_bytes: int) -> int:
        """Return a handle on a file that is read, or written up to ``end_bytes``."""
        ...

    def read(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> int:
        """Fill the buffer from an offset; returns the bytes read, fewer only at the file's end."""
        ...

    def write(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> None:
        """Write the whole buffer at an offset."""
        ...

    def finish(self, handle: int, path: Path, end_bytes: int, *, fsync: bool) -> None:
        """Give a written file its exact size, and with ``fsync`` make it durable."""
        ...

    def close(self, handle: int) -> None:
        """Give the handle back."""
        ...


class DirectMedium:
    """Files by O_DIRECT: buffers, offsets and lengths are multiples of ``alignment_bytes``.

    A file that is written is preallocated first, which also finds a full target at once; not where
    ``allocation`` says otherwise. Its last block is written padded to the alignment, and ``finish``
    cuts the file to its size; a file that is read ends with a short read of the last, rounded-up
    block.
    """

    def __init__(
        self,
        *,
        alignment_bytes: int = PAGE_BYTES,
        allocation: Allocation = Allocation.PREALLOCATED,
    ) -> None:
        self._alignment_bytes = alignment_bytes
        self._allocation = allocation
        self.preallocates = True
        """Whether every file so far could be preallocated; ``False`` means that writes extend."""
        self.sync_ns = 0
        """The longest fsync so far."""

    def open(self, path: Path, kind: IOKind, end_bytes: int) -> int:
        """Open for reading, or create and preallocate for writing."""
        if kind is IOKind.READ:
            return open_direct(path, os.O_RDONLY | os.O_NOFOLLOW)
        makes = 0 if self._allocation is Allocation.OVERWRITE else os.O_CREAT
        handle = open_direct(path, os.O_WRONLY | makes | os.O_NOFOLLOW)
        try:
            self._check_end(handle, path, end_bytes)
            if self._allocation is Allocation.PREALLOCATED:
                self._preallocate(handle, path, round_up(end_bytes, self._alignment_bytes))
        except BaseException:
            os.close(handle)
            raise
        return handle

    def read(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> int:
        """Read until the buffer is full or the file ends."""
        done = 0
        while done < buffer.size:
            try:
                count = os.preadv(handle, [buffer[done:].data], offset_bytes + done)
            except OSError as error:
                raise at_offset(error, "read", path, offset_bytes + done) from error
            done += count
            if count % self._alignment_bytes or not count:  # only the end of a file is no multiple
                break
        return done

    def write(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> None:
        """Write until the buffer is out; a device that stops between two blocks is an error."""
        done = 0
        while done < buffer.size:
            try:
                count = os.pwritev(handle, [buffer[done:].data], offset_bytes + done)
            except OSError as error:
                raise at_offset(error, "write", path, offset_bytes + done) from error
            done += count
            if count % self._alignment_bytes or not count:
                whole = f"no multiple of {self._alignment_bytes}"
                torn = OSError(errno.EIO, f"wrote {count} bytes, {whole}")
                raise at_offset(torn, "write", path, offset_bytes + done)

    def finish(self, handle: int, path: Path, end_bytes: int, *, fsync: bool) -> None:
        """Cut to size, then fsync; a file that is written over keeps what lies behind the end."""
        keeps = self._allocation is Allocation.OVERWRITE and not end_bytes % self._alignment_bytes
        try:
            os.ftruncate(handle, max(end_bytes, os.fstat(handle).st_size) if keeps else end_bytes)
            if fsync:
                start_ns = time.monotonic_ns()
                os.fsync(handle)
                self.sync_ns = max(self.sync_ns, time.monotonic_ns() - start_ns)
        except OSError as error:
            raise at_offset(error, "fsync", path, end_bytes) from error

    def close(self, handle: int) -> None:
        """Close the descriptor."""
        os.close(handle)

    def _check_end(self, handle: int, path: Path, end_bytes: int) -> None:
        """Raise where the padding of the last block would destroy what lies behind it."""
        if self._allocation is not Allocation.OVERWRITE or not end_bytes % self._alignment_bytes:
            return
        if os.fstat(handle).st_size > end_bytes:
            whole = f"the plan's end, which is no multiple of {self._alignment_bytes}"
            error = OSError(errno.EINVAL, f"the file goes on behind {whole}")
            raise at_offset(error, "open", path, end_bytes)

    def _preallocate(self, handle: int, path: Path, size_bytes: int) -> None:
        """Reserve the file's blocks, so that writes neither extend it nor find the target full."""
        if not size_bytes:
            return
        try:
            os.posix_fallocate(handle, 0, size_bytes)
        except OSError as error:
            if error.errno not in _NO_PREALLOCATION:
                raise at_offset(error, "preallocation", path, size_bytes) from error
            self.preallocates = False


class NullMedium:
    """Nothing in place of the target: the same loop, with I/O that takes no time.

    What an engine reaches here is the ceiling of the host and of the loop itself. Direct I/O costs
    the host no copy, so none is made here; a read leaves the buffer as it is.
    """

    def open(self, path: Path, kind: IOKind, end_bytes: int) -> int:
        """Return a handle on nothing."""
        return -1

    def read(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> int:
        """Say that the buffer was filled."""
        return buffer.size

    def write(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> None:
        """Do nothing: nobody will read it."""

    def finish(self, handle: int, path: Path, end_bytes: int, *, fsync: bool) -> None:
        """Do nothing: there is nothing to make durable."""

    def close(self, handle: int) -> None:
        """Do nothing: there was no handle."""


def at_offset(error: OSError, verb: str, path: Path, offset_bytes: int) -> OSError:
    """Return the error with the file and the offset in its message; the number stays."""
    return OSError(
        error.errno, f"{verb} at offset {offset_bytes} failed: {error.strerror}", str(path)
    )


def too_short(path: Path, offset_bytes: int, wanted_bytes: int, read_bytes: int) -> DataError:
    """Return the error for a file that ends before the bytes that it should hold."""
    return DataError(
        f"{path} is truncated: at offset {offset_bytes} it holds {read_bytes} bytes, "
        f"{wanted_bytes} were expected; remove the data folder to have it made again"
    )
