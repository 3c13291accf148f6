"""The summary in a record's file: totals, rates, energies and metrics for people with ``jq``.

It is computed from the rest of the record when that is written, and is no input of anything: what
a record is read for is computed from its facts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from wattload.core.base_models import fields_of
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord


def summary_of(record: RunRecord) -> dict[str, Any]:
    return {
        "moved_bytes": moved_bytes(record.windows),
        "drive_energy": drive_energy(record),
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
                "mean_w": energy.mean_w,
                **_of_energy(energy),
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


def drive_energy(record: RunRecord) -> dict[str, Any]:
    """Return the drives' energy in all timed phases, in the windows and for the work, in joules.

    Figures that are unknown are ``None``, with a reason in ``missing``: all of them if a drive's
    is. Parts of phases are left out. Phases that overlap have no sum: it would count energy twice.
    Uncertainties add up (worst case). The energy for the work has the tails that phases have. If a
    drive's last phase has none, it is unknown; what an earlier phase left behind for the next one
    is in that one's window.
    """
    timed = record.timed_windows(parts=False)
    phases = dict.fromkeys(window.name for window in timed)
    parts = [energy for phase in phases for energy in record.drive_energies(phase)]
    unread = sorted({drive for phase in phases for drive in record.unread_drives(phase)})
    if not parts or unread or _share_time(timed):
        reason = "phases ran at the same time" if parts else record.power.unmeasured_text
        if parts and unread:
            names = ", ".join(f"{drive} of {host}" for host, drive in unread)
            reason = f"no energy figure for {names}"
        return fields_of(dict.fromkeys(_FIGURES, (None, reason)))
    known = [_of_energy(part) for part in parts]
    last = {
        record.drive_of(part.host, part.device): index
        for index, part in sorted(enumerate(parts), key=lambda item: item[1].end_ns)
    }
    figures = {}
    for name, of_window in _FIGURES.items():
        values = [
            (each[name], each["missing"].get(name, ""))
            if part.tail_j is not None or index in last.values()
            else (each[of_window], each["missing"].get(of_window, ""))
            for index, (part, each) in enumerate(zip(parts, known, strict=True))
        ]
        reason = next((why for value, why in values if value is None), "")
        sums = [value for value, _ in values if value is not None]
        figures[name] = (math.fsum(sums) if len(sums) == len(values) else None, reason)
    return fields_of(figures)


_FIGURES = {
    "energy_in_window_j": "energy_in_window_j",
    "energy_in_window_uncertainty_j": "energy_in_window_uncertainty_j",
    "energy_for_work_j": "energy_in_window_j",
    "energy_for_work_uncertainty_j": "energy_in_window_uncertainty_j",
}
"""The figures of an energy, each with the one that a phase without a tail adds to a sum."""


def _of_energy(energy: EnergyRecord) -> dict[str, Any]:
    missing = energy.missing
    no_energy = missing.get("energy_j", "")
    return fields_of(
        {
            "energy_in_window_j": (energy.energy_j, no_energy),
            "energy_in_window_uncertainty_j": (
                energy.uncertainty_j,
                missing.get("uncertainty_j", ""),
            ),
            "energy_for_work_j": (energy.work_j, no_energy or missing.get("tail_j", "")),
            "energy_for_work_uncertainty_j": (
                energy.work_uncertainty_j,
                missing.get("work_uncertainty_j", ""),
            ),
        }
    )


def _share_time(windows: Sequence[PhaseWindow]) -> bool:
    """Return whether two phases of one host were active at the same time."""
    spans = sorted(
        (window.host, start_ns, end_ns)
        for window in windows
        for start_ns, end_ns in window.intervals
    )
    return any(one[0] == other[0] and other[1] < one[2] for one, other in pairwise(spans))
