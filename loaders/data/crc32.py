"""The CRC-32 of zip and gzip, at the speed of memory, and that of parts put together."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import MissingExtraError
from wattload.loaders.engine import library

FOLD_BYTES = 64
"""The unit of ``wl_crc32_fold`` (``crc32.h``)."""

_POLYNOMIAL = 0xEDB88320
"""The CRC's polynomial, reflected: the highest bit is the coefficient of x^0."""
_ONE, _X8 = 1 << 31, 1 << 23


def crc32_of(content: NDArray[np.uint8], start: int = 0) -> int:
    """Return the CRC-32 of bytes, shape ``(n,)`` and contiguous, as ``zlib.crc32`` does.

    ``start`` is the CRC-32 of the bytes before them. About 11 GB/s a core where zlib reaches 3.
    zlib is used on other processors, and without the engine's library. The interpreter's lock is
    released meanwhile.
    """
    fold = _fold()
    whole = len(content) // FOLD_BYTES * FOLD_BYTES
    if fold is None or not whole:
        return zlib.crc32(content.data, start)
    return zlib.crc32(content[whole:].data, fold(start, content.ctypes.data, whole))


def joined_crc32(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32 of bytes with the CRC-32 ``first``, followed by others with ``second``.

    Appending n bytes multiplies the polynomial of the first by x^(8n), as in zlib's
    ``crc32_combine``.
    """
    shift, square, left = _ONE, _X8, second_bytes
    while left:
        if left & 1:
            shift = _product(shift, square)
        square = _product(square, square)
        left >>= 1
    return _product(shift, first) ^ second


def _product(left: int, right: int) -> int:
    """Return the product of two polynomials modulo the CRC's, all of them reflected."""
    product = 0
    for place in range(31, -1, -1):
        if left >> place & 1:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product


@lru_cache(maxsize=1)
def _fold() -> Callable[[int, int, int], int] | None:
    """Return ``wl_crc32_fold``, ``None`` if it is not available."""
    try:
        loaded = library.load()
    except MissingExtraError:
        return None
    return loaded.wl_crc32_fold if loaded.wl_crc32_available() else None
