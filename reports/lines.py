"""A run in one line: what it was, how it ended, its headline figures and its energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.reports.energy import Energy, phase_energies, whole
from wattload.reports.subject import ARMS

FIGURES = 2
"""How many of a run's headline figures stand in its line; the record has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run. ``failed`` are the names of its failed checks, ``figures`` its first headlines."""

    run_id: str
    started_utc: str
    workload: str
    label: str
    drive: str
    state: str
    scale: str
    status: str
    failed: tuple[str, ...]
    figures: tuple[Metric, ...]
    energy: Energy | None


def line_of(record: RunRecord, failed: Sequence[str] = ()) -> Line:
    """Return a run's line; ``failed`` are names of checks that failed beside the record's own."""
    energies = phase_energies(record)
    return Line(
        run_id=record.run_id,
        started_utc=record.started_utc,
        workload=record.workload.name,
        label=record.label,
        drive=ARMS["target"](record),
        state=ARMS["power_state"](record),
        scale=record.workload.scale,
        status=record.status,
        failed=(*(each.name for each in record.checks if each.verdict == "fail"), *failed),
        figures=tuple(each for each in record.metrics if each.headline)[:FIGURES],
        energy=whole(record) or (energies[0] if energies else None),
    )
