"""TSV to Parquet: pyarrow's CSV parser with explicit types, one row group per block of text."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import DataError
from wattload.loaders.criteo.files import CountedFile, Moved, Part
from wattload.loaders.criteo.schema import CATEGORICALS, COLUMNS, INTEGERS, LABEL
from wattload.loaders.criteo.tsv import Block, find_fault, read_blocks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

COMPRESSIONS = ("none", "snappy", "lz4", "zstd", "gzip")
WRITE_BYTES = 1 << 20
PARSE_BYTES = 2 << 20
"""Text that pyarrow parses at a time: columns of this much stay near a core's cache, where those of
a whole block do not (267 MB/s a core against 165)."""


@dataclass(frozen=True, slots=True)
class Columnar:
    """What one part became: its rows, and the place of each row group's first row in the TSV.

    ``landmarks`` holds ``(offset in the day file in bytes, row in the part)``.
    """

    row_count: int
    landmarks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarSettings:
    """How a part is written: the codec, and the bytes of TSV that become one row group."""

    compression: str
    block_bytes: int


def tsv_to_parquet(part: Part, path: Path, settings: ColumnarSettings, moved: Moved) -> Columnar:
    """Write one part of a day file as a Parquet file, durable on return.

    Memory grows with ``block_bytes`` and not with the part.

    Raises:
        DataError: a line is no Criteo row; the message names file, line and byte offset.
        OSError: the target takes no more.
    """
    with io.BufferedWriter(CountedFile(path, "wb", moved), WRITE_BYTES) as sink:
        found = convert(part, sink, settings, moved)
        sink.flush()
        os.fsync(sink.fileno())
    return found


def convert(
    part: Part, sink: io.BufferedIOBase, settings: ColumnarSettings, moved: Moved
) -> Columnar:
    """Write one part as Parquet into an open file; raises as ``tsv_to_parquet``."""
    from pyarrow import parquet

    landmarks: list[tuple[int, int]] = []
    row_count = 0
    with parquet.ParquetWriter(
        sink,
        arrow_schema(),
        compression=settings.compression,
        write_statistics=[LABEL, *INTEGERS],  # the smallest of hashed ids selects no rows
    ) as writer:
        for block in read_blocks(part, settings.block_bytes, moved):
            table = parse(block, part)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            landmarks.append((block.offset_bytes, row_count))
            row_count += table.num_rows
    return Columnar(row_count, tuple(landmarks))


def parse(block: Block, part: Part) -> pa.Table:
    """Return the rows of a block; the categorical ids stay strings, gaps become nulls.

    Raises ``DataError`` that names the first bad line.
    """
    import pyarrow as pa
    from pyarrow import csv

    try:
        table = csv.read_csv(
            pa.BufferReader(pa.py_buffer(block.text)),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=PARSE_BYTES, column_names=list(COLUMNS)
            ),
            parse_options=_dialect(),
            convert_options=_types(),
        )
    except pa.ArrowInvalid as error:
        raise _fault(block, part, str(error)) from error
    if table.num_rows != block.row_count or not block.is_plain:
        raise _fault(block, part, f"{table.num_rows} rows in {block.row_count} lines")
    _require_labels(table, block, part)
    return table


def arrow_schema() -> pa.Schema:
    """Return the schema of the Parquet form: int32 label and integers, string ids."""
    import pyarrow as pa

    integers = [(name, pa.int32()) for name in (LABEL, *INTEGERS)]
    return pa.schema([*integers, *((name, pa.string()) for name in CATEGORICALS)])


@cache
def _dialect() -> csv.ParseOptions:
    from pyarrow import csv

    return csv.ParseOptions(
        delimiter="\t",
        quote_char=False,
        escape_char=False,
        newlines_in_values=False,
        ignore_empty_lines=False,
    )


@cache
def _types() -> csv.ConvertOptions:
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types=arrow_schema(), null_values=[""], strings_can_be_null=True, check_utf8=False
    )


def _require_labels(table: pa.Table, block: Block, part: Part) -> None:
    from pyarrow import compute

    labels = table.column(LABEL)
    extremes = compute.min_max(labels).as_py()
    if labels.null_count or extremes["min"] < 0 or extremes["max"] > 1:
        raise _fault(block, part, "a label is neither 0 nor 1")


def _fault(block: Block, part: Part, reason: str) -> DataError:
    """Return the error for the first bad line of a block, with the parser's words if none is."""
    end = block.offset_bytes + len(block.text)
    lines = Part(part.source, block.offset_bytes, end, part.name)
    where = f"{part.source}, bytes {block.offset_bytes} to {end}"
    return find_fault(lines) or DataError(f"{where}: {reason}")
