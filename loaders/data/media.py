"""How generated files are written: by O_DIRECT, or through the page cache where that is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.files import Folder
from wattload.core.storage.targets import Target
from wattload.loaders.aligned_io import PAGE_BYTES, create_direct, round_up

_NO_PREALLOCATION = {errno.EOPNOTSUPP, errno.EINVAL}


def medium_of(target: Target) -> DirectMedium:
    """Return O_DIRECT if the target accepts blocks of 4096 bytes, else the page cache."""
    needs = target.direct_io
    fits = needs is not None and needs.offset_align_bytes <= PAGE_BYTES
    return DirectMedium() if fits else PageCacheMedium()


class DirectMedium:
    """Files written by O_DIRECT, in chunks of whole 4096-byte blocks.

    The last block is padded, and ``finish`` truncates the file to its size.
    """

    def create(self, folder: Folder, name: str, size_bytes: int) -> int:
        """Create a file and reserve its blocks, which detects a full target at once."""
        path = folder.path / name
        handle = create_direct(folder, name)
        try:
            if size_bytes:
                os.posix_fallocate(handle, 0, round_up(size_bytes, PAGE_BYTES))
        except OSError as error:
            if error.errno not in _NO_PREALLOCATION:
                os.close(handle)
                raise _at_offset(error, "preallocation", path, size_bytes) from error
        return handle

    def write(self, handle: int, path: Path, chunk: NDArray[np.uint8], offset_bytes: int) -> None:
        """Write the whole chunk; a write that ends inside a block is an error."""
        done = 0
        while done < chunk.size:
            try:
                count = os.pwritev(handle, [chunk[done:].data], offset_bytes + done)
            except OSError as error:
                raise _at_offset(error, "write", path, offset_bytes + done) from error
            done += count
            if count % PAGE_BYTES or not count:
                torn = OSError(errno.EIO, f"wrote {count} bytes, not a multiple of {PAGE_BYTES}")
                raise _at_offset(torn, "write", path, offset_bytes + done)

    def finish(self, handle: int, path: Path, size_bytes: int) -> None:
        try:
            os.ftruncate(handle, size_bytes)
            os.fsync(handle)
        except OSError as error:
            raise _at_offset(error, "fsync", path, size_bytes) from error


class PageCacheMedium(DirectMedium):
    """Files written through the page cache, for a target without O_DIRECT."""

    def create(self, folder: Folder, name: str, size_bytes: int) -> int:
        return folder.create(name)


def _at_offset(error: OSError, verb: str, path: Path, offset_bytes: int) -> OSError:
    """Return the error with file and offset in its message and the same errno."""
    return OSError(
        error.errno, f"{verb} at offset {offset_bytes} failed: {error.strerror}", str(path)
    )
