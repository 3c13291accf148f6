"""Power in vendors' own logs: firmware figures in milliwatts or watts, by key or not at all.

Nothing is standard here: a layout is taken only for the vendor, log and length that it is known
for, and a figure only if it could be true, above 0 and at most twice the maximum of power state 0.
Layouts as nvme-cli's vendor plugins print them; vendor identifiers are the PCI-SIG's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.layout import u16, u32
from wattload.power.nvme.logs import log_command
from wattload.power.nvme.ocp import is_ocp_smart
from wattload.power.nvme.solidigm import (
    WORKLOAD_BYTES,
    WORKLOAD_LOG,
    decode_workload_log,
)

_MILLIWATT_W = 0.001
_ITEM_BYTES = 12
_POWER_ITEM = 0xE8
_MEMBLAZE_VERSIONS = (0, 2)
_MEMBLAZE_VERSION_BYTE = 511
_BOUND = 2.0
_INPUT_1 = "input 1 alone: what the drive draws at its other inputs is not in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorPower:
    """What a vendor's log says of the drive's power, in steps of ``step_w``.

    ``power_w`` is the latest figure, or with ``averaged`` a mean over a time that the vendor does
    not state. ``lowest_w`` and ``highest_w`` are since power-on or longer. ``part`` says what the
    figure leaves out, empty where it is of the whole drive.
    """

    power_w: float
    step_w: float
    averaged: bool = False
    lowest_w: float | None = None
    highest_w: float | None = None
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorPage:
    """A log of a vendor and its length; ``decode`` returns ``None`` for another layout."""

    vendor_id: int
    vendor: str
    page: int
    size_bytes: int
    decode: Callable[[bytes], VendorPower | None]


def vendor_pages(vendor_id: int) -> tuple[VendorPage, ...]:
    """Return the logs with power that are known of a vendor, likeliest first."""
    return tuple(page for page in _PAGES if page.vendor_id == vendor_id)


def find_vendor_page(device: AdminDevice, controller: Controller) -> VendorPage | None:
    """Return the first log of the drive's vendor that holds a believable figure now."""
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
    """Return the figures of a vendor's log, ``None`` where they are not to be believed.

    Raises:
        PowerError: the drive refuses the log.
    """
    data = fetch(device, log_command(page.page, page.size_bytes)).data
    return decode_vendor_power(page, data, controller)


def decode_vendor_power(
    page: VendorPage, data: bytes, controller: Controller
) -> VendorPower | None:
    """Return the figures of a vendor's log within (0, twice MP of power state 0], else ``None``.

    ``None`` also where the controller is another vendor's, the length is another, or the controller
    states no maximum, so that nothing bounds the figure.
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
    log = decode_workload_log(data)
    # A tracker that is off keeps its last ring: old figures, however believable.
    if not log.enabled or not log.power:
        return None
    return VendorPower(power_w=log.power[-1].input_1_w, step_w=1e-6, part=_INPUT_1)


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
    # Version 3 has items of 10 bytes and no power among them.
    if data[_MEMBLAZE_VERSION_BYTE] not in _MEMBLAZE_VERSIONS:
        return None
    return _item(data[:_MEMBLAZE_VERSION_BYTE], averaged=False)


def _item(data: bytes, *, averaged: bool) -> VendorPower | None:
    """Return the attribute E8h: highest, lowest and current or mean power in whole watts."""
    for item in _items(data):
        if item[0] == _POWER_ITEM:
            return VendorPower(
                power_w=float(u16(item, 9)),
                step_w=1.0,
                averaged=averaged,
                highest_w=float(u16(item, 5)) or None,
                lowest_w=float(u16(item, 7)) or None,
            )
    return None


def _items(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data) - _ITEM_BYTES + 1, _ITEM_BYTES):
        yield data[start : start + _ITEM_BYTES]


def _page(
    vendor_id: int,
    vendor: str,
    page: int,
    size_bytes: int,
    decode: Callable[[bytes], VendorPower | None],
) -> VendorPage:
    return VendorPage(
        vendor_id=vendor_id, vendor=vendor, page=page, size_bytes=size_bytes, decode=decode
    )


_PAGES = (
    _page(0x025E, "Solidigm", WORKLOAD_LOG, WORKLOAD_BYTES, _solidigm),
    _page(0x8086, "Intel (Solidigm)", WORKLOAD_LOG, WORKLOAD_BYTES, _solidigm),
    _page(0xCC53, "ScaleFlux", 0xC2, 152, _scaleflux),
    _page(0xCC53, "ScaleFlux", 0xD2, 152, _scaleflux),
    _page(0x1BD4, "Inspur", 0xC0, 512, _inspur),
    _page(0x1D78, "Dera", 0xC0, 512, _dera),
    _page(0x1E3B, "DapuStor", 0xCB, 240, _dapustor),
    _page(0x1E49, "YMTC", 0xCA, 4096, _ymtc),
    _page(0x1C5F, "Memblaze", 0xCA, 512, _memblaze),
)
