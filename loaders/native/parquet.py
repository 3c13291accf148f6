"""The parts of a Parquet file around its pages, for flat tables of optional columns.

Page headers and footers are structures of Thrift's compact protocol (apache/thrift,
doc/specs/thrift-compact-protocol.md) as apache/parquet-format's ``parquet.thrift`` defines them;
the numbers here are its field ids. Footers are read by pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
"""Numbers of the codecs; ``lz4`` is the raw block format."""

INT32, BYTE_ARRAY = 1, 6
_PLAIN, _RLE, _DICTIONARY_INDICES = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_OPTIONAL, _UTF8 = 1, 0
_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12
_SHORT_LIST = 15


class PageError(Exception):
    """A Parquet file is cut short, damaged, or of a kind that is not read here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its name and its physical type, ``INT32`` or ``BYTE_ARRAY`` (UTF-8)."""

    name: str
    kind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A column chunk of one row group, as written.

    Offsets are those of its first page and of its data page; ``plain_bytes`` and ``stored_bytes``
    are its size before and after compression, with headers. ``extremes`` are its least and largest
    value, ``None`` where they are not stated.
    """

    offset_bytes: int
    data_offset_bytes: int
    plain_bytes: int
    stored_bytes: int
    null_count: int
    extremes: tuple[int, int] | None

    @property
    def has_dictionary(self) -> bool:
        return self.offset_bytes != self.data_offset_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group: its rows, and its chunks in the order of the columns."""

    row_count: int
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The header of a page: what is stored after it, and what that becomes.

    ``value_count`` includes missing values of a data page.
    """

    is_dictionary: bool
    header_bytes: int
    plain_bytes: int
    stored_bytes: int
    value_count: int
    has_indices: bool


class _Writer:
    """Writes one structure; nested ones between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self._last = [0]

    def varint(self, value: int) -> None:
        while value > 0x7F:  # noqa: PLR2004 - seven bits to a byte
            self.bytes.append(value & 0x7F | 0x80)
            value >>= 7
        self.bytes.append(value)

    def number(self, value: int) -> None:
        self.varint(value << 1 if value >= 0 else ~value << 1 | 1)

    def _field(self, number: int, kind: int) -> None:
        self.bytes.append((number - self._last[-1]) << 4 | kind)
        self._last[-1] = number

    def i32(self, field: int, value: int) -> None:
        self._field(field, _I32)
        self.number(value)

    def i64(self, field: int, value: int) -> None:
        self._field(field, _I64)
        self.number(value)

    def text(self, field: int, value: bytes) -> None:
        self._field(field, _BINARY)
        self.item(value)

    def item(self, value: bytes) -> None:
        self.varint(len(value))
        self.bytes += value

    def list(self, field: int, kind: int, count: int) -> None:
        self._field(field, _LIST)
        if count < _SHORT_LIST:
            self.bytes.append(count << 4 | kind)
        else:
            self.bytes.append(_SHORT_LIST << 4 | kind)
            self.varint(count)

    def begin(self, field: int | None = None) -> None:
        """Begin a structure: a field's, or the next of a list."""
        if field is not None:
            self._field(field, _STRUCT)
        self._last.append(0)

    def end(self) -> None:
        self.bytes.append(0)
        self._last.pop()


def page_header(
    *, is_dictionary: bool, plain_bytes: int, stored_bytes: int, value_count: int, has_indices: bool
) -> bytes:
    """Return the header of a page of ``value_count`` values; data pages are of version 1."""
    out = _Writer()
    out.i32(1, _DICTIONARY_PAGE if is_dictionary else _DATA_PAGE)
    out.i32(2, plain_bytes)
    out.i32(3, stored_bytes)
    out.begin(7 if is_dictionary else 5)
    out.i32(1, value_count)
    out.i32(2, _DICTIONARY_INDICES if has_indices else _PLAIN)
    if not is_dictionary:
        out.i32(3, _RLE)  # definition levels
        out.i32(4, _RLE)  # repetition levels, of which there are none
    out.end()
    out.end()
    return bytes(out.bytes)


def footer(columns: Sequence[Column], groups: Sequence[RowGroup], *, codec: str) -> bytes:
    """Return the end of a file: its metadata, their length, and the magic number."""
    out = _Writer()
    out.i32(1, 1)  # the version of the format
    out.list(2, _STRUCT, 1 + len(columns))
    out.begin()
    out.text(4, b"schema")
    out.i32(5, len(columns))
    out.end()
    for column in columns:
        _put_schema(out, column)
    out.i64(3, sum(group.row_count for group in groups))
    out.list(4, _STRUCT, len(groups))
    for group in groups:
        out.begin()
        out.list(1, _STRUCT, len(columns))
        for column, chunk in zip(columns, group.chunks, strict=True):
            _put_chunk(out, column, chunk, group.row_count, CODECS[codec])
        out.i64(2, sum(chunk.plain_bytes for chunk in group.chunks))
        out.i64(3, group.row_count)
        out.end()
    out.text(6, b"wattload")
    out.end()
    return bytes(out.bytes) + len(out.bytes).to_bytes(4, "little") + MAGIC


def _put_schema(out: _Writer, column: Column) -> None:
    out.begin()
    out.i32(1, column.kind)
    out.i32(3, _OPTIONAL)
    out.text(4, column.name.encode())
    if column.kind == BYTE_ARRAY:
        out.i32(6, _UTF8)
        out.begin(10)  # the logical type,
        out.begin(1)  # a string
        out.end()
        out.end()
    out.end()


def _put_chunk(out: _Writer, column: Column, chunk: Chunk, row_count: int, codec: int) -> None:
    encodings = [_RLE, _PLAIN, *([_DICTIONARY_INDICES] if chunk.has_dictionary else [])]
    out.begin()
    out.i64(2, chunk.offset_bytes)
    out.begin(3)
    out.i32(1, column.kind)
    out.list(2, _I32, len(encodings))
    for encoding in encodings:
        out.number(encoding)
    out.list(3, _BINARY, 1)
    out.item(column.name.encode())
    out.i32(4, codec)
    out.i64(5, row_count)
    out.i64(6, chunk.plain_bytes)
    out.i64(7, chunk.stored_bytes)
    out.i64(9, chunk.data_offset_bytes)
    if chunk.has_dictionary:
        out.i64(11, chunk.offset_bytes)
    if chunk.extremes is not None:
        least, most = (value.to_bytes(4, "little", signed=True) for value in chunk.extremes)
        out.begin(12)
        out.i64(3, chunk.null_count)
        out.text(5, most)
        out.text(6, least)
        out.end()
    out.end()
    out.end()


class _Reader:
    """Reads structures as ``{field id: value}``; lists are not needed for page headers."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise PageError("a page header is cut short")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 0x7F:  # noqa: PLR2004 - seven bits to a byte
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def structure(self, depth: int = 0) -> dict[int, Any]:
        if depth > 4:  # noqa: PLR2004 - the deepest page header has 3
            raise PageError("a page header is damaged")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 0x0F, head >> 4
            number = number + step if step else self._zigzag()
            found[number] = self._value(kind, depth)
        return found

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - as the header has it
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in {_I32, _I64}:
            return self._zigzag()
        if kind == _BINARY:
            length = self._varint()
            self.at += length
            return None
        if kind == _STRUCT:
            return self.structure(depth + 1)
        raise PageError("a page header is damaged")


def read_page_header(data: memoryview) -> Page:
    """Return the header at the start of ``data``.

    Raises:
        PageError: it is cut short or damaged, or the page is of a kind that is not read here.
    """
    reader = _Reader(data)
    fields = reader.structure()
    kind = fields.get(1, -1)
    own = fields.get({_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}.get(kind, -1), {})
    if 1 not in own:
        raise PageError("a page is neither a dictionary nor a data page of version 1")
    return Page(
        is_dictionary=kind == _DICTIONARY_PAGE,
        header_bytes=reader.at,
        plain_bytes=_size(fields.get(2)),
        stored_bytes=_size(fields.get(3)),
        value_count=_size(own.get(1)),
        has_indices=kind == _DATA_PAGE and own.get(2) != _PLAIN,
    )


def _size(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < 1 << 31:
        raise PageError("a page header is damaged")
    return number
