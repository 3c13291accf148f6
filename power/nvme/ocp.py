"""OCP Datacenter NVMe SSD log C0h: extended SMART.

Layout: OCP Datacenter NVMe SSD Specification 2.x, "SMART / Health Information Extended"; the power
fields as nvme-cli decodes them from log version 5 on.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.layout import require_bytes, u16, u64, u128
from wattload.power.nvme.logs import log_command

OCP_SMART_LOG = 0xC0
OCP_SMART_BYTES = 512
OCP_SMART_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
"""Bytes 496 to 511 of log C0h, as stored: other vendors use C0h for other things."""

_POWER_FIELDS_VERSION = 5
_SIX_BYTES = (1 << 48) - 1
_CELSIUS_ZERO_K = 273
"""As the NVMe specification rounds it; byte 222 counts in degrees Celsius."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OcpSmartLog:
    """Log C0h: what the media saw, throttling, transitions of power state, and power.

    ``specification`` is the major, minor and point version of the drive's OCP specification.
    ``power_state_changes`` finds transitions that polling has missed. ``peak_power_w`` is what the
    drive can peak at over 100 us (SMART-46), ``average_power_w`` its mean of the last second in
    whole watts (SMART-47), ``lifetime_energy_kwh`` counts whole kilowatt-hours (SMART-48). Those
    are ``None`` in logs before version 5 and where the drive reports 0.
    """

    media_written_bytes: int
    media_read_bytes: int
    throttle_events: int
    throttle_status: int
    specification: str
    power_state_changes: int
    highest_temperature_k: int | None
    peak_power_w: int | None
    average_power_w: int | None
    lifetime_energy_kwh: int | None
    log_version: int


def read_ocp_smart(device: AdminDevice, *, uuid_index: int = 0) -> OcpSmartLog:
    """Return log C0h.

    Raises:
        PowerError: the drive has no such log, or uses C0h for something else.
    """
    command = log_command(OCP_SMART_LOG, OCP_SMART_BYTES, uuid_index=uuid_index)
    return decode_ocp_smart(fetch(device, command).data)


def is_ocp_smart(data: bytes) -> bool:
    """Return whether these 512 bytes of log C0h carry the GUID of the OCP layout."""
    return len(data) == OCP_SMART_BYTES and data[496:512] == OCP_SMART_GUID


def decode_ocp_smart(data: bytes) -> OcpSmartLog:
    """Return the fields of log C0h.

    Raises:
        PowerError: wrong length, or the GUID is not that of the OCP layout.
    """
    require_bytes(data, OCP_SMART_BYTES, "the OCP log C0h")
    if not is_ocp_smart(data):
        raise PowerError(
            f"log C0h carries the GUID {data[496:512].hex()}, not OCP's: the vendor uses it for "
            "something else"
        )
    version = u16(data, 494)
    has_power = version >= _POWER_FIELDS_VERSION
    return OcpSmartLog(
        media_written_bytes=u128(data, 0),
        media_read_bytes=u128(data, 16),
        throttle_events=data[96],
        throttle_status=data[97],
        specification=f"{data[103]}.{u16(data, 101)}.{u16(data, 99)}",
        power_state_changes=u64(data, 200),
        highest_temperature_k=data[222] + _CELSIUS_ZERO_K if data[222] else None,
        peak_power_w=(u16(data, 260) or None) if has_power else None,
        average_power_w=(u16(data, 262) or None) if has_power else None,
        lifetime_energy_kwh=(u64(data, 264) & _SIX_BYTES or None) if has_power else None,
        log_version=version,
    )
