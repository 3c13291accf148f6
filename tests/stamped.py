"""Stamps and sums by their definition, in numpy: what the library's are compared with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import BlockIdentity

PAGE_BYTES = 4096
STAMP_BYTES = 32


def sum_of(content: NDArray[np.uint8]) -> int:
    """Return the sum of the words, each times an odd number: 1 for the last, 3 before it, ..."""
    padded = np.zeros(-(-content.size // 32) * 32, dtype=np.uint8)
    padded[: content.size] = content
    words = padded.view("<u8")
    weights = 2 * np.arange(words.size, 0, -1, dtype=np.uint64) - np.uint64(1)
    return int((words * weights).sum(dtype=np.uint64))


def stamps_of(
    content: NDArray[np.uint8],
    identity: BlockIdentity,
    offset: int,
    first: int,
    unit: int = PAGE_BYTES,
) -> Iterator[tuple[NDArray[np.uint8], bytes]]:
    """Yield each block of ``unit`` bytes as a view, and the bytes that it must begin with."""
    start = 0
    while start < content.size:
        at = offset + start
        block = content[start : start + unit - at % unit]
        sum_ = sum_of(block[STAMP_BYTES:])
        words = (identity.nonce, identity.word, (first + at // unit) % (1 << 64), sum_)
        yield block, b"".join(word.to_bytes(8, "little") for word in words)[: block.size]
        start += block.size


def bad_blocks(
    content: NDArray[np.uint8],
    identity: BlockIdentity,
    offset: int = 0,
    first: int = 0,
    unit: int = PAGE_BYTES,
) -> int:
    """Return how many blocks of ``unit`` bytes do not begin as they must."""
    blocks = stamps_of(content, identity, offset, first, unit)
    return sum(block[:STAMP_BYTES].tobytes() != stamp for block, stamp in blocks)


def sampled_blocks(size: int, seed: int, word: int, unit: int = PAGE_BYTES) -> list[int]:
    """Return the numbers of the blocks that a sampled read compares of an extent of ``size``.

    The middle one is drawn by splitmix64 (Steele, Lea, Flood 2014), scaled as Lemire does (2019).
    """
    blocks = -(-size // unit)
    if blocks <= 2:
        return list(range(blocks))
    bits = (seed + (word + 1) * 0x9E3779B97F4A7C15) % (1 << 64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        bits = (bits ^ bits >> shift) * factor % (1 << 64)
    return [0, 1 + (bits * (blocks - 2) >> 64), blocks - 1]
