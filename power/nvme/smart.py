"""SMART / Health Information (log 02h): bytes to fields.

Layout: NVMe Base Specification 2.0, figure "SMART / Health Information Log Page"; bytes 232 to 243
(lifetime energy, interval power) as TP4199 of NVMe 2.3 has them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.logs import log_command
from wattload.power.nvme.watts import decode_power

SMART_LOG = 0x02
SMART_BYTES = 512
DATA_UNIT_BYTES = 512_000
"""One data unit: 1000 blocks of 512 B; the drive rounds up."""

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
"""The counters of 16 bytes from byte 64 on, after data units read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartLog:
    """Health and lifetime counters. Temperatures in kelvin, 0 from the drive is ``None``.

    ``interval_power_w`` (IPM) is the mean of the drive's own samples over its last second, counted
    in steps of ``interval_power_step_w``; type 0 is the whole NVM subsystem, 12 to 15 are the
    vendor's; all three are ``None`` together. ``lifetime_energy_wh`` (OLEC) counts whole watt-hours
    while the drive operates, rounded up, and stops at 2^64 - 1.
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
