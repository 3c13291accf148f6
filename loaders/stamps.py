"""Incompressible content: a pool of random buffers, stamped so that no block repeats.

Generating random bytes costs more CPU than writing them, so a few buffers are filled once and
reused. Each 4096-byte block of them carries a stamp of three little-endian 64-bit words: the run's
nonce, a word that is unique within the run, and the number of the block. No two blocks on a target
are then equal: within a run by construction, between runs except for a chance of 2^-64. Compression
finds nothing either, since the same random bytes repeat only after a whole buffer, megabytes later.

The same stamps and a checksum (sum of the 64-bit words modulo 2^64) prove a read: a stale, foreign
or misplaced block has another stamp, and a changed block changes the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import BlockIdentity
from wattload.loaders.aligned_io import PAGE_BYTES

STAMP_BYTES = 24
_WORD_BYTES = 8
_MODULUS = 1 << 64
_PAGE_WORDS = PAGE_BYTES // _WORD_BYTES
_STAMP_WORDS = STAMP_BYTES // _WORD_BYTES


def fill_random(buffers: Sequence[NDArray[np.uint8]], *, seed: int, rank: int) -> None:
    """Fill the buffers with the PCG64 stream of a seed and rank; sizes are multiples of 8 bytes."""
    generator = np.random.PCG64(np.random.SeedSequence([seed, rank]))
    for buffer in buffers:
        words = buffer.view(np.uint64)
        words[:] = generator.random_raw(words.size)


def checksum(payload: NDArray[np.uint8]) -> int:
    """Return the sum of the 64-bit words modulo 2^64; a partial last word is padded with zeros."""
    whole = payload.size // _WORD_BYTES * _WORD_BYTES
    total = int(payload[:whole].view(np.uint64).sum(dtype=np.uint64))
    return (total + int.from_bytes(payload[whole:].tobytes(), "little")) % _MODULUS


def join_checksums(first: int, second: int) -> int:
    """Return the checksum of two payloads; the first must end with a whole word."""
    return (first + second) % _MODULUS


def stamp(blocks: NDArray[np.uint8], identity: BlockIdentity, first_block: int) -> None:
    """Stamp whole 4096-byte blocks in place; ``first_block`` is the number of the first."""
    stamps = _stamps(blocks)
    stamps[:, 0] = identity.nonce
    stamps[:, 1] = identity.word
    stamps[:, 2] = np.arange(first_block, first_block + len(stamps), dtype=np.uint64)


class Stamper:
    """Stamps payloads in its own buffers; one thread at a time may use a buffer.

    The constructor fills the buffers, which are whole multiples of 4096 bytes.
    """

    def __init__(self, buffers: Sequence[NDArray[np.uint8]], *, seed: int, rank: int) -> None:
        fill_random(buffers, seed=seed, rank=rank)
        self._slots: dict[int, tuple[NDArray[np.uint8], int]] = {}
        for buffer in buffers:
            _stamps(buffer)[:] = 0
            self._slots[buffer.ctypes.data] = (buffer, checksum(buffer))

    def stamp(self, payload: NDArray[np.uint8], identity: BlockIdentity, first_block: int) -> int:
        """Stamp a payload at the start of one of the buffers, and return its checksum.

        A partial last block is stamped as far as it reaches. The checksum of a whole buffer follows
        from its stamps, without a second pass over the bytes.
        """
        buffer, unstamped = self._slots[payload.ctypes.data]
        count = -(-payload.size // PAGE_BYTES)
        stamp(buffer[: count * PAGE_BYTES], identity, first_block)
        if payload.size != buffer.size:
            return checksum(payload)
        return (unstamped + _stamp_sum(count, identity, first_block)) % _MODULUS


class StampedMemory:
    """Stamps parts of one memory, and computes their checksums without a pass over their bytes.

    The memory is a whole multiple of 4096 bytes and already filled; the constructor sums its blocks
    once, without their stamps. Afterwards only ``stamp`` may change it.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        _stamps(memory)[:] = 0
        words = memory.view(np.uint64).reshape(-1, _PAGE_WORDS)
        sums = words.sum(axis=1, dtype=np.uint64)
        self._sums_before = np.concatenate(([np.uint64(0)], np.cumsum(sums, dtype=np.uint64)))

    def stamp(
        self, start_bytes: int, size_bytes: int, identity: BlockIdentity, first_block: int
    ) -> tuple[NDArray[np.uint8], int]:
        """Stamp ``size_bytes`` from a multiple of 4096; return these bytes and their checksum."""
        count = -(-size_bytes // PAGE_BYTES)
        blocks = self._memory[start_bytes : start_bytes + count * PAGE_BYTES]
        stamp(blocks, identity, first_block)
        payload = blocks[:size_bytes]
        whole, start = size_bytes // PAGE_BYTES, start_bytes // PAGE_BYTES
        unstamped = int(self._sums_before[start + whole]) - int(self._sums_before[start])
        tail = checksum(payload[whole * PAGE_BYTES :])
        return payload, (unstamped + _stamp_sum(whole, identity, first_block) + tail) % _MODULUS


def bad_blocks(payload: NDArray[np.uint8], identity: BlockIdentity, first_block: int) -> int:
    """Return how many 4096-byte blocks of a payload do not carry the stamp of their position.

    A partial last block that is too short for a stamp is not checked.
    """
    whole = payload.size // PAGE_BYTES
    wrong = _wrong(_stamps(payload[: whole * PAGE_BYTES]), identity, first_block)
    tail = payload[whole * PAGE_BYTES :]
    if tail.size >= STAMP_BYTES:
        wrong += _wrong(tail[:STAMP_BYTES].view(np.uint64)[None], identity, first_block + whole)
    return wrong


def _stamp_sum(count: int, identity: BlockIdentity, first_block: int) -> int:
    """Return the sum of all words in the stamps of ``count`` blocks, not yet modulo 2^64."""
    numbers = count * first_block + count * (count - 1) // 2
    return count * (identity.nonce + identity.word) + numbers


def _stamps(blocks: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the view of the stamps of whole blocks, shape ``(blocks, 3)``."""
    return blocks.view(np.uint64).reshape(-1, _PAGE_WORDS)[:, :_STAMP_WORDS]


def _wrong(stamps: NDArray[np.uint64], identity: BlockIdentity, first_block: int) -> int:
    numbers = np.arange(first_block, first_block + len(stamps), dtype=np.uint64)
    wrong = stamps[:, 0] != np.uint64(identity.nonce)
    wrong |= stamps[:, 1] != np.uint64(identity.word)
    wrong |= stamps[:, 2] != numbers
    return int(np.count_nonzero(wrong))
