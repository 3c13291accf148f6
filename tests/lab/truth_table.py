"""The truth table: what each source made of each load, beside what the drive really used."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.lab.virtual_runs import Ran
from wattload.core.record.energy import WHOLE_RUN, EnergyRecord

HEAD = (
    "load",
    "phase",
    "state",
    "ipm_updates",
    "window_s",
    "source",
    "truth_j",
    "energy_j",
    "lower_j",
    "upper_j",
    "uncertainty_j",
    "rest_s",
    "true_tail_j",
    "tail_j",
    "tail_uncertainty_j",
    "missing",
)

LONG_S = 10.0
"""Shorter windows are judged by their stated uncertainty alone."""


EDGE_S = 0.2
"""A drive works a little before and after the phase that asks it to, all saves of a phase together
for so long; an uncertainty takes a phase's edges for those of the work, unless a rest follows."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One source's figure of one phase of one run."""

    workload: str
    phase: str
    state: int
    updates: str
    source: str
    seconds: float
    truth_j: float
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None
    uncertainty_j: float | None
    without_gain_j: float
    """The parts of the uncertainty but for the drive's own error, which a virtual drive does not
    have: the slack of a per cent that it states would hide what integration does wrong."""
    rest_s: float
    true_tail_j: float | None
    tail_j: float | None
    tail_uncertainty_j: float | None
    work_uncertainty_j: float | None
    reason: str

    @property
    def error(self) -> float | None:
        """How far the figure is from the truth, as a share of it."""
        return None if self.energy_j is None else self.energy_j / self.truth_j - 1

    @property
    def is_long(self) -> bool:
        return self.seconds >= LONG_S

    @property
    def tail_error_j(self) -> float | None:
        """How far the tail is from the true one; ``None`` where either is missing."""
        if self.tail_j is None or self.true_tail_j is None:
            return None
        return self.tail_j - self.true_tail_j


def edge_j(line: Line) -> float:
    """Return what a phase's edges may add to its error; the whole run begins and ends idle."""
    return 0.0 if line.phase == WHOLE_RUN else EDGE_S * line.truth_j / line.seconds


def lines(ran: Ran, updates: str, *, load: str = "") -> list[Line]:
    """Return a line for each phase and source of a run; ``load`` names it, else its workload."""
    state = ran.record.power.states[0].requested
    assert state is not None
    name = load or ran.record.workload.name
    return [_line(ran, each, name, state, updates) for each in ran.energies()]


def _line(ran: Ran, energy: EnergyRecord, name: str, state: int, updates: str) -> Line:
    return Line(
        workload=name,
        phase=energy.phase,
        state=state,
        updates=updates,
        source=energy.source,
        seconds=energy.seconds,
        truth_j=ran.truth_j(energy),
        energy_j=energy.energy_j,
        lower_j=energy.lower_j,
        upper_j=energy.upper_j,
        uncertainty_j=energy.uncertainty_j,
        without_gain_j=math.hypot(
            *(part for name, part in energy.uncertainty_parts_j.items() if name != "gain")
        ),
        rest_s=energy.rest_s,
        true_tail_j=ran.truth_tail_j(energy),
        tail_j=energy.tail_j,
        tail_uncertainty_j=energy.tail_uncertainty_j,
        work_uncertainty_j=energy.work_uncertainty_j,
        reason=energy.missing.get("energy_j", ""),
    )


def write(path: Path, table: Iterable[Line]) -> None:
    """Write the table as CSV."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(HEAD)
        rows.writerows(_row(line) for line in table)


def _row(line: Line) -> tuple[str, ...]:
    return (
        line.workload,
        line.phase,
        f"PS{line.state}",
        line.updates,
        f"{line.seconds:.1f}",
        line.source,
        *map(
            _joules,
            (line.truth_j, line.energy_j, line.lower_j, line.upper_j, line.uncertainty_j),
        ),
        f"{line.rest_s:.1f}",
        *map(_joules, (line.true_tail_j, line.tail_j, line.tail_uncertainty_j)),
        line.reason if line.upper_j is None else "",
    )


def _joules(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
