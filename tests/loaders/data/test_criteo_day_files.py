"""Day files: finding them, cutting them into parts, counting what moves."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import DataError
from wattload.loaders.data.criteo_day_files import (
    COLUMNS,
    ID_MODULUS,
    ROW_BYTES,
    Block,
    CountedFile,
    Moved,
    Part,
    balanced_count,
    cut_parts,
    day_files,
    find_fault,
    first_lines,
    pack_row,
    parse_line,
    read_blocks,
)
from wattload.loaders.data.criteo_synthetic import SyntheticDay


def moved_nowhere(*_: int) -> None:
    pass


def blocks_of(part: Part, block_bytes: int, moved: Moved = moved_nowhere) -> Iterator[Block]:
    with CountedFile(part.source, "rb", moved) as file:
        file.seek(part.start_bytes)
        yield from read_blocks(file, part, block_bytes)


def written(path: Path, row_count: int = 100, end: bytes = b"\n") -> bytes:
    text = SyntheticDay(1, 0, row_count).readall()
    text = text.replace(b"\n", end)
    path.write_bytes(text)
    return text


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=3),
    part_count=st.integers(1, 40),
    last_end=st.booleans(),
)
def test_parts_hold_every_line_once(
    lengths: list[list[int]],
    part_count: int,
    last_end: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("days")
    paths, whole = [], []
    for day, lines in enumerate(lengths):
        text = b"\n".join(bytes([65 + day]) * (length + 1) for length in lines)
        text += b"\n" if last_end else b""
        paths.append(folder / f"day_{day}")
        paths[-1].write_bytes(text)
        whole.append(text)
    parts = cut_parts(paths, part_count)
    for path, text in zip(paths, whole, strict=True):
        mine = [part for part in parts if part.source == path]
        pieces = [text[part.start_bytes : part.end_bytes] for part in mine]
        assert b"".join(pieces) == text
        assert all(piece for piece in pieces)
        assert all(piece.endswith(b"\n") for piece in pieces[:-1])
        assert [part.name for part in mine] == sorted(part.name for part in mine)
    assert len({part.name for part in parts}) == len(parts)


@pytest.mark.parametrize(
    ("files", "workers", "size_bytes", "count"),
    [
        (1, 4, 100, 4),
        (2, 3, 100, 6),
        (24, 24, 2400, 24),
        (24, 16, 2400, 48),
        (2, 2, 1000, 10),
        (2, 2, 1001, 12),
    ],
)
def test_every_worker_gets_as_many_parts(
    files: int, workers: int, size_bytes: int, count: int
) -> None:
    found = balanced_count(
        file_count=files, worker_count=workers, size_bytes=size_bytes, part_bytes=100
    )
    assert found == count
    assert found % files == found % workers == 0
    assert size_bytes <= 100 * found


def test_workers_share_one_file_in_parts_of_nearly_equal_size(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    written(path, 4000)
    parts = cut_parts([path], 4)
    assert len(parts) == 4
    sizes = [part.size_bytes for part in parts]
    assert max(sizes) - min(sizes) < 1000


def test_fewer_bytes_than_workers_give_fewer_parts(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    written(path, 2)
    assert len(cut_parts([path], 1000)) == 2


def test_a_file_without_line_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    path.write_bytes(b"a" * 300_000)
    with pytest.raises(DataError, match=r"day_0 has no line end within 65536 bytes after byte"):
        cut_parts([path], 2)


def test_the_head_of_a_part_is_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    text = written(path)
    (part,) = cut_parts([path], 1)
    start = first_lines(part, 1000)
    assert 1000 <= start.size_bytes < 1400
    assert text[: start.end_bytes].endswith(b"\n")
    assert first_lines(part, len(text)) == part


def test_days_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("day_10", "day_8", "day_x", "notes"):
        (tmp_path / name).write_bytes(b"0\n")
    (tmp_path / "day_9.gz").write_bytes(gzip.compress(b"0\n"))
    (tmp_path / "day_3").mkdir()
    assert [path.name for path in day_files(tmp_path)] == ["day_8", "day_9.gz", "day_10"]
    assert day_files(tmp_path / "notes") == (tmp_path / "notes",)


def test_a_linked_day_is_its_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"0\n")
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "day_0").symlink_to(tmp_path / "data")
    assert day_files(tmp_path / "days") == (tmp_path / "data",)


def test_unusable_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no day files, which are named day_0 or day_0\.gz,"):
        day_files(tmp_path)
    (tmp_path / "day_0").write_bytes(gzip.compress(b"0\n"))
    with pytest.raises(DataError, match=r"day_0 is gz data; its name has to end in \.gz"):
        day_files(tmp_path)
    (tmp_path / "day_0").rename(tmp_path / "day_0.gz")
    assert day_files(tmp_path) == (tmp_path / "day_0.gz",)
    (tmp_path / "day_0.gz").write_bytes(b"0\n")
    with pytest.raises(DataError, match=r"day_0.gz is not gz data, as its name says"):
        day_files(tmp_path)
    (tmp_path / "day_0.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"day_0\.gz is empty"):
        day_files(tmp_path)
    with pytest.raises(DataError, match="can't be read: No such file"):
        day_files(tmp_path / "absent")


def test_a_counted_file_counts_each_byte_where_it_moves(tmp_path: Path) -> None:
    counts: list[tuple[int, int, int]] = []
    with CountedFile(tmp_path / "f", "wb", lambda *c: counts.append(c)) as file:
        assert file.write(b"12345") == 5
        assert file.write(memoryview(b"67")) == 2
    with CountedFile(tmp_path / "f", "rb", lambda *c: counts.append(c)) as file:
        assert file.read(2) == b"12"
        assert file.readinto(buffer := bytearray(3)) == 3
        assert file.read() == b"67"
    assert buffer == b"345"
    assert counts == [(0, 5, 1), (0, 2, 1), (2, 0, 1), (3, 0, 1), (2, 0, 1)]


@pytest.mark.parametrize("block_bytes", [400, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("last_end", [True, False])
def test_blocks_are_whole_lines_of_bounded_size(
    tmp_path: Path,
    block_bytes: int,
    last_end: bool,
) -> None:
    text = written(tmp_path / "day_0")
    if not last_end:
        text = text[:-1]
        (tmp_path / "day_0").write_bytes(text)
    for part in cut_parts([tmp_path / "day_0"], 3):
        found = b""
        for block in blocks_of(part, block_bytes):
            assert block.offset_bytes == part.start_bytes + len(found)
            assert len(block.text) <= block_bytes
            lines = bytes(block.text).splitlines()
            assert block.row_count == len(lines)
            assert block.is_plain
            found += block.text
        assert found == text[part.start_bytes : part.end_bytes]


def test_every_byte_of_a_part_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    text = written(path)
    read: list[int] = []
    for part in cut_parts([path], 3):
        for _ in blocks_of(part, 700, lambda count, *_: read.append(count)):
            pass
    assert sum(read) == len(text)


def test_a_line_longer_than_a_block_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    written(path)
    (part,) = cut_parts([path], 1)
    with pytest.raises(DataError, match="no line end"):
        list(blocks_of(part, 50))


def test_a_file_that_shrinks_under_the_reader_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    text = written(path)
    with pytest.raises(DataError, match="changed while it was read"):
        list(blocks_of(Part(path, 0, len(text) + 1, "day_0"), 1 << 20))


def test_a_blank_or_an_x_makes_a_block_suspect(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    for odd in (b" ", b"x", b"X"):
        path.write_bytes(b"1\t" + odd + b"2\n")
        (block,) = blocks_of(Part(path, 0, 4, "day_0"), 64)
        assert not block.is_plain


def test_a_fault_is_named_by_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    lines = written(path).splitlines(keepends=True)
    offset = sum(len(line) for line in lines[:70])
    lines[70] = lines[70].replace(b"\t", b",", 1)
    path.write_bytes(b"".join(lines))
    part = cut_parts([path], 2)[1]
    assert find_fault(cut_parts([path], 2)[0]) is None
    fault = find_fault(part)
    assert fault is not None
    assert f"{path}, line 71 (byte {offset}): 39 columns where 40 are needed" in str(fault)


IDS = b"\t".join(b"%08x" % (number + 1) for number in range(26))


def line(label: bytes = b"0", integers: bytes = b"\t".join([b"7"] * 13), ids: bytes = IDS) -> bytes:
    return b"\t".join((label, integers, ids)) + b"\n"


def test_a_row_is_forty_little_endian_int32() -> None:
    packed = pack_row(parse_line(line(label=b"1")))
    assert len(packed) == ROW_BYTES == 160
    assert struct.unpack("<40i", packed) == (1, *[7] * 13, *range(1, 27))
    assert len(COLUMNS) == 40


def test_gaps_and_negatives_become_zero() -> None:
    integers = b"\t".join([b"", b"-2", b"-1", *[b"3"] * 10])
    ids = b"\t".join([b""] * 26)
    assert parse_line(line(integers=integers, ids=ids)) == (0, 0, 0, 0, *[3] * 10, *[0] * 26)


def test_an_id_is_its_unsigned_value_modulo_forty_million() -> None:
    ids = b"\t".join([b"ffffffff", b"FFFFFFFF", *[b"02625a00"] * 24])
    values = parse_line(line(ids=ids))
    assert values[14] == values[15] == 0xFFFFFFFF % ID_MODULUS
    assert values[16] == 0  # 0x02625a00 is 40,000,000


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_every_line_end_is_taken(end: bytes) -> None:
    assert parse_line(line().removesuffix(b"\n") + end) == parse_line(line())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line(label=b"2"), "label is b'2'"),
        (line(label=b""), "label is b''"),
        (line(integers=b"\t".join([b"x"] * 13)), "i1 is b'x'"),
        (line(integers=b"\t".join([b"7"] * 12 + [b"0x7"])), "i13 is b'0x7'"),
        (line(integers=b"\t".join([b"7"] * 12 + [b" 7"])), "i13 is b' 7'"),
        (line(integers=b"\t".join([b"2147483648"] + [b"7"] * 12)), "32-bit"),
        (line(integers=b"7"), "28 columns where 40"),
        (line() + b"\tmore", "41 columns|c26 is"),
        (line(ids=IDS.replace(b"00000001", b"0000000g")), "c1 is b'0000000g'"),
        (line(ids=IDS.replace(b"0000001a", b"1a")), "c26 is b'1a'"),
        (b"\n", "1 column where 40"),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(bad: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(bad)
