"""Identify Controller: bytes to fields.

Layouts: NVMe Base Specification 2.0, figures "Identify Controller Data Structure" and "Power State
Descriptor Data Structure"; power limit and power measurement (MUP, MUPA, IPMSR, MSMT, bits 20 to 22
of CTRATT) as NVMe 2.3 has them, MIIELL as TP4204. A field that the drive leaves at "not reported"
is ``None``, and so is a reserved code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattload.power.nvme.admin import IDENTIFY, AdminCommand, AdminDevice, fetch
from wattload.power.nvme.layout import require_bytes, text, u16, u32, u128
from wattload.power.nvme.watts import scaled_watts

IDENTIFY_BYTES = 4096

_CNS_CONTROLLER = 0x01
_LAST_STATE = 31
_PSD_START = 2048
_PSD_BYTES = 32
_LONGEST_VAULT = 99
_LARGEST_VAULT_SCALE = 12
_US_PER_S = 1_000_000
_LIMIT_STEPS_PER_S = 10_000

_SAMPLE_INTERVAL_US = {1: 1, 2: 10, 3: 100, 4: 1_000, 5: 10_000}
"""Scales of IPMSR: 0 is not reported, what is above 5 is reserved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerStateDescriptor:
    """One power state: what it may draw, how long it takes to enter and leave, how it ranks.

    ``max_w`` is the sustained maximum, ``idle_w`` typical idle power over 30 s, ``active_w`` the
    largest mean over 10 s with the workload ``active_workload``. Ranks run from 0 (best) to 31.
    ``*_vault_s`` and ``*_recovery_s`` are the times around an emergency power fail.

    ``max_bandwidth_value`` and ``max_bandwidth_scale`` are bytes 28 and 29 (MBW, MBWS) as they
    stand: published sources give the scale's order (1, 10, 100 MiB/s, then GiB/s) and not the code
    that it starts with, so no bandwidth is made of them.
    """

    index: int
    max_w: float | None
    operational: bool
    entry_latency_s: float | None
    exit_latency_s: float | None
    read_throughput_rank: int
    read_latency_rank: int
    write_throughput_rank: int
    write_latency_rank: int
    idle_w: float | None
    active_w: float | None
    active_workload: int
    power_fail_recovery_s: float | None
    quiescence_vault_s: float | None
    power_fail_vault_s: float | None
    max_bandwidth_value: int | None
    max_bandwidth_scale: int
    idle_exit_latency_limit_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What a controller says of itself; temperatures in kelvin.

    ``controller_id`` (CNTLID) tells the controllers of one drive, which have one serial, apart.

    ``permissive_mode`` (NOPSPM) says that feature 11h exists. ``unlimited_power_w`` (MUP) is the
    maximum of power state 0 without a power limit, ``power_sample_interval_s`` (IPMSR) the longest
    time between two of the drive's own power samples, ``longest_measurement_minutes`` (MSMT) the
    longest stop time that feature 25h takes.
    """

    vendor_id: int
    controller_id: int
    serial: str
    model: str
    firmware: str
    version: str
    power_states: tuple[PowerStateDescriptor, ...]
    apst_supported: bool
    warning_temperature_k: int | None
    critical_temperature_k: int | None
    thermal_management: bool
    lowest_managed_temperature_k: int | None
    highest_managed_temperature_k: int | None
    capacity_bytes: int | None
    unallocated_bytes: int | None
    namespace_count: int
    volatile_write_cache: bool
    selects_features: bool
    effects_log: bool
    supported_pages_log: bool
    endurance_groups: bool
    uuid_list: bool
    permissive_mode: bool
    power_limit: bool
    power_measurement: bool
    voltage_measurement: bool
    unlimited_power_w: float | None
    power_sample_interval_s: float | None
    longest_measurement_minutes: int | None

    def state(self, index: int) -> PowerStateDescriptor | None:
        """Return the descriptor of a power state, or ``None`` if the drive has no such state."""
        return self.power_states[index] if 0 <= index < len(self.power_states) else None


def identify_controller(device: AdminDevice) -> Controller:
    """Return what the controller says of itself; readable without CAP_SYS_ADMIN since Linux 6.2."""
    return decode_controller(
        fetch(device, identify_command(_CNS_CONTROLLER, "Identify Controller")).data
    )


def identify_command(cns: int, name: str, namespace: int = 0) -> AdminCommand:
    """Return the command that reads one of the Identify structures, of 4096 bytes each."""
    return AdminCommand(
        name=name, opcode=IDENTIFY, namespace=namespace, cdw10=cns, data_bytes=IDENTIFY_BYTES
    )


def decode_controller(data: bytes) -> Controller:
    """Return the fields of an Identify Controller structure of 4096 bytes.

    Raises:
        PowerError: another length.
    """
    require_bytes(data, IDENTIFY_BYTES, "Identify Controller")
    capacity = u128(data, 280)
    return Controller(
        vendor_id=u16(data, 0),
        controller_id=u16(data, 78),
        serial=text(data, 4, 20),
        model=text(data, 24, 40),
        firmware=text(data, 64, 8),
        version=_version(u32(data, 80)),
        power_states=_states(data),
        apst_supported=bool(data[265] & 1),
        capacity_bytes=capacity or None,
        unallocated_bytes=u128(data, 296) if capacity else None,
        namespace_count=u32(data, 516),
        volatile_write_cache=bool(data[525] & 1),
        selects_features=bool(u16(data, 520) >> 4 & 1),
        effects_log=bool(data[261] >> 1 & 1),
        supported_pages_log=bool(data[261] >> 5 & 1),
        **_temperatures(data),
        **_attributes(u32(data, 96)),
        **_measurement(data),
    )


def _temperatures(data: bytes) -> dict[str, Any]:
    managed = bool(u16(data, 322) & 1)
    return {
        "warning_temperature_k": u16(data, 266) or None,
        "critical_temperature_k": u16(data, 268) or None,
        "thermal_management": managed,
        "lowest_managed_temperature_k": (u16(data, 324) or None) if managed else None,
        "highest_managed_temperature_k": (u16(data, 326) or None) if managed else None,
    }


def _attributes(bits: int) -> dict[str, bool]:
    """Return what CTRATT says that there is."""
    return {
        "permissive_mode": bool(bits >> 1 & 1),
        "endurance_groups": bool(bits >> 4 & 1),
        "uuid_list": bool(bits >> 9 & 1),
        "power_limit": bool(bits >> 20 & 1),
        "power_measurement": bool(bits >> 21 & 1),
        "voltage_measurement": bool(bits >> 22 & 1),
    }


def _measurement(data: bytes) -> dict[str, Any]:
    return {
        "unlimited_power_w": scaled_watts(u16(data, 390), data[385] & 3),
        "power_sample_interval_s": _sample_interval_s(data[392], data[393]),
        "longest_measurement_minutes": u16(data, 394) or None,
    }


def decode_power_state(data: bytes, index: int) -> PowerStateDescriptor:
    """Return the fields of one power state descriptor of 32 bytes.

    A power is reported only if its raw value is not 0 and, for idle and active power, its scale is
    1 or 2.

    Raises:
        PowerError: another length.
    """
    require_bytes(data, _PSD_BYTES, "a power state descriptor")
    flags, scales = data[3], data[26]
    return PowerStateDescriptor(
        index=index,
        max_w=scaled_watts(u16(data, 0), 1 if flags & 1 else 2),
        operational=not flags & 2,
        entry_latency_s=u32(data, 4) / _US_PER_S or None,
        exit_latency_s=u32(data, 8) / _US_PER_S or None,
        read_throughput_rank=data[12] & 0x1F,
        read_latency_rank=data[13] & 0x1F,
        write_throughput_rank=data[14] & 0x1F,
        write_latency_rank=data[15] & 0x1F,
        idle_w=scaled_watts(u16(data, 16), data[18] >> 6),
        active_w=scaled_watts(u16(data, 20), data[22] >> 6),
        active_workload=data[22] & 7,
        power_fail_recovery_s=_vault_s(data[23], scales & 0xF),
        quiescence_vault_s=_vault_s(data[24], scales >> 4),
        power_fail_vault_s=_vault_s(data[25], data[27] & 0xF),
        max_bandwidth_value=data[28] or None,
        max_bandwidth_scale=data[29] & 7,
        idle_exit_latency_limit_s=u16(data, 30) / _LIMIT_STEPS_PER_S or None,
    )


def _states(data: bytes) -> tuple[PowerStateDescriptor, ...]:
    count = min(data[263], _LAST_STATE) + 1
    starts = range(_PSD_START, _PSD_START + _PSD_BYTES * count, _PSD_BYTES)
    return tuple(
        decode_power_state(data[start : start + _PSD_BYTES], index)
        for index, start in enumerate(starts)
    )


def _vault_s(raw: int, scale: int) -> float | None:
    """Return a vault or recovery time; scale n is 10^n us up to 10^12, values 1 to 99 count."""
    valid = 1 <= raw <= _LONGEST_VAULT and scale <= _LARGEST_VAULT_SCALE
    return raw * 10**scale / _US_PER_S if valid else None


def _sample_interval_s(value: int, scale: int) -> float | None:
    unit_us = _SAMPLE_INTERVAL_US.get(scale)
    return value * unit_us / _US_PER_S if value and unit_us is not None else None


def _version(raw: int) -> str:
    return f"{raw >> 16}.{raw >> 8 & 0xFF}.{raw & 0xFF}"
