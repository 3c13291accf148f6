"""Log pages of a drive: health, written bytes, supported logs, firmware slots, command effects.

These are logs 00h, 02h (SMART), 03h, 05h and 09h (NVMe Base Specification 2.0) and C0h (OCP
Datacenter NVMe SSD Specification 2.x, "SMART / Health Information Extended"; power fields as
nvme-cli decodes them from log version 5 on). Lifetime energy and interval power (bytes 232 to 243
of log 02h) are as TP4199 of NVMe 2.3 has them. Amounts in log 09h count in 10^9 bytes and are
rounded up.

Linux freezes a controller's I/O queues around a passthrough command if its effects are changed data
or exclusive execution (``nvme_passthru_start`` in ``drivers/nvme/host/core.c``). Sampling with such
a command would slow the measured run.
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
from wattload.power.nvme.fields import decode_power, require_bytes, u16, u64, u128
from wattload.power.nvme.identify import (
    Controller,
    active_namespaces,
    identify_namespace,
    read_ocp_uuid_index,
)

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

EFFECTS_LOG = 0x05
EFFECTS_BYTES = 4096

_OPCODES = 256
_DISTURBS_IO = 0x7001E
"""It changes data, the namespace, the list of namespaces or the controller (bits 4:1), or excludes
other commands (CSE, bits 18:16)."""

FIRMWARE_LOG = 0x03
LOG_BYTES = 512
SUPPORTED_PAGES_LOG = 0x00
SUPPORTED_PAGES_BYTES = 1024

OCP_SMART_LOG = 0xC0
OCP_SMART_BYTES = 512
OCP_SMART_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
"""Bytes 496 to 511 of log C0h, as stored. Some vendors use C0h for other data."""

_POWER_FIELDS_VERSION = 5
_CELSIUS_ZERO_K = 273
"""Rounded as in the NVMe specification; byte 222 is in degrees Celsius."""


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
    require_bytes(data, SMART_BYTES, "the SMART log")
    warning, temperature, spare, threshold, used = struct.unpack_from("<BHBBB", data)
    counters = [u128(data, offset) for offset in range(32, 192, 16)]
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


def read_freezing_commands(device: AdminDevice, controller: Controller) -> frozenset[int]:
    """Return the opcodes of admin commands that would stop I/O; none without an effects log.

    Without this log, Linux assumes that reading logs and features has no effects.
    """
    if not controller.effects_log:
        return frozenset()
    return decode_freezing_commands(fetch(device, log_command(EFFECTS_LOG, EFFECTS_BYTES)).data)


def decode_freezing_commands(data: bytes) -> frozenset[int]:
    """Return the opcodes of admin commands around which Linux stops I/O or rescans the drive.

    ``data`` is an effects log of 4096 bytes, which has the admin commands first. Relaxations (CSER)
    are ignored, because kernels before 6.3 do not support them.
    """
    require_bytes(data, EFFECTS_BYTES, "the effects log")
    effects = struct.unpack_from(f"<{_OPCODES}I", data)
    return frozenset(opcode for opcode, bits in enumerate(effects) if bits & _DISTURBS_IO)


def read_firmware_slot(device: AdminDevice) -> int | None:
    """Return the slot of the active firmware, 1 to 7 (AFI, bits 2:0); ``None`` if not reported."""
    return fetch(device, log_command(FIRMWARE_LOG, LOG_BYTES)).data[0] & 7 or None


def read_supported_pages(device: AdminDevice, controller: Controller) -> frozenset[int] | None:
    """Return the identifiers of the drive's logs, ``None`` if it has no list of them.

    The list was introduced with NVMe 2.0. An older drive may have logs without it.
    """
    if not controller.supported_pages_log:
        return None
    command = log_command(SUPPORTED_PAGES_LOG, SUPPORTED_PAGES_BYTES)
    return decode_supported_pages(fetch(device, command).data)


def decode_supported_pages(data: bytes) -> frozenset[int]:
    """Return the identifiers whose bit 0 is set in a log of 1024 bytes."""
    require_bytes(data, SUPPORTED_PAGES_BYTES, "the log of supported log pages")
    entries = struct.unpack("<256I", data)
    return frozenset(identifier for identifier, entry in enumerate(entries) if entry & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OcpSmartLog:
    """Log C0h: media bytes, throttling, changes of power state, and power.

    ``power_state_changes`` reveals transitions that polling missed. ``peak_power_w`` is the drive's
    possible peak over 100 us (SMART-46), ``average_power_w`` its mean of the last second in whole
    watts (SMART-47). Both are ``None`` in logs before version 5 and if the drive reports 0.
    """

    media_written_bytes: int
    throttle_events: int
    throttle_status: int
    power_state_changes: int
    highest_temperature_k: int | None
    peak_power_w: int | None
    average_power_w: int | None


def read_ocp_smart(device: AdminDevice, *, uuid_index: int = 0) -> OcpSmartLog:
    """Return log C0h.

    Raises:
        PowerError: the drive does not have this log, or uses C0h for other data.
    """
    command = log_command(OCP_SMART_LOG, OCP_SMART_BYTES, uuid_index=uuid_index)
    return decode_ocp_smart(fetch(device, command).data)


def is_ocp_smart(data: bytes) -> bool:
    """Return whether these 512 bytes of log C0h have the GUID of the OCP layout."""
    return len(data) == OCP_SMART_BYTES and data[496:512] == OCP_SMART_GUID


def decode_ocp_smart(data: bytes) -> OcpSmartLog:
    """Return the fields of log C0h.

    Raises:
        PowerError: wrong length, or the GUID is not that of the OCP layout.
    """
    require_bytes(data, OCP_SMART_BYTES, "the OCP log C0h")
    if not is_ocp_smart(data):
        raise PowerError(
            f"log C0h has the GUID {data[496:512].hex()}, not OCP's: the vendor uses it for other "
            "data"
        )
    has_power = u16(data, 494) >= _POWER_FIELDS_VERSION
    return OcpSmartLog(
        media_written_bytes=u128(data, 0),
        throttle_events=data[96],
        throttle_status=data[97],
        power_state_changes=u64(data, 200),
        highest_temperature_k=data[222] + _CELSIUS_ZERO_K if data[222] else None,
        peak_power_w=(u16(data, 260) or None) if has_power else None,
        average_power_w=(u16(data, 262) or None) if has_power else None,
    )


def read_group_media_bytes(device: AdminDevice, group: int) -> int:
    """Return the bytes written to the media of one endurance group, in steps of 10^9."""
    return u128(_group_log(device, group), 80) * GB


def read_rated_bytes(device: AdminDevice, controller: Controller) -> int | None:
    """Return the bytes that the first namespace's endurance group is rated to take in its life.

    This is the Endurance Estimate at a write amplification of 1, in steps of 10^9 bytes; ``None``
    if the drive has no endurance groups or states none.

    Raises:
        PowerError: the drive does not answer.
    """
    group = _endurance_group(device, controller)
    return (u128(_group_log(device, group), 32) * GB or None) if group else None


def _group_log(device: AdminDevice, group: int) -> bytes:
    command = log_command(ENDURANCE_GROUP_LOG, ENDURANCE_GROUP_BYTES, specific=group)
    data = fetch(device, command).data
    require_bytes(data, ENDURANCE_GROUP_BYTES, "the endurance group log")
    return data


def _endurance_group(device: AdminDevice, controller: Controller) -> int:
    """Return the endurance group of the controller's first namespace, 0 if there is none."""
    namespaces = active_namespaces(device) if controller.endurance_groups else ()
    groups = (identify_namespace(device, each).endurance_group for each in namespaces[:1])
    return next(groups, 0)


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
        group = _endurance_group(device, controller)
    if not group:
        raise PowerError("the drive has neither the OCP log C0h nor endurance groups")
    read_group_media_bytes(device, group)
    return ENDURANCE_GROUP, lambda: read_group_media_bytes(device, group)
