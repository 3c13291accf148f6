"""SMART / Health Information (log 02h) and Endurance Group Information (log 09h).

Layouts: NVMe Base Specification 2.0; lifetime energy and interval power (bytes 232 to 243 of log
02h) as TP4199 of NVMe 2.3 has them. Amounts in log 09h count in 10^9 bytes and are rounded up.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wattload.core.errors import PowerError
from wattload.core.power import ENDURANCE_GROUP, OCP
from wattload.core.units import GB
from wattload.power.nvme.admin import AdminDevice, fetch, log_command
from wattload.power.nvme.fields import decode_power, require_bytes, u128
from wattload.power.nvme.identify import (
    Controller,
    active_namespaces,
    identify_namespace,
    read_ocp_uuid_index,
)
from wattload.power.nvme.logs import read_ocp_smart

ENDURANCE_GROUP_LOG = 0x09
ENDURANCE_GROUP_BYTES = 512

SMART_LOG = 0x02
SMART_BYTES = 512
DATA_UNIT_BYTES = 512_000
"""One data unit: 1000 blocks of 512 B; drives round up."""
_COMMAND = log_command(SMART_LOG, SMART_BYTES, name="Get Log Page 02h (SMART)")
_COUNTERS = (
    "read_commands",
    "write_commands",
    "busy_minutes",
    "power_cycles",
    "power_on_hours",
    "unsafe_shutdowns",
    "media_errors",
    "error_log_entries",
)
"""The counters of 16 bytes from byte 64, after data units read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartLog:
    """Health and lifetime counters. Temperatures in kelvin, ``None`` if the drive reports 0.

    ``interval_power_w`` (IPM) is the mean of the drive's own samples over its last second, in steps
    of ``interval_power_step_w``. ``interval_power_type`` 0 is the whole NVM subsystem, 12 to 15 are
    vendor-specific. All three are ``None`` together. ``lifetime_energy_wh`` (OLEC) is whole
    watt-hours in operation, rounded up, and stops at 2^64 - 1.
    """

    critical_warning: int
    temperature_k: int | None
    available_spare_percent: int
    spare_threshold_percent: int
    percentage_used: int
    read_bytes: int
    written_bytes: int
    read_commands: int
    write_commands: int
    busy_minutes: int
    power_cycles: int
    power_on_hours: int
    unsafe_shutdowns: int
    media_errors: int
    error_log_entries: int
    warning_temperature_minutes: int
    critical_temperature_minutes: int
    sensors_k: tuple[int | None, ...]
    thermal_transitions_1: int
    thermal_transitions_2: int
    thermal_seconds_1: int
    thermal_seconds_2: int
    lifetime_energy_wh: int | None
    interval_power_w: float | None
    interval_power_step_w: float | None
    interval_power_type: int | None


def read_smart(device: AdminDevice) -> SmartLog:
    """Return the controller's SMART log; Retain Asynchronous Event is set."""
    return decode_smart(fetch(device, _COMMAND).data)


def decode_smart(data: bytes) -> SmartLog:
    """Return the fields of a SMART log of 512 bytes."""
    if len(data) != SMART_BYTES:
        raise PowerError(f"the SMART log has {SMART_BYTES} bytes, got {len(data)}")
    warning, temperature, spare, threshold, used = struct.unpack_from("<BHBBB", data)
    counters = [int.from_bytes(data[at : at + 16], "little") for at in range(32, 192, 16)]
    return SmartLog(
        critical_warning=warning,
        temperature_k=temperature or None,
        available_spare_percent=spare,
        spare_threshold_percent=threshold,
        percentage_used=used,
        read_bytes=counters[0] * DATA_UNIT_BYTES,
        written_bytes=counters[1] * DATA_UNIT_BYTES,
        **dict(zip(_COUNTERS, counters[2:], strict=True)),
        sensors_k=tuple(kelvin or None for kelvin in struct.unpack_from("<8H", data, 200)),
        **_thermal_counts(data),
        **_power(data),
    )


def _thermal_counts(data: bytes) -> dict[str, int]:
    minutes, counts = struct.unpack_from("<II", data, 192), struct.unpack_from("<IIII", data, 216)
    return {
        "warning_temperature_minutes": minutes[0],
        "critical_temperature_minutes": minutes[1],
        "thermal_transitions_1": counts[0],
        "thermal_transitions_2": counts[1],
        "thermal_seconds_1": counts[2],
        "thermal_seconds_2": counts[3],
    }


def _power(data: bytes) -> dict[str, Any]:
    energy_wh, interval = struct.unpack_from("<QI", data, 232)
    power = decode_power(interval)
    reports_power = power.watts is not None
    return {
        "lifetime_energy_wh": energy_wh or None,
        "interval_power_w": power.watts,
        "interval_power_step_w": power.step_w if reports_power else None,
        "interval_power_type": interval >> 20 & 0xF if reports_power else None,
    }


def read_group_media_bytes(device: AdminDevice, group: int) -> int:
    """Return the bytes written to the media of one endurance group, in steps of 10^9."""
    command = log_command(ENDURANCE_GROUP_LOG, ENDURANCE_GROUP_BYTES, specific=group)
    data = fetch(device, command).data
    require_bytes(data, ENDURANCE_GROUP_BYTES, "the endurance group log")
    return u128(data, 80) * GB


def media_counter(device: AdminDevice, controller: Controller) -> tuple[str, Callable[[], int]]:
    """Return the log that counts the bytes written to the media, and what reads the count.

    The OCP log is preferred, because it counts single bytes. The endurance group is that of the
    controller's first namespace.

    Raises:
        PowerError: the drive has neither log, or does not answer.
    """
    try:
        index = read_ocp_uuid_index(device, controller)
    except PowerError:
        index = 0  # OCP's log is recognized by its GUID anyway
    try:
        read_ocp_smart(device, uuid_index=index)
        return OCP, lambda: read_ocp_smart(device, uuid_index=index).media_written_bytes
    except PowerError:
        namespaces = active_namespaces(device) if controller.endurance_groups else ()
    groups = [identify_namespace(device, each).endurance_group for each in namespaces[:1]]
    if not any(groups):
        raise PowerError("the drive has neither the OCP log C0h nor endurance groups")
    read_group_media_bytes(device, groups[0])
    return ENDURANCE_GROUP, lambda: read_group_media_bytes(device, groups[0])
