"""Features of power states: Power Management (02h), Autonomous Transitions (0Ch), background (11h).

And the Volatile Write Cache (06h). Layouts: NVMe Base Specification 2.0, sections 5.17 (Get
Features) and 5.27 (Set Features). No command here sets the Save bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import (
    GET_FEATURES,
    SET_FEATURES,
    AdminCommand,
    AdminDevice,
    fetch,
)

POWER_MANAGEMENT = 0x02
VOLATILE_WRITE_CACHE = 0x06
AUTONOMOUS_TRANSITIONS = 0x0C
NON_OPERATIONAL_POWER = 0x11
_APST_BYTES = 256
_MS_PER_S = 1000


class Select(IntEnum):
    """Which value of a feature is asked for (SEL, bits 10:8 of dword 10)."""

    CURRENT = 0
    DEFAULT = 1
    SAVED = 2
    CAPABILITIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerManagement:
    """The power state and the workload hint of feature 02h."""

    state: int
    workload_hint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What may be done with a feature: saved, set per namespace, changed at all."""

    saveable: bool
    namespace_specific: bool
    changeable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """From ``state``, after ``idle_s`` seconds without I/O, the drive enters ``target``."""

    state: int
    target: int
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AutonomousTransitions:
    """Whether the drive changes power state by itself, and when; states without a rule are out."""

    enabled: bool
    transitions: tuple[Transition, ...]


def get_command(
    feature: int, select: Select = Select.CURRENT, *, uuid_index: int = 0
) -> AdminCommand:
    """Return the command that reads one value of a feature.

    ``uuid_index`` says whose feature a vendor's identifier means, 0 for the drive's own.
    """
    return AdminCommand(
        name=f"Get Features {feature:02X}h ({select.name.lower()})",
        opcode=GET_FEATURES,
        cdw10=feature | select << 8,
        cdw14=uuid_index,
        data_bytes=_APST_BYTES if feature == AUTONOMOUS_TRANSITIONS else 0,
    )


def set_command(
    feature: int,
    meaning: str,
    *,
    value: int = 0,
    dword: int = 11,
    uuid_index: int = 0,
    payload: bytes = b"",
) -> AdminCommand:
    """Return the command that sets a feature until the next reset.

    The Save bit stays clear: the drive's own default survives whatever becomes of this process.
    ``meaning`` is how messages call the value, which goes into command dword 11, 12 or 13.
    """
    return AdminCommand(
        name=f"Set Features {feature:02X}h ({meaning})",
        opcode=SET_FEATURES,
        cdw10=feature,
        cdw11=value if dword == 11 else 0,  # noqa: PLR2004 - dwords by their numbers
        cdw12=value if dword == 12 else 0,  # noqa: PLR2004
        cdw13=value if dword == 13 else 0,  # noqa: PLR2004
        cdw14=uuid_index,
        payload=payload,
    )


_CURRENT_POWER = get_command(POWER_MANAGEMENT)


def read_power_state(device: AdminDevice) -> int:
    """Return the power state that the controller is in, 0 to 31."""
    return fetch(device, _CURRENT_POWER).result & 0x1F


def read_power_management(device: AdminDevice, select: Select = Select.CURRENT) -> PowerManagement:
    """Return current, default or saved power state and workload hint."""
    return decode_power_management(fetch(device, get_command(POWER_MANAGEMENT, select)).result)


def read_capabilities(device: AdminDevice, feature: int) -> Capabilities:
    """Return what may be done with a feature; needs a controller that knows the Select field."""
    return decode_capabilities(fetch(device, get_command(feature, Select.CAPABILITIES)).result)


def read_write_cache(device: AdminDevice) -> bool:
    """Return whether the volatile write cache is on; refused where there is none."""
    return bool(fetch(device, get_command(VOLATILE_WRITE_CACHE)).result & 1)


def read_background_power(device: AdminDevice, select: Select = Select.CURRENT) -> bool:
    """Return whether the drive may exceed a non-operational state's power (NOPPME, feature 11h)."""
    return bool(fetch(device, get_command(NON_OPERATIONAL_POWER, select)).result & 1)


def read_transitions(device: AdminDevice) -> AutonomousTransitions:
    """Return when the drive changes power state by itself; refused where it never does."""
    completion = fetch(device, get_command(AUTONOMOUS_TRANSITIONS))
    return decode_transitions(completion.result, completion.data)


def decode_power_management(result: int) -> PowerManagement:
    """Return power state (bits 4:0) and workload hint (bits 7:5) of feature 02h."""
    return PowerManagement(state=result & 0x1F, workload_hint=result >> 5 & 7)


def decode_capabilities(result: int) -> Capabilities:
    """Return the three bits that Get Features answers when asked for capabilities."""
    return Capabilities(
        saveable=bool(result & 1),
        namespace_specific=bool(result & 2),
        changeable=bool(result & 4),
    )


def decode_transitions(result: int, data: bytes) -> AutonomousTransitions:
    """Return the APST table: 32 entries of 8 bytes, target in bits 7:3, idle ms in bits 31:8.

    An entry with an idle time of 0 is switched off.
    """
    if len(data) != _APST_BYTES:
        raise PowerError(f"the APST table has {_APST_BYTES} bytes, got {len(data)}")
    rules = []
    for state, entry in enumerate(struct.unpack("<32Q", data)):
        idle_ms = entry >> 8 & 0xFFFFFF
        if idle_ms:
            target, idle_s = entry >> 3 & 0x1F, idle_ms / _MS_PER_S
            rules.append(Transition(state=state, target=target, idle_s=idle_s))
    return AutonomousTransitions(enabled=bool(result & 1), transitions=tuple(rules))
