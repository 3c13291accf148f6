"""The point of a workload that the first screen shows, and the bars of its figures.

Every figure is taken from the rows of the comparison at that point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wattload.core.power import OTHER_SCOPES, Scope
from wattload.core.record.results import Better
from wattload.core.record.run import RunRecord
from wattload.core.units import GB, MB, Unit
from wattload.reports.runs.energy import (
    ALL_PHASES,
    amount_of,
    has_doubted_meter,
    scope_energy_j,
)
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import counted_phases, leading, timed_parts
from wattload.reports.stats.comparison import Row, compare, compares_work
from wattload.reports.stats.conditions import (
    NO_VALID_RUN,
    compared_group,
    different_bytes,
    no_energy,
)
from wattload.reports.stats.effects import Effect, effect
from wattload.reports.stats.figures import FOR_WORK, IN_WINDOW, PER_BYTE, per_joule, uncertainty_of
from wattload.reports.stats.intervals import CONFIDENCE, Demand
from wattload.reports.stats.pairs import value_pairs
from wattload.reports.stats.subject import LETTERS, Group, Subject
from wattload.reports.stats.sweeps import Point, points
from wattload.results.labels import ACTIVITIES, label
from wattload.results.quantity import (
    MISSING,
    TIMES,
    Scale,
    counted,
    interval_text,
    number,
    quantity,
    scale_for,
)
from wattload.results.reading import run_of, view_named, view_of
from wattload.results.view import mean_of_known

_VERBS = {"write": "written", "read": "read", ALL_PHASES: "of all I/O"}
"""What happens to the bytes of a phase."""

_IN_A_JOULE = {"µJ": 1e6, "mJ": 1e3}
_SAME_BYTES = 0.02
"""A rate within this share of the bytes that moved in a second counts the same bytes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One valid run's figure, and whether the mean of its arm includes it."""

    value: float
    run: Run
    in_mean: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One arm's bar, in the unit of its chart: ``value`` is the estimator that the ratio divides.

    ``marks`` are the figures of the valid runs, of which there are ``run_count``; a run whose
    energy is excluded has no mark. A figure known as bounds has ``value`` ``None`` and its ends in
    ``lower`` and ``upper``. ``uncertainty`` is the largest of an energy's figures, at k = 2, in
    the unit of the chart; ``None`` if one of them has none. ``letter`` is empty beyond the last
    letter.
    """

    arm: str
    letter: str
    value: float | None
    marks: tuple[Mark, ...] = ()
    run_count: int = 0
    lower: float | None = None
    upper: float | None = None
    uncertainty: float | None = None

    @property
    def mean_count(self) -> int:
        return sum(mark.in_mean for mark in self.marks)

    @property
    def text(self) -> str:
        """The figure as printed on the bar: ``10.6``, ``≤ 0.5`` or a dash."""
        if self.value is not None:
            return number(self.value, 3)
        if self.upper is None:
            return MISSING
        return interval_text(self.lower, self.upper, Scale(1, ""), 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A quantity of one workload, arm by arm; ``title`` is its unit with the basis.

    ``missing`` is why no arm has a figure; empty if one has. ``ceilings`` are the names and values
    of what bounds a rate, the same work without storage; the value is in the name, too.
    """

    title: str
    better: Better
    bars: tuple[Bar, ...]
    missing: str = ""
    ceilings: tuple[tuple[str, float], ...] = ()

    @property
    def has_figure(self) -> bool:
        """Whether an arm has a figure or bounds of one."""
        return any(bar.value is not None or bar.upper is not None for bar in self.bars)

    def of(self, arm: str) -> Bar | None:
        return next((bar for bar in self.bars if bar.arm == arm), None)


@dataclass(frozen=True, slots=True)
class Work:
    """The unit of work that an energy is divided by, and how many of them each run did."""

    name: str = "job"
    count: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPoint:
    """The point of a workload that the first screen shows.

    ``compared`` has its valid runs, ``every`` the rows of all points by key, ``rows`` those of this
    one. ``phase`` is that of the rate. ``energy_phase`` is all phases of the job if their energy is
    known, else the same. ``is_for_work`` is whether its energies are for the work, else they are in
    the window; ``per_watt`` is always in the window. ``per_byte`` is shown instead of ``energy`` if
    the runs moved different bytes, or if the size of the job means nothing: ``work``, the unit of
    work of an energy, is then ``None``. ``energy`` itself is ``per_byte`` in a timed part of a
    phase.
    """

    group: Group
    compared: Group
    every: tuple[Mapping[str, Row], ...]
    rows: Mapping[str, Row]
    rate: Row | None
    energy: Row | None
    per_watt: Row | None
    per_byte: Row | None
    is_for_work: bool
    phase: str
    energy_phase: str
    work: Work | None
    at: str
    place: str

    @property
    def records(self) -> list[RunRecord]:
        return [run.record for run in self.compared.runs]

    @property
    def is_split(self) -> bool:
        """Whether the rate is only of a part of the job."""
        names = phase_names(self.records)
        return self.phase != ALL_PHASES and (len(names) > 1 or self.is_timed_part)

    @property
    def is_timed_part(self) -> bool:
        """Whether the rate is of a timed part of a phase, such as a steady state."""
        return any(
            each.name == self.phase for record in self.records for each in timed_parts(record)
        )

    def part(self, phase: str) -> str:
        """Return what a figure is of, ``writing only`` or ``write + read``.

        It is empty for a job that is not split.
        """
        if not self.is_split:
            return ""
        if phase == ALL_PHASES:
            return " + ".join(map(label, phase_names(self.records)))
        if self.is_timed_part:
            return f"{label(phase)} state"
        return f"{activity(phase)} only"

    @property
    def verb(self) -> str:
        """What is done to the bytes of the rate, ``written``; empty for all phases of a job."""
        return _VERBS.get(self.phase, "") if self.phase != ALL_PHASES else ""

    def based(self, unit: str, phase: str, per: str = "") -> str:
        """Return a unit with the bytes that it is of, such as ``GB/s written``."""
        if verb := _VERBS.get(phase):
            return f"{unit} {verb}{per}"
        return f"{unit}{per} ({label(phase)})" if self.is_split else f"{unit}{per}"

    def per_work(self, unit: str) -> str:
        """Return the unit of an energy per unit of work, such as ``Wh per checkpoint written``."""
        title = f"{unit} per {(self.work or Work()).name}"
        if not self.is_split:
            return title
        if self.energy_phase == ALL_PHASES:
            return f"{title}, all I/O"
        return self.based(title, self.energy_phase)

    @property
    def is_per_work(self) -> bool:
        """Whether energies of GPUs and nodes are per unit of work, and not per GB or per reads."""
        return view_named(self.group.workload).has_size

    @property
    def is_of_amount(self) -> bool:
        """Whether energies are of what a joule pays for, as their bytes mean little."""
        is_counted = view_named(self.group.workload).joule is not None
        return is_counted and not self.is_per_work

    @property
    def per_amount(self) -> str:
        """The unit of an energy of a workload without a size."""
        joule = view_named(self.group.workload).joule
        if joule is not None and self.is_of_amount:
            return f"{joule.unit} per {joule.one}"
        return self.based("J per GB", self.energy_phase)

    @property
    def amount_factor(self) -> float:
        """What turns joules per byte, or per what a joule pays for, into this unit."""
        joule = view_named(self.group.workload).joule
        return _IN_A_JOULE[joule.unit] if joule is not None and self.is_of_amount else GB

    def letter(self, arm: str) -> str:
        return letter_of(self.group.page or tuple(self.group.arms), arm)


def per_unit(row: Row, work: Work) -> Row:
    """Return a row of energies in joules with those of one unit of work."""

    def part(value: float | None) -> float | None:
        return None if value is None else value / work.count

    return replace(
        row,
        figures={
            arm: tuple(
                replace(
                    each, value=part(each.value), lower=part(each.lower), upper=part(each.upper)
                )
                for each in figures
            )
            for arm, figures in row.figures.items()
        },
        spreads={
            arm: each and replace(each, median=each.median / work.count)
            for arm, each in row.spreads.items()
        },
        centres={arm: part(centre) for arm, centre in row.centres.items()},
    )


def scale_of_rates(point: ShownPoint) -> Scale:
    key = point.rate.quantity.key if point.rate is not None else ""
    rows = [(rows[key], 1.0) for rows in point.every if key in rows]
    is_of_bytes = point.rate is not None and point.rate.quantity.unit is Unit.BYTES_PER_SECOND
    if not is_of_bytes or not any(row.centres and any(row.centres.values()) for row, _ in rows):
        rows = [(row, 1.0) for rows in point.every for row in rows.values()]
    if not any(row.quantity.unit is Unit.BYTES_PER_SECOND for row, _ in rows):
        phases = (phase for record in point.records for phase in leading(record))
        moved = (each.moved_bytes / each.active_s for each in phases if each.active_s > 0)
        return scale_for(Unit.BYTES_PER_SECOND, *moved)  # charts over time have one all the same
    return page_scale(rows, Unit.BYTES_PER_SECOND)


def letter_of(arms: Sequence[str], arm: str) -> str:
    """Return the letter of an arm; empty if there are more arms than letters."""
    return LETTERS[arms.index(arm)] if len(arms) <= len(LETTERS) else ""


def shown_point(subject: Subject, group: Group) -> ShownPoint:
    """Return the point that stands for a workload.

    Of a sweep it is the first that may stand for all by the view, or else the point with the median
    ratio of the rates, so that every figure of a row is of one point; without ratios it is the
    point with the highest rate.
    """
    parts = points(group)
    every = tuple({row.quantity.key: row for row in compare(subject, part.group)} for part in parts)
    rates = [_rate_row(list(rows.values())) for rows in every]
    ratios = sorted(
        (row.effect.ratio, index)
        for index, row in enumerate(rates)
        if row is not None and row.effect is not None
    )
    index, why = _standing(group, parts)
    if index is None and ratios:
        index = ratios[(len(ratios) - 1) // 2][1]
    elif index is None:
        index = max(range(len(parts)), key=lambda each: _highest(rates[each]))
    compared, rows = compared_group(subject, parts[index].group), every[index]
    phase = _phase(rates[index], [run.record for run in compared.runs])
    joule = view_named(group.workload).joule
    is_of_all = joule is None and f"{IN_WINDOW}, {ALL_PHASES}" in rows
    energy_phase = ALL_PHASES if is_of_all else phase
    in_window = "rate per watt" if joule is None else per_joule(joule, is_for_work=False)
    for_work = PER_BYTE if joule is None else per_joule(joule, is_for_work=True)
    of_phase = [row for row in rows.values() if row.quantity.phase == energy_phase]
    is_for_work = compares_work(of_phase)
    names = (FOR_WORK, for_work) if is_for_work else (IN_WINDOW, in_window)
    energy, per_byte, per_watt = (
        rows.get(f"{name}, {energy_phase}") for name in (*names, in_window)
    )
    if energy is not None and energy.quantity.better == "neither":
        energy = per_byte
    return ShownPoint(
        group=group,
        compared=compared,
        every=every,
        rows=rows,
        rate=rates[index],
        energy=energy,
        per_watt=per_watt,
        per_byte=per_byte,
        is_for_work=is_for_work,
        phase=phase,
        energy_phase=energy_phase,
        work=work_of_all(compared, energy_phase) if view_named(group.workload).has_size else None,
        at=_at(parts[index], why, len(parts), [ratio for ratio, _ in ratios], rates[index]),
        place=parts[index].words if parts[index].axis else "",
    )


def _standing(group: Group, parts: Sequence[Point]) -> tuple[int | None, str]:
    """Return the first point that may stand for all by the view, and why."""
    why, may = view_named(group.workload).stands or ("", lambda _: False)
    for index, part in enumerate(parts):
        found = [run for each in part.group.runs if (run := run_of(each.record)) is not None]
        if part.axis and found and may(found):
            return index, why
    return None, ""


def _rate_row(rows: Sequence[Row]) -> Row | None:
    """Return the row of the first headline rate, or else of the first headline but energy."""
    heads = [row for row in rows if row.quantity.headline and row.quantity.better != "neither"]
    speeds = [row for row in heads if not row.quantity.is_energy]
    rates = [row for row in speeds if row.quantity.unit is Unit.BYTES_PER_SECOND]
    return next(iter(rates or speeds), None)


def _highest(row: Row | None) -> float:
    known = [spread.median for spread in row.spreads.values() if spread] if row else []
    return max(known, default=-math.inf)


def _phase(rate: Row | None, records: Sequence[RunRecord]) -> str:
    """Return the phase that the rate is of; of a rate without one, all timed phases."""
    if rate is not None and rate.quantity.phase:
        return rate.quantity.phase
    names = phase_names(records)
    return names[0] if len(names) == 1 else ALL_PHASES


def activity(phase: str) -> str:
    return ACTIVITIES.get(phase) or label(phase)


def phase_names(records: Sequence[RunRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(phase.name for record in records for phase in leading(record)))


def _at(point: Point, why: str, point_count: int, ratios: Sequence[float], rate: Row | None) -> str:
    if not point.axis:
        return ""
    if len(ratios) < 2 or rate is None or rate.effect is None:  # noqa: PLR2004 - no range
        here = f"{point.words}, {why}" if why else point.words
        return f"{here}, 1 of {counted(point_count, 'point')}"
    ends = sorted(map(rate.in_favour, ratios))
    unit = "" if rate.quantity.is_share else TIMES
    ends_text = rate.quantity.ends_text(ends[0], ends[-1])
    over = f"over {counted(len(ratios), 'point')} {ends_text}{unit}"
    return f"shown: {point.words}, {why or 'the point of the median ratio'}; {over}"


def work_of_all(compared: Group, phase: str) -> Work | None:
    """Return the unit of work of a phase; ``None`` if the runs did different work in it."""
    different = different_bytes(compared)
    found = {_work_of(run.record, phase) for run in compared.runs}
    is_same = phase not in different and not (phase == ALL_PHASES and different)
    if not found:
        return Work()
    return found.pop() if is_same and len(found) == 1 else None


def _work_of(record: RunRecord, phase: str) -> Work:
    """Return a unit of work and how many a run did, or else the job."""
    names = [each.name for each in leading(record) if is_in(each.name, phase)]
    own, run = view_of(record).work, run_of(record)
    if own is not None and run is not None and (work := own(run, names)) is not None:
        return Work(*work)
    return Work()


def page_scale(rows: Sequence[tuple[Row | None, float]], unit: Unit) -> Scale:
    """Return one scale for a quantity of all workloads: it has one unit on the page."""
    ends = [
        end / count
        for row, count in rows
        if row is not None and row.quantity.unit is unit
        for figures in row.figures.values()
        for figure in figures
        for end in (figure.value, figure.upper)
        if end is not None
    ]
    return scale_for(unit, *ends)


def counted_bytes(label: str) -> str:
    """Return which bytes a rate counts, by its label: ``of TSV``."""
    return f"of {label.removesuffix(' rate')}"


def is_in(name: str, phase: str) -> bool:
    return phase in (name, ALL_PHASES, "")


def rate_bars(point: ShownPoint, scale: Scale) -> Bars:
    row, missing = point.rate, "no rate" if point.records else NO_VALID_RUN
    if row is None:
        return _bars(point, None, "rate", scale.shown, missing)
    notes = [each.note for own in row.figures.values() for each in own if each.valid and each.note]
    if notes:
        missing = notes[0].rstrip(".")
    if row.quantity.unit is Unit.BYTES_PER_SECOND:
        title = point.based(scale.unit, point.phase)
        if point.phase == ALL_PHASES:  # it may count other bytes than those that moved
            title = f"{scale.unit} {counted_bytes(row.quantity.label)}"
        return _bars(point, row, title, scale.shown, missing)
    own = page_scale([(row, 1.0)], row.quantity.unit)
    if row.quantity.key in (titles := view_named(point.group.workload).rate_titles):
        title = titles[row.quantity.key].format(unit=own.unit, prefix=own.unit.removesuffix("/s"))
        return _bars(point, row, title.strip(), own.shown, missing)
    title = ", ".join(filter(None, (row.quantity.label, own.unit)))
    return _bars(point, row, title, own.shown, missing)


def energy_bars(point: ShownPoint, scale: Scale) -> Bars:
    """Return energies per unit of work; per byte, or per read, if runs did different work."""
    missing, work = _no_energy(point), point.work
    if work is not None:
        title = point.per_work(scale.unit)
        return _bars(
            point, point.energy, title, lambda value: scale.shown(value / work.count), missing
        )
    amount = point.amount_factor
    row, title = point.per_byte, point.per_amount
    is_cost = row is not None and row.quantity.unit is Unit.JOULES_PER_BYTE
    made = _bars(
        point, row, title, lambda value: amount * value if is_cost else amount / value, missing
    )
    return replace(made, better="lower")


def efficiency_bars(point: ShownPoint, missing: str) -> Bars:
    """Return what a joule pays for: bytes as MB/s per W, random reads, or rows."""
    joule = view_named(point.group.workload).joule
    if joule is None:
        title = point.based("MB/s", point.energy_phase, " per W")
        return _bars(point, point.per_watt, title, lambda value: value / MB, missing)
    scale = page_scale([(point.per_watt, 1.0)], Unit.PER_JOULE)
    title = f"{scale.unit.removesuffix('/J')} {joule.many} per J".strip()
    return _bars(point, point.per_watt, title, scale.shown, missing)


def _bars(
    point: ShownPoint, row: Row | None, title: str, shown: Callable[[float], float], missing: str
) -> Bars:
    """Return a row's bars; ``missing`` is the reason if it has no figure.

    ``shown`` returns a figure in the unit of the bars.
    """
    bars = tuple(_bar(point, row, arm, shown) for arm in point.group.arms) if row else ()
    better: Better = row.quantity.better if row is not None else "neither"
    bounds = tuple(_ceilings(point, row, shown)) if row is not None else ()
    found = Bars(title=title, better=better, bars=bars, ceilings=bounds)
    return found if found.has_figure else replace(found, missing=missing)


def effects_to_best(bars: Bars, ranking: Sequence[str]) -> Mapping[str, Effect]:
    """Return the effects of arms against the best of them, whose ``demanded`` are the intervals.

    The best arm is known only from the runs, so any of the k (k - 1) / 2 pairs of k arms may be
    the one that is read. Their intervals hold together in 95 % of cases: each has the confidence
    1 - 0.05 / pairs (Bonferroni), of the blocks of alternating runs, or else by Welch.

    Args:
        bars: those of a figure.
        ranking: the arms from the best to the worst; without them there is no ratio.
    """
    runs = {
        bar.arm: [(mark.run, mark.value) for mark in bar.marks if mark.in_mean] for bar in bars.bars
    }
    values = {arm: [value for _, value in own] for arm, own in runs.items()}
    demand = Demand(1 - (1 - CONFIDENCE) / max(math.comb(len(ranking), 2), 1), 1.0, len(ranking))
    found = {}
    for arm in ranking[1:]:
        pairing = value_pairs(runs[ranking[0]], runs[arm])
        each = effect(values[ranking[0]], values[arm], pairing=pairing)
        if each is not None:
            found[arm] = replace(each, demand=demand)
    return found


def _ceilings(
    point: ShownPoint, row: Row, shown: Callable[[float], float]
) -> Iterator[tuple[str, float]]:
    """Yield each ceiling with its mean in words, and this as ``shown``, from the lowest."""
    found = {}
    for name, runs in point.compared.ceilings.items():
        metrics = (run.record.metric(row.quantity.key) for run in runs)
        mean = mean_of_known(each.value for each in metrics if each is not None)
        if mean is not None:
            found[f"{name} {quantity(mean, row.quantity.unit, 3)}"] = shown(mean)
    yield from sorted(found.items(), key=lambda each: each[1])


def _bar(point: ShownPoint, row: Row, arm: str, shown: Callable[[float], float]) -> Bar:
    figures = [each for each in row.figures.get(arm, ()) if each.valid]
    spread, centre = row.spreads.get(arm), row.centres.get(arm)
    if centre is None and spread is not None:
        centre = spread.median
    runs = {run.id: run for run in point.group.arms[arm]}
    lowers = [each.lower for each in figures if each.lower is not None]
    uppers = [each.upper for each in figures if each.upper is not None]
    return Bar(
        arm=arm,
        letter=point.letter(arm),
        value=None if centre is None else shown(centre),
        marks=tuple(
            Mark(shown(each.value), runs[each.run], each.in_mean)
            for each in figures
            if each.value is not None
        ),
        run_count=len(point.compared.arms.get(arm, ())),
        lower=shown(min(lowers)) if lowers else None,
        upper=shown(max(uppers)) if uppers else None,
        uncertainty=None if centre is None else uncertainty_of(shown(centre), figures),
    )


def _no_energy(point: ShownPoint) -> str:
    is_excluded = point.energy is not None and not any(
        figure.valid for figures in point.energy.figures.values() for figure in figures
    )
    return no_energy(point.records, point.energy_phase, is_excluded=is_excluded)


def device_bars(point: ShownPoint, scale: Scale) -> Iterator[Bars]:
    """Yield the energies of GPUs and of whole nodes, which are never added to those of drives."""
    for scope, name in OTHER_SCOPES.items():
        marks = {
            arm: [
                Mark(shown, run)
                for run in point.compared.arms.get(arm, ())
                if (shown := _device_energy(point, run.record, scope, scale)) is not None
            ]
            for arm in point.group.arms
        }
        if any(marks.values()):
            bars = tuple(
                Bar(
                    arm=arm,
                    letter=point.letter(arm),
                    value=mean_of_known(mark.value for mark in own),
                    marks=tuple(own),
                    run_count=len(own),
                )
                for arm, own in marks.items()
            )
            per = point.per_work(scale.unit) if point.is_per_work else point.per_amount
            is_doubted = any(has_doubted_meter(record, scope) for record in point.records)
            title = f"{name}{' (not checked)' if is_doubted else ''}, {per}"
            yield Bars(title=title, better="lower", bars=bars)


def _device_energy(
    point: ShownPoint, record: RunRecord, scope: Scope, scale: Scale
) -> float | None:
    """Return a scope's energy per unit of work, in J per GB, or in the unit of an amount."""
    energy_j = scope_energy_j(record, scope, point.energy_phase)
    if energy_j is None:
        return None
    if point.is_per_work:
        return energy_j / (scale.factor * (point.work or Work()).count)
    if point.is_of_amount:
        amount = amount_of(record, point.energy_phase)
        return energy_j / amount * point.amount_factor if amount else None
    moved = moved_bytes(record, point.energy_phase)
    return energy_j / moved * GB if moved else None


def unit_seconds(point: ShownPoint, arm: str, count: float) -> list[float]:
    """Return how long one of ``count`` units of work takes in each run that a mean rate is of.

    A rate of the bytes that moved may be timed within its phases. Its seconds are then these bytes
    divided by it, so that rates, seconds and ratios agree; other figures are of whole phases.
    """
    if point.rate is None:
        return []
    rates = {each.run: each.value for each in point.rate.figures.get(arm, ()) if each.in_mean}
    found = []
    for run in point.compared.arms.get(arm, ()):
        phases = counted_phases(run.record, point.phase, every=("", ALL_PHASES))
        seconds = sum(each.active_s for each in phases)
        moved, rate = sum(each.moved_bytes for each in phases), rates.get(run.id) or 0.0
        if point.rate.quantity.unit is Unit.BYTES_PER_SECOND and counts_bytes(moved, seconds, rate):
            seconds = moved / rate
        if run.id in rates and seconds > 0:
            found.append(seconds / count)
    return found


def counts_bytes(moved: float, seconds: float, rate: float) -> bool:
    """Return whether a rate counts the bytes that moved in these seconds, and no others."""
    return rate > 0 and math.isclose(moved, rate * seconds, rel_tol=_SAME_BYTES)


def moved_bytes(record: RunRecord, phase: str) -> int:
    return sum(each.moved_bytes for each in leading(record) if is_in(each.name, phase))
