"""What caps or watches a drive's power: limit (23h), threshold (24h), OCP watts (C7h).

Layouts: NVMe Base Specification 2.3, features "Power Limit" and "Power Threshold"; OCP Datacenter
NVMe SSD Specification, feature "DSSD Power State".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.features import Select, get_command
from wattload.power.nvme.watts import ScaledPower, decode_power

POWER_LIMIT = 0x23
POWER_THRESHOLD = 0x24
DSSD_POWER_STATE = 0xC7

_LARGEST_DSSD_W = 0xFF
_LARGEST_TYPE = 0xF


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


def read_dssd_power_w(
    device: AdminDevice, select: Select = Select.CURRENT, *, uuid_index: int = 0
) -> int:
    """Return feature C7h: the whole watts that the drive keeps to; see ``read_ocp_uuid_index``."""
    command = get_command(DSSD_POWER_STATE, select, uuid_index=uuid_index)
    return decode_dssd_power_w(fetch(device, command).result)


def decode_dssd_power_w(result: int) -> int:
    """Return the watts in bits 7:0 of feature C7h."""
    return result & _LARGEST_DSSD_W
