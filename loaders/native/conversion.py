"""The steps of loader=native: bytes by the I/O engine, cells and pages by its C library.

TSV is read block by block while the block before is parsed, and what is finished is written
meanwhile. A block's rows become one row group; its columns are encoded one after another, so that
the dictionary of one column stays in a core's cache. Codecs are pyarrow's.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import Allocation, Extent, IOKind, IOPlan
from wattload.loaders.aligned_io import (
    PAGE_BYTES,
    aligned_buffer,
    create_direct,
    direct_alignment,
    round_down,
    round_up,
)
from wattload.loaders.converters import (
    BadIdError,
    ConversionSettings,
    Converted,
    Packed,
    PartCount,
    corrupt,
    require_columns,
    without_labels,
)
from wattload.loaders.data.crc32 import crc32_of
from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    COLUMNS,
    LABEL,
    LINE_LIMIT_BYTES,
    Moved,
    Part,
    Span,
    changed,
    find_fault,
    long_line,
    take_logarithms,
)
from wattload.loaders.data.data_folder import open_data_folder
from wattload.loaders.data.gz_text import Ahead, PieceReader, is_gz, open_text, unpack
from wattload.loaders.engine import library
from wattload.loaders.engine.engine import IOEngine, Ticket
from wattload.loaders.native import parquet
from wattload.loaders.native.parquet import Chunk, Column, PageError, RowGroup

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData, RowGroupMetaData

Bytes = NDArray[np.uint8]
"""Memory, shape (n,)."""

PIECE_BYTES = 4 << 20
"""Output is written in pieces of this size."""
PIECES = 3
"""One is filled while two are written."""
GROUP_ROW_BYTES = 160
"""A row group has at most as many rows as its block would have of this length. Criteo's have some
246 bytes; shorter ones need no more memory."""
SLACK_BYTES = 4096
"""The library reads up to 64 bytes beyond the text."""
PACKED_ROWS = 6553
"""Rows packed at a time, 1 MB."""

_INT32, _TEXT, _NUMBER = 0, 1, 2
_TAIL_BYTES = 64 << 10
"""Read first of a Parquet file: its footer, if it is that short."""
_FRAME_BYTES = 8
"""The footer's length and the magic number."""


class Sink(Protocol):
    """Takes bytes in their order."""

    def write(self, data: Bytes | memoryview | bytes, /) -> object:
        """Take all of the data."""
        ...


class Source(Protocol):
    """A file whose ranges are read: ``(offset, length)`` in bytes, each at most a block."""

    name: str

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        ...

    def read(self, ranges: Sequence[tuple[int, int]]) -> Iterator[Bytes]:
        """Yield the bytes of each range; they are valid until the next is requested."""
        ...


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
        with _FileSink(machine, path, moved) as sink, _Text(machine, part, moved) as text:
            count = _write_parquet(machine, text, part, sink, settings)
            text.require_end()
            sink.finish()
        return count.converted((text.span,), sink.spans, text.unpack_cpu_s)

    def tsv_to_binary(
        self, part: Part, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Converted:
        """Write one part as packed rows; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        with _FileSink(machine, path, moved) as sink, _Text(machine, part, moved) as text:
            count = _pack_text(machine, text, part, sink, settings)
            text.require_end()
            sink.finish()
        return count.converted((text.span,), sink.spans, text.unpack_cpu_s)

    def parquet_to_binary(
        self, source: Path, path: Path, settings: ConversionSettings, moved: Moved
    ) -> Packed:
        """Write a Parquet file as packed rows; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        columns = _FileSource(machine, source, moved)
        with _FileSink(machine, path, moved) as sink:
            row_count = _write_packed(machine, columns, sink, settings)
            sink.finish()
        return Packed(row_count, tuple(columns.spans), sink.spans)

    def in_memory(self, part: Part, settings: ConversionSettings) -> None:
        """Do all steps with one block; see ``Converter``."""
        machine = _machine(self, settings.block_bytes)
        memory, end = machine.inputs[0], part.size_bytes
        with open_text(part.source, part.start_bytes) as file:
            file.readinto(memory[:end].data)
        text = [(part.start_bytes, _with_line_end(memory, 0, end))]
        if not settings.columnar:
            _pack_text(machine, text, part, _MemorySink(), settings)
            return
        columns = _MemorySink()
        _write_parquet(machine, text, part, columns, settings)
        _write_packed(machine, columns, _MemorySink(), settings)


class _Machine:
    """The engine and the memory of a worker process, for blocks of ``block_bytes`` of text.

    Memory that not every step uses is allocated when a step first does.
    """

    def __init__(self, converter: NativeConverter, block_bytes: int) -> None:
        self.library = library.load()
        self.block_bytes = round_up(block_bytes, LINE_LIMIT_BYTES)
        self.row_limit = self.block_bytes // GROUP_ROW_BYTES
        # Columns apart by an odd number of cache lines: those of one row are in different sets.
        self.stride = round_up(self.row_limit, 16) + 8
        self._input_bytes = input_bytes = LINE_LIMIT_BYTES + self.block_bytes + SLACK_BYTES
        slot_bytes = converter.block_bytes * converter.queue_depth
        memory = aligned_buffer(max(2 * input_bytes + PIECES * PIECE_BYTES, slot_bytes))
        self.inputs = [memory[:input_bytes], memory[input_bytes : 2 * input_bytes]]
        first = 2 * input_bytes
        self.pieces = [
            memory[first + number * PIECE_BYTES : first + (number + 1) * PIECE_BYTES]
            for number in range(PIECES)
        ]
        self._io = converter
        self._engine = IOEngine(
            backend=converter.engine,
            block_bytes=converter.block_bytes,
            depth=converter.queue_depth,
            slots=memory,
        )

    @cached_property
    def text(self) -> Bytes:
        """A block of the text of a gz file, with room for the rest of a line before it."""
        return np.zeros(self._input_bytes, np.uint8)

    @cached_property
    def cells(self) -> NDArray[np.uint64]:
        """The fields of a block's rows, shape (columns, stride)."""
        return np.zeros((len(COLUMNS), self.stride), np.uint64)

    @cached_property
    def dictionary(self) -> Bytes:
        """The dictionary page of a column."""
        return np.zeros(self._page_bytes, np.uint8)

    @cached_property
    def data(self) -> Bytes:
        """The data page of a column."""
        return np.zeros(self._page_bytes, np.uint8)

    @cached_property
    def scratch(self) -> Bytes:
        """What the library needs to encode or decode a column."""
        return np.zeros(self.library.wl_column_scratch_bytes(self.row_limit), np.uint8)

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """Packed rows, shape (``PACKED_ROWS``, columns)."""
        return np.zeros((PACKED_ROWS, len(COLUMNS)), "<i4")

    @property
    def _page_bytes(self) -> int:
        return round_up(self.library.wl_column_page_bytes(self.row_limit), 8)

    def move(self, kind: IOKind, extent: Extent, memory: Bytes, moved: Moved) -> Ticket:
        """Queue the read or the write of an extent to or from memory."""
        is_read = kind is IOKind.READ
        return self._engine.submit(
            IOPlan(
                kind=kind,
                extents=[extent],
                block_bytes=self._io.block_bytes,
                depth=self._io.queue_depth,
                allocation=Allocation.OVERWRITE,
            ),
            destination=memory,
            moved=lambda count: moved(count * is_read, count * (not is_read), 1),
            alignment_bytes=direct_alignment(extent.path),
        )

    def read_ahead(
        self, path: Path, ranges: Sequence[tuple[int, int]], moved: Moved
    ) -> Iterator[Bytes]:
        """Yield the memory of each range of a file while the next one is read.

        Its first byte is at ``LINE_LIMIT_BYTES`` in the memory, which ends with ``SLACK_BYTES`` of
        room. Offsets are multiples of the alignment.
        """
        tickets: dict[int, Ticket] = {}
        try:
            for number in range(len(ranges) + 1):
                if number < len(ranges):
                    memory = self.inputs[number % 2][LINE_LIMIT_BYTES:]
                    extent = Extent(path, *ranges[number])
                    tickets[number] = self.move(IOKind.READ, extent, memory, moved)
                if number:
                    tickets[number - 1].result()
                    yield self.inputs[(number - 1) % 2]
        finally:
            for ticket in tickets.values():
                ticket.discard()


@lru_cache(maxsize=1)
def _machine(converter: NativeConverter, block_bytes: int) -> _Machine:
    """Return this process's engine and memory; a worker has the same for all its tasks."""
    return _Machine(converter, block_bytes)


class _Text:
    """Iterates over a part's text in blocks of whole lines, with the offset of each in the file.

    ``span`` has the checksum of what was read of the file so far.
    """

    def __init__(self, machine: _Machine, part: Part, moved: Moved) -> None:
        self._machine = machine
        self._part = part
        self._moved = moved
        self.span = Span(part.start_bytes, 0, 0)
        self._ahead = Ahead(unpack(part.source, self._chunks())) if is_gz(part.source) else None
        self._pieces = PieceReader(iter(self._ahead or ()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._ahead:
            self._ahead.close()

    @property
    def unpack_cpu_s(self) -> float:
        """The CPU time of the thread that unpacks gz, in seconds, at the end of the text."""
        return self._ahead.cpu_s if self._ahead else 0.0

    def require_end(self) -> None:
        """Read a gz file to its end; raises ``DataError`` if it has more text than the part."""
        if self._pieces.read(1):
            raise changed(self._part.source)

    def __iter__(self) -> Iterator[tuple[int, Bytes]]:
        """Yield offset and text; the text is valid until the next block is requested.

        Raises:
            DataError: a line is longer than ``LINE_LIMIT_BYTES``, or the file changed.
        """
        part = self._part
        held = np.empty(0, np.uint8)
        for offset, length, memory in self._unpacked() if self._ahead else self._read():
            start = LINE_LIMIT_BYTES + max(part.start_bytes - offset, 0)
            end = LINE_LIMIT_BYTES + length
            memory[start - held.size : start] = held
            start -= held.size
            if offset + length == part.end_bytes:
                text = _with_line_end(memory, start, end)
                held = held[:0]
            else:
                tail = memory[max(start, end - LINE_LIMIT_BYTES) : end].tobytes()
                kept = len(tail) - tail.rfind(b"\n") - 1
                if kept == len(tail):
                    raise long_line(part.source, offset + length - kept)
                held = np.frombuffer(tail[len(tail) - kept :], np.uint8)
                text = memory[start : end - kept]
            yield offset + start - LINE_LIMIT_BYTES, text

    def _read(self) -> Iterator[tuple[int, int, Bytes]]:
        """Yield offset and length of each block of a plain file, and its memory."""
        part, step = self._part, self._machine.block_bytes
        first = round_down(part.start_bytes, direct_alignment(part.source))
        ranges = [
            (offset, min(step, part.end_bytes - offset))
            for offset in range(first, part.end_bytes, step)
        ]
        memories = self._machine.read_ahead(part.source, ranges, self._moved)
        for (offset, length), memory in zip(ranges, memories, strict=True):
            start = LINE_LIMIT_BYTES + max(part.start_bytes - offset, 0)
            self._check_in(memory[start : LINE_LIMIT_BYTES + length])
            yield offset, length, memory

    def _unpacked(self) -> Iterator[tuple[int, int, Bytes]]:
        """Yield offset and length of each block of a gz file's text, and its memory."""
        end, step = self._part.end_bytes, self._machine.block_bytes
        memory = self._machine.text
        for offset in range(0, end, step):
            length = min(step, end - offset)
            view = memory[LINE_LIMIT_BYTES : LINE_LIMIT_BYTES + length].data
            while view and (count := self._pieces.readinto(view)):
                view = view[count:]
            if view:
                raise changed(self._part.source)
            yield offset, length, memory

    def _chunks(self) -> Iterator[memoryview]:
        """Yield the bytes of a gz file."""
        source, step = self._part.source, min(PIECE_BYTES, self._machine.block_bytes)
        size_bytes = source.stat().st_size
        ranges = [(offset, min(step, size_bytes - offset)) for offset in range(0, size_bytes, step)]
        memories = self._machine.read_ahead(source, ranges, self._moved)
        for (_, length), memory in zip(ranges, memories, strict=True):
            chunk = memory[LINE_LIMIT_BYTES : LINE_LIMIT_BYTES + length]
            self._check_in(chunk)
            yield chunk.data

    def _check_in(self, text: Bytes) -> None:
        span = self.span
        crc32 = crc32_of(text, span.crc32)
        self.span = Span(span.offset_bytes, span.size_bytes + text.size, crc32)


def _with_line_end(memory: Bytes, start: int, end: int) -> Bytes:
    """Return the text in the memory, with a line feed after the last line of a file without one."""
    if memory[end - 1] != ord("\n"):
        memory[end] = ord("\n")
        end += 1
    return memory[start:end]


class _FileSink:
    """A new file, written by O_DIRECT in pieces while the next one is filled."""

    def __init__(self, machine: _Machine, path: Path, moved: Moved) -> None:
        self._machine = machine
        self._path = path
        self._moved = moved
        self._tickets: list[Ticket] = []
        self._filled = 0
        self._descriptor = -1
        self.span = Span(0, 0, 0)

    def __enter__(self) -> Self:
        with open_data_folder(self._path.parent) as folder:
            self._descriptor = create_direct(folder, self._path.name)
        return self

    def __exit__(self, *exception: object) -> None:
        for ticket in self._tickets:
            ticket.discard()
        os.close(self._descriptor)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The checksum of all that was written, if anything was."""
        return (self.span,) if self.span.size_bytes else ()

    def write(self, data: Bytes | memoryview | bytes, /) -> None:
        """Take bytes; a full piece is written."""
        new = np.frombuffer(data, np.uint8)
        while new.size:
            piece = self._machine.pieces[len(self._tickets) % PIECES]
            count = min(new.size, PIECE_BYTES - self._filled)
            piece[self._filled : self._filled + count] = new[:count]
            self._filled += count
            new = new[count:]
            if self._filled == PIECE_BYTES:
                self._flush()

    def finish(self) -> None:
        """Write the rest, and make the file durable."""
        if self._filled:
            self._flush()
        for ticket in self._tickets:
            ticket.result()
        os.fsync(self._descriptor)

    def _flush(self) -> None:
        offset, length = self.span.size_bytes, self._filled
        piece = self._machine.pieces[len(self._tickets) % PIECES]
        self.span = Span(0, offset + length, crc32_of(piece[:length], self.span.crc32))
        try:
            # Writes that extend a file wait for each other.
            os.posix_fallocate(self._descriptor, offset, length)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                raise
        extent = Extent(self._path, offset, length)
        self._tickets.append(self._machine.move(IOKind.WRITE, extent, piece, self._moved))
        self._filled = 0
        if len(self._tickets) >= PIECES:  # the piece that is filled next has to be free
            self._tickets[-PIECES].result()


class _FileSource:
    """A file that is read by O_DIRECT; ``spans`` have the checksums of what was."""

    def __init__(self, machine: _Machine, path: Path, moved: Moved) -> None:
        self._machine = machine
        self._path = path
        self._moved = moved
        self._size_bytes = path.stat().st_size
        self.name = str(path)
        self.spans: list[Span] = []

    @property
    def size_bytes(self) -> int:
        """The size of the file when it was opened."""
        return self._size_bytes

    def read(self, ranges: Sequence[tuple[int, int]]) -> Iterator[Bytes]:
        """Yield the bytes of each range; see ``Source``."""
        alignment = direct_alignment(self._path)
        starts = [round_down(offset, alignment) for offset, _ in ranges]
        aligned = [
            (start, offset + length - start)
            for start, (offset, length) in zip(starts, ranges, strict=True)
        ]
        memories = self._machine.read_ahead(self._path, aligned, self._moved)
        for (offset, length), start, memory in zip(ranges, starts, memories, strict=True):
            first = LINE_LIMIT_BYTES + offset - start
            found = memory[first : first + length]
            self.spans.append(Span(offset, length, crc32_of(found)))
            yield found


class _MemorySink:
    """Bytes in memory, as a sink and as a source."""

    name = "memory"

    def __init__(self) -> None:
        self._bytes = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self._bytes)

    def write(self, data: Bytes | memoryview | bytes, /) -> None:
        self._bytes += np.frombuffer(data, np.uint8).data

    def read(self, ranges: Sequence[tuple[int, int]]) -> Iterator[Bytes]:
        whole = np.frombuffer(self._bytes, np.uint8)
        for offset, length in ranges:
            yield whole[offset : offset + length]


def _write_parquet(
    machine: _Machine,
    text: _Text | Sequence[tuple[int, Bytes]],
    part: Part,
    sink: Sink,
    settings: ConversionSettings,
) -> PartCount:
    """Write blocks of whole lines as Parquet; raises ``DataError`` that names the first bad row."""
    writer = _ParquetWriter(machine, sink, settings)
    count = PartCount()
    for offset, block in text:
        progress = library.TsvProgress()
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
    machine: _Machine,
    text: _Text | Sequence[tuple[int, Bytes]],
    part: Part,
    sink: Sink,
    settings: ConversionSettings,
) -> PartCount:
    """Write blocks of whole lines as packed rows; raises as ``_write_parquet``."""
    count = PartCount()
    for offset, block in text:
        progress = library.TsvProgress()
        block_rows = 0
        while progress.taken_bytes < block.size:
            at = progress.taken_bytes
            rows = machine.library.wl_tsv_pack(
                block.ctypes.data + at,
                block.size - at,
                machine.rows.ctypes.data,
                PACKED_ROWS,
                settings.drops_bad_rows,
                ctypes.byref(progress),
            )
            _require_rows(part, offset, progress, settings)
            _write_rows(machine.rows[:rows], sink, settings)
            block_rows += rows
        count.add(offset, block_rows)
        _drop(count, offset, progress)
    return count


def _write_rows(rows: NDArray[np.int32], sink: Sink, settings: ConversionSettings) -> None:
    """Write packed rows, which may be changed."""
    if settings.logarithms:
        take_logarithms(rows)
    sink.write(rows.view(np.uint8).reshape(-1))


def _require_rows(
    part: Part, offset: int, progress: library.TsvProgress, settings: ConversionSettings
) -> None:
    """Raise ``DataError`` for a bad line in the block at ``offset``, unless it is dropped."""
    if progress.bad_count and not settings.drops_bad_rows:
        raise _fault(part, offset + progress.bad_offsets[0])


def _drop(count: PartCount, offset: int, progress: library.TsvProgress) -> None:
    """Count the bad lines of a whole block."""
    if progress.bad_count:
        count.drop(progress.bad_count, offset + progress.bad_offsets[0])


def _fault(part: Part, offset: int) -> DataError:
    """Return the error of a line that is no row."""
    rest = Part(part.source, offset, part.end_bytes, part.name)
    return find_fault(rest) or DataError(f"{part.source}, byte {offset}: this line is no row")


def _kinds(settings: ConversionSettings) -> list[int]:
    """Return how the library reads and writes each column."""
    ids = _NUMBER if settings.numeric_ids else _TEXT
    return [ids if name in CATEGORICALS else _INT32 for name in COLUMNS]


def _codec(compression: str) -> pa.Codec | None:
    import pyarrow as pa

    name = {"lz4": "lz4_raw"}.get(compression, compression)
    return None if name == "none" else pa.Codec(name)


class _ParquetWriter:
    """Writes the machine's cells as row groups of a Parquet file."""

    def __init__(self, machine: _Machine, sink: Sink, settings: ConversionSettings) -> None:
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
        """Write the footer."""
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
        machine, found = self._machine, library.ColumnPages()
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
    machine: _Machine, source: Source, sink: Sink, settings: ConversionSettings
) -> int:
    """Write the rows of a Parquet file as packed rows and return their number.

    Raises:
        BadIdError: an id is not 8 hex digits.
        DataError: the file is truncated, corrupt, or has other columns.
    """
    import pyarrow as pa

    try:
        metadata = _read_metadata(source)
        require_columns(metadata, source.name, numeric_ids=settings.numeric_ids)
        packing = _Packing(machine, source, metadata, _kinds(settings))
        for batch, data in zip(packing.batches, source.read(packing.ranges), strict=True):
            first = batch[0].offset_bytes
            for place in batch:
                at = place.offset_bytes - first
                packing.decode(place, data[at : at + place.size_bytes])
                if place.column == len(COLUMNS) - 1:
                    packing.write_rows(place.row_count, sink, settings)
    except (pa.ArrowException, PageError) as error:
        raise corrupt(source.name, error) from error
    return int(metadata.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A column chunk in a file, and the rows of its row group."""

    column: int
    row_count: int
    offset_bytes: int
    size_bytes: int


class _Packing:
    """Decodes the column chunks of a file, and packs the rows of each group of them."""

    def __init__(
        self, machine: _Machine, source: Source, metadata: FileMetaData, kinds: Sequence[int]
    ) -> None:
        self._machine = machine
        self._source = source
        self._kinds = kinds
        self._columns = machine.cells.view(np.int32)
        self._distinct = machine.dictionary.view(np.int32)
        schema = metadata.schema
        index = {schema.column(column).name: column for column in range(len(schema))}
        places = [
            self._place(metadata.row_group(group), column, index[name])
            for group in range(metadata.num_row_groups)
            for column, name in enumerate(COLUMNS)
        ]
        self._codec = _codec(_compression(metadata))
        self.batches: list[list[_Place]] = []
        held = 0
        for place in places:
            follows = self.batches and place.offset_bytes == held
            first = self.batches[-1][0].offset_bytes if follows else 0
            held = place.offset_bytes + place.size_bytes
            if follows and held - first <= machine.block_bytes - PAGE_BYTES:
                self.batches[-1].append(place)
            else:
                self.batches.append([place])
        self.ranges = [
            (batch[0].offset_bytes, sum(place.size_bytes for place in batch))
            for batch in self.batches
        ]

    def decode(self, place: _Place, data: Bytes) -> None:
        """Decode the pages of a column chunk to packed values."""
        kind = self._kinds[place.column]
        done = distinct = 0
        null_count = ctypes.c_uint32()
        has_dictionary = False
        view = data.data
        while done < place.row_count:
            page = parquet.read_page_header(view)
            stored = view[page.header_bytes : page.header_bytes + page.stored_bytes]
            limit = self._machine.row_limit if page.is_dictionary else place.row_count - done
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
                    self._columns[place.column, done:].ctypes.data,
                    ctypes.byref(null_count),
                )
                done += page.value_count
            if code == library.BAD_ID:
                name = COLUMNS[place.column]
                raise BadIdError(f"{self._source.name}, column {name}: an id is not 8 hex digits")
            if code != library.OK:
                raise PageError("a page does not have its values")
            view = view[page.header_bytes + page.stored_bytes :]
        if COLUMNS[place.column] == LABEL and null_count.value:
            raise without_labels(self._source.name, null_count.value)

    def write_rows(self, row_count: int, sink: Sink, settings: ConversionSettings) -> None:
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
            _write_rows(machine.rows[:count], sink, settings)

    def _place(self, group: RowGroupMetaData, column: int, index: int) -> _Place:
        """Return the place of a chunk, number ``index`` in the file, after checking it."""
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
        return _Place(column=column, row_count=group.num_rows, offset_bytes=offset, size_bytes=size)

    def _plain(self, stored: memoryview, plain_bytes: int) -> Bytes:
        if self._codec is None:
            return np.frombuffer(stored, np.uint8)
        if plain_bytes > self._machine.data.size:
            raise PageError("a page is too long")
        return np.frombuffer(self._codec.decompress(stored, plain_bytes), np.uint8)


def _read_metadata(source: Source) -> FileMetaData:
    """Return the footer of a Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import read_metadata

    tail_bytes = min(source.size_bytes, _TAIL_BYTES)
    if tail_bytes < _FRAME_BYTES:
        raise PageError(f"it has {tail_bytes} bytes")
    for _ in range(2):
        ((tail),) = (
            each.tobytes() for each in source.read([(source.size_bytes - tail_bytes, tail_bytes)])
        )
        needed_bytes = int.from_bytes(tail[-_FRAME_BYTES:-4], "little") + _FRAME_BYTES
        if needed_bytes <= tail_bytes:
            break
        tail_bytes = min(needed_bytes, source.size_bytes)
    try:
        return read_metadata(pa.BufferReader(parquet.MAGIC + tail))
    except OSError as error:  # pyarrow's, without a number
        raise PageError(str(error)) from error


def _compression(metadata: FileMetaData) -> str:
    if not metadata.num_row_groups:
        return "none"
    name = str(metadata.row_group(0).column(0).compression).lower()
    return {"uncompressed": "none"}.get(name, name)
