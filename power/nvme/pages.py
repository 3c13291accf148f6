"""Supported Log Pages (log 00h): which logs a controller has.

Layout: NVMe Base Specification 2.0, figure "Supported Log Pages Log Page": one double word for each
of 256 identifiers, bit 0 says that it is supported.
"""

from __future__ import annotations

import struct

from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.layout import require_bytes
from wattload.power.nvme.logs import log_command

SUPPORTED_PAGES_LOG = 0x00
SUPPORTED_PAGES_BYTES = 1024


def read_supported_pages(device: AdminDevice, controller: Controller) -> frozenset[int] | None:
    """Return the identifiers of the logs that the drive has, ``None`` where it keeps no such list.

    The list came with NVMe 2.0; that an older drive has none says nothing about its logs.
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
