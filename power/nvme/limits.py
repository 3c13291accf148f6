"""What caps or watches a drive's power: limit (23h), threshold (24h), OCP watts (C7h).

Layouts: NVMe Base Specification 2.3, features "Power Limit" and "Power Threshold"; OCP Datacenter
NVMe SSD Specification, feature "DSSD Power State". No command here sets the Save bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, AdminDevice, fetch
from wattload.power.nvme.features import Select, get_command
from wattload.power.nvme.watts import ScaledPower, decode_power

POWER_LIMIT = 0x23
POWER_THRESHOLD = 0x24
DSSD_POWER_STATE = 0xC7

_LARGEST_DSSD_W = 0xFF
_LARGEST_TYPE = 0xF
_LARGEST_UUID_INDEX = 0x7F


class LimitDword(IntEnum):
    """Where Set Features 23h carries the limit, which published sources disagree on.

    The neighbouring features 24h and 25h use dword 11; nvme-cli writes dword 13. A limit counts as
    set only after ``read_power_limit`` has returned it.
    """

    CDW11 = 11
    CDW13 = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerThreshold:
    """Feature 24h: above ``power`` the drive reports an event, if ``event_enabled``."""

    power: ScaledPower
    measurement_type: int
    event_enabled: bool


def read_power_limit(device: AdminDevice, select: Select = Select.CURRENT) -> ScaledPower:
    """Return feature 23h; its ``watts`` are ``None`` where the drive is not limited."""
    return decode_power_limit(fetch(device, get_command(POWER_LIMIT, select)).result)


def decode_power_limit(result: int) -> ScaledPower:
    """Return value (bits 15:0) and scale (bits 17:16) of feature 23h."""
    return decode_power(result)


def set_power_limit_command(
    power: ScaledPower, *, dword: LimitDword = LimitDword.CDW11
) -> AdminCommand:
    """Return the command that limits power; value and scale 0 remove the limit."""
    watts = power.watts
    told = "none" if watts is None else f"{watts:g} W"
    return AdminCommand(
        name=f"Set Features 23h (power limit {told})",
        opcode=SET_FEATURES,
        cdw10=POWER_LIMIT,
        cdw11=power.dword if dword is LimitDword.CDW11 else 0,
        cdw13=power.dword if dword is LimitDword.CDW13 else 0,
    )


def read_power_threshold(device: AdminDevice, select: Select = Select.CURRENT) -> PowerThreshold:
    """Return feature 24h."""
    return decode_power_threshold(fetch(device, get_command(POWER_THRESHOLD, select)).result)


def decode_power_threshold(result: int) -> PowerThreshold:
    """Return power (bits 17:0), type (bits 23:20) and event enable (bit 31) of feature 24h."""
    return PowerThreshold(
        power=decode_power(result),
        measurement_type=result >> 20 & _LARGEST_TYPE,
        event_enabled=bool(result >> 31 & 1),
    )


def set_power_threshold_command(threshold: PowerThreshold) -> AdminCommand:
    """Return the command that sets feature 24h."""
    return AdminCommand(
        name="Set Features 24h (power threshold)",
        opcode=SET_FEATURES,
        cdw10=POWER_THRESHOLD,
        cdw11=threshold.power.dword
        | threshold.measurement_type << 20
        | threshold.event_enabled << 31,
    )


def read_dssd_power_w(
    device: AdminDevice, select: Select = Select.CURRENT, *, uuid_index: int = 0
) -> int:
    """Return feature C7h: the whole watts that the drive keeps to; see ``read_ocp_uuid_index``."""
    command = get_command(DSSD_POWER_STATE, select, uuid_index=uuid_index)
    return decode_dssd_power_w(fetch(device, command).result)


def decode_dssd_power_w(result: int) -> int:
    """Return the watts in bits 7:0 of feature C7h."""
    return result & _LARGEST_DSSD_W


def set_dssd_power_command(power_w: int, *, uuid_index: int = 0) -> AdminCommand:
    """Return the command that asks for an OCP power state in whole watts, e.g. 20.

    Raises:
        PowerError: the watts do not fit into a byte, or the UUID index into 7 bits.
    """
    if not 0 <= power_w <= _LARGEST_DSSD_W:
        raise PowerError(f"an OCP power state is 0 to {_LARGEST_DSSD_W} whole watts, got {power_w}")
    if not 0 <= uuid_index <= _LARGEST_UUID_INDEX:
        raise PowerError(f"a UUID index is 0 to {_LARGEST_UUID_INDEX}, got {uuid_index}")
    return AdminCommand(
        name=f"Set Features C7h (OCP power state {power_w} W)",
        opcode=SET_FEATURES,
        cdw10=DSSD_POWER_STATE,
        cdw11=power_w,
        cdw14=uuid_index,
    )
