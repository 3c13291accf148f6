"""Endurance Group Information (log 09h), and the bytes written to the media by it or by OCP C0h.

Layout: NVMe Base Specification 2.0, figure "Endurance Group Information Log Page": amounts of data
count in 10^9 bytes and are rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.core.units import GB
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.layout import require_bytes, u128
from wattload.power.nvme.logs import log_command
from wattload.power.nvme.ocp import (
    OCP_SMART_BYTES,
    OCP_SMART_LOG,
    decode_ocp_smart,
    is_ocp_smart,
)
from wattload.power.nvme.status import SUCCESS

ENDURANCE_GROUP_LOG = 0x09
ENDURANCE_GROUP_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EnduranceGroup:
    """Health and lifetime counters of one endurance group; bytes in steps of 10^9.

    Joules per media byte and write amplification come from ``media_written_bytes``.
    ``endurance_estimate_bytes`` and the capacities are ``None`` where the drive reports 0.
    """

    critical_warning: int
    available_spare_percent: int
    spare_threshold_percent: int
    percentage_used: int
    endurance_estimate_bytes: int | None
    read_bytes: int
    written_bytes: int
    media_written_bytes: int
    read_commands: int
    write_commands: int
    media_errors: int
    error_log_entries: int
    capacity_bytes: int | None
    unallocated_bytes: int | None


def read_endurance_group(device: AdminDevice, group: int) -> EnduranceGroup:
    """Return the log of one endurance group, 1 or more."""
    command = log_command(ENDURANCE_GROUP_LOG, ENDURANCE_GROUP_BYTES, specific=group)
    return decode_endurance_group(fetch(device, command).data)


def decode_endurance_group(data: bytes) -> EnduranceGroup:
    """Return the fields of an endurance group log of 512 bytes."""
    require_bytes(data, ENDURANCE_GROUP_BYTES, "the endurance group log")
    capacity = u128(data, 160)
    return EnduranceGroup(
        critical_warning=data[0],
        available_spare_percent=data[3],
        spare_threshold_percent=data[4],
        percentage_used=data[5],
        endurance_estimate_bytes=u128(data, 32) * GB or None,
        read_bytes=u128(data, 48) * GB,
        written_bytes=u128(data, 64) * GB,
        media_written_bytes=u128(data, 80) * GB,
        read_commands=u128(data, 96),
        write_commands=u128(data, 112),
        media_errors=u128(data, 128),
        error_log_entries=u128(data, 144),
        capacity_bytes=capacity or None,
        unallocated_bytes=u128(data, 176) if capacity else None,
    )


def read_media_written_bytes(
    device: AdminDevice, endurance_group: int, *, ocp_uuid_index: int = 0
) -> int:
    """Return the bytes that the drive has written to its media in its life.

    The OCP log counts single bytes and goes first. ``endurance_group`` is the namespace's group, 0
    where the drive has none.

    Raises:
        PowerError: the drive has neither log.
    """
    command = log_command(OCP_SMART_LOG, OCP_SMART_BYTES, uuid_index=ocp_uuid_index)
    ocp = device.submit(command)
    if ocp.code == SUCCESS and is_ocp_smart(ocp.data):
        return decode_ocp_smart(ocp.data).media_written_bytes
    if endurance_group == 0:
        raise PowerError("the drive has neither the OCP log C0h nor endurance groups")
    return read_endurance_group(device, endurance_group).media_written_bytes
