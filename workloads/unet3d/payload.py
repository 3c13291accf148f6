"""Bytes that no drive can compress or deduplicate, made at memory speed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 4096
"""What the drives and file systems that deduplicate compare at least."""

POOL_BYTES = 4 << 20
_WORDS = BLOCK_BYTES // 8


class PayloadPool:
    """Random blocks, XORed with a random word per block of each file, so that none comes twice.

    Every 4 KiB block of a file is one of 1024 random blocks, each of its 64-bit words XORed with a
    word that belongs to that place in that file: blocks stay incompressible, and two are equal only
    if two of these words are. Random numbers for every byte would cost four times as much.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        generator = np.random.Generator(np.random.PCG64(seed))
        words = generator.integers(0, 1 << 64, POOL_BYTES // 8, dtype=np.uint64)
        self._blocks: NDArray[np.uint64] = words.reshape(-1, _WORDS)

    def fill(self, chunk: NDArray[np.uint8], file_index: int, offset_bytes: int) -> None:
        """Fill a chunk of a file, whole 4 KiB blocks, that starts at a multiple of the pool's size.

        The bytes depend on the seed, the file's index and their place in the file alone.
        """
        blocks = chunk.view(np.uint64).reshape(-1, _WORDS)
        count = len(self._blocks)
        for first in range(0, len(blocks), count):
            part = blocks[first : first + count]
            place = offset_bytes // BLOCK_BYTES + first
            sequence = np.random.SeedSequence((self._seed, file_index, place))
            generator = np.random.Generator(np.random.PCG64(sequence))
            words = generator.integers(0, 1 << 64, (count, 1), dtype=np.uint64)
            np.bitwise_xor(self._blocks[: len(part)], words[: len(part)], out=part)
