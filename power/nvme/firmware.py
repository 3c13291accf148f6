"""Firmware Slot Information (log 03h): which slot runs.

Layout: NVMe Base Specification 2.0, figure "Firmware Slot Information Log Page".
"""

from __future__ import annotations

from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.logs import log_command

FIRMWARE_LOG = 0x03
LOG_BYTES = 512


def read_firmware_slot(device: AdminDevice) -> int | None:
    """Return the slot, 1 to 7, of the firmware that runs; ``None`` where the drive names none."""
    return decode_firmware_slot(fetch(device, log_command(FIRMWARE_LOG, LOG_BYTES)).data)


def decode_firmware_slot(data: bytes) -> int | None:
    """Return Active Firmware Info bits 2:0, ``None`` for 0."""
    return data[0] & 7 or None
