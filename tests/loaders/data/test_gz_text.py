"""The text of gz files: whole, in bounded pieces, and every kind of damage named with its byte."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import DataError
from wattload.loaders.data.gz_text import (
    PIECE_BYTES,
    Ahead,
    PieceReader,
    chunks_of,
    open_text,
    unpack,
    unpacked_ratio,
)


def text_of(path: Path) -> bytes:
    return b"".join(unpack(path, chunks_of(path)))


@settings(max_examples=50, deadline=None)
@given(
    members=st.lists(st.binary(max_size=3000), min_size=1, max_size=4),
    chunk_bytes=st.integers(1, 5000),
)
def test_members_in_any_chunks_give_their_text(members: list[bytes], chunk_bytes: int) -> None:
    packed = b"".join(map(gzip.compress, members))
    chunks = [packed[at : at + chunk_bytes] for at in range(0, len(packed), chunk_bytes)]
    assert b"".join(unpack(Path("day_0.gz"), chunks)) == b"".join(members)


def test_no_piece_is_larger_however_well_it_was_packed(tmp_path: Path) -> None:
    path = tmp_path / "day_0.gz"
    path.write_bytes(gzip.compress(bytes(20 << 20)))
    sizes = [len(piece) for piece in unpack(path, chunks_of(path))]
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= PIECE_BYTES
    assert unpacked_ratio(path) > 100
    few = gzip.compress(bytes(10_000))
    path.write_bytes(few * 1000)  # as bgzip writes them
    assert unpacked_ratio(path) == 10_000 / len(few)


@pytest.mark.parametrize("lost", [1, 8, 500])
def test_a_file_that_is_cut_short_is_named_with_its_end(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "day_0.gz"
    packed = gzip.compress(random.Random(1).randbytes(10_000))
    path.write_bytes(packed[:-lost])
    end = len(packed) - lost
    with pytest.raises(DataError, match=rf"day_0.gz is cut short: its gz data ends at byte {end},"):
        text_of(path)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("zeros", [1, 2, 512, 200_000])
def test_zeros_after_the_end_are_padding_as_for_gzip(
    tmp_path: Path, zeros: int, chunk_bytes: int
) -> None:
    path = tmp_path / "day_0.gz"
    path.write_bytes(gzip.compress(b"text\n") + gzip.compress(b"more\n") + bytes(zeros))
    found = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True)
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(chunk_bytes), b"")
        assert b"".join(unpack(path, chunks)) == found.stdout == b"text\nmore\n"


@pytest.mark.parametrize("garbage", [b"garbage", b"\x1fgarbage", bytes(70_000) + b"\x1f\x8b"])
def test_garbage_after_the_end_is_named_with_its_byte(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "day_0.gz"
    packed = gzip.compress(b"text\n")
    path.write_bytes(packed + garbage)
    with pytest.raises(DataError, match=rf"day_0.gz, byte {len(packed)}: garbage after the end"):
        text_of(path)


@pytest.mark.parametrize("place", [20, -3])
def test_damaged_data_is_named_with_its_byte(tmp_path: Path, place: int) -> None:
    path = tmp_path / "day_0.gz"
    packed = bytearray(gzip.compress(b"0123456789abcdef" * 100))
    packed[place] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"day_0.gz is not valid gz data at byte 0 or up to"):
        text_of(path)


@pytest.mark.parametrize("name", ["day_0", "day_0.gz"])
@pytest.mark.parametrize("offset", [0, 1, 4999, 5000, 6000])
def test_a_text_is_read_from_any_offset(tmp_path: Path, name: str, offset: int) -> None:
    path, text = tmp_path / name, bytes(itertools.islice(itertools.cycle(range(251)), 5000))
    path.write_bytes(text if path.suffix == "" else gzip.compress(text))
    with open_text(path, offset) as file:
        assert file.read() == text[offset:]


def endless() -> Generator[bytes, None, None]:
    while True:
        yield bytes(100)


def broken() -> Generator[bytes, None, None]:
    yield b"text"
    raise DataError("day_0.gz is cut short")


def test_pieces_are_made_ahead_by_a_thread_that_ends() -> None:
    ahead = Ahead(endless())
    assert PieceReader(iter(ahead)).read(10) == bytes(10)
    ahead.close()
    assert "gz" not in {thread.name for thread in threading.enumerate()}


def test_an_error_of_the_thread_is_raised_where_its_piece_would_be() -> None:
    ahead = Ahead(broken())
    reader = io.BufferedReader(PieceReader(iter(ahead)))
    assert reader.read(4) == b"text"
    with pytest.raises(DataError, match="cut short"):
        reader.read(1)
    ahead.close()
