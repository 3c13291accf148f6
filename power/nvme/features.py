"""Features: power states and other settings of a drive that a host can read or set.

Power management (02h), write cache (06h), autonomous transitions (0Ch), timestamp (0Eh), thermal
management (10h), background power (11h), power limit (23h), power threshold (24h) and OCP's power
state (C7h). Layouts: NVMe Base Specification 2.0 and, for limit and threshold, 2.3; OCP Datacenter
NVMe SSD Specification for C7h. No command here sets the Save bit.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from wattload.power.nvme.admin import GET_FEATURES, SET_FEATURES, AdminCommand, AdminDevice, fetch
from wattload.power.nvme.fields import ScaledPower, decode_power, require_bytes

POWER_MANAGEMENT = 0x02
VOLATILE_WRITE_CACHE = 0x06
AUTONOMOUS_TRANSITIONS = 0x0C
NON_OPERATIONAL_POWER = 0x11
APST_BYTES = 256
_MS_PER_S = 1000

POWER_LIMIT = 0x23
LIMIT_DWORDS = (11, 13)
"""The dwords of Set Features 23h with the limit, on which published sources disagree: the
neighbouring features 24h and 25h use dword 11, nvme-cli writes dword 13. A limit counts as set only
after ``read_power_limit`` has returned it."""
POWER_THRESHOLD = 0x24
DSSD_POWER_STATE = 0xC7
THERMAL_MANAGEMENT = 0x10
_HIGHEST_K = 0xFFFF
TIMESTAMP = 0x0E
TIMESTAMP_BYTES = 8


class Select(IntEnum):
    """The value of a feature to read (SEL, bits 10:8 of dword 10)."""

    CURRENT = 0
    DEFAULT = 1
    SAVED = 2
    CAPABILITIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """From ``state``, after ``idle_s`` seconds without I/O, the drive enters ``target``."""

    state: int
    target: int
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AutonomousTransitions:
    """Whether the drive changes power state autonomously, and when; only states with a rule."""

    enabled: bool
    transitions: tuple[Transition, ...]


def get_command(
    feature: int, select: Select = Select.CURRENT, *, uuid_index: int = 0
) -> AdminCommand:
    """Return the command that reads one value of a feature.

    ``uuid_index`` selects whose feature a vendor-specific identifier means, 0 for the drive's own.
    """
    return AdminCommand(
        name=f"Get Features {feature:02X}h ({select.name.lower()})",
        opcode=GET_FEATURES,
        cdw10=feature | select << 8,
        cdw14=uuid_index,
        data_bytes=APST_BYTES if feature == AUTONOMOUS_TRANSITIONS else 0,
    )


def set_command(
    feature: int,
    meaning: str,
    *,
    value: int = 0,
    dwords: Collection[int] = (11,),
    uuid_index: int = 0,
    payload: bytes = b"",
) -> AdminCommand:
    """Return the command that sets a feature until the next reset.

    The Save bit stays clear, so the drive keeps its own default even if this process crashes.
    ``meaning`` is the value's name in messages. The value goes into each command dword of
    ``dwords`` (11 to 13).
    """
    return AdminCommand(
        name=f"Set Features {feature:02X}h ({meaning})",
        opcode=SET_FEATURES,
        cdw10=feature,
        cdw11=value if 11 in dwords else 0,  # noqa: PLR2004 - dwords by their numbers
        cdw12=value if 12 in dwords else 0,  # noqa: PLR2004 - as above
        cdw13=value if 13 in dwords else 0,  # noqa: PLR2004 - as above
        cdw14=uuid_index,
        payload=payload,
    )


def read_power_state(device: AdminDevice, select: Select = Select.CURRENT) -> int:
    """Return the controller's current, default or saved power state, 0 to 31."""
    return fetch(device, get_command(POWER_MANAGEMENT, select)).result & 0x1F


def is_saveable(device: AdminDevice, feature: int, *, uuid_index: int = 0) -> bool:
    """Return whether a drive can save a feature; it must support the Select field."""
    command = get_command(feature, Select.CAPABILITIES, uuid_index=uuid_index)
    return bool(fetch(device, command).result & 1)


def read_write_cache(device: AdminDevice) -> bool:
    """Return whether the volatile write cache is enabled; refused by drives without one."""
    return bool(fetch(device, get_command(VOLATILE_WRITE_CACHE)).result & 1)


def read_background_power(device: AdminDevice) -> bool:
    """Return whether the drive may exceed a non-operational state's power (NOPPME, feature 11h)."""
    return bool(fetch(device, get_command(NON_OPERATIONAL_POWER)).result & 1)


def read_transitions(device: AdminDevice) -> AutonomousTransitions:
    """Return when the drive changes power state autonomously; refused if it cannot.

    The APST table has 32 entries of 8 bytes, target in bits 7:3, idle ms in bits 31:8. An entry
    with an idle time of 0 is disabled.
    """
    completion = fetch(device, get_command(AUTONOMOUS_TRANSITIONS))
    require_bytes(completion.data, APST_BYTES, "the APST table")
    rules = []
    for state, entry in enumerate(struct.unpack("<32Q", completion.data)):
        idle_ms = entry >> 8 & 0xFFFFFF
        if idle_ms:
            target, idle_s = entry >> 3 & 0x1F, idle_ms / _MS_PER_S
            rules.append(Transition(state=state, target=target, idle_s=idle_s))
    return AutonomousTransitions(enabled=bool(completion.result & 1), transitions=tuple(rules))


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerThreshold:
    """Feature 24h: above ``power`` the drive reports an event, if ``event_enabled``."""

    power: ScaledPower
    event_enabled: bool


def read_power_limit(device: AdminDevice) -> ScaledPower:
    """Return feature 23h; its ``watts`` are ``None`` if the drive is not limited."""
    return decode_power(fetch(device, get_command(POWER_LIMIT)).result)


def read_power_threshold(device: AdminDevice) -> PowerThreshold:
    """Return feature 24h: power in bits 17:0, event enable in bit 31."""
    result = fetch(device, get_command(POWER_THRESHOLD)).result
    return PowerThreshold(power=decode_power(result), event_enabled=bool(result >> 31 & 1))


def read_dssd_power_w(device: AdminDevice, *, uuid_index: int) -> int:
    """Return feature C7h, the power cap in whole watts; see ``read_ocp_uuid_index``."""
    command = get_command(DSSD_POWER_STATE, uuid_index=uuid_index)
    return decode_dssd_power_w(fetch(device, command).result)


def decode_dssd_power_w(result: int) -> int:
    """Return the watts in bits 7:0 of feature C7h."""
    return result & 0xFF


def read_thermal_thresholds_k(device: AdminDevice) -> tuple[int | None, int | None]:
    """Return TMT1 and TMT2 in kelvin (feature 10h), ``None`` for one that is off.

    From TMT1 on the drive throttles with little effect on performance, from TMT2 on regardless of
    performance. Refused by drives without it.
    """
    result = fetch(device, get_command(THERMAL_MANAGEMENT)).result
    return result >> 16 & _HIGHEST_K or None, result & _HIGHEST_K or None


def read_timestamp(device: AdminDevice) -> int:
    """Return the drive's clock in ms since 1970, or since its reset if no host has set it."""
    command = AdminCommand(
        name="Get Features 0Eh (timestamp)",
        opcode=GET_FEATURES,
        cdw10=TIMESTAMP,
        data_bytes=TIMESTAMP_BYTES,
    )
    data = fetch(device, command).data
    require_bytes(data, TIMESTAMP_BYTES, "a timestamp")
    return int.from_bytes(data[:6], "little")
