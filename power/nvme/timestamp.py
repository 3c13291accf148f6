"""Timestamp (feature 0Eh): the drive's clock, and the stamps in its logs.

Layout: NVMe Base Specification 2.0, figure "Timestamp - Data Structure for Get Features": 48 bits
of milliseconds, then an attribute byte (bit 0: the clock may have stopped, bits 3:1: its origin).
"""

from __future__ import annotations

from dataclasses import dataclass

from wattload.power.nvme.admin import GET_FEATURES, AdminCommand, AdminDevice, fetch
from wattload.power.nvme.layout import require_bytes

TIMESTAMP = 0x0E
TIMESTAMP_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """A reading of the drive's clock in milliseconds.

    ``host_set`` says that the host has set the clock since the last reset, so that the origin is
    1970-01-01 UTC; else it counts from the reset. ``stopped`` says that it may have stood still.
    """

    ms: int
    host_set: bool
    stopped: bool


def read_timestamp(device: AdminDevice) -> Timestamp:
    """Return the drive's clock."""
    command = AdminCommand(
        name="Get Features 0Eh (timestamp)",
        opcode=GET_FEATURES,
        cdw10=TIMESTAMP,
        data_bytes=TIMESTAMP_BYTES,
    )
    return decode_timestamp(fetch(device, command).data)


def decode_timestamp(data: bytes) -> Timestamp:
    """Return the fields of a timestamp of 8 bytes."""
    require_bytes(data, TIMESTAMP_BYTES, "a timestamp")
    return Timestamp(
        ms=int.from_bytes(data[:6], "little"),
        host_set=data[6] >> 1 & 7 == 1,
        stopped=bool(data[6] & 1),
    )
