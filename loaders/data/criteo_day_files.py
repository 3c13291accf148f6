"""Day files of Criteo's click logs: their columns, their parts and blocks of lines.

TSV: no header, tab-separated, one line per click: a label (0 or 1), 13 integers that may be empty
or negative, 26 categorical ids of 8 hex digits that may be empty. Packed: 40 little-endian int32,
160 B a row, in the same order, which is the layout of facebookresearch/dlrm's ``numpy_to_binary``
(label, integers, categoricals). The transform is that project's ``data_utils.py``: an empty
integer and a negative one become 0, an empty id becomes 0, an id is its uint32 modulo 40,000,000
(MLPerf's ``max_ind_range``). That project takes ``log(x + 1)`` of the integers when it loads packed
rows; NVIDIA's DeepLearningExamples have logarithms in the rows, as float32 in the same 4 bytes.

Split: the same rows by column, as that project's ``split_dataset.py`` divides them and its
``SplitCriteoDataset`` reads them: a byte of label, 13 float16 of the integers' logarithms, and a
file for each id. Ids are int32 there too, the smallest type for a modulus of 40,000,000.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.loaders.data.crc32 import crc32_of
from wattload.loaders.data.data_folder import open_data_folder
from wattload.loaders.data.gz_text import first_text, is_gz, open_text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Bytes = NDArray[np.uint8]
"""Memory, shape (n,)."""
Moved = Callable[[int, int, int], None]
"""Takes bytes read, bytes written and the number of system calls that moved them."""

LINE_LIMIT_BYTES = 64 << 10
"""No line of a day file is longer; Criteo's have some 250 bytes."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What some editors put at the start of UTF-8 text; it is skipped there, and only there."""

_GZ_START = b"\x1f\x8b"
_DAY_NAME = re.compile(r"day_([0-9]+)(\.gz)?\Z")


LABEL = "label"
INTEGERS = tuple(f"i{number}" for number in range(1, 14))
CATEGORICALS = tuple(f"c{number}" for number in range(1, 27))
COLUMNS = (LABEL, *INTEGERS, *CATEGORICALS)

ID_MODULUS = 40_000_000
ROW_BYTES = 4 * len(COLUMNS)
SPLIT_ROW_BYTES = 1 + 2 * len(INTEGERS) + 4 * len(CATEGORICALS)
"""A row in all files of columns together."""

_ROW = struct.Struct(f"<{len(COLUMNS)}i")
_INTEGER = re.compile(rb"-?[0-9]+\Z")
_HEX_ID = re.compile(rb"[0-9a-fA-F]{8}\Z")
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1

SHOWN_BYTES = 32
"""Of a wrong field, in an error."""
COUNTING_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of one day file: bytes ``start_bytes`` (inclusive) to ``end_bytes`` (exclusive).

    They are bytes of text: a gz file is one part, which ends with its unpacked size.
    ``name`` is unique among the parts of a conversion and sorts in the order of the rows.
    """

    source: Path
    start_bytes: int
    end_bytes: int
    name: str

    @property
    def size_bytes(self) -> int:
        """The bytes of TSV in the part."""
        return self.end_bytes - self.start_bytes


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file that moved one after another: their place, their number, their CRC-32."""

    offset_bytes: int
    size_bytes: int = 0
    crc32: int = 0

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes

    def followed_by(self, data: Bytes) -> Span:
        """Return these bytes and those that follow them."""
        crc32 = crc32_of(data, self.crc32)
        return Span(self.offset_bytes, self.size_bytes + data.size, crc32)


class CountedFile(io.FileIO):
    """A file that reports every byte as it moves; unbuffered, through the page cache.

    ``spans`` has the CRC-32 of all bytes that moved, so that they can be compared with the file
    afterwards. It costs about 0.1 CPU seconds per GB.
    """

    def __init__(self, file: Path | int, mode: str, moved: Moved) -> None:
        super().__init__(file, mode)
        self._moved = moved
        self.spans: list[Span] = []

    @property
    def whole(self) -> Span:
        """All bytes of a file that was written from its start to its end."""
        (span,) = self.spans or (Span(0),)
        return span

    @classmethod
    def create(cls, path: Path, moved: Moved) -> Self:
        """Create a file in a data folder; what exists there is never written.

        Raises:
            ForeignFileError: something is there, be it only a link, or the folder is not ours.
        """
        with open_data_folder(path.parent) as folder:
            return cls(folder.create(path.name), "wb", moved)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into the buffer, count what came and return it, in bytes."""
        offset = self.tell()
        count = super().readinto(buffer) or 0
        self._moved(count, 0, 1)
        self._check_in(offset, memoryview(buffer).cast("B")[:count])
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, all for a negative size; count them and return them."""
        offset = self.tell()
        data = super().read(-1 if size is None else size) or b""
        self._moved(len(data), 0, 1)
        self._check_in(offset, memoryview(data))
        return data

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the whole buffer, count it and return its size in bytes.

        Raises:
            OSError: the target is full or failed; the message has the file.
        """
        view = memoryview(data).cast("B")
        offset = self.tell()
        done = 0
        while done < len(view):
            count = super().write(view[done:]) or 0
            self._moved(0, count, 1)
            done += count
        self._check_in(offset, view)
        return done

    def _check_in(self, offset: int, view: memoryview) -> None:
        """Add bytes to the last span, or start a new one if they do not follow it."""
        if not view:
            return
        is_next = self.spans and self.spans[-1].end_bytes == offset
        last = self.spans.pop() if is_next else Span(offset)
        self.spans.append(last.followed_by(np.frombuffer(view, np.uint8)))


def day_files(source: Path) -> tuple[Path, ...]:
    """Return the day files of a path: itself, or ``day_0`` or ``day_0.gz``, ``day_1``, ... in it.

    Symbolic links are resolved; nothing is opened for writing.

    Raises:
        DataError: there are none, a day is missing between others or there twice, one is empty, or
            a name does not say that it is gz.
    """
    paths = _days_in(source) if source.is_dir() else (source,)
    for path in paths:
        _require_text(path)
    return tuple(path.resolve() for path in paths)


def _days_in(folder: Path) -> tuple[Path, ...]:
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _DAY_NAME.match(path.name) if path.is_file() else None
        if match is None:
            continue
        other = found.setdefault(int(match[1]), path)
        if other != path:
            raise DataError(
                f"{folder} has day {int(match[1])} twice, as {other.name} and {path.name}; move "
                "one of them out of the folder"
            )
    if not found:
        raise DataError(f"{folder} has no day files, which are named day_0 or day_0.gz, day_1, ...")
    for before, after in pairwise(sorted(found)):
        if after > before + 1:
            raise DataError(
                f"{folder}: day_{before + 1} is missing between {found[before].name} and "
                f"{found[after].name}; add it, or link the days to read into another folder with "
                "consecutive numbers"
            )
    return tuple(found[day] for day in sorted(found))


def _require_text(path: Path) -> None:
    """Raise ``DataError`` for a file that can't be read, has no text, or has the wrong name."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_GZ_START))
        if start and (start == _GZ_START) != is_gz(path):
            raise DataError(
                f"{path} is not gz data, as its name says; rename it"
                if is_gz(path)
                else f"{path} is gz data; its name has to end in .gz"
            )
        start = start and first_text(path, len(BYTE_ORDER_MARK) + 1)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    if not start[mark_bytes(start) :]:
        raise DataError(f"{path} is empty; a day file has a line for each click")


def mark_bytes(text: bytes | memoryview | Bytes) -> int:
    """Return the size of the byte order mark at the start of a text, 0 if it has none."""
    is_marked = bytes(text[: len(BYTE_ORDER_MARK)]) == BYTE_ORDER_MARK
    return len(BYTE_ORDER_MARK) if is_marked else 0


def balanced_count(*, file_count: int, worker_count: int, size_bytes: int, part_bytes: int) -> int:
    """Return into how many parts files of one size are cut so that workers get equal numbers.

    It is the smallest multiple of both counts whose parts do not exceed ``part_bytes``.
    """
    together = math.lcm(file_count, worker_count)
    return together * max(-(-size_bytes // (together * part_bytes)), 1)


def cut_parts(
    paths: Sequence[Path], part_count: int, text_bytes: Mapping[Path, int] | None = None
) -> tuple[Part, ...]:
    """Cut day files into about ``part_count`` parts of nearly equal size, each of whole lines.

    Every file has at least one part, so all workers have work even with fewer files. A part never
    spans two files. No byte is in two parts; empty parts are left out. A gz file is one part;
    ``text_bytes`` has the unpacked sizes.

    Raises:
        DataError: a line has more than 64 KiB.
    """
    known = text_bytes or {}
    sizes = [known[path] if is_gz(path) else path.stat().st_size for path in paths]
    share = max(sum(sizes) / part_count, 1)
    return tuple(
        part
        for path, size in zip(paths, sizes, strict=True)
        for part in _cut_file(path, size, 1 if is_gz(path) else max(round(size / share), 1))
    )


def first_lines(part: Part, size_bytes: int) -> Part:
    """Return the first whole lines of a part, ``size_bytes`` or up to a line more."""
    if part.size_bytes <= size_bytes:
        return part
    with open_text(part.source, max(part.start_bytes + size_bytes - 1, 0)) as file:
        end = _next_line(file, part.source, part.start_bytes + size_bytes)
    return Part(part.source, part.start_bytes, min(end, part.end_bytes), part.name)


def _cut_file(path: Path, size_bytes: int, count: int) -> Iterator[Part]:
    cuts = []
    for index in range(1, count):
        cut = size_bytes * index // count
        with open_text(path, max(cut - 1, 0)) as file:
            cuts.append(_next_line(file, path, cut))
    edges = sorted({0, *cuts, size_bytes})
    for index, (start, end) in enumerate(pairwise(edges)):
        yield Part(path, start, end, f"{path.name}.{index:05d}")


def _next_line(file: io.BufferedIOBase, path: Path, offset: int) -> int:
    """Return the start of the first line that begins at ``offset`` or after it.

    The file is at the byte before, if there is one.
    """
    rest = file.readline(LINE_LIMIT_BYTES)
    if len(rest) == LINE_LIMIT_BYTES and not rest.endswith(b"\n"):
        raise long_line(path, offset)
    return max(offset - 1, 0) + len(rest)


def long_line(path: Path, offset: int) -> DataError:
    """Return the error for a file that has no line end within the limit."""
    return DataError(
        f"{path} has no line end within {LINE_LIMIT_BYTES} bytes after byte {offset}; "
        "it is not a Criteo day file, or it is damaged there"
    )


def parse_line(line: bytes) -> tuple[int, ...]:
    """Return the 40 packed values of one TSV line, with or without its line end.

    This is the definition that the fast path is compared with.

    Raises:
        ValueError: the line is invalid; the message is a clause with the reason.
    """
    fields = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(fields) != len(COLUMNS):
        found = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
        raise ValueError(f"{found} where {len(COLUMNS)} are needed")
    first, end = 1, 1 + len(INTEGERS)
    return (
        _label(fields[0]),
        *map(_count, INTEGERS, fields[first:end]),
        *map(_id, CATEGORICALS, fields[end:]),
    )


def pack_row(values: tuple[int, ...]) -> bytes:
    """Return the 160 bytes of one row."""
    return _ROW.pack(*values)


def take_logarithms(rows: NDArray[np.int32]) -> None:
    """Replace the integers of packed rows, shape (rows, columns), by log(x + 1) as float32.

    It is computed as float64 and rounded, so that it is the same wherever it is taken.
    """
    counts = rows[:, 1 : 1 + len(INTEGERS)]
    table = _logarithms_of_small_counts()
    is_small = counts.max(initial=0) < len(table)
    counts.view(np.float32)[:] = table.take(counts) if is_small else _logarithms_of(counts)


@cache
def _logarithms_of_small_counts() -> NDArray[np.float32]:
    return _logarithms_of(np.arange(1 << 16, dtype=np.int32))


def _logarithms_of(counts: NDArray[np.int32]) -> NDArray[np.float32]:
    logarithms: NDArray[np.float32] = np.log(counts + 1.0).astype(np.float32)
    return logarithms


def packed_paths(path: Path, *, is_split: bool, has_whole_ids: bool = False) -> tuple[Path, ...]:
    """Return the packed files of a part: that of rows, ``path``, or those of columns beside it.

    Ids that are yet to be numbered are in ``id_paths``.
    """
    if not is_split:
        return (path,)
    others = (path.with_suffix(".label.bin"), path.with_suffix(".numerical.bin"))
    ids = id_paths(path) if has_whole_ids else category_paths(path)
    return others + ids


def id_paths(path: Path) -> tuple[Path, ...]:
    """Return the files of a part's ids, uint32, one for each categorical column."""
    return tuple(path.with_suffix(f".id_{number}.bin") for number in range(len(CATEGORICALS)))


def category_paths(path: Path) -> tuple[Path, ...]:
    """Return the files of a part's categories, one for each categorical column."""
    return tuple(path.with_suffix(f".cat_{number}.bin") for number in range(len(CATEGORICALS)))


def split_rows(rows: NDArray[np.int32]) -> Iterator[Bytes]:
    """Yield the bytes for each column file of packed rows with logarithms.

    The shape of ``rows`` is (rows, columns).
    """
    first = 1 + len(INTEGERS)
    yield rows[:, 0].astype(np.bool_).view(np.uint8)
    yield rows[:, 1:first].view(np.float32).astype("<f2").view(np.uint8).reshape(-1)
    for column in range(first, len(COLUMNS)):
        yield np.ascontiguousarray(rows[:, column]).view(np.uint8)


def size_files(table_rows: Sequence[int]) -> dict[str, bytes]:
    """Return the files that say how large the embedding table of each column has to be, by name.

    ``table_rows`` has the rows of each table: one more than the largest id that may come.
    ``model_size.json`` has these largest ids, from which NVIDIA's ``split_dataset.py`` makes rows
    again, by the names in NVIDIA's own files. ``day_fea_count.npz`` has the rows, int32, shape
    (categorical columns,), for facebookresearch/dlrm's ``CriteoBinDataset``.
    """
    first = 1 + len(INTEGERS)
    largest_ids = {f"_c{column}": rows - 1 for column, rows in enumerate(table_rows, first)}
    counts = io.BytesIO()
    np.savez_compressed(counts, counts=np.array(table_rows, "<i4"))
    return {
        "model_size.json": json.dumps(largest_ids, indent=4).encode(),
        "day_fea_count.npz": counts.getvalue(),
    }


def _label(text: bytes) -> int:
    if text not in {b"0", b"1"}:
        raise ValueError(f"{LABEL} is {_shown(text)}; it must be 0 or 1")
    return int(text)


def _count(name: str, text: bytes) -> int:
    if not text:
        return 0
    if not _INTEGER.match(text) or not _INT32_MIN <= int(text) <= _INT32_MAX:
        raise ValueError(f"{name} is {_shown(text)}; it must be empty or a 32-bit whole number")
    return max(int(text), 0)


def _id(name: str, text: bytes) -> int:
    if not text:
        return 0
    if not _HEX_ID.match(text):
        raise ValueError(f"{name} is {_shown(text)}; it must be empty or 8 hex digits")
    return int(text, 16) % ID_MODULUS


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a day file; ``text`` is valid until the next block is requested.

    ``row_count`` is the number of line ends, plus one for a last line without one. ``is_plain`` is
    false if there is a blank or an x in it, which pyarrow parses as numbers in `` 5`` and ``0x5``,
    or if it starts with a byte order mark, which pyarrow skips.
    """

    text: memoryview
    offset_bytes: int
    row_count: int
    is_plain: bool


def read_blocks(file: io.RawIOBase, part: Part, block_bytes: int) -> Iterator[Block]:
    """Yield the lines of a part in blocks of at most ``block_bytes``; the file is at its start.

    A byte order mark at the start of the day file is left out.

    Raises:
        DataError: a line is longer than a block, or the file changed while it was read.
    """
    buffer = bytearray(min(block_bytes, part.size_bytes))
    view = memoryview(buffer)
    offset, held = part.start_bytes, 0
    while (left := part.end_bytes - offset) > 0:
        held = _fill_view(file, view[: min(len(view), left)], held, part)
        end = held if held == left else buffer.rfind(b"\n", 0, held) + 1
        if not end:
            raise long_line(part.source, offset)
        ragged = buffer[end - 1] != ord("\n")
        start = 0 if offset else mark_bytes(view)
        yield Block(
            text=view[start:end],
            offset_bytes=offset + start,
            row_count=buffer.count(b"\n", 0, end) + ragged,
            is_plain=not mark_bytes(view[start:])
            and all(buffer.find(odd, 0, end) < 0 for odd in (b" ", b"x", b"X")),
        )
        offset, held = offset + end, held - end
        view[:held] = bytes(view[end : end + held])


def _fill_view(file: io.RawIOBase, view: memoryview, held: int, part: Part) -> int:
    """Read until the view is full; it holds ``held`` bytes already; return its size."""
    while held < len(view):
        count = file.readinto(view[held:])
        if not count:
            raise changed(part.source)
        held += count
    return held


def changed(path: Path) -> DataError:
    """Return the error for a day file whose text is not as long as it was when it was verified."""
    return DataError(f"{path} changed while it was read; run again when nothing else writes to it")


class BadLineError(DataError):
    """A line of a day file is not a row; the message has file, line and byte."""


def find_fault(part: Part) -> BadLineError | None:
    """Return the error of the first bad line of a part, with file, line and byte offset.

    ``None`` if every line is valid. Slow: used only after a fast path has failed.
    """
    unit = "byte of the text" if is_gz(part.source) else "byte"
    with open_text(part.source, part.start_bytes) as file:
        offset = part.start_bytes
        while offset < part.end_bytes:
            line = file.readline()
            try:
                parse_line(line)
            except ValueError as error:
                number = _lines_before(part, offset) + 1
                return BadLineError(f"{part.source}, line {number} ({unit} {offset}): {error}")
            offset += len(line)
    return None


def _lines_before(part: Part, offset: int) -> int:
    count = 0
    with open_text(part.source) as file:
        while text := file.read(min(offset, COUNTING_BYTES)):
            count += text.count(b"\n")
            offset -= len(text)
    return count


def _shown(text: bytes) -> str:
    """Return a field for an error: a damaged line may be one field of any length."""
    if len(text) <= SHOWN_BYTES:
        return repr(text)
    return f"{text[:SHOWN_BYTES]!r} and {len(text) - SHOWN_BYTES} bytes more"
