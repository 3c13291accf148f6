from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattload.core.io import BlockIdentity
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffers, round_up
from wattload.loaders.stamps import (
    STAMP_BYTES,
    StampedMemory,
    Stamper,
    bad_blocks,
    checksum,
    fill_random,
    join_checksums,
)

SIZE = 16 * PAGE_BYTES
WORDS = st.integers(0, (1 << 64) - 1)
HALVES = st.integers(0, (1 << 32) - 1)
IDENTITIES = st.builds(BlockIdentity, WORDS, WORDS)


def stamper() -> tuple[Stamper, list[NDArray[np.uint8]]]:
    buffers = aligned_buffers(2, SIZE)
    return Stamper(buffers, seed=1, rank=0), buffers


@settings(max_examples=60)
@given(IDENTITIES, st.integers(0, 1 << 40), st.integers(1, SIZE))
def test_checksum_from_stamps_is_that_of_the_bytes(
    identity: BlockIdentity, first: int, size: int
) -> None:
    made, buffers = stamper()
    for payload in (buffers[0], buffers[0][:size], buffers[1]):
        assert made.stamp(payload, identity, first) == checksum(payload)


@settings(max_examples=60)
@given(IDENTITIES, st.integers(0, 1 << 40), st.integers(0, 15), st.integers(1, SIZE))
def test_checksum_of_a_part_of_a_memory_is_that_of_its_bytes(
    identity: BlockIdentity, first: int, block: int, size: int
) -> None:
    (memory,) = aligned_buffers(1, SIZE)
    fill_random([memory], seed=1, rank=0)
    stamped = StampedMemory(memory)
    start = block * PAGE_BYTES
    for again in (0, 1):  # the stamps of the time before must not count
        length = min(size, SIZE - start)
        payload, found = stamped.stamp(start, length, identity, first + again)
        assert payload.size == length
        assert found == checksum(payload)
        assert bad_blocks(payload, identity, first + again) == 0
        start = 0


@given(st.binary(max_size=1000), st.integers(0, 120))
def test_checksum_of_parts_joins_to_that_of_the_whole(content: bytes, words: int) -> None:
    payload = np.frombuffer(content, np.uint8)
    cut = min(words * 8, len(content) // 8 * 8)
    joined = join_checksums(checksum(payload[:cut]), checksum(payload[cut:]))
    assert joined == checksum(payload)
    assert checksum(payload) == sum(
        int.from_bytes(content[i : i + 8], "little") for i in range(0, len(content), 8)
    ) % (1 << 64)


@settings(max_examples=60)
@given(IDENTITIES, st.integers(0, 1 << 40), st.integers(1, SIZE))
def test_stamped_payloads_bear_their_stamps(identity: BlockIdentity, first: int, size: int) -> None:
    made, buffers = stamper()
    payload = buffers[0][:size]
    made.stamp(payload, identity, first)
    assert bad_blocks(payload, identity, first) == 0


@pytest.mark.parametrize(
    "other",
    [
        BlockIdentity(8, 1 << 32 | 2),
        BlockIdentity(7, 2 << 32 | 1),
        BlockIdentity(7, 1 << 32 | 3),
    ],
)
def test_blocks_of_another_run_rank_or_checkpoint_are_bad(other: BlockIdentity) -> None:
    made, buffers = stamper()
    made.stamp(buffers[0], other, 0)
    assert bad_blocks(buffers[0], BlockIdentity(7, 1 << 32 | 2), 0) == 16


def test_a_block_in_another_place_is_bad() -> None:
    made, buffers = stamper()
    identity = BlockIdentity(7, 1 << 32 | 2)
    made.stamp(buffers[0], identity, 0)
    blocks = buffers[0].reshape(-1, PAGE_BYTES)
    blocks[[3, 5]] = blocks[[5, 3]]
    assert bad_blocks(buffers[0], identity, 0) == 2
    assert bad_blocks(buffers[0], identity, 1) == 16


@given(st.integers(0, SIZE * 8 - 1))
def test_one_changed_bit_is_seen(bit: int) -> None:
    made, buffers = stamper()
    identity = BlockIdentity(7, 1 << 32 | 2)
    total = made.stamp(buffers[0], identity, 0)
    buffers[0][bit // 8] ^= np.uint8(1 << bit % 8)
    assert checksum(buffers[0]) != total
    in_stamp = bit // 8 % PAGE_BYTES < STAMP_BYTES
    assert bad_blocks(buffers[0], identity, 0) == int(in_stamp)


def test_no_two_blocks_are_equal_over_buffers_places_and_checkpoints() -> None:
    made, buffers = stamper()
    seen: set[bytes] = set()
    for checkpoint in range(3):
        for first in range(0, 160, 16):
            buffer = buffers[first // 16 % 2]
            made.stamp(buffer, BlockIdentity(7, 0 << 32 | checkpoint), first)
            seen |= {block.tobytes() for block in buffer.reshape(-1, PAGE_BYTES)}
    assert len(seen) == 3 * 160


def test_the_tail_of_a_block_is_looked_at_when_a_stamp_fits() -> None:
    made, buffers = stamper()
    identity = BlockIdentity(7, 1 << 32 | 2)
    payload = buffers[0][: PAGE_BYTES + STAMP_BYTES]
    made.stamp(payload, identity, 0)
    payload[PAGE_BYTES] ^= 1
    assert bad_blocks(payload, identity, 0) == 1
    assert bad_blocks(payload[:-1], identity, 0) == 0


def test_random_bytes_do_not_compress_and_follow_the_seed() -> None:
    one, two, other = aligned_buffers(3, 1 << 20)
    fill_random([one], seed=1, rank=0)
    fill_random([two], seed=1, rank=0)
    fill_random([other], seed=1, rank=1)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert len(zlib.compress(one.tobytes())) > one.size * 0.999


def test_sizes_round_up_to_whole_blocks() -> None:
    made, buffers = stamper()
    made.stamp(buffers[0][:5000], BlockIdentity(7, 1 << 32 | 2), 40)
    second = buffers[0][PAGE_BYTES : PAGE_BYTES + STAMP_BYTES].view(np.uint64)
    assert list(second) == [7, 1 << 32 | 2, 41]
    assert round_up(5000, PAGE_BYTES) == 2 * PAGE_BYTES
