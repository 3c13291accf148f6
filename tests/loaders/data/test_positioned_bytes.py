from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattload.loaders.data.positioned_bytes import fill, wrong_bytes

SEED = 0x9E3779B97F4A7C15
WHOLE_BYTES = 4096


def bytes_at(offset_bytes: int, count: int, seed: int = SEED) -> NDArray[np.uint8]:
    memory = np.zeros(count, np.uint8)
    fill(memory, seed=seed, offset_bytes=offset_bytes)
    return memory


WHOLE = bytes_at(0, WHOLE_BYTES)


def test_words_are_those_of_splitmix64() -> None:
    words = bytes_at(0, 16, seed=0).view("<u8").tolist()
    assert words == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@given(st.integers(0, WHOLE_BYTES), st.integers(0, 100))
def test_any_slice_is_that_of_the_whole(start: int, count: int) -> None:
    expected = WHOLE[start : start + count]
    found = bytes_at(start, len(expected))
    assert np.array_equal(found, expected)
    matrix = found.reshape(1, -1)
    assert wrong_bytes(matrix, seed=SEED, offset_bytes=start, row_bytes=count) == 0


@given(st.integers(0, 50), st.integers(1, 64), st.integers(0, 63), st.data())
def test_every_wrong_byte_of_a_part_is_counted(
    start: int, columns: int, first: int, data: st.DataObject
) -> None:
    rows = WHOLE[start : start + 63 * 64].reshape(63, 64)
    part = rows[:, first : first + columns].copy()
    places = data.draw(st.sets(st.integers(0, part.size - 1), max_size=5))
    part.reshape(-1)[list(places)] ^= data.draw(st.integers(1, 255))
    at = start + first
    assert wrong_bytes(part, seed=SEED, offset_bytes=at, row_bytes=64) == len(places)


def test_rows_may_be_apart_in_memory() -> None:
    rows = WHOLE.reshape(64, 64)
    assert wrong_bytes(rows[:, 5:20], seed=SEED, offset_bytes=5, row_bytes=64) == 0
    assert wrong_bytes(rows[:, 5:20], seed=SEED, offset_bytes=6, row_bytes=64) > 900


def test_another_seed_or_place_has_other_bytes() -> None:
    for other in (bytes_at(0, WHOLE_BYTES, seed=SEED + 1), bytes_at(8, WHOLE_BYTES)):
        assert np.count_nonzero(other == WHOLE) < WHOLE_BYTES // 64
