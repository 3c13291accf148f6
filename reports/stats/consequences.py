"""What a unit of work costs on each arm: joules, seconds and idle power, with intervals.

The figures are those of the first screen, of one unit of work, so that others follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.energy import every_energy, measured_drives
from wattload.reports.runs.phases import leading
from wattload.reports.stats.bars import ShownPoint, Work, is_in, moved_bytes, unit_seconds
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.conditions import served_of
from wattload.reports.stats.effects import MINIMUM_RUNS, mean_log
from wattload.reports.stats.figures import RunFigure, uncertainty_of
from wattload.reports.stats.intervals import CONFIDENCE, paired, t_interval
from wattload.results.reading import view_named, view_of


@dataclass(frozen=True, slots=True)
class Mean:
    """A geometric mean over the runs of an arm, in SI base units.

    ``lower`` and ``upper`` are its 95 % interval, widened by the uncertainty of meters at k = 2;
    they are ``None`` for fewer than ``MINIMUM_RUNS`` runs.
    """

    value: float
    lower: float | None = None
    upper: float | None = None

    @property
    def ends(self) -> tuple[float, ...]:
        """The value, and both ends where they are known."""
        return (self.value, *(end for end in (self.lower, self.upper) if end is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a unit of work costs on an arm.

    ``io_s`` is the time of the phases of the rate, ``None`` where accelerators compute meanwhile.
    ``unit_s`` is that of the phases of the energy. ``energy_j`` and ``j_per_byte`` are ``None``
    unless every run's energy was measured. ``idling`` has the joules of a unit above idle power and
    the idle watts of each run, and is empty where idle power was not measured in every run.
    ``drive_count`` is how many drives these are of.
    """

    arm: str
    letter: str
    io_s: Mean | None
    unit_s: float
    energy_j: Mean | None
    j_per_byte: Mean | None
    idling: tuple[tuple[float, float], ...]
    drive_count: int


def costs(point: ShownPoint) -> list[Cost]:
    """Return the cost of a unit of work on each arm with a valid run.

    There are none where runs did different work or work without a size, where what a joule pays
    for is not bytes, or where no drive was read or written.
    """
    view = view_named(point.group.workload)
    if point.work is None or view.joule is not None:
        return []
    if any(served_of(record).instead for record in point.records):
        return []
    found = (_cost(point, point.work, arm) for arm in point.group.arms)
    return [each for each in found if each is not None]


def _cost(point: ShownPoint, work: Work, arm: str) -> Cost | None:
    counted = _in_mean(point.rate, arm)
    records = [run.record for run in point.compared.arms.get(arm, ()) if run.id in counted]
    if not records or not all(moved_bytes(each, point.energy_phase) for each in records):
        return None
    is_paced = any(
        view_of(each).emulates_accelerators and each.workload.accelerator != "unpaced"
        for each in records
    )
    return Cost(
        arm=arm,
        letter=point.letter(arm),
        io_s=None if is_paced else _mean(unit_seconds(point, arm, work.count), ()),
        unit_s=math.exp(mean_log([_active_s(each, point.energy_phase) for each in records]))
        / work.count,
        energy_j=_of_row(point.energy, arm, lambda joules: joules / work.count),
        j_per_byte=_of_row(
            point.per_byte,
            arm,
            lambda value: value if _is_cost(point.per_byte) else 1 / value,
        ),
        idling=_idling(point, work, arm, records),
        drive_count=max(len(measured_drives(each)) for each in records) or 1,
    )


def _is_cost(row: Row | None) -> bool:
    """Return whether a row is energy per byte, and not bytes per energy."""
    return row is not None and row.quantity.unit is Unit.JOULES_PER_BYTE


def _in_mean(row: Row | None, arm: str) -> dict[str, RunFigure]:
    """Return the figures in the mean of an arm, by run."""
    return {each.run: each for each in row.figures.get(arm, ()) if each.in_mean} if row else {}


def _of_row(row: Row | None, arm: str, made: Callable[[float], float]) -> Mean | None:
    """Return the mean of an energy's figures; ``None`` unless all of them were measured."""
    figures = [*_in_mean(row, arm).values()]
    values = [made(each.value) for each in figures if each.value is not None and each.value > 0]
    if not values or len(values) < len(figures) or not all(f.illustrates for f in figures):
        return None
    return _mean(values, figures)


def _mean(values: Sequence[float], figures: Sequence[RunFigure]) -> Mean:
    """Return the mean of positive values with its interval; ``figures`` state uncertainties."""
    centre = math.exp(mean_log(values))
    if len(values) < MINIMUM_RUNS:
        return Mean(centre)
    found = t_interval(paired([(1.0, value) for value in values]), CONFIDENCE)
    found = found.widened(uncertainty_of(1.0, figures) or 0.0)
    return Mean(centre, found.lower, found.upper)


def _idling(
    point: ShownPoint, work: Work, arm: str, records: Sequence[RunRecord]
) -> tuple[tuple[float, float], ...]:
    """Return the joules of a unit above idle power, and the idle watts, of each run."""
    figures = _in_mean(point.energy, arm)
    found = []
    for record in records:
        energy_j = figures[record.run_id].value if record.run_id in figures else None
        idle_w = _idle_w(record, point.energy_phase)
        if energy_j is None or idle_w is None:
            return ()
        idle_j = idle_w * _active_s(record, point.energy_phase)
        found.append(((energy_j - idle_j) / work.count, idle_w))
    return tuple(found)


def _active_s(record: RunRecord, phase: str) -> float:
    return sum(each.active_s for each in leading(record) if is_in(each.name, phase))


def _idle_w(record: RunRecord, phase: str) -> float | None:
    """Return the idle power of a run's drives, by which its net energy is less than its energy."""
    energy = next((each for each in every_energy(record) if each.phase == phase), None)
    if energy is None or energy.energy_j is None or energy.net_j is None or not energy.seconds:
        return None
    return (energy.energy_j - energy.net_j) / energy.seconds
