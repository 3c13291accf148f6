"""NVMe/TCP PDUs, packed and taken apart.

Layouts: NVMe over TCP Transport Specification 1.1, NVMe over Fabrics commands of the NVMe Base
Specification 2.0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

INITIALIZE_REQUEST, INITIALIZE_RESPONSE = 0x00, 0x01
COMMAND, RESPONSE = 0x04, 0x05
HOST_DATA, CONTROLLER_DATA, READY = 0x06, 0x07, 0x09

COMMON = struct.Struct("<BBBBI")
"""Type, flags, header length, data offset, length of all."""
ENTRY_BYTES = 64
DATA_HEADER_BYTES = 16
"""Of host and controller data and of R2T, after the common header."""

_LAST = 4
_LARGEST_DATA = 4 << 20

FABRICS = 0x7F


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A submission queue entry's fields."""

    opcode: int
    identifier: int
    namespace: int
    length: int
    is_in_capsule: bool
    dwords: tuple[int, ...]
    """Command dwords 10 to 15."""
    raw: bytes

    @property
    def sends_data(self) -> bool:
        """Whether data goes from host to controller, as bits 1:0 of the opcode say."""
        opcode = self.raw[4] if self.opcode == FABRICS else self.opcode
        return bool(self.length) and opcode & 3 == 1


def parse_entry(raw: bytes) -> Entry:
    """Return the fields of the 64 bytes of an entry; data is described by one SGL descriptor."""
    identifier, namespace = struct.unpack_from("<HI", raw, 2)
    return Entry(
        opcode=raw[0],
        identifier=identifier,
        namespace=namespace,
        length=struct.unpack_from("<I", raw, 32)[0],
        is_in_capsule=raw[39] & 0xF == 1,
        dwords=struct.unpack_from("<6I", raw, 40),
        raw=raw,
    )


def parse_ranges(data: bytes, count: int) -> list[tuple[int, int]]:
    """Return first block and number of blocks of the ranges of Dataset Management."""
    return [struct.unpack_from("<IQ", data, 16 * at + 4)[::-1] for at in range(count)]


def initialize_response() -> bytes:
    """Return the ICResp: version 0, no padding, no digests."""
    body = struct.pack("<HBBI", 0, 0, 0, _LARGEST_DATA).ljust(120, b"\0")
    return COMMON.pack(INITIALIZE_RESPONSE, 0, 128, 0, 128) + body


def ready(identifier: int, length: int) -> bytes:
    """Return the R2T that asks for all data of a command at once."""
    return COMMON.pack(READY, 0, 24, 0, 24) + struct.pack(
        "<HHIII", identifier, identifier, 0, length, 0
    )


def data_header(identifier: int, length: int) -> bytes:
    """Return the header of the only data PDU of a command; the data follows it."""
    return COMMON.pack(CONTROLLER_DATA, _LAST, 24, 24, 24 + length) + struct.pack(
        "<HHIII", identifier, 0, 0, length, 0
    )


def response(identifier: int, status: int, result: int, head: int, queue: int) -> bytes:
    """Return the capsule with a completion queue entry."""
    return COMMON.pack(RESPONSE, 0, 24, 0, 24) + struct.pack(
        "<QHHHH", result, head, queue, identifier, status << 1 & 0xFFFF
    )
