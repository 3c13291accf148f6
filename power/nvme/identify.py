"""Identify Controller and Identify Namespace: bytes to fields.

Layouts: NVMe Base Specification 2.0, figures "Identify Controller Data Structure", "Power State
Descriptor Data Structure" and NVM Command Set "Identify Namespace Data Structure". A field that
the drive leaves at "not reported" is ``None``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import IDENTIFY, AdminCommand, AdminDevice, fetch

IDENTIFY_BYTES = 4096

_CNS_NAMESPACE = 0x00
_CNS_CONTROLLER = 0x01
_CNS_ACTIVE_NAMESPACES = 0x02
_LAST_STATE = 31
_PSD_START = 2048
_PSD_BYTES = 32

_UNITS_PER_WATT = {1: 10_000, 2: 100}
"""Power scales IPS and APS: 0 means not reported, 3 is reserved."""

_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerStateDescriptor:
    """One power state: what it may draw, how long it takes to enter and leave, how it ranks.

    ``max_w`` is the sustained maximum, ``idle_w`` typical idle power over 30 s, ``active_w`` the
    largest mean over 10 s with the workload ``active_workload``. Ranks run from 0 (best) to 31.
    ``*_vault_s`` and ``*_recovery_s`` are the times around an emergency power fail.
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
    idle_exit_latency_limit_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What a controller says of itself; temperatures in kelvin."""

    vendor_id: int
    serial: str
    model: str
    firmware: str
    version: str
    power_states: tuple[PowerStateDescriptor, ...]
    apst_supported: bool
    warning_temperature_k: int | None
    critical_temperature_k: int | None
    capacity_bytes: int | None
    unallocated_bytes: int | None
    namespace_count: int
    volatile_write_cache: bool
    selects_features: bool
    effects_log: bool
    endurance_groups: bool
    power_limit: bool
    power_measurement: bool

    def state(self, index: int) -> PowerStateDescriptor | None:
        """Return the descriptor of a power state, or ``None`` if the drive has no such state."""
        return self.power_states[index] if 0 <= index < len(self.power_states) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One namespace: size and use in bytes, and the logical block it is formatted with."""

    size_bytes: int
    capacity_bytes: int
    used_bytes: int
    lba_bytes: int
    metadata_bytes: int
    endurance_group: int


def identify_controller(device: AdminDevice) -> Controller:
    """Return what the controller says of itself; readable without CAP_SYS_ADMIN since Linux 6.2."""
    return decode_controller(_identify(device, _CNS_CONTROLLER, "Identify Controller"))


def identify_namespace(device: AdminDevice, namespace: int) -> Namespace:
    """Return size, use and format of an active namespace."""
    name = f"Identify Namespace {namespace}"
    return decode_namespace(_identify(device, _CNS_NAMESPACE, name, namespace))


def active_namespaces(device: AdminDevice) -> tuple[int, ...]:
    """Return the identifiers of the controller's active namespaces, ascending; at most 1024."""
    data = _identify(device, _CNS_ACTIVE_NAMESPACES, "Identify Active Namespaces")
    identifiers = struct.unpack("<1024I", data)
    return tuple(identifier for identifier in identifiers if identifier)


def _identify(device: AdminDevice, cns: int, name: str, namespace: int = 0) -> bytes:
    command = AdminCommand(
        name=name, opcode=IDENTIFY, namespace=namespace, cdw10=cns, data_bytes=IDENTIFY_BYTES
    )
    return fetch(device, command).data


def decode_controller(data: bytes) -> Controller:
    """Return the fields of an Identify Controller structure of 4096 bytes."""
    _require(data, "Identify Controller")
    attributes = _u32(data, 96)
    pages = data[261]
    count = min(data[263], _LAST_STATE) + 1
    return Controller(
        vendor_id=_u16(data, 0),
        serial=_text(data, 4, 20),
        model=_text(data, 24, 40),
        firmware=_text(data, 64, 8),
        version=_version(_u32(data, 80)),
        power_states=tuple(_state_at(data, index) for index in range(count)),
        apst_supported=bool(data[265] & 1),
        warning_temperature_k=_u16(data, 266) or None,
        critical_temperature_k=_u16(data, 268) or None,
        capacity_bytes=_u128(data, 280) or None,
        unallocated_bytes=_u128(data, 296) if _u128(data, 280) else None,
        namespace_count=_u32(data, 516),
        volatile_write_cache=bool(data[525] & 1),
        selects_features=bool(_u16(data, 520) >> 4 & 1),
        effects_log=bool(pages >> 1 & 1),
        endurance_groups=bool(attributes >> 4 & 1),
        power_limit=bool(attributes >> 20 & 1),
        power_measurement=bool(attributes >> 21 & 1),
    )


def decode_power_state(data: bytes, index: int) -> PowerStateDescriptor:
    """Return the fields of one power state descriptor of 32 bytes.

    A power is reported only if both its raw value and its scale are non-zero.
    """
    flags, scales = data[3], data[26]
    max_raw = _u16(data, 0)
    return PowerStateDescriptor(
        index=index,
        max_w=max_raw / (10_000 if flags & 1 else 100) if max_raw else None,
        operational=not flags & 2,
        entry_latency_s=_u32(data, 4) / _US_PER_S or None,
        exit_latency_s=_u32(data, 8) / _US_PER_S or None,
        read_throughput_rank=data[12] & 0x1F,
        read_latency_rank=data[13] & 0x1F,
        write_throughput_rank=data[14] & 0x1F,
        write_latency_rank=data[15] & 0x1F,
        idle_w=_watts(_u16(data, 16), data[18] >> 6),
        active_w=_watts(_u16(data, 20), data[22] >> 6),
        active_workload=data[22] & 7,
        power_fail_recovery_s=_vault_s(data[23], scales & 0xF),
        quiescence_vault_s=_vault_s(data[24], scales >> 4),
        power_fail_vault_s=_vault_s(data[25], data[27] & 0xF),
        idle_exit_latency_limit_s=_u16(data, 30) / 10_000 or None,
    )


def decode_namespace(data: bytes) -> Namespace:
    """Return the fields of an Identify Namespace structure of 4096 bytes.

    Raises:
        PowerError: the format names a block size of 0, as an inactive namespace does.
    """
    _require(data, "Identify Namespace")
    size, capacity, used = struct.unpack_from("<QQQ", data)
    # Bits 6:5 extend the index only where there are more than 16 formats.
    formatted = data[26] & 0xF | (data[26] >> 1 & 0x30 if data[25] >= 16 else 0)  # noqa: PLR2004
    metadata, exponent = struct.unpack_from("<HB", data, 128 + 4 * formatted)
    if exponent == 0:
        raise PowerError("Identify Namespace names no block size: the namespace is not active")
    return Namespace(
        size_bytes=size << exponent,
        capacity_bytes=capacity << exponent,
        used_bytes=used << exponent,
        lba_bytes=1 << exponent,
        metadata_bytes=metadata,
        endurance_group=_u16(data, 102),
    )


def _state_at(data: bytes, index: int) -> PowerStateDescriptor:
    start = _PSD_START + _PSD_BYTES * index
    return decode_power_state(data[start : start + _PSD_BYTES], index)


def _watts(raw: int, scale: int) -> float | None:
    units_per_watt = _UNITS_PER_WATT.get(scale)
    return raw / units_per_watt if raw and units_per_watt is not None else None


def _vault_s(raw: int, scale: int) -> float | None:
    """Return a vault or recovery time; scale n is 10^n us up to 10^12, values 1 to 99 count."""
    valid = 1 <= raw <= 99 and scale <= 12  # noqa: PLR2004 - both limits are the specification's
    return raw * 10**scale / _US_PER_S if valid else None


def _version(raw: int) -> str:
    return f"{raw >> 16}.{raw >> 8 & 0xFF}.{raw & 0xFF}"


def _text(data: bytes, start: int, length: int) -> str:
    return data[start : start + length].decode("ascii", "replace").strip(" \0")


def _u16(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "little")


def _u32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def _u128(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 16], "little")


def _require(data: bytes, name: str) -> None:
    if len(data) != IDENTIFY_BYTES:
        raise PowerError(f"{name} has {IDENTIFY_BYTES} bytes, got {len(data)}")
