"""Power in vendor-specific logs, such as Solidigm's workload tracker.

These logs follow no standard. A layout is used only for the vendor, log and length for which it is
known, and a value only if it is plausible: above 0 and at most twice the maximum of power state 0.
Layouts are from nvme-cli's vendor plugins; vendor identifiers are the PCI-SIG's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminDevice, fetch, log_command
from wattload.power.nvme.fields import u16, u32
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.logs import is_ocp_smart

WORKLOAD_LOG = 0xF9
WORKLOAD_BYTES = 4080

_HEADER = struct.Struct("<HHIIIIQQIII")
_ENTRIES = 126
_POWER_GROUP = 5
_UW_PER_W = 1_000_000

_MILLIWATT_W = 0.001
_ITEM_BYTES = 12
_POWER_ITEM = 0xE8
_MEMBLAZE_VERSIONS = (0, 2)
_MEMBLAZE_VERSION_BYTE = 511
_BOUND = 2.0
_INPUT_1 = "input 1 only, without the power at the drive's other inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorPower:
    """The drive's power by a vendor's log, in steps of ``step_w``.

    ``power_w`` is the latest value, or with ``averaged`` a mean over an unknown time. ``lowest_w``
    and ``highest_w`` are since power-on or longer. ``part`` says which part of the drive the value
    covers; it is empty for the whole drive.
    """

    power_w: float
    step_w: float
    averaged: bool = False
    lowest_w: float | None = None
    highest_w: float | None = None
    part: str = ""


@dataclass(frozen=True, slots=True)
class VendorPage:
    """A vendor's log and its length; ``decode`` returns ``None`` for another layout."""

    vendor_id: int
    vendor: str
    page: int
    size_bytes: int
    decode: Callable[[bytes], VendorPower | None]


def vendor_pages(vendor_id: int) -> tuple[VendorPage, ...]:
    """Return a vendor's known logs with power, the most likely first."""
    return tuple(page for page in _PAGES if page.vendor_id == vendor_id)


def find_vendor_page(device: AdminDevice, controller: Controller) -> VendorPage | None:
    """Return the first log of the drive's vendor with a plausible value now."""
    for page in vendor_pages(controller.vendor_id):
        try:
            if read_vendor_power(device, controller, page) is not None:
                return page
        except PowerError:
            continue
    return None


def read_vendor_power(
    device: AdminDevice, controller: Controller, page: VendorPage
) -> VendorPower | None:
    """Return the power of a vendor's log, ``None`` if it is implausible.

    Raises:
        PowerError: the drive refuses the log.
    """
    data = fetch(device, log_command(page.page, page.size_bytes)).data
    return decode_vendor_power(page, data, controller)


def decode_vendor_power(
    page: VendorPage, data: bytes, controller: Controller
) -> VendorPower | None:
    """Return the power of a vendor's log if within (0, twice MP of power state 0], else ``None``.

    ``None`` also for another vendor's controller, another length, or a controller without a stated
    maximum, as nothing bounds the value then.
    """
    limit_w = controller.power_states[0].max_w
    known = controller.vendor_id == page.vendor_id and len(data) == page.size_bytes
    if not known or limit_w is None:
        return None
    power = page.decode(data)
    if power is None or not 0 < power.power_w <= _BOUND * limit_w:
        return None
    return power


def _solidigm(data: bytes) -> VendorPower | None:
    """Return the newest entry of the workload tracker, whose first dword is input 1 in uW."""
    _, _, count, *_, setting, _, _ = _HEADER.unpack_from(data)
    # A disabled tracker keeps its old entries.
    is_enabled, group = setting & 1, setting >> 15 & 0xF
    if not is_enabled or group != _POWER_GROUP or not 0 < count <= _ENTRIES:
        return None
    return VendorPower(
        power_w=u32(data, _HEADER.size) / _UW_PER_W, step_w=1 / _UW_PER_W, part=_INPUT_1
    )


def _scaleflux(data: bytes) -> VendorPower:
    return VendorPower(power_w=u32(data, 108) * _MILLIWATT_W, step_w=_MILLIWATT_W)


def _inspur(data: bytes) -> VendorPower | None:
    if is_ocp_smart(data):
        return None
    return VendorPower(
        power_w=u32(data, 368) * _MILLIWATT_W,
        step_w=_MILLIWATT_W,
        highest_w=u32(data, 0) * _MILLIWATT_W or None,
    )


def _dera(data: bytes) -> VendorPower | None:
    if is_ocp_smart(data):
        return None
    return VendorPower(power_w=u16(data, 65) * _MILLIWATT_W, step_w=_MILLIWATT_W)


def _dapustor(data: bytes) -> VendorPower | None:
    return _item(data, averaged=True)


def _ymtc(data: bytes) -> VendorPower | None:
    return _item(data, averaged=False)


def _memblaze(data: bytes) -> VendorPower | None:
    # Version 3 has items of 10 bytes, and none with power.
    if data[_MEMBLAZE_VERSION_BYTE] not in _MEMBLAZE_VERSIONS:
        return None
    return _item(data[:_MEMBLAZE_VERSION_BYTE], averaged=False)


def _item(data: bytes, *, averaged: bool) -> VendorPower | None:
    """Return attribute E8h: highest, lowest and current or mean power in whole watts."""
    for start in range(0, len(data) - _ITEM_BYTES + 1, _ITEM_BYTES):
        item = data[start : start + _ITEM_BYTES]
        if item[0] == _POWER_ITEM:
            return VendorPower(
                power_w=float(u16(item, 9)),
                step_w=1.0,
                averaged=averaged,
                highest_w=float(u16(item, 5)) or None,
                lowest_w=float(u16(item, 7)) or None,
            )
    return None


_PAGES = (
    VendorPage(0x025E, "Solidigm", WORKLOAD_LOG, WORKLOAD_BYTES, _solidigm),
    VendorPage(0x8086, "Intel (Solidigm)", WORKLOAD_LOG, WORKLOAD_BYTES, _solidigm),
    VendorPage(0xCC53, "ScaleFlux", 0xC2, 152, _scaleflux),
    VendorPage(0xCC53, "ScaleFlux", 0xD2, 152, _scaleflux),
    VendorPage(0x1BD4, "Inspur", 0xC0, 512, _inspur),
    VendorPage(0x1D78, "Dera", 0xC0, 512, _dera),
    VendorPage(0x1E3B, "DapuStor", 0xCB, 240, _dapustor),
    VendorPage(0x1E49, "YMTC", 0xCA, 4096, _ymtc),
    VendorPage(0x1C5F, "Memblaze", 0xCA, 512, _memblaze),
)
