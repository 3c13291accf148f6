"""Reading a part of a day file: whole lines, a block at a time, into one reused buffer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from wattload.core.errors import DataError
from wattload.loaders.criteo.files import CountedFile, Moved, Part, long_line
from wattload.loaders.criteo.schema import parse_line

COUNTING_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a day file; ``text`` is valid until the next block is asked for.

    ``row_count`` is the number of line ends, plus one for a last line without one. ``is_plain`` is
    false if there is a blank or an x in it: pyarrow takes `` 5`` and ``0x5`` for numbers.
    """

    text: memoryview
    offset_bytes: int
    row_count: int
    is_plain: bool


def read_blocks(part: Part, block_bytes: int, moved: Moved) -> Iterator[Block]:
    """Yield the lines of a part in blocks of at most ``block_bytes``.

    Raises:
        DataError: a line is longer than a block, or the file became shorter while it was read.
    """
    buffer = bytearray(min(block_bytes, part.size_bytes))
    view = memoryview(buffer)
    offset, held = part.start_bytes, 0
    with CountedFile(part.source, "rb", moved) as file:
        os.posix_fadvise(file.fileno(), offset, part.size_bytes, os.POSIX_FADV_SEQUENTIAL)
        file.seek(offset)
        while (left := part.end_bytes - offset) > 0:
            held = _fill(file, view[: min(len(view), left)], held, part)
            end = held if held == left else buffer.rfind(b"\n", 0, held) + 1
            if not end:
                raise long_line(part.source, offset)
            ragged = buffer[end - 1] != ord("\n")
            yield Block(
                text=view[:end],
                offset_bytes=offset,
                row_count=buffer.count(b"\n", 0, end) + ragged,
                is_plain=all(buffer.find(odd, 0, end) < 0 for odd in (b" ", b"x", b"X")),
            )
            offset, held = offset + end, held - end
            view[:held] = bytes(view[end : end + held])


def _fill(file: CountedFile, view: memoryview, held: int, part: Part) -> int:
    """Read until the view is full, which holds ``held`` bytes already; return its size."""
    while held < len(view):
        count = file.readinto(view[held:])
        if not count:
            raise DataError(f"{part.source} became shorter while it was read")
        held += count
    return held


def find_fault(part: Part) -> DataError | None:
    """Return what is wrong with the first bad line of a part, by file, line and byte offset.

    ``None`` if every line is good. Slow: it is called after a fast path has failed.
    """
    with part.source.open("rb") as file:
        file.seek(part.start_bytes)
        offset = part.start_bytes
        while offset < part.end_bytes:
            line = file.readline()
            try:
                parse_line(line)
            except ValueError as error:
                number = _lines_before(part, offset) + 1
                return DataError(f"{part.source}, line {number} (byte {offset}): {error}")
            offset += len(line)
    return None


def _lines_before(part: Part, offset: int) -> int:
    count = 0
    with part.source.open("rb", buffering=0) as file:
        while (left := offset - file.tell()) > 0:
            count += file.read(min(left, COUNTING_BYTES)).count(b"\n")
    return count
