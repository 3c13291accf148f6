"""Content that proves itself: random bytes in blocks that carry a stamp and a sum.

Generating random bytes costs more CPU than writing them, so a few buffers are filled once and
reused. Each block of 4096 bytes (or 512) of a file begins with a stamp of four little-endian 64-bit
words: a nonce, a word that is unique under that nonce, the number of the block, and the sum of the
bytes after the stamp. No two blocks on a target are then equal: under one nonce by construction,
between nonces except for a chance of 2^-64. Compression finds nothing either, since the same random
bytes repeat only after a whole buffer, megabytes later.

A stale, foreign or misplaced block has another stamp, and a changed block has another sum, which
depends on the position of every word. A block that is too short for a stamp holds the beginning of
it, so no byte is unproved. The engine's library stamps and checks (``src/stamps.h`` defines the
sum); Python code never passes over the bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import BlockIdentity
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.engine import library

STAMP_BYTES = 32
_PAGE_WORDS = PAGE_BYTES // 8


def seal(
    content: NDArray[np.uint8],
    identity: BlockIdentity,
    *,
    offset_bytes: int = 0,
    first_block: int = 0,
    unit_bytes: int = PAGE_BYTES,
) -> None:
    """Stamp the blocks of contiguous bytes in place.

    The bytes begin at ``offset_bytes`` of their file. Blocks end at multiples of ``unit_bytes``
    (512 or 4096) of the file; the one that holds byte 0 of the file has the number ``first_block``.
    """
    library.load().wl_seal(
        content.ctypes.data,
        content.size,
        *(offset_bytes, identity.nonce, identity.word, first_block, unit_bytes),
    )


def bad_blocks(
    content: NDArray[np.uint8],
    identity: BlockIdentity,
    *,
    offset_bytes: int = 0,
    first_block: int = 0,
    unit_bytes: int = PAGE_BYTES,
) -> int:
    """Return how many blocks of contiguous bytes are not as ``seal`` left them."""
    found: int = library.load().wl_bad_blocks(
        content.ctypes.data,
        content.size,
        *(offset_bytes, identity.nonce, identity.word, first_block, unit_bytes),
    )
    return found


class StampedMemory:
    """Stamps parts of one memory without a pass over their bytes.

    The memory is a whole multiple of 4096 bytes and already filled; the constructor sums its blocks
    once. Afterwards only ``stamp`` may change it; one thread at a time may call it.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        seal(memory, BlockIdentity(0, 0))
        self._sums = self._stamps(0, memory.size // PAGE_BYTES)[:, 3].copy()

    def stamp(
        self, start_bytes: int, size_bytes: int, identity: BlockIdentity, first_block: int
    ) -> NDArray[np.uint8]:
        """Stamp ``size_bytes`` from a multiple of 4096 and return these bytes."""
        start, whole = start_bytes // PAGE_BYTES, size_bytes // PAGE_BYTES
        stamps = self._stamps(start, whole)
        stamps[:, 0] = identity.nonce
        stamps[:, 1] = identity.word
        stamps[:, 2] = np.arange(first_block, first_block + whole, dtype=np.uint64)
        stamps[:, 3] = self._sums[start : start + whole]
        payload = self._memory[start_bytes : start_bytes + size_bytes]
        seal(payload[whole * PAGE_BYTES :], identity, first_block=first_block + whole)
        return payload

    def _stamps(self, start: int, count: int) -> NDArray[np.uint64]:
        """Return the view of the stamps of whole blocks, shape ``(count, 4)``."""
        words = self._memory.view(np.uint64).reshape(-1, _PAGE_WORDS)
        return words[start : start + count, : STAMP_BYTES // 8]
