"""Identify Namespace: bytes to fields, and which namespaces a controller has.

Layout: NVM Command Set Specification 1.0, figure "Identify Namespace Data Structure".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.identify import IDENTIFY_BYTES, identify_command
from wattload.power.nvme.layout import require_bytes, u16

_CNS_NAMESPACE = 0x00
_CNS_ACTIVE_NAMESPACES = 0x02
_FORMATS_OF_FOUR_BITS = 16
_LARGEST_EXPONENT = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One namespace: size and use in bytes, and the logical block it is formatted with.

    ``endurance_group`` is 0 where the drive has none.
    """

    size_bytes: int
    capacity_bytes: int
    used_bytes: int
    lba_bytes: int
    metadata_bytes: int
    endurance_group: int


def identify_namespace(device: AdminDevice, namespace: int) -> Namespace:
    """Return size, use and format of an active namespace."""
    command = identify_command(_CNS_NAMESPACE, f"Identify Namespace {namespace}", namespace)
    return decode_namespace(fetch(device, command).data)


def active_namespaces(device: AdminDevice) -> tuple[int, ...]:
    """Return the identifiers of the controller's active namespaces, ascending; at most 1024."""
    command = identify_command(_CNS_ACTIVE_NAMESPACES, "Identify Active Namespaces")
    return decode_active_namespaces(fetch(device, command).data)


def decode_active_namespaces(data: bytes) -> tuple[int, ...]:
    """Return the identifiers of a list of 4096 bytes, up to the first 0, which ends it."""
    require_bytes(data, IDENTIFY_BYTES, "Identify Active Namespaces")
    identifiers = struct.unpack("<1024I", data)
    end = identifiers.index(0) if 0 in identifiers else len(identifiers)
    return identifiers[:end]


def decode_namespace(data: bytes) -> Namespace:
    """Return the fields of an Identify Namespace structure of 4096 bytes.

    Raises:
        PowerError: the format names no block size, as that of an inactive namespace does.
    """
    require_bytes(data, IDENTIFY_BYTES, "Identify Namespace")
    size, capacity, used = struct.unpack_from("<QQQ", data)
    # Bits 6:5 extend the index only where there are more than 16 formats.
    high = data[26] >> 1 & 0x30 if data[25] >= _FORMATS_OF_FOUR_BITS else 0
    metadata, exponent = struct.unpack_from("<HB", data, 128 + 4 * (data[26] & 0xF | high))
    if not 0 < exponent <= _LARGEST_EXPONENT:
        raise PowerError(
            f"Identify Namespace names blocks of 2^{exponent} bytes: the namespace is not active"
        )
    return Namespace(
        size_bytes=size << exponent,
        capacity_bytes=capacity << exponent,
        used_bytes=used << exponent,
        lba_bytes=1 << exponent,
        metadata_bytes=metadata,
        endurance_group=u16(data, 102),
    )
