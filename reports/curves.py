"""Curves over a swept setting: latency against throughput, and rates against the setting itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import median
from typing import Literal

from wattload.core.histogram import Histogram
from wattload.core.record.latency import least_count
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.load import Run
from wattload.reports.phases import Phase, phases_of
from wattload.reports.points import Point, points
from wattload.reports.quantity import label, out_of_range
from wattload.reports.subject import LETTERS, Group, Subject, lettered

Kind = Literal["read", "write"]
SHARES = {"p50": 0.50, "p99": 0.99}
"""The percentiles that are drawn, each with its share."""

_RATES = (Unit.BYTES_PER_SECOND, Unit.SAMPLES_PER_SECOND)
_COUNTING = (
    "accelerators",
    "depth",
    "devices",
    "pollers",
    "processes",
    "queue_depth",
    "queue_pairs",
    "ranks",
    "targets",
    "threads",
    "workers",
)
"""Settings that count what works side by side: with twice as many, twice the rate is ideal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Latency at one point of a sweep: the value swept, the rate, and percentiles in seconds.

    ``rate_bytes_per_s`` is the bytes of all valid runs ÷ their seconds; percentiles are of their
    histograms merged, ``None`` where too few operations stand for one.
    """

    value: str
    run_count: int
    operation_count: int
    rate_bytes_per_s: float
    percentiles_s: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """One arm's points of latency against throughput, in order of what was swept."""

    letter: str
    name: str
    points: tuple[Loaded, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurves:
    """The curves of one kind of operation in one phase; ``axis`` is what was swept."""

    phase: str
    kind: Kind
    axis: str
    curves: tuple[LoadCurve, ...]


def load_curves(subject: Subject, group: Group) -> tuple[LoadCurves, ...]:
    """Return latency against throughput, where an arm has two points or more with latencies."""
    found = points(group)
    keys = dict.fromkeys(
        (row.phase, row.kind) for run in group.runs for row in run.record.latencies
    )
    made = (_load_curves(subject, found, phase, kind) for phase, kind in keys)
    return tuple(curves for curves in made if curves.curves)


def _load_curves(subject: Subject, found: Sequence[Point], phase: str, kind: Kind) -> LoadCurves:
    curves = []
    for letter, name, arm in _arms(subject):
        loaded = tuple(
            at
            for point in found
            if (at := _loaded(point.value, _valid(subject, point, arm), phase, kind)) is not None
        )
        if len(loaded) > 1:
            curves.append(LoadCurve(letter=letter, name=name, points=loaded))
    return LoadCurves(phase=phase, kind=kind, axis=found[0].axis, curves=tuple(curves))


def _arms(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield each arm's letter, what it is called on the page, and its name."""
    alone = len(subject.arms) == 1
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        yield letter, arm if alone else lettered(letter, arm), arm


def _valid(subject: Subject, point: Point, arm: str) -> list[Run]:
    return [run for run in point.group.arms.get(arm, ()) if not subject.faults(run)]


def _loaded(value: str, runs: Sequence[Run], phase: str, kind: Kind) -> Loaded | None:
    """Return a point's latency and rate over all of its runs that have both.

    ``None`` where there are too few operations for any percentile.
    """
    parts = [part for run in runs if (part := _timed(run.record, phase, kind)) is not None]
    if not parts:
        return None
    whole = reduce(Histogram.merged, (histogram for histogram, _, _ in parts))
    seconds = sum(active_s for _, _, active_s in parts)
    percentiles_s = {name: _percentile_s(whole, share) for name, share in SHARES.items()}
    if all(value is None for value in percentiles_s.values()):
        return None
    return Loaded(
        value=value,
        run_count=len(parts),
        operation_count=whole.count,
        rate_bytes_per_s=sum(moved_bytes for _, moved_bytes, _ in parts) / seconds,
        percentiles_s=percentiles_s,
    )


def _timed(record: RunRecord, phase: str, kind: Kind) -> tuple[Histogram, int, float] | None:
    """Return a run's latencies of one kind in a phase, the bytes of it, and its active seconds."""
    rows = [row for row in record.latencies if (row.phase, row.kind) == (phase, kind)]
    histograms = [row.histogram() for row in rows if row.buckets]
    own = _phase(record, phase)
    if not histograms or own is None or own.active_s <= 0:
        return None
    moved_bytes = own.read_bytes if kind == "read" else own.written_bytes
    return reduce(Histogram.merged, histograms), moved_bytes, own.active_s


def _phase(record: RunRecord, name: str) -> Phase | None:
    return next((phase for phase in phases_of(record) if phase.name == name), None)


def _percentile_s(whole: Histogram, share: float) -> float | None:
    value_ns = whole.quantile_ns(share)
    if value_ns is None or whole.count < least_count(share):
        return None
    return value_ns / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rate at one point of a sweep: where on the axis, the median, and each valid run's."""

    number: float
    rates: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median of the runs."""
        return median(self.rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCurve:
    """One arm's rate over a numeric axis, in order of the axis."""

    letter: str
    name: str
    places: tuple[Place, ...]

    def ideal(self, number: float) -> float:
        """Return the rate at ``number`` if it grew in proportion from the first place on."""
        first = self.places[0]
        return first.middle * number / first.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One rate of all arms over what was swept.

    ``is_count`` says that the axis counts what works side by side, so that growth in proportion is
    ideal; of a size or a state it is not.
    """

    axis: str
    label: str
    unit: Unit
    is_count: bool
    curves: tuple[ScaleCurve, ...]


def scalings(subject: Subject, group: Group) -> tuple[Scaling, ...]:
    """Return each headline rate, and operations per second, over a numeric axis of two or more.

    Empty for a group that was not swept, or not over numbers.
    """
    axis, found = _numbered(points(group))
    if len(found) < 2:  # noqa: PLR2004 - a line needs two points
        return ()
    made = []
    for name, unit, rate in _rates(group):
        curves = tuple(_scale_curves(subject, found, rate))
        if curves:
            is_count = axis.rpartition(".")[2] in _COUNTING
            made.append(Scaling(axis=axis, label=name, unit=unit, is_count=is_count, curves=curves))
    return tuple(made)


def _numbered(found: Sequence[Point]) -> tuple[str, list[tuple[float, Point]]]:
    """Return the axis and the points along it; paths are told apart by how many there are."""
    numbers = [point.number for point in found]
    axis = found[0].axis
    if axis == "path":
        axis = "targets"
        numbers = [_target_count(point) for point in found]
    known = [
        (number, point)
        for number, point in zip(numbers, found, strict=True)
        if number is not None and number > 0 and not out_of_range(number)
    ]
    if len(known) < len(found) or len({number for number, _ in known}) < len(found):
        return axis, []
    return axis, sorted(known, key=lambda pair: pair[0])


def _target_count(point: Point) -> float | None:
    counts = {len(run.record.targets) for run in point.group.runs}
    return float(counts.pop()) if len(counts) == 1 else None


Rate = Callable[[RunRecord], float | None]


def _rates(group: Group) -> list[tuple[str, Unit, Rate]]:
    """Return the rates that the group's runs have: what each is called, and how it is read."""
    found: dict[tuple[str, ...], tuple[str, Unit, Rate]] = {}
    for run in group.runs:
        for metric in run.record.metrics:
            if metric.headline and metric.unit in _RATES and metric.better == "higher":
                name = label(metric.name, metric.unit)
                found[(metric.name,)] = (name, metric.unit, _metric(metric.name))
        for row in run.record.latencies:
            name = f"{row.phase}: {row.kind} operations per second (IOPS)"
            rate = _operations(row.phase, row.kind)
            found[row.phase, row.kind] = (name, Unit.SAMPLES_PER_SECOND, rate)
    return list(found.values())


def _metric(name: str) -> Rate:
    def value(record: RunRecord) -> float | None:
        found = next((metric.value for metric in record.metrics if metric.name == name), None)
        return None if out_of_range(found) else found

    return value


def _operations(phase: str, kind: Kind) -> Rate:
    def value(record: RunRecord) -> float | None:
        found = _timed(record, phase, kind)
        return found[0].count / found[2] if found is not None else None

    return value


def _scale_curves(
    subject: Subject, found: Sequence[tuple[float, Point]], rate: Rate
) -> Iterator[ScaleCurve]:
    for letter, name, arm in _arms(subject):
        places = []
        for number, point in found:
            values = (rate(run.record) for run in _valid(subject, point, arm))
            rates = tuple(value for value in values if value is not None)
            if rates:
                places.append(Place(number=number, rates=rates))
        if len(places) > 1:
            yield ScaleCurve(letter=letter, name=name, places=tuple(places))
