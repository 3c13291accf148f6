"""The ``.npz`` format: a zip archive of stored ``.npy`` members, ``x.npy`` with the payload.

Written is what DLIO's ``np.savez(x=records, y=[0])`` holds: the record ``x`` and one int64 label
``y``. The zip fields are those of PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 (local header),
4.3.12 (central directory) and 4.3.16 (its end). numpy writes the zip64 extra field into local
headers even of small members, so sizes are read from the central directory alone.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.loaders.crc32 import crc32_of
from wattload.loaders.formats import npy

HAS_CRC = True

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_ZIP64_MARK = 0xFFFFFFFF
_ENCRYPTED = 0x1
_VERSION = 20
_EPOCH_DATE = (1 << 5) | 1
"""1980-01-01, the first day a zip can name: files do not depend on when they were made."""

_RECORD = b"x.npy"
_LABEL = b"y.npy"
_ALIGN_BYTES = 64
_PADDING_ID = 0xD935
"""The extra field that aligns a stored member (the id that Android's zipalign uses)."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of the central directory: sizes, CRC-32 and where its local header starts."""

    method: int
    flags: int
    crc32: int
    stored_bytes: int
    array_bytes: int
    offset: int


def head(shape: tuple[int, ...], crc32: int = 0) -> bytes:
    """Return the local header and the npy header of ``x``; the payload starts 64-aligned.

    Raises ``ConfigError`` for a record of 4 GiB or more, which would need zip64.
    """
    array = checked_head(shape)
    return (
        _local(_RECORD, _member_bytes(shape), crc32, _padding(_LOCAL.size + len(_RECORD))) + array
    )


def checked_head(shape: tuple[int, ...]) -> bytes:
    """Return the npy header of ``x``, over which the CRC-32 of the member runs first."""
    return npy.checked_head(shape)


def tail(shape: tuple[int, ...], crc32: int = 0) -> bytes:
    """Return the member ``y`` (one int64 zero), the central directory and its end."""
    label = _label()
    label_crc32 = zlib.crc32(label)
    start = len(head(shape)) + _member_bytes(shape) - len(checked_head(shape))
    local = _local(_LABEL, len(label), label_crc32, b"") + label
    directory = _central(_RECORD, _member_bytes(shape), crc32, 0)
    directory += _central(_LABEL, len(label), label_crc32, start)
    end = _END.pack(_END_MAGIC, 0, 0, 2, 2, len(directory), start + len(local), 0)
    return local + directory + end


def payload(raw: NDArray[np.uint8], name: str, *, check_crc: bool = False) -> NDArray[np.uint8]:
    """Return the bytes of the array ``x``, shape ``(n,)``, as a view of ``raw``; nothing is copied.

    ``raw`` holds the whole file, shape ``(file bytes,)``. ``check_crc`` also reads all of ``x`` and
    compares its CRC-32, as ``np.load`` always does.

    Raises:
        DataError: no zip archive, cut short, ``x`` missing, compressed, encrypted, zip64, damaged,
            or no uint8 array in C order.
    """
    member = _find(raw, name)
    if member.method != 0 or member.flags & _ENCRYPTED:
        what = f"compressed by method {member.method}" if member.method else "encrypted"
        raise DataError(f"{name}: x.npy is {what}; records are stored plain, as np.savez does")
    if _ZIP64_MARK in {member.stored_bytes, member.array_bytes, member.offset}:
        raise DataError(f"{name}: x.npy needs zip64; records of 4 GiB and more are not read")
    array = raw[_data_start(raw, member, name) :][: member.stored_bytes]
    if len(array) != member.stored_bytes or member.stored_bytes != member.array_bytes:
        raise DataError(
            f"{name} is corrupt: x.npy has {member.stored_bytes} bytes stored of an array of "
            f"{member.array_bytes}, {len(array)} are there; generate the data again"
        )
    if check_crc and crc32_of(array) != member.crc32:
        raise DataError(f"{name} is corrupt: the CRC-32 of x.npy differs; generate the data again")
    return npy.payload(array, f"{name}: x.npy")


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
    raise DataError(f"{name} is corrupt or no record: its zip directory has no readable x.npy")


def _directory(raw: NDArray[np.uint8], name: str) -> tuple[int, int]:
    """Return where the central directory starts and how many entries it has."""
    end = raw[-_END.size :].tobytes()
    if len(end) < _END.size or not end.startswith(_END_MAGIC):
        raise DataError(
            f"{name} is cut short or no npz file: its last {_END.size} bytes are not the end of a "
            "zip archive; generate the data again"
        )
    _, _, _, _, count, length, start, _ = _END.unpack(end)
    if start == _ZIP64_MARK:
        raise DataError(f"{name} needs zip64; records of 4 GiB and more are not read")
    if start + length > len(raw) - _END.size:
        raise DataError(f"{name} is corrupt: its zip directory would end behind the file's end")
    return start, count


def _data_start(raw: NDArray[np.uint8], member: _Member, name: str) -> int:
    """Return where the bytes of a member start, behind its local header."""
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
    array_bytes = len(npy.checked_head(shape)) + int(np.prod(shape, dtype=np.int64))
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
