"""loader=arrow: Criteo's logs from TSV to Parquet, and from Parquet to packed binary rows.

pyarrow's CSV parser with explicit types makes one row group per block of text; packed rows, 40
little-endian int32 each, are filled in blocks that fit a cache.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import DataPath
from wattload.core.workload import Requirement
from wattload.loaders.converters import (
    BadIdError,
    ConversionSettings,
    Converted,
    Converter,
    Packed,
    PartCount,
    corrupt,
    packed_bytes,
    read_metadata,
    require_columns,
    without_labels,
)
from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    COLUMNS,
    ID_MODULUS,
    INTEGERS,
    LABEL,
    Block,
    CountedFile,
    Moved,
    Part,
    Span,
    changed,
    find_fault,
    packed_paths,
    parse_line,
    read_blocks,
)
from wattload.loaders.data.gz_text import READ_BYTES, Ahead, PieceReader, is_gz, unpack

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import ReadableBuffer
    from pyarrow import csv


WRITE_BYTES = 1 << 20
PARSE_BYTES = 2 << 20
"""Text that pyarrow parses at a time: its columns stay near a core's cache, those of a whole block
do not (267 MB/s a core against 165)."""


FILL_ROWS = 4096
"""Rows filled and written at a time: 640 KiB, which stays in a core's cache while it is filled."""

_DIGITS = 8


class ArrowConverter:
    """pyarrow's conversion; see ``Converter``."""

    def tsv_to_parquet(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        with (
            CountedFile.create(path, moved) as file,
            io.BufferedWriter(file, WRITE_BYTES) as sink,
            Text(part, settings, moved) as text,
        ):
            write_parquet(text, sink, settings)
            text.require_end()
            sink.flush()
            os.fsync(sink.fileno())
        return text.converted((file.whole,))

    def tsv_to_binary(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        with (
            _packed_files(path, settings, moved) as sinks,
            Text(part, replace(settings, numeric_ids=True), moved) as text,
        ):
            pack_text(text, sinks, str(part.source), settings)
            text.require_end()
        return text.converted(tuple(sink.whole for sink in sinks))

    def parquet_to_binary(
        self, source: Path, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Packed:
        with (
            CountedFile(source, "rb", moved) as columns,
            _packed_files(path, settings, moved) as sinks,
        ):
            row_count = write_packed(columns, sinks, str(source), settings)
        return Packed(row_count, tuple(columns.spans), tuple(sink.whole for sink in sinks))

    def in_memory(self, part: Part, settings: ConversionSettings) -> None:
        """Do all steps with one block: from the page cache, to packed rows that are discarded."""
        chosen = settings if settings.columnar else replace(settings, numeric_ids=True)
        sinks = [_Discard() for _ in packed_paths(part.source, is_split=settings.splits_columns)]
        with io.BytesIO() as file, Text(part, chosen, lambda *_: None) as text:
            if settings.columnar:
                write_parquet(text, file, settings)
                write_packed(file, sinks, "memory", settings)
            else:
                pack_text(text, sinks, "memory", settings)


class _Discard(io.RawIOBase):
    """A file that discards what is written to it."""

    def write(self, data: ReadableBuffer, /) -> int:
        return memoryview(data).nbytes


def write_parquet(text: Text, sink: io.BufferedIOBase, settings: ConversionSettings) -> None:
    """Write a text as Parquet into an open file; raises as ``Converter``."""
    from pyarrow import parquet

    with parquet.ParquetWriter(
        sink,
        arrow_schema(numeric_ids=settings.numeric_ids),
        compression=settings.compression,
        write_statistics=[LABEL, *INTEGERS],  # statistics of hashed ids can't select rows
    ) as writer:
        for table in text:
            writer.write_table(table, row_group_size=table.num_rows)


def pack_text(
    text: Text, sinks: Sequence[io.RawIOBase], name: str, settings: ConversionSettings
) -> None:
    """Write a text with numeric ids as packed rows into open files; raises as ``Converter``."""
    for table in text:
        _write_rows(table, sinks, name, settings)


@contextmanager
def _packed_files(
    path: Path, settings: ConversionSettings, moved: Moved
) -> Iterator[list[CountedFile]]:
    """Create the packed files of a part; they are durable after the block."""
    with ExitStack() as opened:
        sinks = [
            opened.enter_context(CountedFile.create(each, moved))
            for each in packed_paths(path, is_split=settings.splits_columns)
        ]
        yield sinks
        for sink in sinks:
            os.fsync(sink.fileno())


class Text:
    """Iterates over the rows of a part in tables, one for each block that has any."""

    def __init__(self, part: Part, settings: ConversionSettings, moved: Moved) -> None:
        self._part = part
        self._settings = settings
        self._file = CountedFile(part.source, "rb", moved)
        self._ahead = Ahead(unpack(part.source, self._chunks())) if is_gz(part.source) else None
        self._text = PieceReader(iter(self._ahead)) if self._ahead else self._file
        self._count = PartCount()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._ahead:
            self._ahead.close()
        self._file.close()

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield tables; raises ``DataError`` that names the first bad row, unless it is dropped."""
        if not self._ahead:
            start, size = self._part.start_bytes, self._part.size_bytes
            os.posix_fadvise(self._file.fileno(), start, size, os.POSIX_FADV_SEQUENTIAL)
            self._file.seek(start)
        for block in read_blocks(self._text, self._part, self._settings.block_bytes):
            table = self._rows(block)
            if table is not None:
                self._count.add(block.offset_bytes, table.num_rows)
                yield table

    def converted(self, written: tuple[Span, ...]) -> Converted:
        """Return the counts of what was read, with what was ``written``."""
        unpack_cpu_s = self._ahead.cpu_s if self._ahead else 0.0
        return self._count.converted(tuple(self._file.spans), written, unpack_cpu_s)

    def require_end(self) -> None:
        """Read a gz file to its end; raises ``DataError`` if it has more text than the part."""
        if self._ahead and self._text.read(1):
            raise changed(self._part.source)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._file.read(READ_BYTES):
            yield chunk

    def _rows(self, block: Block) -> pa.Table | None:
        try:
            return parse(block, self._settings)
        except BadBlockError as error:
            if not self._settings.drops_bad_rows:
                raise _fault(block, self._part, str(error)) from error
        rows, dropped = without_bad_lines(block)
        if dropped:
            self._count.drop(len(dropped), dropped[0])
        return parse(rows, self._settings) if rows.row_count else None


class BadBlockError(Exception):
    """A block of text has a line that is not a row."""


def without_bad_lines(block: Block) -> tuple[Block, list[int]]:
    """Return a block without its bad lines, and the place of each of them in the file, in bytes.

    It reads one line after another, which is slow: bad lines are rare.
    """
    kept: list[bytes] = []
    bad: list[int] = []
    offset = block.offset_bytes
    for line in io.BytesIO(block.text):
        try:
            parse_line(line)
        except ValueError:
            bad.append(offset)
        else:
            kept.append(line)
        offset += len(line)
    text = memoryview(b"".join(kept))
    return Block(text, block.offset_bytes, row_count=len(kept), is_plain=True), bad


def parse(block: Block, settings: ConversionSettings) -> pa.Table:
    """Return the rows of a block; empty fields become nulls.

    Ids that are to stay strings are checked only where bad rows are dropped. Otherwise packing
    finds the bad ones.

    Raises:
        BadBlockError: a line is not a row.
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
        raise BadBlockError(str(error)) from error
    if table.num_rows != block.row_count or not block.is_plain:
        raise BadBlockError(f"{table.num_rows} rows in {block.row_count} lines")
    _require_labels(table)
    if not settings.numeric_ids and not settings.drops_bad_rows:
        return table
    try:
        numbers = _with_numeric_ids(table)
    except ValueError as error:
        raise BadBlockError(str(error)) from error
    return numbers if settings.numeric_ids else table


def arrow_schema(*, numeric_ids: bool) -> pa.Schema:
    """Return the schema of the Parquet form: int32 label and integers, string or int32 ids."""
    import pyarrow as pa

    id_type = pa.int32() if numeric_ids else pa.string()
    integers = [(name, pa.int32()) for name in (LABEL, *INTEGERS)]
    return pa.schema([*integers, *((name, id_type) for name in CATEGORICALS)])


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
        column_types=arrow_schema(numeric_ids=False),
        null_values=[""],
        strings_can_be_null=True,
        check_utf8=False,
    )


def _require_labels(table: pa.Table) -> None:
    from pyarrow import compute

    labels = table.column(LABEL)
    extremes = compute.min_max(labels).as_py()
    if labels.null_count or extremes["min"] < 0 or extremes["max"] > 1:
        raise BadBlockError("a label is neither 0 nor 1")


def _with_numeric_ids(table: pa.Table) -> pa.Table:
    """Return a table with ids as int32; raises ``ValueError`` for one that is not 8 hex digits."""
    import pyarrow as pa

    columns = [
        pa.chunked_array([_numeric_ids(chunk) for chunk in column.chunks], pa.int32())
        if name in CATEGORICALS
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, arrow_schema(numeric_ids=True))


def _numeric_ids(chunk: pa.Array) -> pa.Array:
    import pyarrow as pa

    if not chunk.null_count:
        return pa.array(_numbers_of_ids(chunk))
    present = _present(chunk)
    numbers = np.zeros(len(chunk), np.int32)
    numbers[present] = _numbers_of_ids(chunk.drop_null())
    return pa.array(numbers, mask=~present)


def _fault(block: Block, part: Part, reason: str) -> DataError:
    """Return the error for the first bad line of a block, else the parser's message."""
    end = block.offset_bytes + len(block.text)
    lines = Part(part.source, block.offset_bytes, end, part.name)
    where = f"{part.source}, bytes {block.offset_bytes} to {end}"
    return find_fault(lines) or DataError(f"{where}: {reason}")


def write_packed(
    columns: io.IOBase, sinks: Sequence[io.RawIOBase], name: str, settings: ConversionSettings
) -> int:
    """Pack all rows of an open Parquet file; raises as ``Converter``."""
    row_count = 0
    for table in _row_groups(columns, name, settings):
        _write_rows(table, sinks, name, settings)
        row_count += table.num_rows
    return row_count


def _write_rows(
    table: pa.Table, sinks: Sequence[io.RawIOBase], name: str, settings: ConversionSettings
) -> None:
    rows = np.empty((FILL_ROWS, len(COLUMNS)), dtype="<i4")
    values = [pack_column(table.column(column), column, name) for column in COLUMNS]
    for first in range(0, table.num_rows, FILL_ROWS):
        count = min(FILL_ROWS, table.num_rows - first)
        for index, column in enumerate(values):
            rows[:count, index] = column[first : first + count]
        for sink, content in zip(sinks, packed_bytes(rows[:count], settings), strict=True):
            sink.write(content.data)


def _row_groups(columns: io.IOBase, name: str, settings: ConversionSettings) -> Iterator[pa.Table]:
    """Yield the row groups; strings as dictionaries: each distinct id is then packed once."""
    import pyarrow as pa
    from pyarrow import parquet

    def read(offset: int, length: int) -> bytes:
        columns.seek(offset)
        data: bytes = columns.read(length)
        return data

    try:
        metadata = read_metadata(name, columns.seek(0, os.SEEK_END), read)
        require_columns(metadata, name, numeric_ids=settings.numeric_ids)
        texts = () if settings.numeric_ids else CATEGORICALS
        file = parquet.ParquetFile(
            columns, metadata=metadata, read_dictionary=list(texts), pre_buffer=False
        )
    except (pa.ArrowException, OSError) as error:
        raise corrupt(name, error) from error
    for index in range(file.num_row_groups):
        try:
            table = file.read_row_group(index, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise corrupt(name, error) from error
        yield table


def pack_column(column: pa.ChunkedArray, column_name: str, name: str) -> NDArray[np.int32]:
    """Return a column as packed values, shape ``(rows,)``.

    Raises ``BadIdError`` for an id that is not 8 hex digits, ``DataError`` for a missing label.
    """
    import pyarrow as pa

    if column_name == LABEL and column.null_count:
        raise without_labels(name, column.null_count)
    is_text = column.type != pa.int32()
    pack = _pack_ids if is_text else _pack_integers
    try:
        parts = [pack(chunk) for chunk in column.chunks]
    except ValueError as error:
        raise BadIdError(f"{name}, column {column_name}: {error}") from error
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int32), *parts])


def _pack_integers(chunk: pa.Array) -> NDArray[np.int32]:
    values = np.maximum(_numbers(chunk), 0)
    if chunk.null_count:
        values *= _present(chunk)
    return values


def _pack_ids(chunk: pa.Array) -> NDArray[np.int32]:
    """Pack each distinct id once, then look the rows up; the entry after the last is the gap."""
    distinct = _numbers_of_ids(chunk.dictionary)
    rows = _numbers(chunk.indices)
    if chunk.null_count:
        rows = np.where(_present(chunk.indices), rows, len(distinct))
    table = np.append(distinct, np.int32(0))
    return table.take(rows, mode="clip")


def _numbers_of_ids(strings: pa.Array) -> NDArray[np.int32]:
    """Return uint32 modulo 40,000,000 of each string; raises ``ValueError`` for a bad one.

    None of the strings is null.
    """
    if not len(strings):
        return np.empty(0, dtype=np.int32)
    _, offset_buffer, text_buffer = strings.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(strings) + 1, 4 * strings.offset)
    text = np.frombuffer(text_buffer, np.uint8)[offsets[0] : offsets[-1]]
    if (np.diff(offsets) != _DIGITS).any():
        raise ValueError(_first_bad(strings))
    pairs = _hex_pairs().take(text.view("<u2"), mode="clip")
    if pairs.max() > 0xFF:  # noqa: PLR2004 - the value of no pair of hex digits
        raise ValueError(_first_bad(strings))
    ids = pairs.astype(np.uint8).view(">u4").astype(np.uint32)
    return (ids % np.uint32(ID_MODULUS)).view(np.int32)


def _first_bad(strings: pa.Array) -> str:
    digits = set("0123456789abcdefABCDEF")
    for text in strings.cast("binary").to_pylist():
        if len(text) != _DIGITS or not set(text.decode("latin-1")) <= digits:
            return f"{text!r} is not an id; it must be empty or 8 hex digits"
    raise ValueError("no bad id among the strings")


@cache
def _hex_pairs() -> NDArray[np.uint16]:
    """Return the value of two hex digits read as a little-endian word; 0xFFFF for anything else."""
    values = np.full(1 << 16, 0xFFFF, dtype=np.uint16)
    digits = {ord(text): int(text, 16) for text in "0123456789abcdefABCDEF"}
    for high, high_value in digits.items():
        for low, low_value in digits.items():
            values[high | low << 8] = high_value << 4 | low_value
    return values


def _numbers(array: pa.Array) -> NDArray[np.int32]:
    """Return an int32 array's values without a copy; gaps are undefined."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array), 4 * array.offset)


def _present(array: pa.Array) -> NDArray[np.bool_]:
    """Return which rows have a value, from the validity bits (least significant first)."""
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    count = array.offset + len(array)
    flags = np.unpackbits(bits, count=count, bitorder="little")
    return flags[array.offset :].view(np.bool_)


@dataclass(slots=True, kw_only=True)
class Config:
    """pyarrow's CSV parser and Parquet writer, one core per worker, through the page cache."""

    name: ClassVar[str] = "arrow"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.arrow.Config"

    def check(self) -> None:
        """Accept it: there is nothing to set."""

    @property
    def conversion_path(self) -> DataPath:
        return DataPath(data_path="page_cache", path_requested="page_cache")

    @property
    def conversion_is_direct(self) -> bool:
        """``False``: any file system will do."""
        return False

    def converter(self) -> Converter:
        return ArrowConverter()

    def conversion_memory_bytes(self, block_bytes: int) -> int:
        """Return a bound on the memory of one worker, measured while bad rows are dropped."""
        return 200_000_000 + 12 * block_bytes
