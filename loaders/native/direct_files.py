"""The files of loader=native: read ahead and written behind with O_DIRECT by the I/O engine.

TSV is read block by block while the block before is parsed, and what is finished is written
meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Allocation, Extent, IOKind, IOPlan
from wattload.loaders.aligned_io import (
    PAGE_BYTES,
    aligned_buffer,
    create_direct,
    direct_alignment,
    round_down,
    round_up,
)
from wattload.loaders.data.criteo_day_files import (
    COLUMNS,
    LINE_LIMIT_BYTES,
    Bytes,
    Moved,
    Part,
    Span,
    changed,
    long_line,
    mark_bytes,
)
from wattload.loaders.data.data_folder import open_data_folder
from wattload.loaders.data.gz_text import Ahead, PieceReader, is_gz, unpack
from wattload.loaders.engine import library
from wattload.loaders.engine.engine import IOEngine, Ticket

PIECE_BYTES = 4 << 20
"""One file of output is written in pieces of this size, several in smaller ones."""
PIECES = 3
"""One is filled while two are written."""
GROUP_ROW_BYTES = 160
"""A row group has at most as many rows as its block would have of this length. Criteo's have some
246 bytes; shorter ones need no more memory."""
SLACK_BYTES = 4096
"""The library reads up to 64 bytes beyond the text."""
PACKED_ROWS = 6553
"""Rows packed at a time, 1 MB."""


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


class Machine:
    """The engine and the memory of a worker process, for blocks of ``block_bytes`` of text.

    Memory that not every step uses is allocated when a step first does.
    """

    def __init__(
        self, *, engine: str, io_block_bytes: int, queue_depth: int, block_bytes: int
    ) -> None:
        self.library = library.load()
        self.block_bytes = round_up(block_bytes, LINE_LIMIT_BYTES)
        self.row_limit = self.block_bytes // GROUP_ROW_BYTES
        # Columns apart by an odd number of cache lines: those of one row are in different sets.
        self.stride = round_up(self.row_limit, 16) + 8
        self._input_bytes = input_bytes = LINE_LIMIT_BYTES + self.block_bytes + SLACK_BYTES
        slot_bytes = io_block_bytes * queue_depth
        memory = aligned_buffer(max(2 * input_bytes + PIECES * PIECE_BYTES, slot_bytes))
        self.inputs = [memory[:input_bytes], memory[input_bytes : 2 * input_bytes]]
        self.output = memory[2 * input_bytes : 2 * input_bytes + PIECES * PIECE_BYTES]
        self._io_block_bytes = io_block_bytes
        self._queue_depth = queue_depth
        self._engine = IOEngine(
            backend=engine, block_bytes=io_block_bytes, depth=queue_depth, slots=memory
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
        return np.zeros(self._page_bytes, np.uint8)

    @cached_property
    def data(self) -> Bytes:
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
                block_bytes=self._io_block_bytes,
                depth=self._queue_depth,
                allocation=Allocation.OVERWRITE,
            ),
            destination=memory,
            moved=lambda count: moved(count * is_read, count * (not is_read), 1),
            alignment_bytes=direct_alignment(extent.path),
        )

    def read_ahead(self, extents: Sequence[Extent], moved: Moved) -> Iterator[Bytes]:
        """Yield the memory of each extent while the next one is read.

        Its first byte is at ``LINE_LIMIT_BYTES`` in the memory, which ends with ``SLACK_BYTES`` of
        room. Offsets are multiples of the alignment.
        """
        tickets: dict[int, Ticket] = {}
        try:
            for number in range(len(extents) + 1):
                if number < len(extents):
                    memory = self.inputs[number % 2][LINE_LIMIT_BYTES:]
                    tickets[number] = self.move(IOKind.READ, extents[number], memory, moved)
                if number:
                    tickets[number - 1].result()
                    yield self.inputs[(number - 1) % 2]
        finally:
            for ticket in tickets.values():
                ticket.discard()

    def read(self, extents: Sequence[Extent], moved: Moved) -> Iterator[Bytes]:
        """Yield the bytes of each extent, wherever it starts; valid until the next is requested."""
        starts = [
            round_down(extent.offset_bytes, direct_alignment(extent.path)) for extent in extents
        ]
        aligned = [
            Extent(extent.path, start, extent.offset_bytes + extent.length_bytes - start)
            for start, extent in zip(starts, extents, strict=True)
        ]
        memories = self.read_ahead(aligned, moved)
        for extent, start, memory in zip(extents, starts, memories, strict=True):
            first = LINE_LIMIT_BYTES + extent.offset_bytes - start
            yield memory[first : first + extent.length_bytes]


class Text:
    """Iterates over a part's text in blocks of whole lines, with the offset of each in the file.

    ``span`` has the checksum of what was read of the file so far. ``gz`` has the bytes of a gz file
    that are not read from the drive.
    """

    def __init__(
        self, machine: Machine, part: Part, moved: Moved, gz: Iterable[bytes] | None = None
    ) -> None:
        self._machine = machine
        self._part = part
        self._moved = moved
        self.span = Span(part.start_bytes)
        packed = self._chunks() if gz is None else gz
        self._ahead = Ahead(unpack(part.source, packed)) if is_gz(part.source) else None
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
                text = with_line_end(memory, start, end)
                held = held[:0]
            else:
                tail = memory[max(start, end - LINE_LIMIT_BYTES) : end].tobytes()
                kept = len(tail) - tail.rfind(b"\n") - 1
                if kept == len(tail):
                    raise long_line(part.source, offset + length - kept)
                held = np.frombuffer(tail[len(tail) - kept :], np.uint8)
                text = memory[start : end - kept]
            yield without_mark(offset + start - LINE_LIMIT_BYTES, text)

    def _read(self) -> Iterator[tuple[int, int, Bytes]]:
        """Yield offset and length of each block of a plain file, and its memory."""
        part, step = self._part, self._machine.block_bytes
        first = round_down(part.start_bytes, direct_alignment(part.source))
        extents = [
            Extent(part.source, offset, min(step, part.end_bytes - offset))
            for offset in range(first, part.end_bytes, step)
        ]
        memories = self._machine.read_ahead(extents, self._moved)
        for extent, memory in zip(extents, memories, strict=True):
            offset, length = extent.offset_bytes, extent.length_bytes
            start = LINE_LIMIT_BYTES + max(part.start_bytes - offset, 0)
            self.span = self.span.followed_by(memory[start : LINE_LIMIT_BYTES + length])
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
        extents = divided([Extent(source, 0, source.stat().st_size)], step)
        for chunk in self._machine.read(extents, self._moved):
            self.span = self.span.followed_by(chunk)
            yield chunk.data


def divided(extents: Sequence[Extent], most_bytes: int) -> list[Extent]:
    """Return the extents in pieces of ``most_bytes``, the last one of each shorter."""
    return [
        Extent(each.path, each.offset_bytes + done, min(most_bytes, each.length_bytes - done))
        for each in extents
        for done in range(0, each.length_bytes, most_bytes)
    ]


def without_mark(offset: int, text: Bytes) -> tuple[int, Bytes]:
    """Return a place in a day file and the text there, both behind a mark at the file's start."""
    start = 0 if offset else mark_bytes(text)
    return offset + start, text[start:]


def with_line_end(memory: Bytes, start: int, end: int) -> Bytes:
    """Return the text in the memory, with a line feed after the last line of a file without one."""
    if memory[end - 1] != ord("\n"):
        memory[end] = ord("\n")
        end += 1
    return memory[start:end]


@contextmanager
def new_files(machine: Machine, paths: Sequence[Path], moved: Moved) -> Iterator[list[FileSink]]:
    """Create files that share the machine's memory for output; they are durable after the block."""
    piece_bytes = round_down(PIECE_BYTES // len(paths), PAGE_BYTES)
    pieces = machine.output[: len(paths) * PIECES * piece_bytes].reshape(len(paths), PIECES, -1)
    with ExitStack() as opened:
        sinks = [
            opened.enter_context(FileSink(machine, path, own, moved))
            for path, own in zip(paths, pieces, strict=True)
        ]
        yield sinks
        for sink in sinks:
            sink.finish()


class FileSink:
    """A new file, written by O_DIRECT in pieces while the next one is filled.

    The pieces are the machine's, shape (``PIECES``, bytes of each).
    """

    def __init__(self, machine: Machine, path: Path, pieces: Bytes, moved: Moved) -> None:
        self._machine = machine
        self._path = path
        self._pieces = pieces
        self._moved = moved
        self._tickets: list[Ticket] = []
        self._filled = 0
        self._descriptor = -1
        self.span = Span(0)

    def __enter__(self) -> Self:
        with open_data_folder(self._path.parent) as folder:
            self._descriptor = create_direct(folder, self._path.name)
        return self

    def __exit__(self, *exception: object) -> None:
        for ticket in self._tickets:
            ticket.discard()
        os.close(self._descriptor)

    def write(self, data: Bytes | memoryview | bytes, /) -> None:
        """Take bytes; a full piece is written."""
        new = np.frombuffer(data, np.uint8)
        while new.size:
            piece = self._pieces[len(self._tickets) % PIECES]
            count = min(new.size, piece.size - self._filled)
            piece[self._filled : self._filled + count] = new[:count]
            # While the bytes are in the core's cache.
            self.span = self.span.followed_by(new[:count])
            self._filled += count
            new = new[count:]
            if self._filled == piece.size:
                self._flush()

    def finish(self) -> None:
        """Write the rest, and make the file durable."""
        if self._filled:
            self._flush()
        for ticket in self._tickets:
            ticket.result()
        os.fsync(self._descriptor)

    def _flush(self) -> None:
        offset, length = self.span.size_bytes - self._filled, self._filled
        piece = self._pieces[len(self._tickets) % PIECES]
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


class FileSource:
    """A file that is read by O_DIRECT; ``spans`` have the checksums of what was."""

    def __init__(self, machine: Machine, path: Path, moved: Moved) -> None:
        self._machine = machine
        self._path = path
        self._moved = moved
        self.size_bytes = path.stat().st_size
        self.name = str(path)
        self.spans: list[Span] = []

    def read(self, ranges: Sequence[tuple[int, int]]) -> Iterator[Bytes]:
        """Yield the bytes of each range; see ``Source``."""
        extents = [Extent(self._path, *each) for each in ranges]
        for extent, found in zip(extents, self._machine.read(extents, self._moved), strict=True):
            self.spans.append(Span(extent.offset_bytes).followed_by(found))
            yield found


class MemorySink:
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
        """Yield the bytes of each range."""
        whole = np.frombuffer(self._bytes, np.uint8)
        for offset, length in ranges:
            yield whole[offset : offset + length]
