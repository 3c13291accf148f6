from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.stamped import bad_blocks as bad_by_definition
from tests.stamped import stamps_of
from wattload.core.io import BlockIdentity
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffers, fill_random
from wattload.loaders.stamps import STAMP_BYTES, StampedMemory, bad_blocks, seal

SIZE = 16 * PAGE_BYTES
WORDS = st.integers(0, (1 << 64) - 1)
IDENTITIES = st.builds(BlockIdentity, WORDS, WORDS)
OWN = BlockIdentity(7, 1 << 32 | 2)
UNITS = st.sampled_from([512, 4096])


def random_content(size: int = SIZE) -> NDArray[np.uint8]:
    (memory,) = aligned_buffers(1, size // 8 * 8 + 8)
    fill_random([memory], seed=1, rank=0)
    return memory[:size]


@settings(max_examples=60)
@given(IDENTITIES, st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(0, SIZE), UNITS)
@example(OWN, 0, 4090, 5, 4096)  # blocks shorter than a stamp
@example(OWN, 0, 4070, 60, 4096)
@example(OWN, 0, 500, 40, 512)
@example(BlockIdentity(1 << 63, (1 << 64) - 1), (1 << 40) - 1, 1, SIZE, 4096)
def test_stamps_and_sums_are_those_of_the_definition(
    identity: BlockIdentity, first: int, offset: int, size: int, unit: int
) -> None:
    content = random_content(size)
    expected = content.copy()
    for block, stamp in stamps_of(expected, identity, offset, first, unit):
        block[: len(stamp)] = np.frombuffer(stamp, np.uint8)
    where = {"offset_bytes": offset, "first_block": first, "unit_bytes": unit}
    seal(content, identity, **where)
    assert np.array_equal(content, expected)
    assert bad_blocks(content, identity, **where) == 0


def test_stamps_of_another_unit_are_not_taken_for_these() -> None:
    content = random_content()
    seal(content, OWN, unit_bytes=512)
    assert bad_blocks(content, OWN, unit_bytes=512) == 0
    assert bad_blocks(content, OWN, unit_bytes=4096) == SIZE // 4096
    content[3 * 512 + 100] ^= 1
    assert bad_blocks(content, OWN, unit_bytes=512) == 1


@settings(max_examples=60)
@given(IDENTITIES, st.integers(0, 1 << 40), st.integers(0, 15), st.integers(1, SIZE))
def test_parts_of_a_memory_carry_their_stamps_however_often_they_are_stamped(
    identity: BlockIdentity, first: int, block: int, size: int
) -> None:
    memory = StampedMemory(random_content())
    start = block * PAGE_BYTES
    for again in (0, 1):  # the stamps of the time before must not count
        length = min(size, SIZE - start)
        payload = memory.stamp(start, length, identity, first + again)
        assert payload.size == length
        assert bad_by_definition(payload, identity, first=first + again) == 0
        start = 0


@pytest.mark.parametrize("offset", [0, 128, 4060])
@settings(max_examples=200)
@given(data=st.data(), size=st.integers(1, 3 * PAGE_BYTES))
def test_one_changed_bit_is_seen_wherever_it_is(
    offset: int, data: st.DataObject, size: int
) -> None:
    content = random_content(size)
    seal(content, OWN, offset_bytes=offset)
    bit = data.draw(st.integers(0, size * 8 - 1))
    content[bit // 8] ^= np.uint8(1 << bit % 8)
    assert bad_blocks(content, OWN, offset_bytes=offset) == 1
    assert bad_by_definition(content, OWN, offset) == 1


@pytest.mark.parametrize("end", [PAGE_BYTES, 3 * PAGE_BYTES - 5])
def test_every_bit_of_the_last_block_counts(end: int) -> None:
    content = random_content(end)
    seal(content, OWN)
    last = (end - 1) // PAGE_BYTES * PAGE_BYTES
    for bit in range(last * 8, end * 8):
        content[bit // 8] ^= np.uint8(1 << bit % 8)
        assert bad_blocks(content[last:], OWN, offset_bytes=last) == 1
        content[bit // 8] ^= np.uint8(1 << bit % 8)
    assert bad_blocks(content, OWN) == 0


@given(st.integers(4, 511), st.integers(4, 511))
def test_swapped_words_of_a_block_are_seen(one: int, other: int) -> None:
    content = random_content(PAGE_BYTES)
    seal(content, OWN)
    words = content.view(np.uint64)
    words[[one, other]] = words[[other, one]]
    assert bad_blocks(content, OWN) == int(one != other)


@given(st.integers(1, 4063))
def test_shifted_bytes_of_a_block_are_seen(shift: int) -> None:
    content = random_content(PAGE_BYTES)
    seal(content, OWN)
    content[STAMP_BYTES:] = np.roll(content[STAMP_BYTES:], shift)
    assert bad_blocks(content, OWN) == 1


@pytest.mark.parametrize(
    "other",
    [
        BlockIdentity(8, 1 << 32 | 2),
        BlockIdentity(7, 2 << 32 | 1),
        BlockIdentity(7, 1 << 32 | 3),
    ],
)
def test_blocks_of_another_run_rank_or_checkpoint_are_bad(other: BlockIdentity) -> None:
    content = random_content()
    seal(content, other)
    assert bad_blocks(content, OWN) == 16


def test_a_block_in_another_place_is_bad() -> None:
    content = random_content()
    seal(content, OWN)
    blocks = content.reshape(-1, PAGE_BYTES)
    blocks[[3, 5]] = blocks[[5, 3]]
    assert bad_blocks(content, OWN) == 2
    assert bad_blocks(content, OWN, first_block=1) == 16


@pytest.mark.parametrize("byte", [0, 0xFF])
def test_erased_blocks_are_bad(byte: int) -> None:
    content = random_content(5 * PAGE_BYTES + 10)
    seal(content, OWN)
    content[PAGE_BYTES : 3 * PAGE_BYTES] = byte
    assert bad_blocks(content, OWN) == 2
    content[:] = byte
    assert bad_blocks(content, OWN) == 6


def test_no_two_blocks_are_equal_over_places_and_checkpoints() -> None:
    buffer = random_content()
    memory = StampedMemory(buffer)
    seen: set[bytes] = set()
    for checkpoint in range(3):
        for first in range(0, 160, 16):
            memory.stamp(0, SIZE, BlockIdentity(7, checkpoint), first)
            seen |= {block.tobytes() for block in buffer.reshape(-1, PAGE_BYTES)}
    assert len(seen) == 3 * 160
