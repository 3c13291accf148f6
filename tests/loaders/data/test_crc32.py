from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.core.errors import MissingExtraError
from wattload.loaders.data import crc32
from wattload.loaders.data.crc32 import FOLD_BYTES, crc32_of, joined_crc32
from wattload.loaders.engine import library

POOL = np.random.default_rng(3).integers(0, 256, 1 << 16, dtype=np.uint8)


@pytest.fixture
def anew() -> Iterator[None]:
    """Choose an implementation anew, before and after."""
    crc32._fold.cache_clear()
    yield
    crc32._fold.cache_clear()


@given(st.integers(0, 5000), st.integers(0, 5 * FOLD_BYTES) | st.integers(0, 60_000))
def test_it_is_zlibs_for_any_bytes(start: int, length: int) -> None:
    content = POOL[start : start + length]
    assert crc32_of(content) == zlib.crc32(content.tobytes())


@given(st.binary(max_size=300), st.integers(0, 5 * FOLD_BYTES))
def test_it_goes_on_from_a_start(before: bytes, length: int) -> None:
    content = POOL[:length]
    assert crc32_of(content, zlib.crc32(before)) == zlib.crc32(before + content.tobytes())


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_that_of_parts_is_that_of_the_whole(first: bytes, second: bytes) -> None:
    joined = joined_crc32(zlib.crc32(first), zlib.crc32(second), len(second))
    assert joined == zlib.crc32(first + second)


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("length", [64, 128, 192, 256, 320, 4096])
def test_it_is_zlibs_for_equal_bytes(value: int, length: int) -> None:
    content = np.full(length, value, dtype=np.uint8)
    assert crc32_of(content) == zlib.crc32(content.tobytes())


@given(st.binary(min_size=FOLD_BYTES, max_size=FOLD_BYTES), st.binary(max_size=200))
def test_the_fold_goes_on_from_what_came_before(block: bytes, before: bytes) -> None:
    native = library.load()
    if not native.wl_crc32_available():
        pytest.skip("this processor has no carry-less multiplication")
    content = np.frombuffer(block, dtype=np.uint8)
    folded = native.wl_crc32_fold(zlib.crc32(before), content.ctypes.data, FOLD_BYTES)
    assert folded == zlib.crc32(before + block)


def test_another_processor_has_zlib_do_it(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    native = library.load()
    monkeypatch.setattr(native, "wl_crc32_available", lambda: 0)
    assert crc32._fold() is None
    assert crc32_of(POOL) == zlib.crc32(POOL.tobytes())


def test_without_the_native_library_zlib_does_it(
    anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingExtraError("it was not built")

    monkeypatch.setattr(library, "load", missing)
    assert crc32_of(POOL) == zlib.crc32(POOL.tobytes())
