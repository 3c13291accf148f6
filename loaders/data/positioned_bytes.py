"""Bytes that follow from a seed and their place in a file alone.

Any part of such a file is compared without a second read, whatever slice of it is in memory. They
can't be compressed, nor deduplicated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library


def fill(memory: NDArray[np.uint8], *, seed: int, offset_bytes: int) -> None:
    """Fill contiguous memory with the bytes of a file from an offset on.

    The seed is from 0 to 2^64 - 1. The interpreter's lock is released meanwhile.
    """
    library.load().wl_positioned_fill(memory.ctypes.data, memory.nbytes, seed, offset_bytes)


def wrong_bytes(content: NDArray[np.uint8], *, seed: int, offset_bytes: int, row_bytes: int) -> int:
    """Return how many bytes of a matrix are not those of the file.

    ``content`` has shape (rows, columns), and contiguous rows; the first one is at ``offset_bytes``
    of the file, the others ``row_bytes`` apart.
    """
    rows, columns = content.shape
    wrong = library.load().wl_positioned_wrong(
        *(content.ctypes.data, rows, columns, content.strides[0], row_bytes, seed, offset_bytes)
    )
    return int(wrong)
