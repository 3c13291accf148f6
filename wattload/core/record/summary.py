"""The summary in a record's file: totals, rates, energies and metrics for people with ``jq``.

It is computed from the rest of the record when that is written, and is no input of anything: what
a record is read for is computed from its facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from wattload.core.power import Scope
from wattload.core.record.energy import PowerSection
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord


def summary_of(record: RunRecord) -> dict[str, Any]:
    return {
        "moved_bytes": moved_bytes(record.windows),
        "drive_energy_j": drive_energy(record.power, record.windows),
        "metrics": {
            metric.name: {
                "value": metric.value,
                "unit": metric.unit.value,
                "meaning": metric.meaning,
            }
            for metric in record.metrics
        },
        "phases": [
            {
                "name": window.name,
                "host": window.host,
                "timed": window.timed,
                "active_s": window.active_s,
                "read_bytes": window.read_bytes,
                "written_bytes": window.written_bytes,
                "bytes_per_s": (window.read_bytes + window.written_bytes) / window.active_s
                if window.active_s
                else None,
            }
            for window in record.windows
        ],
        "energy": [
            {
                "phase": energy.phase,
                "host": energy.host,
                "device": energy.device,
                "source": energy.source,
                "energy_j": energy.energy_j,
                "mean_w": energy.mean_w,
            }
            for energy in record.power.energy
            if energy.chosen
        ],
    }


def with_remark(record: RunRecord, summary: Mapping[str, Any]) -> RunRecord:
    """Return a record with a remark if ``summary``, of its file, is not the one of this version."""
    if summary == summary_of(record):
        return record
    remark = (
        f"The summary in the record was computed by version {record.software.wattload}; this "
        "version computes other figures from the same facts."
    )
    remarks = (*record.workload.remarks, remark)
    workload = record.workload.model_copy(update={"remarks": remarks})
    return record.model_copy(update={"workload": workload})


def moved_bytes(windows: Sequence[PhaseWindow]) -> int:
    """Sum the bytes of the timed phases, without the parts of others."""
    timed = [window for window in windows if window.timed and not window.is_part]
    return sum(window.read_bytes + window.written_bytes for window in timed)


def drive_energy(power: PowerSection, windows: Sequence[PhaseWindow]) -> float | None:
    """Sum the drives' energy in the timed phases, in joules; ``None`` if a part is missing.

    The sum leaves out the tail, and the parts of phases. Phases that overlap have no sum: it would
    count energy twice.
    """
    timed = [window for window in windows if window.timed and not window.is_part]
    names = {(window.host, window.name) for window in timed}
    energies = [
        energy.energy_j
        for energy in power.energy
        if energy.chosen and energy.scope is Scope.DRIVE and (energy.host, energy.phase) in names
    ]
    known = [energy_j for energy_j in energies if energy_j is not None]
    is_whole = known and len(known) == len(energies) and not _share_time(timed)
    return sum(known) if is_whole else None


def _share_time(windows: Sequence[PhaseWindow]) -> bool:
    """Return whether two phases of one host were active at the same time."""
    spans = sorted(
        (window.host, start_ns, end_ns)
        for window in windows
        for start_ns, end_ns in window.intervals
    )
    return any(one[0] == other[0] and other[1] < one[2] for one, other in pairwise(spans))
