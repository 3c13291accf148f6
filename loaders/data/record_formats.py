"""File formats of one record per file: the bytes around the payload, and its position.

``FORMATS`` has them by name, which is also the suffix of the files.
"""

from __future__ import annotations

import ast
import io
import math
import struct
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.loaders.data.crc32 import crc32_of

_NPY_MAGIC = b"\x93NUMPY"
_NPY_KEYS = frozenset({"descr", "fortran_order", "shape"})
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
_HEADER_LIMIT_BYTES = 10_000
"""The longest header that is parsed; numpy's own limit for untrusted files."""

_parser = threading.Lock()
"""Serializes parsing: CPython up to 3.12 counts the depth of all syntax trees in one place, and
raises ``SystemError`` when threads alternate (python/cpython issue 106905).
"""

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_ZIP64_MARK = 0xFFFFFFFF
_ENCRYPTED = 0x1
_VERSION = 20
_EPOCH_DATE = (1 << 5) | 1
"""1980-01-01, the first date of the format, so that files do not depend on when they are made."""

_SAMPLES_AXIS = 2
_RECORD = b"x.npy"
_LABEL = b"y.npy"
_ALIGN_BYTES = 64
_PADDING_ID = 0xD935
"""The extra field that aligns a stored member (the id that Android's zipalign uses)."""

_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_JPEG_SCANS = [  # SOS of each of three components, and its block in two bits
    bytes.fromhex("ffda 0008 01") + bytes([component]) + bytes.fromhex("00 003f00 3f")
    for component in (1, 2, 3)
]
_JPEG_HEAD = (
    _JPEG_START
    + bytes.fromhex("ffdb 0043 00") + bytes([1] * 64)  # DQT: quantization by 1
    + bytes.fromhex("ffc0 0011 08 0008 0008 03 011100 021100 031100")  # SOF0: 8 x 8
    + bytes.fromhex("ffc4 0014 00 01") + bytes(16)  # DHT: DC differences of 0 alone
    + bytes.fromhex("ffc4 0014 10 01") + bytes(16)  # DHT: AC ends of block alone
    + _JPEG_SCANS[0]
)  # fmt: skip
_JPEG_TAIL = _JPEG_SCANS[1] + _JPEG_SCANS[2] + _JPEG_END
_SEGMENT, _APP15 = struct.Struct(">2H"), 0xFFEF
_SEGMENT_BYTES = 15 * 4096
_JPEG_HEAD_BYTES = len(_JPEG_HEAD) + _SEGMENT.size


class RecordFormat(Protocol):
    """The layout of one uint8 array in a file: ``head``, payload, ``tail``."""

    HAS_CRC: bool
    """Whether the file stores a CRC-32 over ``checked_head`` and payload."""
    HAS_CONSTANT_EDGES: bool
    """Whether ``head`` and ``tail`` depend on the length of the payload alone."""

    def head(self, shape: tuple[int, ...], crc32: int = 0, /) -> bytes:
        """Return the bytes before the payload; their count does not depend on ``crc32``."""
        ...

    def checked_head(self, shape: tuple[int, ...], /) -> bytes:
        """Return the end of ``head`` over which the CRC-32 runs before the payload."""
        ...

    def tail(self, shape: tuple[int, ...], crc32: int = 0, /) -> bytes:
        """Return the bytes after the payload; their count does not depend on ``crc32``."""
        ...

    def payload(
        self, raw: NDArray[np.uint8], name: str, /, *, check_crc: bool = False
    ) -> NDArray[np.uint8]:
        """Return the payload as a view of a file's bytes; ``name`` is for the ``DataError``."""
        ...

    def inside(self, shape: tuple[int, ...], /) -> Sequence[tuple[int, bytes]]:
        """Return bytes of the format within the payload, each with its offset in the file."""
        ...

    def surrounds(self, raw: NDArray[np.uint8], name: str, /) -> bool:
        """Return whether the bytes around a file's payload are those of ``head`` and ``tail``.

        The shape and the CRC-32 are the file's own; ``name`` is for the ``DataError``.
        """
        ...


class Npy:
    r"""The ``.npy`` format (NEP 1): one uint8 array in C order after a short text header.

    Layout: ``\x93NUMPY``, major and minor version, the header's length (two bytes little-endian in
    version 1, four in 2 and 3), the header, a Python dict literal padded to a multiple of 64 bytes,
    and the array's bytes. Source: numpy's ``numpy/lib/format.py``.
    """

    HAS_CRC = False
    HAS_CONSTANT_EDGES = False

    def head(self, shape: tuple[int, ...], crc32: int = 0) -> bytes:
        """Return the header of a uint8 array of that shape, as ``np.save`` writes it."""
        return self.checked_head(shape)

    def checked_head(self, shape: tuple[int, ...]) -> bytes:
        """Return the same header; the CRC-32 of a container covers all of it."""
        header = io.BytesIO()
        fields = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()

    def tail(self, shape: tuple[int, ...], crc32: int = 0) -> bytes:
        """Return nothing: the file ends with the array."""
        return b""

    def inside(self, shape: tuple[int, ...]) -> Sequence[tuple[int, bytes]]:
        """Return nothing: the array is contiguous."""
        return ()

    def payload(
        self, raw: NDArray[np.uint8], name: str, *, check_crc: bool = False
    ) -> NDArray[np.uint8]:
        """Return the array's bytes, shape ``(n,)``, as a view of ``raw``, without a copy.

        ``raw`` holds the whole file, shape ``(file bytes,)``. The format has no CRC to check.

        Raises:
            DataError: not an npy file, truncated, trailing bytes, not uint8, not in C order, or
                several samples, which DLIO counts in a third dimension.
        """
        start, shape = _npy_header(raw, name)
        if len(shape) == _SAMPLES_AXIS + 1 and shape[_SAMPLES_AXIS] > 1:
            raise DataError(
                f"{name} holds {shape[_SAMPLES_AXIS]} samples; files of one sample each are "
                "supported"
            )
        expected_bytes = math.prod(shape)
        found_bytes = len(raw) - start
        if found_bytes != expected_bytes:
            what = "truncated" if found_bytes < expected_bytes else "followed by other bytes"
            raise DataError(
                f"{name} is {what}: its header declares {expected_bytes} bytes of array "
                f"and {found_bytes} follow; generate the data again"
            )
        return raw[start:]

    def surrounds(self, raw: NDArray[np.uint8], name: str) -> bool:
        """Return whether the header is as ``np.save`` writes it."""
        start, shape = _npy_header(raw, name)
        return raw[:start].tobytes() == self.head(shape)


def _npy_header(raw: NDArray[np.uint8], name: str) -> tuple[int, tuple[int, ...]]:
    preamble = raw[:12].tobytes()
    if not preamble.startswith(_NPY_MAGIC):
        raise DataError(f"{name} is not npy: it starts with {preamble[:6]!r}, not {_NPY_MAGIC!r}")
    length_bytes = _LENGTH_BYTES.get(preamble[6] if len(preamble) > 6 else 0)  # noqa: PLR2004 - its version
    if length_bytes is None or len(preamble) < 8 + length_bytes:
        raise DataError(f"{name} is truncated or has an unknown npy version, {preamble[6:8]!r}")
    start = 8 + length_bytes
    length = int.from_bytes(preamble[8:start], "little")
    if length > min(_HEADER_LIMIT_BYTES, len(raw) - start):
        raise DataError(
            f"{name} is corrupt: its npy header claims {length} bytes, "
            f"at most {min(_HEADER_LIMIT_BYTES, len(raw) - start)} are possible"
        )
    return start + length, _npy_shape(raw[start : start + length].tobytes(), name)


def _npy_shape(text: bytes, name: str) -> tuple[int, ...]:
    try:
        with _parser:
            fields = ast.literal_eval(text.decode("latin1").strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise DataError(f"{name} is corrupt: its header is not a dict: {text[:60]!r}") from error
    if not isinstance(fields, dict) or fields.keys() != _NPY_KEYS:
        raise DataError(
            f"{name} is corrupt: its npy header is not {sorted(_NPY_KEYS)}: {text[:60]!r}"
        )
    if fields["descr"] != "|u1" or fields["fortran_order"] is not False:
        raise DataError(
            f"{name} holds {fields['descr']!r} with fortran_order={fields['fortran_order']!r}; "
            "records are '|u1' (uint8) in C order"
        )
    shape = fields["shape"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise DataError(f"{name} is corrupt: the shape in its npy header is {shape!r}")
    return shape


class Npz:
    """The ``.npz`` format: a zip archive of stored ``.npy`` members, ``x.npy`` with the payload.

    We write what DLIO's ``np.savez(x=records, y=[0])`` writes: the record ``x`` and one int64 label
    ``y``. The zip fields are those of PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 (local header),
    4.3.12 (central directory) and 4.3.16 (its end). numpy writes the zip64 extra field into local
    headers even of small members, so sizes are read from the central directory only. The CRC-32 is
    computed at the speed of memory on processors with polynomial multiplication.
    """

    HAS_CRC = True
    HAS_CONSTANT_EDGES = False

    def head(self, shape: tuple[int, ...], crc32: int = 0) -> bytes:
        """Return the local header and the npy header of ``x``; the payload starts 64-aligned.

        Raises:
            ConfigError: the record has 4 GiB or more, which would need zip64.
        """
        array = self.checked_head(shape)
        return (
            _local(_RECORD, _member_bytes(shape), crc32, _padding(_LOCAL.size + len(_RECORD)))
            + array
        )

    def checked_head(self, shape: tuple[int, ...]) -> bytes:
        """Return the npy header of ``x``, where the CRC-32 of the member begins."""
        return NPY.checked_head(shape)

    def tail(self, shape: tuple[int, ...], crc32: int = 0) -> bytes:
        """Return the member ``y`` (one int64 zero), the central directory and its end."""
        label = _label()
        label_crc32 = zlib.crc32(label)
        start = len(self.head(shape)) + _member_bytes(shape) - len(self.checked_head(shape))
        local = _local(_LABEL, len(label), label_crc32, b"") + label
        directory = _central(_RECORD, _member_bytes(shape), crc32, 0)
        directory += _central(_LABEL, len(label), label_crc32, start)
        end = _END.pack(_END_MAGIC, 0, 0, 2, 2, len(directory), start + len(local), 0)
        return local + directory + end

    def inside(self, shape: tuple[int, ...]) -> Sequence[tuple[int, bytes]]:
        """Return nothing: the array is contiguous."""
        return ()

    def payload(
        self, raw: NDArray[np.uint8], name: str, *, check_crc: bool = False
    ) -> NDArray[np.uint8]:
        """Return the bytes of ``x``, shape ``(n,)``, as a view of ``raw``, without a copy.

        ``raw`` holds the whole file, shape ``(file bytes,)``. ``check_crc`` also reads all of ``x``
        and compares its CRC-32, as ``np.load`` always does.

        Raises:
            DataError: not a zip archive, truncated, ``x`` missing, compressed, encrypted, zip64,
                damaged, or not a uint8 array in C order.
        """
        member = _find(raw, name)
        if member.method != 0 or member.flags & _ENCRYPTED:
            what = f"compressed by method {member.method}" if member.method else "encrypted"
            raise DataError(f"{name}: x.npy is {what}; records must be stored, as by np.savez")
        if _ZIP64_MARK in {member.stored_bytes, member.array_bytes, member.offset}:
            raise DataError(f"{name}: x.npy needs zip64, which is not supported (4 GiB and more)")
        array = raw[_data_start(raw, member, name) :][: member.stored_bytes]
        if len(array) != member.stored_bytes or member.stored_bytes != member.array_bytes:
            raise DataError(
                f"{name} is corrupt: x.npy stores {member.stored_bytes} bytes of an array of "
                f"{member.array_bytes}, and the file has {len(array)}; generate the data again"
            )
        if check_crc and crc32_of(array) != member.crc32:
            raise DataError(
                f"{name} is corrupt: the CRC-32 of x.npy differs; generate the data again"
            )
        return NPY.payload(array, f"{name}: x.npy")

    def surrounds(self, raw: NDArray[np.uint8], name: str) -> bool:
        """Return whether both headers, the label and the directory are as we write them."""
        member = _find(raw, name)
        array_start = _data_start(raw, member, name)
        header_bytes, shape = _npy_header(raw[array_start:], name)
        start = array_start + header_bytes
        end = start + math.prod(shape)
        return raw[:start].tobytes() == self.head(shape, member.crc32) and raw[
            end:
        ].tobytes() == self.tail(shape, member.crc32)


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of the central directory: sizes, CRC-32 and where its local header starts."""

    method: int
    flags: int
    crc32: int
    stored_bytes: int
    array_bytes: int
    offset: int


def _find(raw: NDArray[np.uint8], name: str) -> _Member:
    """Return the entry of ``x.npy`` in the central directory."""
    position, count = _directory(raw, name)
    for _ in range(count):
        entry = raw[position : position + _CENTRAL.size].tobytes()
        if len(entry) < _CENTRAL.size or not entry.startswith(_CENTRAL_MAGIC):
            break
        fields = _CENTRAL.unpack(entry)
        name_bytes, extra_bytes, comment_bytes = fields[10:13]
        position += _CENTRAL.size
        if raw[position : position + name_bytes].tobytes() == _RECORD:
            return _Member(fields[4], fields[3], fields[7], fields[8], fields[9], fields[16])
        position += name_bytes + extra_bytes + comment_bytes
    raise DataError(f"{name} is corrupt or not a record: its zip directory has no readable x.npy")


def _directory(raw: NDArray[np.uint8], name: str) -> tuple[int, int]:
    """Return where the central directory starts and how many entries it has."""
    end = raw[-_END.size :].tobytes()
    if len(end) < _END.size or not end.startswith(_END_MAGIC):
        raise DataError(
            f"{name} is truncated or not npz: its last {_END.size} bytes are not the end of a "
            "zip archive; generate the data again"
        )
    _, _, _, _, count, length, start, _ = _END.unpack(end)
    if start == _ZIP64_MARK:
        raise DataError(f"{name} needs zip64, which is not supported (4 GiB and more)")
    if start + length > len(raw) - _END.size:
        raise DataError(f"{name} is corrupt: its zip directory would end after the file's end")
    return start, count


def _data_start(raw: NDArray[np.uint8], member: _Member, name: str) -> int:
    """Return where the bytes of a member start, after its local header."""
    local = raw[member.offset : member.offset + _LOCAL.size].tobytes()
    start = member.offset + _LOCAL.size
    if (
        len(local) < _LOCAL.size
        or not local.startswith(_LOCAL_MAGIC)
        or raw[start : start + len(_RECORD)].tobytes() != _RECORD
    ):
        raise DataError(f"{name} is corrupt: no local header of x.npy at byte {member.offset}")
    name_bytes, extra_bytes = _LOCAL.unpack(local)[9:11]
    return start + int(name_bytes) + int(extra_bytes)


def _member_bytes(shape: tuple[int, ...]) -> int:
    array_bytes = len(NPY.checked_head(shape)) + int(np.prod(shape, dtype=np.int64))
    if array_bytes > _ZIP64_MARK - (1 << 20):
        raise ConfigError(
            f"a record of {array_bytes} bytes does not fit an npz file without zip64; "
            "records must be smaller than 4 GiB"
        )
    return array_bytes


@cache
def _label() -> bytes:
    array = io.BytesIO()
    np.save(array, np.zeros(1, dtype="<i8"), allow_pickle=False)
    return array.getvalue()


def _padding(before: int) -> bytes:
    """Return an extra field after ``before`` bytes that ends at a multiple of 64."""
    length = -(before + 4) % _ALIGN_BYTES
    return struct.pack("<2H", _PADDING_ID, length) + bytes(length)


def _local(member: bytes, size: int, crc32: int, extra: bytes) -> bytes:
    fields = (_VERSION, 0, 0, 0, _EPOCH_DATE, crc32, size, size, len(member), len(extra))
    return _LOCAL.pack(_LOCAL_MAGIC, *fields) + member + extra


def _central(member: bytes, size: int, crc32: int, offset: int) -> bytes:
    fields = (_VERSION, _VERSION, 0, 0, 0, _EPOCH_DATE, crc32, size, size, len(member))
    return _CENTRAL.pack(_CENTRAL_MAGIC, *fields, 0, 0, 0, 0, 0, offset) + member


class Jpeg:
    """A JPEG file (ITU-T T.81, annex B): a tiny image, with the payload in APP15 segments in it.

    The segments are between the scan of the first component and that of the second, and decoders
    skip them. Pillow, with which DLIO reads, reads what precedes the first scan twice, and nothing
    after the last. A segment has at most 65,535 bytes, so a longer payload contains
    the headers of further segments: the last four bytes of every 15th block of 4 KiB, where no
    stamp is. They are sealed with the rest of their block.

    A JPEG file of another structure, as DLIO generates it, is all payload.
    """

    HAS_CRC = False
    HAS_CONSTANT_EDGES = True

    def head(self, shape: tuple[int, ...], crc32: int = 0) -> bytes:
        """Return the image up to its first scan, and the header of the first segment."""
        return _JPEG_HEAD + _segments(math.prod(shape))[0][1]

    def checked_head(self, shape: tuple[int, ...]) -> bytes:
        """Return nothing: there is no CRC."""
        return b""

    def tail(self, shape: tuple[int, ...], crc32: int = 0) -> bytes:
        """Return the other two scans of the image, 8 x 8 grey pixels, and its end."""
        return _JPEG_TAIL

    def inside(self, shape: tuple[int, ...]) -> Sequence[tuple[int, bytes]]:
        """Return the headers of the segments after the first."""
        return _segments(math.prod(shape))[1:]

    def payload(
        self, raw: NDArray[np.uint8], name: str, *, check_crc: bool = False
    ) -> NDArray[np.uint8]:
        """Return the bytes between head and tail, shape ``(n,)``, as a view of ``raw``.

        ``raw`` holds the whole file, shape ``(file bytes,)``. The format has no CRC to check.

        Raises:
            DataError: not a JPEG file, or truncated.
        """
        start, end = raw[:2].tobytes(), raw[-2:].tobytes()
        if start != _JPEG_START:
            raise DataError(f"{name} is not JPEG: it starts with {start!r}, not {_JPEG_START!r}")
        if end != _JPEG_END:
            raise DataError(
                f"{name} is truncated: it ends with {end!r}, not {_JPEG_END!r}, the end of a JPEG "
                "file; generate the data again"
            )
        return raw[_JPEG_HEAD_BYTES : -len(_JPEG_TAIL)] if self.surrounds(raw, name) else raw

    def surrounds(self, raw: NDArray[np.uint8], name: str) -> bool:
        """Return whether head and tail are as we write them."""
        payload_bytes = len(raw) - _JPEG_HEAD_BYTES - len(_JPEG_TAIL)
        return (
            payload_bytes >= 0
            and raw[:_JPEG_HEAD_BYTES].tobytes() == self.head((payload_bytes,))
            and raw[-len(_JPEG_TAIL) :].tobytes() == _JPEG_TAIL
        )


def _segments(payload_bytes: int) -> Sequence[tuple[int, bytes]]:
    """Return each segment's header with its offset in the file."""
    end = _JPEG_HEAD_BYTES + payload_bytes
    later = range(_SEGMENT_BYTES - _SEGMENT.size, end - _SEGMENT.size + 1, _SEGMENT_BYTES)
    starts = [len(_JPEG_HEAD), *later]
    ends = [*later, end]
    # The length counts itself, but not the two bytes of the marker before it.
    return [
        (first, _SEGMENT.pack(_APP15, last - first - 2))
        for first, last in zip(starts, ends, strict=True)
    ]


NPY: Final = Npy()
FORMATS: Final[dict[str, RecordFormat]] = {"jpeg": Jpeg(), "npy": NPY, "npz": Npz()}


def record_format(name: str) -> RecordFormat:
    """Return the format with that name; raises ``ConfigError`` for an unknown one."""
    try:
        return FORMATS[name]
    except KeyError as error:
        raise ConfigError(
            f"format must be one of {', '.join(sorted(FORMATS))}, got {name!r}"
        ) from error


def file_bytes(layout: RecordFormat, shape: tuple[int, ...]) -> int:
    """Return the size in bytes of a file that holds an array of that shape."""
    payload_bytes = int(np.prod(shape, dtype=np.int64))
    return len(layout.head(shape)) + payload_bytes + len(layout.tail(shape))
