"""The drive's own power measurement: feature 25h starts and stops it, log 25h has the result.

Layouts: NVMe Base Specification 2.3 (TP4199), "Power Measurement" feature and log page, as
nvme-cli's ``struct nvme_power_meas_log`` has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattload.core.errors import PowerError
from wattload.core.power import PowerBin
from wattload.power.nvme.admin import AdminDevice, fetch, log_command
from wattload.power.nvme.features import get_command
from wattload.power.nvme.fields import ScaledPower, decode_power, u16, u32

POWER_MEASUREMENT = 0x25
POWER_MEASUREMENT_LOG = 0x25
HEADER_BYTES = 64

SUBSYSTEM_TOTAL = 0
"""Measurement type 0: the power of the whole NVM subsystem; Ch to Fh are vendor-specific."""

STOP = 0
START = 1
"""Values of feature 25h: ACT in bits 3:0, measurement type 0, no stop time."""

_BIN_BYTES = 8
_LARGEST_LOG_BYTES = 1 << 20
_LARGEST_ERROR_PERCENT = 100
_READ_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSetting:
    """The value of feature 25h; ``stop_after_minutes`` is ``None`` without a stop time."""

    active: bool
    stop_after_minutes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMeasurementLog:
    """Interval powers since the measurement was started.

    ``generation`` (PMGN) increases by one with every start, and wraps from 255 to 0. ``active``
    (PME) means that the measurement is running. ``count`` (PMC) is the number of interval
    measurements; like all counts here it stops at 2^32 - 1. ``contiguous`` is false if there are
    holes between them (NCPDF), and ``estimated`` is true if the drive estimates power (EPF).

    ``average`` and ``maximum`` carry their step; their ``watts`` are ``None`` while ``count`` is 0.
    ``error_percent`` (IPWRPE) is the largest error of an interval power, 0 to 100; a 0 in an empty
    log is ``None``. ``histogram`` has the bins that state their threshold, in ascending
    order; it is ``None`` if only the header was read, and empty if the drive does not keep one.
    """

    generation: int
    active: bool
    contiguous: bool
    estimated: bool
    measurement_type: int
    count: int
    average: ScaledPower
    maximum: ScaledPower
    error_percent: int | None
    histogram: tuple[PowerBin, ...] | None


def read_measurement_setting(device: AdminDevice) -> MeasurementSetting:
    """Return action (bits 3:0) and stop time (bits 31:16) of feature 25h.

    Refused by drives without power measurement.
    """
    result = fetch(device, get_command(POWER_MEASUREMENT)).result
    return MeasurementSetting(
        active=result & 0xF == START, stop_after_minutes=result >> 16 & 0xFFFF or None
    )


def read_measurement_header(device: AdminDevice) -> PowerMeasurementLog:
    """Return log 25h without its histogram: one command of 64 bytes."""
    return decode_measurement_header(_read(device, HEADER_BYTES))


def read_power_measurement(device: AdminDevice) -> PowerMeasurementLog:
    """Return log 25h with its histogram.

    Raises:
        PowerError: the drive does not have this log, or it reports an invalid size.
    """
    data = _read(device, HEADER_BYTES)
    for _ in range(_READ_ATTEMPTS):
        size_bytes = _size_bytes(data)
        if size_bytes <= len(data):
            return decode_power_measurement(data)
        # A bin may be added between two reads, so the size is checked again.
        data = _read(device, size_bytes)
    raise PowerError(
        f"{device.name}: the power measurement log grew during each of {_READ_ATTEMPTS} reads"
    )


def decode_measurement_header(data: bytes) -> PowerMeasurementLog:
    """Return the first 64 bytes of log 25h as fields; ``histogram`` is ``None``.

    Raises:
        PowerError: ``data`` is shorter than the header.
    """
    if len(data) < HEADER_BYTES:
        raise PowerError(
            f"the power measurement log must have at least {HEADER_BYTES} bytes, got {len(data)}"
        )
    attributes, count, error = u16(data, 2), u32(data, 8), data[56]
    return PowerMeasurementLog(
        generation=data[1],
        active=bool(attributes & 1),
        contiguous=not attributes & 2,
        estimated=bool(attributes & 4),
        measurement_type=attributes >> 12,
        count=count,
        average=decode_power(u32(data, 40)),
        maximum=decode_power(u32(data, 44)),
        error_percent=error if (error or count) and error <= _LARGEST_ERROR_PERCENT else None,
        histogram=None,
    )


def decode_power_measurement(data: bytes) -> PowerMeasurementLog:
    """Return log 25h with its histogram; bytes after the descriptors are the vendor's.

    Raises:
        PowerError: ``data`` ends before the last descriptor, or a descriptor has under 8 bytes.
    """
    header = decode_measurement_header(data)
    count, stride = u16(data, 12), u16(data, 24)
    if count and stride < _BIN_BYTES:
        raise PowerError(
            f"a bin of the power histogram must have at least {_BIN_BYTES} bytes, got {stride}"
        )
    end = HEADER_BYTES + count * stride
    if len(data) < end:
        raise PowerError(
            f"the power measurement log with {count} bins must have at least {end} bytes, got "
            f"{len(data)}"
        )
    starts = range(HEADER_BYTES, end, stride or 1)
    bins = [each for start in starts if (each := _bin_at(data, start)) is not None]
    return replace(header, histogram=tuple(sorted(bins, key=lambda each: each.lower_w)))


def _bin_at(data: bytes, offset: int) -> PowerBin | None:
    """Return a bin of the histogram, ``None`` if it does not state its threshold."""
    lower = decode_power(u32(data, offset + 4))
    # Unlike a measured power, a threshold may be 0 W: that of the first bin is.
    is_zero = lower.value == 0 and lower.step_w is not None
    lower_w = 0.0 if is_zero else lower.watts
    return None if lower_w is None else PowerBin(lower_w=lower_w, count=u32(data, offset))


def _read(device: AdminDevice, size_bytes: int) -> bytes:
    name = "Get Log Page 25h (power measurement)"
    return fetch(device, log_command(POWER_MEASUREMENT_LOG, size_bytes, name=name)).data


def _size_bytes(data: bytes) -> int:
    """Return the bytes to read, a multiple of 4: the size in the log, or the end of its bins."""
    size_bytes = max(u32(data, 4), HEADER_BYTES + u16(data, 12) * u16(data, 24))
    if size_bytes > _LARGEST_LOG_BYTES:
        raise PowerError(
            f"the power measurement log reports {size_bytes} bytes, more than the allowed "
            f"{_LARGEST_LOG_BYTES}"
        )
    return -(-size_bytes // 4) * 4
