"""TSV to Parquet to packed rows: every value arrives, every bad one is named, memory is bounded."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import DataError, ForeignFileError
from wattload.loaders.data import criteo_day_files
from wattload.loaders.data.criteo_conversion import (
    FILL_ROWS,
    BadIdError,
    Columnar,
    ColumnarSettings,
    arrow_schema,
    parquet_to_binary,
    tsv_to_parquet,
)
from wattload.loaders.data.criteo_day_files import (
    ROW_BYTES,
    CountedFile,
    Part,
    Span,
    cut_parts,
    pack_row,
    parse_line,
)
from wattload.workloads.dlrm.config import Compression

SETTINGS = ColumnarSettings(compression="snappy", block_bytes=1 << 20)

HEX_DIGITS = "0123456789abcdefABCDEF"
LINES = st.lists(
    st.tuples(
        st.sampled_from("01"),
        st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), min_size=13, max_size=13),
        st.lists(st.none() | st.text(HEX_DIGITS, min_size=8, max_size=8), min_size=26, max_size=26),
    ).map(
        lambda row: "\t".join(
            ["" if field is None else str(field) for field in (row[0], *row[1], *row[2])]
        ).encode()
    ),
    min_size=1,
    max_size=20,
)


def moved_nowhere(*_: int) -> None:
    pass


def made(folder: Path, row_count: int, day: int = 0) -> bytes:
    text = b"".join(
        block.tobytes() for block in criteo_day_files.synthetic_blocks(1, day, row_count)
    )
    (folder / "day_0").write_bytes(text)
    return text


def whole(folder: Path) -> Part:
    return cut_parts([folder / "day_0"], 1)[0]


def convert(folder: Path, chosen: ColumnarSettings = SETTINGS) -> tuple[Columnar, bytes]:
    columnar = tsv_to_parquet(whole(folder), folder / "p.parquet", chosen, moved_nowhere)
    packed = parquet_to_binary(folder / "p.parquet", folder / "p.bin", moved_nowhere)
    assert packed.row_count == columnar.row_count
    return columnar, (folder / "p.bin").read_bytes()


def reference(text: bytes) -> bytes:
    return b"".join(pack_row(parse_line(line)) for line in text.splitlines())


@settings(max_examples=80, deadline=None)
@given(lines=LINES, end=st.sampled_from([b"\n", b"\r\n"]), last_end=st.booleans())
def test_any_row_arrives_as_the_reference_packs_it(
    lines: Sequence[bytes], end: bytes, last_end: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    text = end.join(lines) + (end if last_end else b"")
    (folder / "day_0").write_bytes(text)
    assert convert(folder)[1] == reference(text)


@pytest.mark.parametrize("compression", [codec.name for codec in Compression])
def test_every_codec_gives_the_same_rows(tmp_path: Path, compression: str) -> None:
    text = made(tmp_path, 3000)
    chosen = ColumnarSettings(compression=compression, block_bytes=1 << 18)
    assert convert(tmp_path, chosen)[1] == reference(text)
    codec = pq.read_metadata(tmp_path / "p.parquet").row_group(0).column(0).compression
    assert codec == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


@pytest.mark.parametrize("row_count", [1, FILL_ROWS, FILL_ROWS + 1, 3 * FILL_ROWS - 1])
def test_rows_at_the_edges_of_a_fill_arrive(tmp_path: Path, row_count: int) -> None:
    text = made(tmp_path, row_count)
    assert convert(tmp_path)[1] == reference(text)


def test_a_block_becomes_a_row_group_and_its_place_is_kept(tmp_path: Path) -> None:
    text = made(tmp_path, 3000)
    chosen = ColumnarSettings(compression="snappy", block_bytes=1 << 17)
    columnar, _ = convert(tmp_path, chosen)
    metadata = pq.read_metadata(tmp_path / "p.parquet")
    sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert len(sizes) == len(columnar.landmarks) > 1
    for index, (offset, row) in enumerate(columnar.landmarks):
        assert row == sum(sizes[:index])
        assert text[:offset].count(b"\n") == row


def test_categories_stay_strings_in_parquet(tmp_path: Path) -> None:
    text = made(tmp_path, 500)
    convert(tmp_path)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.equals(arrow_schema())
    fields = [line.split(b"\t") for line in text.splitlines()]
    assert table.column("c1").to_pylist() == [row[14].decode() or None for row in fields]
    assert table.column("i2").to_pylist() == [int(row[2]) if row[2] else None for row in fields]


def test_bytes_are_counted_as_they_lie_in_the_files(tmp_path: Path) -> None:
    text = made(tmp_path, 3000)
    counts = np.zeros(3, dtype=np.int64)

    def moved(*count: int) -> None:
        counts[:] += count

    tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved)
    parquet_bytes = (tmp_path / "p.parquet").stat().st_size
    assert counts[:2].tolist() == [len(text), parquet_bytes]
    counts[:] = 0
    parquet_to_binary(tmp_path / "p.parquet", tmp_path / "p.bin", moved)
    assert counts[1] == 3000 * ROW_BYTES
    # The footer is read on its own first: up to 64 KiB of the file move twice.
    assert parquet_bytes <= counts[0] <= parquet_bytes + (64 << 10)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"\t", b",", r"line 1201 \(byte [0-9]+\): 39 columns where 40 are needed"),
        (b"\t", b"\t\t", r"line 1201 \(byte [0-9]+\): 41 columns where 40 are needed"),
        (b"0\t", b"2\t", r"line 1201 \(byte [0-9]+\): label is b'2'"),
        (b"0\t", b"\t", r"line 1201 \(byte [0-9]+\): label is b''"),
        (b"0\t", b"0\t1.5", r"line 1201 \(byte [0-9]+\): i1 is b'1.5"),
        (b"0\t", b"0\t0x5", r"line 1201 \(byte [0-9]+\): i1 is b'0x5"),
        (b"0\t", b"0\t 5", r"line 1201 \(byte [0-9]+\): i1 is b' 5"),
        (b"0\t", b"\n0\t", r"line 1201 \(byte [0-9]+\): 1 columns where 40 are needed"),
        (b"0\t", b"0\r\t", r"line 1201 \(byte [0-9]+\): label is b'0\\r'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, old: bytes, new: bytes, reason: str) -> None:
    lines = [b"0" + line[1:] for line in made(tmp_path, 2000).splitlines(keepends=True)]
    lines[1200] = lines[1200].replace(old, new, 1)
    (tmp_path / "day_0").write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=f"day_0, {reason}"):
        tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved_nowhere)


def test_a_truncated_last_line_is_named(tmp_path: Path) -> None:
    text = made(tmp_path, 50)
    (tmp_path / "day_0").write_bytes(text[:-100])
    with pytest.raises(DataError, match=r"day_0, line 50 .*columns where 40 are needed"):
        tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved_nowhere)


def test_what_only_the_parser_refuses_is_named_by_its_bytes(tmp_path: Path) -> None:
    lines = made(tmp_path, 3).splitlines(keepends=True)
    (tmp_path / "day_0").write_bytes(lines[0].replace(b"\n", b"\r") + lines[1])
    with pytest.raises(DataError, match=r"day_0, (line 1 |bytes 0 to )"):
        tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved_nowhere)


@pytest.mark.parametrize(
    "bad", [b"0123456g", b"1234567", b"123456789", b"\xff1234567", b"-0000001"]
)
def test_an_id_that_is_not_eight_hex_digits_is_an_error(tmp_path: Path, bad: bytes) -> None:
    lines = made(tmp_path, 100).splitlines(keepends=True)
    fields = lines[40].split(b"\t")
    fields[14] = bad
    lines[40] = b"\t".join(fields)
    (tmp_path / "day_0").write_bytes(b"".join(lines))
    with pytest.raises(
        BadIdError, match=r"p.parquet, column c1: .* is not an id; it must be empty"
    ):
        convert(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 1000, -1, -9])
def test_a_truncated_parquet_file_is_an_error(tmp_path: Path, keep: int) -> None:
    made(tmp_path, 1000)
    convert(tmp_path)
    content = (tmp_path / "p.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:keep])
    with pytest.raises(
        DataError, match=r"cut.parquet is not a complete Parquet file, it is truncated"
    ):
        parquet_to_binary(tmp_path / "cut.parquet", tmp_path / "cut.bin", moved_nowhere)


def test_a_corrupt_row_group_is_an_error(tmp_path: Path) -> None:
    made(tmp_path, 1000)
    convert(tmp_path)
    content = bytearray((tmp_path / "p.parquet").read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"bad.parquet is not a complete Parquet file"):
        parquet_to_binary(tmp_path / "bad.parquet", tmp_path / "bad.bin", moved_nowhere)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="column label as INT64, INT32 is needed"):
        parquet_to_binary(tmp_path / "other.parquet", tmp_path / "p.bin", moved_nowhere)
    pq.write_table(pa.table({"label": pa.array([1], pa.int32())}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="column i1 as nothing, INT32 is needed"):
        parquet_to_binary(tmp_path / "other.parquet", tmp_path / "q.bin", moved_nowhere)


def test_a_row_without_a_label_is_refused(tmp_path: Path) -> None:
    columns = [pa.array([None], column.type) for column in arrow_schema()]
    pq.write_table(pa.table(columns, arrow_schema()), tmp_path / "p.parquet")
    with pytest.raises(DataError, match="1 rows without a label"):
        parquet_to_binary(tmp_path / "p.parquet", tmp_path / "p.bin", moved_nowhere)


def test_an_empty_parquet_file_gives_no_rows(tmp_path: Path) -> None:
    pq.write_table(arrow_schema().empty_table(), tmp_path / "p.parquet")
    packed = parquet_to_binary(tmp_path / "p.parquet", tmp_path / "p.bin", moved_nowhere)
    assert (packed.row_count, packed.written) == (0, ())


def test_all_bytes_that_move_have_the_checksums_of_their_place_in_the_file(tmp_path: Path) -> None:
    text = made(tmp_path, 3000)
    chosen = ColumnarSettings(compression="snappy", block_bytes=1 << 17)
    counts = np.zeros(3, dtype=np.int64)
    first, second = cut_parts([tmp_path / "day_0"], 2)
    for part, name in ((first, "o.parquet"), (second, "p.parquet")):
        columnar = tsv_to_parquet(part, tmp_path / name, chosen, moved_nowhere)
        (span,) = columnar.read
        assert (span.offset_bytes, span.size_bytes) == (part.start_bytes, part.size_bytes)
        assert span.crc32 == zlib.crc32(text[part.start_bytes : part.end_bytes])
    whole_file = (tmp_path / "p.parquet").read_bytes()
    assert columnar.written == (Span(0, len(whole_file), zlib.crc32(whole_file)),)

    def moved(*count: int) -> None:
        counts[:] += count

    packed = parquet_to_binary(tmp_path / "p.parquet", tmp_path / "p.bin", moved)
    assert sum(span.size_bytes for span in packed.read) == counts[0]
    for span in packed.read:
        end = span.offset_bytes + span.size_bytes
        assert span.crc32 == zlib.crc32(whole_file[span.offset_bytes : end])
    rows = (tmp_path / "p.bin").read_bytes()
    assert packed.written == (Span(0, len(rows), zlib.crc32(rows)),)


def test_a_full_target_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, 10_000)
    tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved_nowhere)
    full = CountedFile(Path("/dev/full"), "wb", moved_nowhere)
    monkeypatch.setattr(CountedFile, "create", lambda *_: full)
    with pytest.raises(OSError, match="No space left"):
        tsv_to_parquet(whole(tmp_path), tmp_path / "q.parquet", SETTINGS, moved_nowhere)
    full = CountedFile(Path("/dev/full"), "wb", moved_nowhere)
    with pytest.raises(OSError, match="No space left"):
        parquet_to_binary(tmp_path / "p.parquet", tmp_path / "p.bin", moved_nowhere)


def test_an_output_is_written_only_where_nothing_is(tmp_path: Path) -> None:
    made(tmp_path, 100)
    thesis = tmp_path / "thesis"
    thesis.write_text("three years of work")
    (tmp_path / "p.parquet").symlink_to(thesis)
    (tmp_path / "p.bin").hardlink_to(thesis)
    with pytest.raises(ForeignFileError, match=r"p\.parquet exists already"):
        tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved_nowhere)
    tsv_to_parquet(whole(tmp_path), tmp_path / "q.parquet", SETTINGS, moved_nowhere)
    with pytest.raises(ForeignFileError, match=r"p\.bin exists already"):
        parquet_to_binary(tmp_path / "q.parquet", tmp_path / "p.bin", moved_nowhere)
    assert thesis.read_text() == "three years of work"


PEAK = """
import sys
from pathlib import Path
from wattload.loaders.data.criteo_conversion import ColumnarSettings, tsv_to_parquet
from wattload.loaders.data.criteo_day_files import cut_parts
from wattload.loaders.data.criteo_conversion import parquet_to_binary
from wattload.workloads.dlrm.workers import peak_bytes
day, out = Path(sys.argv[1]), Path(sys.argv[2])
settings = ColumnarSettings(compression="snappy", block_bytes=4 << 20)
tsv_to_parquet(cut_parts([day], 1)[0], out / "p.parquet", settings, lambda *_: None)
parquet_to_binary(out / "p.parquet", out / "p.bin", lambda *_: None)
print(peak_bytes())
"""


@pytest.mark.slow
def test_memory_grows_with_the_block_and_not_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for factor in (1, 4):
        out = tmp_path / f"out-{factor}"
        out.mkdir()
        made(tmp_path, 100_000 * factor)  # 25 MB, then 98 MB
        child = subprocess.run(
            [sys.executable, "-c", PEAK, str(tmp_path / "day_0"), str(out)],
            check=True,
            capture_output=True,
            text=True,
        )
        peaks.append(int(child.stdout))
    assert peaks[1] - peaks[0] < 40e6  # the file grew by 74 MB, the binary one by 48 MB
    assert peaks[1] < 190e6 + 10 * (4 << 20)
