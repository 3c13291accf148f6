"""Identify: the controller with its power states, its namespaces, and its UUID list.

Layouts: NVMe Base Specification 2.0, power limit and power measurement as NVMe 2.3 has them,
MIIELL as TP4204; Identify Namespace: NVM Command Set Specification 1.0. A field is ``None`` if the
drive does not report it or reports a reserved code.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from wattload.core.errors import PowerError
from wattload.core.record.target import PowerCapabilities, PowerStateFacts
from wattload.power.nvme.admin import IDENTIFY, AdminCommand, AdminDevice, fetch
from wattload.power.nvme.fields import require_bytes, scaled_watts, text, u16, u32, u128

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
"""Units of IPMSR in us by scale: 0 is not reported, above 5 is reserved."""

_CNS_NAMESPACE = 0x00
_CNS_ACTIVE_NAMESPACES = 0x02
_FORMATS_OF_FOUR_BITS = 16
_REPORTS_GRANULARITY = 1 << 4
"""NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS are defined."""
_LARGEST_EXPONENT = 63
OCP_UUID = UUID("c194d55b-e094-4794-a21d-29998f56be6f")
_CNS_UUID_LIST = 0x17
_ENTRY_BYTES = 32
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The fields of Identify Controller.

    ``controller_id`` (CNTLID) distinguishes the controllers of one drive, which share its serial.
    """

    vendor_id: int
    controller_id: int
    serial: str
    model: str
    firmware: str
    version: str
    power_states: tuple[PowerStateFacts, ...]
    capabilities: PowerCapabilities
    capacity_bytes: int | None
    unallocated_bytes: int | None
    volatile_write_cache: bool
    selects_features: bool
    effects_log: bool
    supported_pages_log: bool
    endurance_groups: bool
    uuid_list: bool

    def state(self, index: int) -> PowerStateFacts | None:
        """Return the descriptor of a power state, or ``None`` if the drive does not have it."""
        return self.power_states[index] if 0 <= index < len(self.power_states) else None


def identify_controller(device: AdminDevice) -> Controller:
    """Return Identify Controller; readable without CAP_SYS_ADMIN since Linux 6.2."""
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
        PowerError: wrong length.
    """
    require_bytes(data, IDENTIFY_BYTES, "Identify Controller")
    capacity, version = u128(data, 280), u32(data, 80)
    return Controller(
        vendor_id=u16(data, 0),
        controller_id=u16(data, 78),
        serial=text(data, 4, 20),
        model=text(data, 24, 40),
        firmware=text(data, 64, 8),
        version=f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}",
        power_states=_states(data),
        capabilities=_capabilities(data),
        capacity_bytes=capacity or None,
        unallocated_bytes=u128(data, 296) if capacity else None,
        volatile_write_cache=bool(data[525] & 1),
        selects_features=bool(u16(data, 520) >> 4 & 1),
        effects_log=bool(data[261] >> 1 & 1),
        supported_pages_log=bool(data[261] >> 5 & 1),
        endurance_groups=bool(u32(data, 96) >> 4 & 1),
        uuid_list=bool(u32(data, 96) >> 9 & 1),
    )


def _capabilities(data: bytes) -> PowerCapabilities:
    attributes = u32(data, 96)
    manages_heat = bool(u16(data, 322) & 1)
    values: dict[str, Any] = {
        "autonomous_transitions": bool(data[265] & 1),
        "permissive_mode": bool(attributes >> 1 & 1),
        "power_limit": bool(attributes >> 20 & 1),
        "power_measurement": bool(attributes >> 21 & 1),
        "voltage_measurement": bool(attributes >> 22 & 1),
        "thermal_management": manages_heat,
        "unlimited_power_w": scaled_watts(u16(data, 390), data[385] & 3),
        "power_sample_interval_s": _sample_interval_s(data[392], data[393]),
        "longest_measurement_minutes": u16(data, 394) or None,
        "warning_temperature_k": u16(data, 266) or None,
        "critical_temperature_k": u16(data, 268) or None,
        "lowest_managed_temperature_k": (u16(data, 324) or None) if manages_heat else None,
        "highest_managed_temperature_k": (u16(data, 326) or None) if manages_heat else None,
    }
    missing = {name: "the drive reports 0" for name, value in values.items() if value is None}
    return PowerCapabilities(**values, missing=missing)


def decode_power_state(data: bytes, index: int) -> PowerStateFacts:
    """Return the fields of one power state descriptor of 32 bytes.

    A power is reported only if its raw value is not 0. Idle and active power also need scale 1 or
    2. The bandwidth in bytes 28 and 29 is left out: published sources give the order of its scales
    (1, 10, 100 MiB/s, then GiB/s), but not the first code.

    Raises:
        PowerError: wrong length.
    """
    require_bytes(data, _PSD_BYTES, "a power state descriptor")
    flags, scales = data[3], data[26]
    values: dict[str, Any] = {
        "index": index,
        "max_w": scaled_watts(u16(data, 0), 1 if flags & 1 else 2),
        "operational": not flags & 2,
        "entry_latency_s": u32(data, 4) / _US_PER_S or None,
        "exit_latency_s": u32(data, 8) / _US_PER_S or None,
        "read_throughput_rank": data[12] & 0x1F,
        "read_latency_rank": data[13] & 0x1F,
        "write_throughput_rank": data[14] & 0x1F,
        "write_latency_rank": data[15] & 0x1F,
        "idle_w": scaled_watts(u16(data, 16), data[18] >> 6),
        "active_w": scaled_watts(u16(data, 20), data[22] >> 6),
        "active_workload": data[22] & 7,
        "power_fail_recovery_s": _vault_s(data[23], scales & 0xF),
        "quiescence_vault_s": _vault_s(data[24], scales >> 4),
        "power_fail_vault_s": _vault_s(data[25], data[27] & 0xF),
        "idle_exit_latency_limit_s": u16(data, 30) / _LIMIT_STEPS_PER_S or None,
    }
    missing = {name: "the drive reports 0" for name, value in values.items() if value is None}
    return PowerStateFacts(**values, missing=missing)


def _states(data: bytes) -> tuple[PowerStateFacts, ...]:
    count = min(data[263], _LAST_STATE) + 1
    starts = range(_PSD_START, _PSD_START + _PSD_BYTES * count, _PSD_BYTES)
    return tuple(
        decode_power_state(data[start : start + _PSD_BYTES], index)
        for index, start in enumerate(starts)
    )


def _vault_s(raw: int, scale: int) -> float | None:
    """Return a vault or recovery time: 1 to 99 times 10^scale us, scale at most 12."""
    valid = 1 <= raw <= _LONGEST_VAULT and scale <= _LARGEST_VAULT_SCALE
    return raw * 10**scale / _US_PER_S if valid else None


def _sample_interval_s(value: int, scale: int) -> float | None:
    unit_us = _SAMPLE_INTERVAL_US.get(scale)
    return value * unit_us / _US_PER_S if value and unit_us is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One namespace: size and use in bytes, its logical block format, and who may use it.

    ``format_dword`` is dword 10 of a Format NVM command in the current format, without an erase
    setting. ``is_shareable`` is bit 0 of NMIC, ``has_reservations`` whether RESCAP has any bit.
    ``endurance_group`` is 0 if the drive has none. ``preferred_write_bytes`` is NPWG, a multiple of
    which the drive prefers to write (NVM Command Set 1.0, 4.1.5.1); ``None`` if it reports none.
    """

    size_bytes: int
    capacity_bytes: int
    used_bytes: int
    lba_bytes: int
    format_dword: int
    is_shareable: bool
    has_reservations: bool
    endurance_group: int
    preferred_write_bytes: int | None = None


def identify_namespace(device: AdminDevice, namespace: int) -> Namespace:
    """Return size, use and format of an active namespace."""
    command = identify_command(_CNS_NAMESPACE, f"Identify Namespace {namespace}", namespace)
    return decode_namespace(fetch(device, command).data)


def active_namespaces(device: AdminDevice) -> tuple[int, ...]:
    """Return the identifiers of the controller's active namespaces, ascending; at most 1024.

    The list ends at the first 0.
    """
    command = identify_command(_CNS_ACTIVE_NAMESPACES, "Identify Active Namespaces")
    identifiers = struct.unpack("<1024I", fetch(device, command).data)
    return identifiers[: identifiers.index(0)] if 0 in identifiers else identifiers


def decode_namespace(data: bytes) -> Namespace:
    """Return the fields of an Identify Namespace structure of 4096 bytes.

    Raises:
        PowerError: the format has no block size, as for an inactive namespace.
    """
    require_bytes(data, IDENTIFY_BYTES, "Identify Namespace")
    size, capacity, used = struct.unpack_from("<QQQ", data)
    flbas, protection = data[26], data[29]
    # Bits 6:5 extend the index only where there are more than 16 formats.
    high = flbas >> 1 & 0x30 if data[25] >= _FORMATS_OF_FOUR_BITS else 0
    exponent = data[130 + 4 * (flbas & 0xF | high)]
    if not 0 < exponent <= _LARGEST_EXPONENT:
        raise PowerError(
            f"Identify Namespace reports blocks of 2^{exponent} bytes: the namespace is not active"
        )
    return Namespace(
        size_bytes=size << exponent,
        capacity_bytes=capacity << exponent,
        used_bytes=used << exponent,
        lba_bytes=1 << exponent,
        # LBAF 3:0, MSET 4, PI 7:5, PIL 8, LBAFU 13:12; FLBAS and DPS have the same parts.
        format_dword=flbas & 0x1F
        | (protection & 7) << 5
        | (protection >> 3 & 1) << 8
        | (flbas >> 5 & 3) << 12,
        is_shareable=bool(data[30] & 1),
        has_reservations=bool(data[31]),
        endurance_group=u16(data, 102),
        preferred_write_bytes=(
            (u16(data, 64) + 1) << exponent if data[24] & _REPORTS_GRANULARITY else None
        ),
    )


def read_ocp_uuid_index(device: AdminDevice, controller: Controller) -> int:
    """Return the index of OCP's logs and features, 0 if the drive does not list one.

    Index 0 selects the drive's own meaning of an identifier. On a drive without UUIDs this may be
    OCP's too; logs prove it by their GUID.
    """
    if not controller.uuid_list:
        return 0
    command = identify_command(_CNS_UUID_LIST, "Identify UUID List")
    listed = decode_uuid_list(fetch(device, command).data)
    return listed.index(OCP_UUID) + 1 if OCP_UUID in listed else 0


def decode_uuid_list(data: bytes) -> tuple[UUID, ...]:
    """Return the UUIDs of a list of 4096 bytes; the first has index 1."""
    require_bytes(data, IDENTIFY_BYTES, "Identify UUID List")
    listed = []
    for start in range(_ENTRY_BYTES, IDENTIFY_BYTES, _ENTRY_BYTES):
        raw = data[start + _UUID_BYTES : start + _ENTRY_BYTES]
        if not any(raw):
            break
        listed.append(UUID(bytes=raw))
    return tuple(listed)
