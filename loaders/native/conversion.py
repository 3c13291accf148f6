"""The steps of loader=native: cells and pages by the engine's C library.

A block's rows become one row group; its columns are encoded one after another, so that the
dictionary of one column stays in a core's cache. Codecs are pyarrow's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import Extent
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.converters import (
    BadIdError,
    ConversionSettings,
    Converted,
    NumberedColumn,
    Packed,
    PartCount,
    RowFiles,
    Scattered,
    Shuffled,
    corrupt,
    packed_bytes,
    read_metadata,
    require_columns,
    without_labels,
)
from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    COLUMNS,
    LABEL,
    Bytes,
    Moved,
    Part,
    find_fault,
    packed_paths,
)
from wattload.loaders.data.gz_text import chunks_of, is_gz, open_text
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.native import parquet
from wattload.loaders.native.dictionaries import number_column
from wattload.loaders.native.direct_files import (
    PACKED_ROWS,
    FileSource,
    Machine,
    MemorySink,
    Sink,
    Source,
    Text,
    new_files,
    with_line_end,
    without_mark,
)
from wattload.loaders.native.parquet import Chunk, Column, PageError, RowGroup
from wattload.loaders.native.shuffle import scatter_rows, shuffle_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData, RowGroupMetaData


_INT32, _TEXT, _NUMBER, _WHOLE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeConverter:
    """Converts in C. The fields are those of the I/O engine that each worker opens."""

    engine: str
    block_bytes: int
    queue_depth: int

    def tsv_to_parquet(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        """Write one part as Parquet; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        with new_files(machine, [path], moved) as sinks, Text(machine, part, moved) as text:
            count = _write_parquet(machine, text, part, sinks[0], settings)
            text.require_end()
        return count.converted((text.span,), (sinks[0].span,), text.unpack_cpu_s)

    def tsv_to_binary(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        """Write one part as packed rows; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        paths = _packed_paths(path, settings)
        with new_files(machine, paths, moved) as sinks, Text(machine, part, moved) as text:
            count = _pack_text(machine, text, part, sinks, settings)
            text.require_end()
        written = tuple(sink.span for sink in sinks)
        return count.converted((text.span,), written, text.unpack_cpu_s)

    def parquet_to_binary(
        self, source: Path, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Packed:
        """Write a Parquet file as packed rows; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        columns = FileSource(machine, source, moved)
        paths = _packed_paths(path, settings)
        with new_files(machine, paths, moved) as sinks:
            row_count = _write_packed(machine, columns, sinks, settings)
        return Packed(row_count, tuple(columns.spans), tuple(sink.span for sink in sinks))

    def number_column(
        self,
        sources: Sequence[Path],
        targets: Sequence[Path],
        spills: Sequence[Path],
        settings: ConversionSettings,
        *,
        threshold: int,
        table_limit: int,
        moved: Moved,
    ) -> NumberedColumn:
        """Write the numbers of one column's ids; see ``IdNumberer``."""
        return number_column(
            _machine(self, settings.block_bytes),
            sources,
            targets,
            spills,
            threshold=threshold,
            table_limit=table_limit,
            moved=moved,
        )

    def scatter_rows(
        self,
        source: RowFiles,
        target: Path,
        settings: ConversionSettings,
        *,
        seed: int,
        first_row: int,
        bucket_count: int,
        row_limit: int,
        moved: Moved,
    ) -> Scattered:
        """Write rows by random buckets; see ``RowShuffler``."""
        return scatter_rows(
            _machine(self, settings.block_bytes),
            source,
            target,
            seed=seed,
            first_row=first_row,
            bucket_count=bucket_count,
            row_limit=row_limit,
            moved=moved,
        )

    def shuffle_rows(
        self,
        sources: Sequence[Extent],
        targets: Sequence[Path],
        widths: Sequence[int],
        settings: ConversionSettings,
        *,
        seed: int,
        bucket: int,
        moved: Moved,
    ) -> Shuffled:
        """Write a bucket's rows in random order; see ``RowShuffler``."""
        machine = _machine(self, settings.block_bytes)
        return shuffle_rows(
            machine, sources, targets, widths, seed=seed, bucket=bucket, moved=moved
        )

    def in_memory(self, part: Part, settings: ConversionSettings) -> None:
        """Do all steps with the first lines of a part; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        if is_gz(part.source):
            with Text(machine, part, lambda *_: None, chunks_of(part.source)) as text:
                self._in_memory(machine, text, part, settings)
            return
        memory, end = machine.inputs[0], part.size_bytes
        with open_text(part.source, part.start_bytes) as file:
            file.readinto(memory[:end].data)
        block = without_mark(part.start_bytes, with_line_end(memory, 0, end))
        self._in_memory(machine, [block], part, settings)

    @staticmethod
    def _in_memory(
        machine: Machine,
        text: Text | Sequence[tuple[int, Bytes]],
        part: Part,
        settings: ConversionSettings,
    ) -> None:
        sinks = [MemorySink() for _ in _packed_paths(part.source, settings)]
        if not settings.columnar:
            _pack_text(machine, text, part, sinks, settings)
            return
        columns = MemorySink()
        _write_parquet(machine, text, part, columns, settings)
        _write_packed(machine, columns, sinks, settings)


@lru_cache(maxsize=1)
def _machine(converter: NativeConverter, block_bytes: int) -> Machine:
    """Return this process's engine and memory; a worker has the same for all its tasks."""
    return Machine(
        engine=converter.engine,
        io_block_bytes=converter.block_bytes,
        queue_depth=converter.queue_depth,
        block_bytes=block_bytes,
    )


def _write_parquet(
    machine: Machine,
    text: Text | Sequence[tuple[int, Bytes]],
    part: Part,
    sink: Sink,
    settings: ConversionSettings,
) -> PartCount:
    """Write blocks of whole lines as Parquet; raises ``DataError`` that names the first bad row."""
    writer = _ParquetWriter(machine, sink, settings)
    count = PartCount()
    for offset, block in text:
        progress = struct("wl_tsv_progress")()
        while progress.taken_bytes < block.size:
            at = progress.taken_bytes
            rows = machine.library.wl_tsv_read(
                block.ctypes.data + at,
                block.size - at,
                machine.cells.ctypes.data,
                machine.stride,
                machine.row_limit,
                settings.drops_bad_rows,
                ctypes.byref(progress),
            )
            _require_rows(part, offset, progress, settings)
            if rows:
                writer.write_cells(rows)
            count.add(offset + at, rows)
        _drop(count, offset, progress)
    writer.finish()
    return count


def _pack_text(
    machine: Machine,
    text: Text | Sequence[tuple[int, Bytes]],
    part: Part,
    sinks: Sequence[Sink],
    settings: ConversionSettings,
) -> PartCount:
    """Write blocks of whole lines as packed rows; raises as ``_write_parquet``."""
    count = PartCount()
    for offset, block in text:
        progress = struct("wl_tsv_progress")()
        block_rows = 0
        while progress.taken_bytes < block.size:
            at = progress.taken_bytes
            rows = machine.library.wl_tsv_pack(
                block.ctypes.data + at,
                block.size - at,
                machine.rows.ctypes.data,
                PACKED_ROWS,
                settings.drops_bad_rows,
                settings.whole_ids,
                ctypes.byref(progress),
            )
            _require_rows(part, offset, progress, settings)
            _write_rows(machine.rows[:rows], sinks, settings)
            block_rows += rows
        count.add(offset, block_rows)
        _drop(count, offset, progress)
    return count


def _write_rows(
    rows: NDArray[np.int32], sinks: Sequence[Sink], settings: ConversionSettings
) -> None:
    """Write packed rows, which may be changed."""
    for sink, content in zip(sinks, packed_bytes(rows, settings), strict=True):
        sink.write(content)


def _require_rows(
    part: Part, offset: int, progress: ctypes.Structure, settings: ConversionSettings
) -> None:
    """Raise ``DataError`` for a bad line in the block at ``offset``, unless it is dropped."""
    if progress.bad_count and not settings.drops_bad_rows:
        raise _fault(part, offset + progress.bad_offsets[0])


def _drop(count: PartCount, offset: int, progress: ctypes.Structure) -> None:
    if progress.bad_count:
        count.drop(progress.bad_count, offset + progress.bad_offsets[0])


def _fault(part: Part, offset: int) -> DataError:
    """Return the error of a line that is no row."""
    rest = Part(part.source, offset, part.end_bytes, part.name)
    return find_fault(rest) or DataError(f"{part.source}, byte {offset}: this line is no row")


def _kinds(settings: ConversionSettings) -> list[int]:
    ids = _NUMBER if settings.numeric_ids else _TEXT
    return [ids if name in CATEGORICALS else _INT32 for name in COLUMNS]


def _packed_paths(path: Path, settings: ConversionSettings) -> tuple[Path, ...]:
    return packed_paths(path, is_split=settings.splits_columns, has_whole_ids=settings.whole_ids)


def _codec(compression: str) -> pa.Codec | None:
    import pyarrow as pa

    name = {"lz4": "lz4_raw"}.get(compression, compression)
    return None if name == "none" else pa.Codec(name)


class _ParquetWriter:
    """Writes the machine's cells as row groups of a Parquet file."""

    def __init__(self, machine: Machine, sink: Sink, settings: ConversionSettings) -> None:
        self._machine = machine
        self._sink = sink
        self._compression = settings.compression
        self._codec = _codec(settings.compression)
        self._kinds = _kinds(settings)
        self._groups: list[RowGroup] = []
        self._position = 0
        self._write(parquet.MAGIC)

    def write_cells(self, rows: int) -> None:
        """Write the first rows of the cells as one row group."""
        chunks = [self._write_chunk(column, rows) for column in range(len(COLUMNS))]
        self._groups.append(RowGroup(row_count=rows, chunks=chunks))

    def finish(self) -> None:
        schema = [
            Column(name=name, kind=parquet.BYTE_ARRAY if kind == _TEXT else parquet.INT32)
            for name, kind in zip(COLUMNS, self._kinds, strict=True)
        ]
        self._write(parquet.footer(schema, self._groups, codec=self._compression))

    def _write(self, data: Bytes | memoryview | bytes) -> int:
        self._sink.write(data)
        size_bytes = data.nbytes if isinstance(data, np.ndarray) else len(data)
        self._position += size_bytes
        return size_bytes

    def _write_chunk(self, column: int, rows: int) -> Chunk:
        machine, found = self._machine, struct("wl_column")()
        machine.library.wl_column_encode(
            machine.cells[column].ctypes.data,
            rows,
            self._kinds[column],
            machine.scratch.ctypes.data,
            machine.dictionary.ctypes.data,
            machine.data.ctypes.data,
            ctypes.byref(found),
        )
        start, plain_bytes = self._position, 0
        if found.dictionary_bytes:
            page = machine.dictionary[: found.dictionary_bytes]
            plain_bytes += self._write_page(page, found.dictionary_count, is_dictionary=True)
        data_start, page = self._position, machine.data[: found.data_bytes]
        plain_bytes += self._write_page(page, rows, has_indices=found.dictionary_bytes > 0)
        is_stated = self._kinds[column] == _INT32 and found.null_count < rows
        return Chunk(
            offset_bytes=start,
            data_offset_bytes=data_start,
            plain_bytes=plain_bytes,
            stored_bytes=self._position - start,
            null_count=found.null_count,
            extremes=(found.least, found.most) if is_stated else None,
        )

    def _write_page(
        self,
        page: Bytes,
        value_count: int,
        *,
        is_dictionary: bool = False,
        has_indices: bool = False,
    ) -> int:
        """Write a page and return its size before compression, with its header."""
        stored = (
            page if self._codec is None else np.frombuffer(self._codec.compress(page), np.uint8)
        )
        header = parquet.page_header(
            is_dictionary=is_dictionary,
            plain_bytes=page.size,
            stored_bytes=stored.size,
            value_count=value_count,
            has_indices=has_indices,
        )
        header_bytes = self._write(header)
        self._write(stored)
        return header_bytes + page.size


def _write_packed(
    machine: Machine, source: Source, sinks: Sequence[Sink], settings: ConversionSettings
) -> int:
    """Write the rows of a Parquet file as packed rows and return their number.

    Raises:
        BadIdError: an id is not 8 hex digits.
        DataError: the file is truncated, corrupt, or has other columns.
    """
    import pyarrow as pa

    try:
        metadata = read_metadata(
            source.name,
            source.size_bytes,
            lambda *place: next(source.read([place])).tobytes(),
        )
        require_columns(metadata, source.name, numeric_ids=settings.numeric_ids)
        packing = _Packing(machine, source, metadata, settings)
        for batch, data in zip(packing.batches, source.read(packing.ranges), strict=True):
            first = batch[0].offset_bytes
            for chunk in batch:
                at = chunk.offset_bytes - first
                packing.decode(chunk, data[at : at + chunk.size_bytes])
                if chunk.column == len(COLUMNS) - 1:
                    packing.write_rows(chunk.row_count, sinks, settings)
    except (pa.ArrowException, PageError) as error:
        raise corrupt(source.name, error) from error
    return int(metadata.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnChunk:
    """A column chunk in a file, and the rows of its row group."""

    column: int
    row_count: int
    offset_bytes: int
    size_bytes: int


class _Packing:
    """Decodes the column chunks of a file, and packs the rows of each group of them."""

    def __init__(
        self,
        machine: Machine,
        source: Source,
        metadata: FileMetaData,
        settings: ConversionSettings,
    ) -> None:
        self._machine = machine
        self._source = source
        self._kinds = [
            _WHOLE if kind == _TEXT and settings.whole_ids else kind for kind in _kinds(settings)
        ]
        self._columns = machine.cells.view(np.int32)
        self._distinct = machine.dictionary.view(np.int32)
        schema = metadata.schema
        index = {schema.column(column).name: column for column in range(len(schema))}
        chunks = [
            self._chunk(metadata.row_group(group), column, index[name])
            for group in range(metadata.num_row_groups)
            for column, name in enumerate(COLUMNS)
        ]
        self._codec = _codec(_compression(metadata))
        self.batches: list[list[_ColumnChunk]] = []
        held = 0
        for chunk in chunks:
            follows = self.batches and chunk.offset_bytes == held
            first = self.batches[-1][0].offset_bytes if follows else 0
            held = chunk.offset_bytes + chunk.size_bytes
            if follows and held - first <= machine.block_bytes - PAGE_BYTES:
                self.batches[-1].append(chunk)
            else:
                self.batches.append([chunk])
        self.ranges = [
            (batch[0].offset_bytes, sum(chunk.size_bytes for chunk in batch))
            for batch in self.batches
        ]

    def decode(self, chunk: _ColumnChunk, data: Bytes) -> None:
        """Decode the pages of a column chunk to packed values."""
        kind = self._kinds[chunk.column]
        done = distinct = 0
        null_count = ctypes.c_uint32()
        has_dictionary = False
        view = data.data
        while done < chunk.row_count:
            page = parquet.read_page_header(view)
            stored = view[page.header_bytes : page.header_bytes + page.stored_bytes]
            limit = self._machine.row_limit if page.is_dictionary else chunk.row_count - done
            if page.value_count > limit or len(stored) < page.stored_bytes:
                raise PageError("a page is longer than its column chunk")
            plain = self._plain(stored, page.plain_bytes)
            address = plain.ctypes.data
            if page.is_dictionary:
                has_dictionary, distinct = True, page.value_count
                code = self._machine.library.wl_dictionary_decode(
                    address, plain.size, distinct, kind, self._distinct.ctypes.data
                )
            else:
                code = self._machine.library.wl_data_decode(
                    address,
                    plain.size,
                    page.value_count,
                    kind,
                    1,
                    self._distinct.ctypes.data if page.has_indices and has_dictionary else None,
                    distinct,
                    self._machine.scratch.ctypes.data,
                    self._columns[chunk.column, done:].ctypes.data,
                    ctypes.byref(null_count),
                )
                done += page.value_count
            if code == library.BAD_ID:
                name = COLUMNS[chunk.column]
                raise BadIdError(f"{self._source.name}, column {name}: an id is not 8 hex digits")
            if code != library.OK:
                raise PageError("a page does not have its values")
            view = view[page.header_bytes + page.stored_bytes :]
        if COLUMNS[chunk.column] == LABEL and null_count.value:
            raise without_labels(self._source.name, null_count.value)

    def write_rows(
        self, row_count: int, sinks: Sequence[Sink], settings: ConversionSettings
    ) -> None:
        """Write the rows of the columns that have been decoded."""
        machine = self._machine
        for first in range(0, row_count, PACKED_ROWS):
            count = min(PACKED_ROWS, row_count - first)
            machine.library.wl_rows_pack(
                self._columns[:, first:].ctypes.data,
                self._columns.shape[1],
                count,
                machine.rows.ctypes.data,
            )
            _write_rows(machine.rows[:count], sinks, settings)

    def _chunk(self, group: RowGroupMetaData, column: int, index: int) -> _ColumnChunk:
        """Return a chunk, number ``index`` in the file, after checking it."""
        chunk = group.column(index)
        offset = chunk.data_page_offset
        if chunk.has_dictionary_page:
            offset = min(offset, chunk.dictionary_page_offset)
        size = chunk.total_compressed_size
        if offset < 0 or size <= 0 or offset + size > self._source.size_bytes:
            raise PageError("a column chunk is not in the file")
        machine = self._machine
        if group.num_rows > machine.row_limit or size > machine.block_bytes - PAGE_BYTES:
            raise DataError(
                f"{self._source.name} has a row group of {group.num_rows} rows, more than "
                f"workload.block_bytes={machine.block_bytes} has room for"
            )
        return _ColumnChunk(
            column=column, row_count=group.num_rows, offset_bytes=offset, size_bytes=size
        )

    def _plain(self, stored: memoryview, plain_bytes: int) -> Bytes:
        if self._codec is None:
            return np.frombuffer(stored, np.uint8)
        if plain_bytes > self._machine.data.size:
            raise PageError("a page is too long")
        return np.frombuffer(self._codec.decompress(stored, plain_bytes), np.uint8)


def _compression(metadata: FileMetaData) -> str:
    if not metadata.num_row_groups:
        return "none"
    name = str(metadata.row_group(0).column(0).compression).lower()
    return {"uncompressed": "none"}.get(name, name)
