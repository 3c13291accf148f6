"""Solidigm's workload tracker (log F9h, set up by feature F1h): a ring of up to 126 power samples.

Layouts as nvme-cli's plugin ``solidigm-workload-tracker`` has them: a header of 48 bytes, then the
newest entry first, 32 bytes each; the drive's clock ticks 25 times a microsecond.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.nvme.layout import require_bytes

WORKLOAD_LOG = 0xF9
WORKLOAD_BYTES = 4080

_HEADER = struct.Struct("<HHIIIIQQIII")
_POWER_ENTRY = struct.Struct("<8I")
_ENTRIES = 126
_POWER_GROUP = 5
_TICKS_PER_S = 25_000_000
_UW_PER_W = 1_000_000
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerEntry:
    """One sample of the tracker's content group 5.

    ``time_s`` is the drive's clock. ``input_1_w`` is the power at the first input, in steps of a
    microwatt. The units of the other powers are not published: they stand as they come.
    """

    time_s: float
    input_1_w: float
    input_2: int
    nand_written_sectors: int
    nand_read_sectors: int
    nand_average: int
    drive_average: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLog:
    """The tracker's setting and, where its content group is 5, its power entries, oldest first."""

    version: str
    enabled: bool
    content_group: int
    sample_period_s: float
    power: tuple[PowerEntry, ...] | None


def decode_workload_log(data: bytes) -> WorkloadLog:
    """Return the fields of log F9h.

    Raises:
        PowerError: wrong length, or more entries than the log has room for.
    """
    require_bytes(data, WORKLOAD_BYTES, "the workload tracker's log")
    major, minor, count, _, _, period_ms, last_tick, _, setting, _, _ = _HEADER.unpack_from(data)
    if count > _ENTRIES:
        raise PowerError(f"the workload tracker keeps {_ENTRIES} entries, the drive says {count}")
    group, period_s, last_s = setting >> 15 & 0xF, period_ms / _MS_PER_S, last_tick / _TICKS_PER_S
    entries = None
    if group == _POWER_GROUP:
        entries = tuple(
            _entry(data, index, last_s - index * period_s) for index in reversed(range(count))
        )
    return WorkloadLog(
        version=f"{major}.{minor}",
        enabled=bool(setting & 1),
        content_group=group,
        sample_period_s=period_s,
        power=entries,
    )


def _entry(data: bytes, index: int, time_s: float) -> PowerEntry:
    at = _HEADER.size + _POWER_ENTRY.size * index
    input_1, input_2, written, read, nand, drive, _, _ = _POWER_ENTRY.unpack_from(data, at)
    return PowerEntry(
        time_s=time_s,
        input_1_w=input_1 / _UW_PER_W,
        input_2=input_2,
        nand_written_sectors=written,
        nand_read_sectors=read,
        nand_average=nand,
        drive_average=drive,
    )
