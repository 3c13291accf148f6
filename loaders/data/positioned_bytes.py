"""Bytes that follow from a seed and their place in a file alone.

Any part of such a file is compared without a second read, whatever slice of it is in memory. They
can't be compressed, nor deduplicated.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from wattload.core.host.cgroups import usable_cpus
from wattload.loaders.engine import library

COMPARED_BYTES = 16 << 20
"""What a thread compares at once."""


def fill(memory: NDArray[np.uint8], *, seed: int, offset_bytes: int) -> None:
    """Fill contiguous memory with the bytes of a file from an offset on.

    The seed is from 0 to 2^64 - 1. The interpreter's lock is released meanwhile.
    """
    library.load().wl_positioned_fill(memory.ctypes.data, memory.nbytes, seed, offset_bytes)


def wrong_bytes(content: NDArray[np.uint8], *, seed: int, offset_bytes: int, row_bytes: int) -> int:
    """Return how many bytes of a matrix are not those of the file, on several CPUs.

    ``content`` has shape (rows, columns), and contiguous rows; the first one is at ``offset_bytes``
    of the file, the others ``row_bytes`` apart.
    """
    compare = library.load().wl_positioned_wrong
    step = max(COMPARED_BYTES // max(content.shape[1], 1), 1)

    def wrong(first: int) -> int:
        some, offset = content[first : first + step], offset_bytes + first * row_bytes
        return int(compare(some.ctypes.data, *some.shape, some.strides[0], row_bytes, seed, offset))

    if len(content) <= step:
        return wrong(0)
    with ThreadPoolExecutor(usable_cpus()) as threads:
        return sum(threads.map(wrong, range(0, len(content), step)))
