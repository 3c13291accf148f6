"""The run that stands for an arm where only one can be drawn."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.reports.load import Run
from wattload.reports.phases import leading
from wattload.reports.subject import Subject

CHOICE = "of each arm's valid runs, the one with the median rate"
"""How ``middle_run`` chooses, in words; the lower one of two in the middle."""


def middle_run(subject: Subject, runs: Sequence[Run]) -> Run | None:
    """Return the valid run of median rate; ``None`` where no run is valid."""
    valid = sorted((run for run in runs if not subject.faults(run)), key=_rate)
    return valid[(len(valid) - 1) // 2] if valid else None


def _rate(run: Run) -> tuple[float, str]:
    """Return the rate over all leading phases, total bytes ÷ total seconds, and the id for ties."""
    phases = leading(run.record)
    seconds = sum(phase.active_s for phase in phases)
    moved_bytes = sum(phase.moved_bytes for phase in phases)
    return (moved_bytes / seconds if seconds > 0 else 0.0), run.id
