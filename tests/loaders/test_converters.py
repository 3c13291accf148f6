"""TSV to Parquet to packed rows: every value arrives, every bad one is named, memory is bounded.

All of it holds for each loader that converts.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tinyfs import fill, tiny_file_system
from wattload.core.errors import DataError, ForeignFileError
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.arrow import FILL_ROWS, arrow_schema
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import (
    BadIdError,
    ConversionSettings,
    Converted,
    Converter,
    ConverterConfig,
    Packed,
)
from wattload.loaders.data.criteo_day_files import (
    ROW_BYTES,
    Part,
    Span,
    cut_parts,
    pack_row,
    packed_paths,
    parse_line,
)
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.config import Compression

ARROW, NATIVE = ArrowConfig().converter(), NativeConfig().converter()
each_converter = pytest.mark.parametrize("converter", [ARROW, NATIVE], ids=["arrow", "native"])

SETTINGS = ConversionSettings(compression="snappy", block_bytes=1 << 20)
NUMERIC = replace(SETTINGS, numeric_ids=True)
DROPPING = replace(SETTINGS, drops_bad_rows=True)

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
    text = SyntheticDay(1, day, row_count).readall()
    (folder / "day_0").write_bytes(text)
    return text


def whole(folder: Path) -> Part:
    return cut_parts([folder / "day_0"], 1)[0]


def columns_of(folder: Path, converter: Converter, name: str = "p.parquet") -> Converted:
    return converter.tsv_to_parquet(whole(folder), folder / name, SETTINGS, moved_nowhere)


def pack(folder: Path, converter: Converter, source: str, name: str) -> Packed:
    return converter.parquet_to_binary(folder / source, folder / name, SETTINGS, moved_nowhere)


def convert(
    folder: Path, converter: Converter, chosen: ConversionSettings = SETTINGS
) -> tuple[Converted, bytes]:
    columnar = converter.tsv_to_parquet(whole(folder), folder / "p.parquet", chosen, moved_nowhere)
    packed = converter.parquet_to_binary(
        folder / "p.parquet", folder / "p.bin", chosen, moved_nowhere
    )
    assert packed.row_count == columnar.row_count
    return columnar, (folder / "p.bin").read_bytes()


def reference(text: bytes) -> bytes:
    return b"".join(pack_row(parse_line(line)) for line in text.splitlines())


@each_converter
@settings(max_examples=25, deadline=None)
@given(
    lines=LINES,
    end=st.sampled_from([b"\n", b"\r\n"]),
    last_end=st.booleans(),
    numeric_ids=st.booleans(),
)
def test_any_row_arrives_as_the_reference_packs_it(
    converter: Converter,
    lines: Sequence[bytes],
    end: bytes,
    last_end: bool,
    *,
    numeric_ids: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    text = end.join(lines) + (end if last_end else b"")
    (folder / "day_0").write_bytes(text)
    chosen = replace(SETTINGS, numeric_ids=numeric_ids)
    assert convert(folder, converter, chosen)[1] == reference(text)


@settings(max_examples=40, deadline=None)
@given(
    lines=LINES,
    end=st.sampled_from([b"\n", b"\r\n"]),
    changes=st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.integers(0, 3),
            st.text("\t\n\r\0 -+.019afgxX\xe9", max_size=3).map(
                lambda text: text.encode("latin-1")
            ),
        ),
        max_size=4,
    ),
    numeric_ids=st.booleans(),
)
def test_of_any_text_both_converters_keep_the_same_rows(
    lines: Sequence[bytes],
    end: bytes,
    changes: Sequence[tuple[int, int, bytes]],
    numeric_ids: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    text = end.join(lines) + end
    for place, cut, new in changes:
        at = place % len(text)
        text = text[:at] + new + text[at + cut :] + b"0"
    folder = tmp_path_factory.mktemp("rows")
    (folder / "day_0").write_bytes(text)
    chosen = replace(DROPPING, numeric_ids=numeric_ids)
    kept, dropped = [], []
    offset = 0
    for line in io.BytesIO(text):
        try:
            kept.append(pack_row(parse_line(line)))
        except ValueError:
            dropped.append(offset)
        offset += len(line)
    tables = []
    for name, converter in (("arrow", ARROW), ("native", NATIVE)):
        columns, rows = folder / f"{name}.parquet", folder / f"{name}.bin"
        at_once = folder / f"{name}-at-once.bin"
        found = converter.tsv_to_parquet(whole(folder), columns, chosen, moved_nowhere)
        converter.parquet_to_binary(columns, rows, chosen, moved_nowhere)
        direct = converter.tsv_to_binary(whole(folder), at_once, chosen, moved_nowhere)
        assert rows.read_bytes() == at_once.read_bytes() == b"".join(kept)
        for each in (found, direct):
            assert (each.row_count, each.dropped_count) == (len(kept), len(dropped))
            assert each.dropped_offset == (dropped[0] if dropped else None)
            assert each.read == (Span(0, len(text), zlib.crc32(text)),)
        tables.append(pq.read_table(columns))
    assert tables[0].equals(tables[1])


@each_converter
@pytest.mark.parametrize("numeric_ids", [False, True])
@pytest.mark.parametrize("compression", [codec.name for codec in Compression])
def test_every_codec_gives_the_same_rows(
    converter: Converter, tmp_path: Path, compression: str, numeric_ids: bool
) -> None:
    text = made(tmp_path, 3000)
    chosen = ConversionSettings(
        compression=compression, block_bytes=1 << 18, numeric_ids=numeric_ids
    )
    assert convert(tmp_path, converter, chosen)[1] == reference(text)
    codec = pq.read_metadata(tmp_path / "p.parquet").row_group(0).column(0).compression
    assert codec == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


@each_converter
@pytest.mark.parametrize("row_count", [1, FILL_ROWS, FILL_ROWS + 1, 3 * FILL_ROWS - 1])
def test_rows_at_the_edges_of_a_fill_arrive(
    converter: Converter, tmp_path: Path, row_count: int
) -> None:
    text = made(tmp_path, row_count)
    assert convert(tmp_path, converter)[1] == reference(text)


@each_converter
def test_a_block_becomes_a_row_group_and_its_place_is_kept(
    converter: Converter, tmp_path: Path
) -> None:
    text = made(tmp_path, 3000)
    chosen = ConversionSettings(compression="snappy", block_bytes=1 << 17)
    columnar, _ = convert(tmp_path, converter, chosen)
    metadata = pq.read_metadata(tmp_path / "p.parquet")
    sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert len(sizes) == len(columnar.landmarks) > 1
    for index, (offset, row) in enumerate(columnar.landmarks):
        assert row == sum(sizes[:index])
        assert text[:offset].count(b"\n") == row


@each_converter
def test_categories_stay_strings_in_parquet(converter: Converter, tmp_path: Path) -> None:
    text = made(tmp_path, 500)
    convert(tmp_path, converter)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.equals(arrow_schema(numeric_ids=False))
    fields = [line.split(b"\t") for line in text.splitlines()]
    assert table.column("c1").to_pylist() == [row[14].decode() or None for row in fields]
    assert table.column("i2").to_pylist() == [int(row[2]) if row[2] else None for row in fields]


@each_converter
def test_numeric_ids_are_int32_modulo_40_million(converter: Converter, tmp_path: Path) -> None:
    text = made(tmp_path, 500)
    convert(tmp_path, converter, NUMERIC)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.equals(arrow_schema(numeric_ids=True))
    for column, place in (("c1", 14), ("c26", 39)):
        ids = [line.split(b"\t")[place] for line in text.splitlines()]
        wanted = [int(digits, 16) % 40_000_000 if digits else None for digits in ids]
        assert table.column(column).to_pylist() == wanted


OTHER_READERS = "reads Parquet with other libraries: .venv/bin/pip install polars duckdb"


def read_by_polars(path: Path) -> Any:
    return pytest.importorskip("polars", reason=OTHER_READERS).read_parquet(path).to_arrow()


def read_by_duckdb(path: Path) -> Any:
    duckdb = pytest.importorskip("duckdb", reason=OTHER_READERS)
    return duckdb.connect().read_parquet(str(path)).to_arrow_table()


@pytest.mark.parametrize("read", [pq.read_table, read_by_polars, read_by_duckdb])
@pytest.mark.parametrize("numeric_ids", [False, True], ids=["string", "int32"])
@pytest.mark.parametrize("compression", [codec.name for codec in Compression])
def test_other_readers_find_the_same_table_in_both_files(
    tmp_path: Path, compression: str, numeric_ids: bool, read: Callable[[Path], Any]
) -> None:
    made(tmp_path, 3000)
    chosen = ConversionSettings(
        compression=compression, block_bytes=1 << 18, numeric_ids=numeric_ids
    )
    for name, converter in (("arrow", ARROW), ("native", NATIVE)):
        converter.tsv_to_parquet(
            whole(tmp_path), tmp_path / f"{name}.parquet", chosen, moved_nowhere
        )
    wanted = pq.read_table(tmp_path / "arrow.parquet")
    for name in ("arrow", "native"):
        found = read(tmp_path / f"{name}.parquet")
        assert found.cast(wanted.schema).equals(wanted)


@each_converter
def test_bytes_are_counted_as_they_lie_in_the_files(converter: Converter, tmp_path: Path) -> None:
    text = made(tmp_path, 3000)
    counts = np.zeros(3, dtype=np.int64)

    def moved(*count: int) -> None:
        counts[:] += count

    converter.tsv_to_parquet(whole(tmp_path), tmp_path / "p.parquet", SETTINGS, moved)
    parquet_bytes = (tmp_path / "p.parquet").stat().st_size
    assert counts[:2].tolist() == [len(text), parquet_bytes]
    counts[:] = 0
    converter.parquet_to_binary(tmp_path / "p.parquet", tmp_path / "p.bin", SETTINGS, moved)
    assert counts[1] == 3000 * ROW_BYTES
    # The magic number at the start is not read. O_DIRECT reads whole blocks around three ranges.
    least_bytes = parquet_bytes - 4
    most_bytes = least_bytes if converter is ARROW else least_bytes + 6 * PAGE_BYTES
    assert least_bytes <= counts[0] <= most_bytes


BAD_FIELDS = [
    (0, b"2", "label is b'2'; it must be 0 or 1"),
    (0, b"", "label is b''; it must be 0 or 1"),
    (0, b"0\r", r"label is b'0\r'; it must be 0 or 1"),
    (1, b"1.5", "i1 is b'1.5'; it must be empty or a 32-bit whole number"),
    (1, b"0x5", "i1 is b'0x5'; it must be empty or a 32-bit whole number"),
    (1, b" 5", "i1 is b' 5'; it must be empty or a 32-bit whole number"),
    (3, b"2147483648", "i3 is b'2147483648'; it must be empty or a 32-bit whole number"),
    (3, b"-2147483649", "i3 is b'-2147483649'; it must be empty or a 32-bit whole number"),
    (3, b"1e3", "i3 is b'1e3'; it must be empty or a 32-bit whole number"),
    (3, b"\0", r"i3 is b'\x00'; it must be empty or a 32-bit whole number"),
    (3, b"1\t2", "41 columns where 40 are needed"),
    (3, b"1\n2", "4 columns where 40 are needed"),
    (14, b"1234567", "c1 is b'1234567'; it must be empty or 8 hex digits"),
    (14, b"123456789", "c1 is b'123456789'; it must be empty or 8 hex digits"),
    (14, b"0123456g", "c1 is b'0123456g'; it must be empty or 8 hex digits"),
    (14, b"caf\xe9cafe", r"c1 is b'caf\xe9cafe'; it must be empty or 8 hex digits"),
    (14, bytes(8), r"c1 is b'\x00\x00"),
    (39, b"1234567\r", r"c26 is b'1234567'; it must be empty or 8 hex digits"),
]


@each_converter
@pytest.mark.parametrize(("column", "field", "reason"), BAD_FIELDS)
def test_a_bad_field_is_refused_or_its_row_dropped(
    converter: Converter, tmp_path: Path, column: int, field: bytes, reason: str
) -> None:
    lines = made(tmp_path, 3000).splitlines(keepends=True)
    fields = lines[1200].removesuffix(b"\n").split(b"\t")
    fields[column] = field
    start = sum(map(len, lines[:1200]))
    bad = b"\t".join(fields) + b"\n"
    (tmp_path / "day_0").write_bytes(b"".join([*lines[:1200], bad, *lines[1201:]]))
    with pytest.raises(DataError) as error:
        convert(tmp_path, converter, NUMERIC)
    assert f"day_0, line 1201 (byte {start}): {reason}" in str(error.value)
    (tmp_path / "p.parquet").unlink()
    small = replace(DROPPING, block_bytes=1 << 17)
    columnar, rows = convert(tmp_path, converter, small)
    assert (columnar.row_count, columnar.dropped_offset) == (2999, start)
    assert columnar.dropped_count == bad.count(b"\n")
    assert rows == reference(b"".join([*lines[:1200], *lines[1201:]]))


@each_converter
@pytest.mark.parametrize("row_count", [1, 6553, 6554, 20_000])
def test_rows_without_parquet_between_are_the_same(
    converter: Converter, tmp_path: Path, row_count: int
) -> None:
    text = made(tmp_path, row_count)
    chosen = replace(SETTINGS, block_bytes=1 << 20)
    path = tmp_path / "p.bin"
    found = converter.tsv_to_binary(whole(tmp_path), path, chosen, moved_nowhere)
    rows = path.read_bytes()
    assert rows == reference(text)
    assert found.read == (Span(0, len(text), zlib.crc32(text)),)
    assert found.written == (Span(0, len(rows), zlib.crc32(rows)),)
    for offset, row in found.landmarks:
        assert text[:offset].count(b"\n") == row
    (tmp_path / "day_0").write_bytes(text + b"1\t2\n")
    with pytest.raises(DataError, match=rf"line {row_count + 1} .*: 2 columns where 40 are needed"):
        converter.tsv_to_binary(whole(tmp_path), tmp_path / "q.bin", chosen, moved_nowhere)


@each_converter
def test_blocks_of_bad_lines_only_have_no_row_group(converter: Converter, tmp_path: Path) -> None:
    text = made(tmp_path, 100)
    (tmp_path / "day_0").write_bytes(b"nothing\n" * 40_000 + text + b"nothing\n" * 40_000)
    columnar, rows = convert(tmp_path, converter, replace(DROPPING, block_bytes=1 << 16))
    assert (columnar.row_count, columnar.dropped_count) == (100, 80_000)
    assert rows == reference(text)
    metadata = pq.read_metadata(tmp_path / "p.parquet")
    assert metadata.num_row_groups == len(columnar.landmarks)


@each_converter
@pytest.mark.parametrize("is_columnar", [True, False])
def test_logarithms_are_those_that_others_take_of_the_counts(
    converter: Converter, tmp_path: Path, *, is_columnar: bool
) -> None:
    lines = made(tmp_path, 8000).splitlines(keepends=True)
    fields = lines[5000].split(b"\t")
    fields[1:6] = [b"2147483647", b"-2147483648", b"65535", b"65536", b""]
    lines[5000] = b"\t".join(fields)
    text = b"".join(lines)
    (tmp_path / "day_0").write_bytes(text)
    chosen = replace(SETTINGS, logarithms=True)
    if is_columnar:
        raw = convert(tmp_path, converter, chosen)[1]
    else:
        converter.tsv_to_binary(whole(tmp_path), tmp_path / "p.bin", chosen, moved_nowhere)
        raw = (tmp_path / "p.bin").read_bytes()
    counts = np.frombuffer(reference(text), "<i4").reshape(-1, 40)
    # As split_dataset.py of NVIDIA's DeepLearningExamples reads rows: int32, float32 x 13, int32.
    rows = np.frombuffer(raw, "<i4").reshape(-1, 40)
    dense = rows[:, 1:14].view("<f4")
    assert (rows[:, 0] == counts[:, 0]).all()
    assert (rows[:, 14:] == counts[:, 14:]).all()
    # As facebookresearch/dlrm transforms the counts of its rows when it loads them.
    loaded = np.log(counts[:, 1:14].astype(np.float32) + np.float32(1))
    np.testing.assert_allclose(dense, loaded, rtol=3e-7)
    exact = [[math.log(count + 1) for count in row] for row in counts[:, 1:14].tolist()]
    assert (dense == np.array(exact, np.float32)).all()


@each_converter
@pytest.mark.parametrize("is_columnar", [True, False])
def test_split_columns_are_read_as_nvidias_loader_reads_them(
    converter: Converter, tmp_path: Path, *, is_columnar: bool
) -> None:
    text = made(tmp_path, 3 * FILL_ROWS)
    chosen = replace(SETTINGS, logarithms=True, splits_columns=True)
    path, columns = tmp_path / "day_0.00000.bin", tmp_path / "p.parquet"
    if is_columnar:
        converter.tsv_to_parquet(whole(tmp_path), columns, chosen, moved_nowhere)
        written = converter.parquet_to_binary(columns, path, chosen, moved_nowhere).written
    else:
        written = converter.tsv_to_binary(whole(tmp_path), path, chosen, moved_nowhere).written
    paths = packed_paths(path, is_split=True)
    assert sorted(tmp_path.glob("*.bin")) == sorted(paths)
    assert written == tuple(
        Span(0, each.stat().st_size, zlib.crc32(each.read_bytes())) for each in paths
    )
    rows = np.frombuffer(reference(text), "<i4").reshape(-1, 40)

    def mapped(name: str, kind: type) -> np.memmap[Any, Any]:
        return np.memmap(tmp_path / f"day_0.00000.{name}.bin", dtype=kind, mode="r")

    # As SplitCriteoDataset of NVIDIA's DeepLearningExamples reads them.
    assert (mapped("label", np.bool_) == rows[:, 0]).all()
    dense = mapped("numerical", np.float16).reshape(-1, 13)
    exact = [[math.log(count + 1) for count in row] for row in rows[:, 1:14].tolist()]
    assert (dense == np.array(exact, np.float32).astype(np.float16)).all()
    for number in range(26):
        assert (mapped(f"cat_{number}", np.int32) == rows[:, 14 + number]).all()


def packed(folder: Path, text: bytes) -> Part:
    """Write a text as a gz file of two members, and return its only part."""
    path, middle = folder / "day_0.gz", len(text) // 2
    path.write_bytes(gzip.compress(text[:middle], 1) + gzip.compress(text[middle:], 9))
    (part,) = cut_parts([path], 7, {path: len(text)})
    return part


@each_converter
@pytest.mark.parametrize("end", [b"\n", b""])
def test_gz_becomes_the_same_files(converter: Converter, tmp_path: Path, end: bytes) -> None:
    text = made(tmp_path, 5000).removesuffix(b"\n") + end
    part, chosen = packed(tmp_path, text), replace(SETTINGS, block_bytes=1 << 17)
    (tmp_path / "day_0").write_bytes(text)
    counts = np.zeros(3, dtype=np.int64)

    def moved(*count: int) -> None:
        counts[:] += count

    plain = converter.tsv_to_parquet(whole(tmp_path), tmp_path / "p", chosen, moved_nowhere)
    found = converter.tsv_to_parquet(part, tmp_path / "q", chosen, moved)
    assert pq.read_table(tmp_path / "p").equals(pq.read_table(tmp_path / "q"))
    assert (plain.landmarks, plain.row_count) == (found.landmarks, found.row_count)
    raw = part.source.read_bytes()
    assert found.read == (Span(0, len(raw), zlib.crc32(raw)),)
    assert counts[0] == len(raw)
    assert found.unpack_cpu_s > 0
    converter.tsv_to_binary(part, tmp_path / "r", chosen, moved_nowhere)
    assert (tmp_path / "r").read_bytes() == reference(text)


@each_converter
def test_a_bad_line_in_gz_is_named_by_its_place_in_the_text(
    converter: Converter, tmp_path: Path
) -> None:
    lines = made(tmp_path, 3000).splitlines(keepends=True)
    lines[2500] = b"1\t2\n"
    start = sum(map(len, lines[:2500]))
    part = packed(tmp_path, b"".join(lines))
    chosen = replace(SETTINGS, block_bytes=1 << 17)
    reason = rf"day_0.gz, line 2501 \(byte of the text {start}\): 2 columns where 40 are needed"
    with pytest.raises(DataError, match=reason):
        converter.tsv_to_parquet(part, tmp_path / "p", chosen, moved_nowhere)
    found = converter.tsv_to_parquet(
        part, tmp_path / "q", replace(chosen, drops_bad_rows=True), moved_nowhere
    )
    assert (found.row_count, found.dropped_offset) == (2999, start)


@each_converter
@pytest.mark.parametrize("line_count", [2999, 3001])
def test_a_gz_file_of_another_length_is_an_error(
    converter: Converter, tmp_path: Path, line_count: int
) -> None:
    part = packed(tmp_path, made(tmp_path, 3000))
    was_bytes = len(made(tmp_path, line_count))
    with pytest.raises(DataError, match=r"day_0.gz changed while it was read"):
        converter.tsv_to_parquet(
            replace(part, end_bytes=was_bytes), tmp_path / "p", SETTINGS, moved_nowhere
        )


@each_converter
def test_a_gz_file_that_is_cut_short_is_named(converter: Converter, tmp_path: Path) -> None:
    part = packed(tmp_path, made(tmp_path, 3000))
    os.truncate(part.source, part.source.stat().st_size - 4)
    with pytest.raises(DataError, match=r"day_0.gz is cut short: its gz data ends at byte [0-9]+"):
        converter.tsv_to_parquet(part, tmp_path / "p", SETTINGS, moved_nowhere)


@each_converter
def test_a_truncated_last_line_is_named(converter: Converter, tmp_path: Path) -> None:
    text = made(tmp_path, 50)
    (tmp_path / "day_0").write_bytes(text[:-100])
    with pytest.raises(DataError, match=r"day_0, line 50 .*columns where 40 are needed"):
        columns_of(tmp_path, converter, "p.parquet")


@each_converter
def test_what_only_the_parser_refuses_is_named_by_its_bytes(
    converter: Converter, tmp_path: Path
) -> None:
    lines = made(tmp_path, 3).splitlines(keepends=True)
    (tmp_path / "day_0").write_bytes(lines[0].replace(b"\n", b"\r") + lines[1])
    with pytest.raises(DataError, match=r"day_0, (line 1 |bytes 0 to )"):
        columns_of(tmp_path, converter, "p.parquet")


BAD_IDS = [b"0123456g", b"1234567", b"123456789", b"\xff1234567", b"-0000001", 8 * b"\0"]


def with_id(folder: Path, bad: bytes) -> None:
    lines = made(folder, 100).splitlines(keepends=True)
    fields = lines[40].split(b"\t")
    fields[14] = bad
    lines[40] = b"\t".join(fields)
    (folder / "day_0").write_bytes(b"".join(lines))


@pytest.mark.parametrize("bad", BAD_IDS)
def test_an_id_that_is_not_eight_hex_digits_is_an_error(tmp_path: Path, bad: bytes) -> None:
    with_id(tmp_path, bad)
    with pytest.raises(DataError, match=r"day_0, line 41 .*: c1 is b.*; it must be empty or 8 hex"):
        convert(tmp_path, NATIVE)


@each_converter
@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_bad_id_in_a_parquet_file_is_an_error(
    converter: Converter, tmp_path: Path, bad: bytes
) -> None:
    with_id(tmp_path, bad)
    columns_of(tmp_path, ARROW)  # which has no opinion of strings
    with pytest.raises(BadIdError, match=r"p.parquet, column c1: .*8 hex digits"):
        pack(tmp_path, converter, "p.parquet", "p.bin")


@each_converter
@pytest.mark.parametrize("keep", [0, 4, 1000, -1, -9])
def test_a_truncated_parquet_file_is_an_error(
    converter: Converter, tmp_path: Path, keep: int
) -> None:
    made(tmp_path, 1000)
    convert(tmp_path, converter)
    content = (tmp_path / "p.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:keep])
    with pytest.raises(
        DataError, match=r"cut.parquet is not a complete Parquet file, it is truncated"
    ):
        pack(tmp_path, converter, "cut.parquet", "cut.bin")


@each_converter
def test_a_footer_longer_than_its_file_is_an_error(converter: Converter, tmp_path: Path) -> None:
    made(tmp_path, 1000)
    convert(tmp_path, converter)
    content = bytearray((tmp_path / "p.parquet").read_bytes())
    content[-8:-4] = b"\xff" * 4
    (tmp_path / "long.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"long.parquet is not a complete .*: it has no footer"):
        pack(tmp_path, converter, "long.parquet", "long.bin")


@each_converter
@pytest.mark.parametrize("row_count", [100, 1000, 20_000])
def test_each_byte_of_a_parquet_file_is_read_once(
    converter: Converter, tmp_path: Path, row_count: int
) -> None:
    """Whatever is read again comes from memory, so the drive moves less than was counted.

    Files are as many as workers, so a fixed number of bytes a file grows with the host.
    """
    made(tmp_path, row_count)
    columns_of(tmp_path, converter)
    spans = sorted(
        (span.end_bytes - span.size_bytes, span.end_bytes)
        for span in pack(tmp_path, converter, "p.parquet", "p.bin").read
    )
    edges = [4, *(edge for span in spans for edge in span), spans[-1][1]]
    assert edges[::2] == edges[1::2]  # each span begins where the one before it ended
    assert spans[-1][1] == (tmp_path / "p.parquet").stat().st_size


@each_converter
def test_a_corrupt_row_group_is_an_error(converter: Converter, tmp_path: Path) -> None:
    made(tmp_path, 1000)
    convert(tmp_path, converter)
    content = bytearray((tmp_path / "p.parquet").read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"bad.parquet is not a complete Parquet file"):
        pack(tmp_path, converter, "bad.parquet", "bad.bin")


def test_indices_of_every_width_are_unpacked(tmp_path: Path) -> None:
    """Dictionaries of 1 to 2^17 ids; a third of the odd columns is missing."""
    count, random = 140_003, np.random.default_rng(0)
    columns = {"label": pa.array(np.arange(count, dtype=np.int32) % 2)}
    for number, name in enumerate(arrow_schema(numeric_ids=True).names[1:]):
        distinct = 1 << min(number // 2, 17)
        values = np.concatenate([np.arange(distinct), random.integers(0, distinct, count)])[:count]
        missing = random.random(count) < (number % 2) / 3
        columns[name] = pa.array(random.permutation(values).astype(np.int32), mask=missing)
    pq.write_table(pa.table(columns, arrow_schema(numeric_ids=True)), tmp_path / "wide.parquet")
    for converter, name in ((ARROW, "arrow"), (NATIVE, "native")):
        wide = replace(NUMERIC, block_bytes=32 << 20)
        converter.parquet_to_binary(tmp_path / "wide.parquet", tmp_path / name, wide, moved_nowhere)
    assert (tmp_path / "arrow").read_bytes() == (tmp_path / "native").read_bytes()


@each_converter
def test_other_columns_are_refused(converter: Converter, tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="column label as INT64, INT32 is needed"):
        pack(tmp_path, converter, "other.parquet", "p.bin")
    pq.write_table(pa.table({"label": pa.array([1], pa.int32())}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="column i1 as nothing, INT32 is needed"):
        pack(tmp_path, converter, "other.parquet", "q.bin")


@each_converter
def test_a_row_without_a_label_is_refused(converter: Converter, tmp_path: Path) -> None:
    schema = arrow_schema(numeric_ids=False)
    columns = [pa.array([None], column.type) for column in schema]
    pq.write_table(pa.table(columns, schema), tmp_path / "p.parquet")
    with pytest.raises(DataError, match="1 rows without a label"):
        pack(tmp_path, converter, "p.parquet", "p.bin")


@each_converter
def test_an_empty_parquet_file_gives_no_rows(converter: Converter, tmp_path: Path) -> None:
    pq.write_table(arrow_schema(numeric_ids=False).empty_table(), tmp_path / "p.parquet")
    packed = pack(tmp_path, converter, "p.parquet", "p.bin")
    assert (packed.row_count, packed.written) == (0, (Span(0, 0, 0),))


@each_converter
def test_all_bytes_that_move_have_the_checksums_of_their_place_in_the_file(
    converter: Converter, tmp_path: Path
) -> None:
    text = made(tmp_path, 3000)
    chosen = ConversionSettings(compression="snappy", block_bytes=1 << 17)
    counts = np.zeros(3, dtype=np.int64)
    first, second = cut_parts([tmp_path / "day_0"], 2)
    for part, name in ((first, "o.parquet"), (second, "p.parquet")):
        columnar = converter.tsv_to_parquet(part, tmp_path / name, chosen, moved_nowhere)
        (span,) = columnar.read
        assert (span.offset_bytes, span.size_bytes) == (part.start_bytes, part.size_bytes)
        assert span.crc32 == zlib.crc32(text[part.start_bytes : part.end_bytes])
    whole_file = (tmp_path / "p.parquet").read_bytes()
    assert columnar.written == (Span(0, len(whole_file), zlib.crc32(whole_file)),)

    def moved(*count: int) -> None:
        counts[:] += count

    packed = converter.parquet_to_binary(
        tmp_path / "p.parquet", tmp_path / "p.bin", SETTINGS, moved
    )
    # O_DIRECT moves whole blocks: some bytes before and after a span move too.
    spare_bytes = 2 * 4096 * len(packed.read)
    assert 0 <= counts[0] - sum(span.size_bytes for span in packed.read) < spare_bytes
    for span in packed.read:
        end = span.offset_bytes + span.size_bytes
        assert span.crc32 == zlib.crc32(whole_file[span.offset_bytes : end])
    rows = (tmp_path / "p.bin").read_bytes()
    assert packed.written == (Span(0, len(rows), zlib.crc32(rows)),)


@each_converter
def test_a_full_target_says_so(converter: Converter, tmp_path: Path) -> None:
    made(tmp_path, 10_000)
    columns_of(tmp_path, converter)
    columns = tmp_path / "p.parquet"
    with tiny_file_system(tmp_path) as target:
        fill(target)
        with pytest.raises(OSError, match="No space left"):
            converter.tsv_to_parquet(whole(tmp_path), target / "q", SETTINGS, moved_nowhere)
        with pytest.raises(OSError, match="No space left"):
            converter.parquet_to_binary(columns, target / "r", SETTINGS, moved_nowhere)
        with pytest.raises(OSError, match="No space left"):
            converter.tsv_to_binary(whole(tmp_path), target / "s", SETTINGS, moved_nowhere)


@each_converter
def test_an_output_is_written_only_where_nothing_is(converter: Converter, tmp_path: Path) -> None:
    made(tmp_path, 100)
    thesis = tmp_path / "thesis"
    thesis.write_text("three years of work")
    (tmp_path / "p.parquet").symlink_to(thesis)
    (tmp_path / "p.bin").hardlink_to(thesis)
    with pytest.raises(ForeignFileError, match=r"p\.parquet exists already"):
        columns_of(tmp_path, converter, "p.parquet")
    columns_of(tmp_path, converter, "q.parquet")
    with pytest.raises(ForeignFileError, match=r"p\.bin exists already"):
        pack(tmp_path, converter, "q.parquet", "p.bin")
    assert thesis.read_text() == "three years of work"


PEAK = """
import sys
from pathlib import Path
from MODULE import Config
from wattload.loaders.converters import ConversionSettings
from wattload.loaders.data.criteo_day_files import cut_parts
from wattload.workloads.dlrm.workers import load_libraries, peak_bytes
load_libraries()
day, out = Path(sys.argv[1]), Path(sys.argv[2])
settings = ConversionSettings(compression="snappy", block_bytes=4 << 20)
converter = Config().converter()
part = cut_parts([day], 1)[0]
converter.tsv_to_parquet(part, out / "p.parquet", settings, lambda *_: None)
converter.parquet_to_binary(out / "p.parquet", out / "p.bin", settings, lambda *_: None)
print(peak_bytes())
"""


@pytest.mark.parametrize("config", [ArrowConfig(), NativeConfig()], ids=["arrow", "native"])
@pytest.mark.thorough
def test_memory_grows_with_the_block_and_not_with_the_file(
    config: ConverterConfig, tmp_path: Path
) -> None:
    peaks = []
    for factor in (1, 4):
        out = tmp_path / f"out-{factor}"
        out.mkdir()
        made(tmp_path, 100_000 * factor)  # 25 MB, then 98 MB
        child = subprocess.run(
            [
                sys.executable,
                "-c",
                PEAK.replace("MODULE", type(config).__module__),
                str(tmp_path / "day_0"),
                str(out),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        peaks.append(int(child.stdout))
    assert peaks[1] - peaks[0] < 40e6  # the file grew by 74 MB, the binary one by 48 MB
    assert peaks[1] < config.conversion_memory_bytes(4 << 20)
