"""The points of a sweep, and curves over them.

Points are defined by the settings that vary within an arm. Curves are latency against throughput,
and rates against the swept setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import fmean
from typing import Any

from wattload.core.histogram import Histogram
from wattload.core.record.results import SHARES, Better, LatencyKind, percentile_s
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.runs.energy import phase_energies
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, parents, phases_of, timed_parts
from wattload.reports.stats.conditions import compared_group, failed_operations
from wattload.reports.stats.subject import (
    LETTERS,
    LOAD,
    NO_LOAD,
    NOT_SET,
    Group,
    Subject,
    facts_of,
    lettered,
)
from wattload.results.identity_cache import cache_by_identity
from wattload.results.labels import label
from wattload.results.quantity import block_text, listed, out_of_range, quantity
from wattload.results.reading import asked, view_named, view_of
from wattload.results.view import Sweep, mean_of_known

Kind = LatencyKind
PERCENTILES = {"p50": SHARES["p50_s"], "p99": SHARES["p99_s"], "p99.9": SHARES["p999_s"]}
"""The percentiles that are drawn, each with its share."""

_RATES = (Unit.BYTES_PER_SECOND, Unit.SAMPLES_PER_SECOND)
_RATE_LIMIT = "_bytes_per_s"
"""The end of a setting that limits the rate: latency is drawn over the rate, which is no result."""

_PATH, _TARGETS = "target.path", "targets"
_UNLIMITED = "unlimited"

Rate = Callable[[RunRecord], float | None]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep: the value of the swept setting, and the runs made there.

    ``axis`` is the last part of the swept key, or several joined by a comma; it is empty without a
    sweep. ``number`` is ``value`` as a finite number, or ``None``. ``settings`` are the names of
    all swept settings and their values as recorded.
    """

    axis: str
    value: str
    number: float | None
    group: Group
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        """The point in words: ``depth = 8``, or of several settings ``4 KiB blocks, 8 threads``."""
        if len(self.settings) > 1:
            return settings_text(self.group.workload, self.settings)
        return f"{self.axis} = {self.value}"


@dataclass(frozen=True, slots=True)
class Panel:
    """The points of a sweep along one setting, at fixed values of the others.

    ``name`` has these values in words, ``at`` their names and values; both are empty for a sweep of
    one setting.
    """

    name: str
    at: tuple[tuple[str, str], ...]
    points: tuple[Point, ...]


@cache_by_identity
def points(group: Group) -> tuple[Point, ...]:
    """Return a group's runs by the settings that vary within an arm, in order of their values.

    A setting that only differs between arms is not an axis. Of settings that vary together, such as
    those of a scale, the one named in a command is used.
    """
    keys = axes(group)
    if not keys:
        return (Point("", "", None, group),)
    counts = _target_counts(group) if _PATH in keys else {}

    def place(run: Run) -> tuple[str, ...]:
        values = setting_values(run.record, keys)
        return tuple(
            counts.get(value, value) if key == _PATH else value
            for key, value in zip(keys, values, strict=True)
        )

    members: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for arm, runs in group.arms.items():
        for run in runs:
            members.setdefault(place(run), {}).setdefault(arm, []).append(run)
    names = axis_names([_TARGETS if key == _PATH and counts else key for key in keys])
    return tuple(
        Point(
            axis=", ".join(names),
            value=", ".join(map(_shown, keys, at)),
            number=_number(at[0]) if len(at) == 1 else None,
            settings=tuple(zip(names, at, strict=True)),
            group=Group(
                workload=group.workload,
                arms={arm: tuple(of_arm[arm]) for arm in group.arms if arm in of_arm},
                page=group.page or tuple(group.arms),
                ceilings={
                    name: own
                    for name, runs in group.ceilings.items()
                    if (own := tuple(run for run in runs if place(run) == at))
                },
            ),
        )
        for at, of_arm in _in_order(members)
    )


@cache_by_identity
def panels(group: Group) -> tuple[Panel, ...]:
    """Return the points of a sweep by panel: along one setting at each combination of the others.

    The points of a panel lie along the setting that counts parallel workers, or else along the one
    with the most numbers. A sweep without a setting of two numbers is a single panel.
    """
    found = points(group)
    names = [name for name, _ in found[0].settings]
    parallel = view_named(group.workload).parallel
    along = _along(found, names, parallel) if len(names) > 1 else ""
    if not along:
        return (Panel("", (), found),)
    rest = sorted((name for name in names if name != along), key=lambda name: name == LOAD)
    has_load = LOAD in rest
    members: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in found:
        own = dict(point.settings)
        at = tuple((name, own[name]) for name in rest)
        moved = replace(point, axis=along, value=own[along], number=_number(own[along]))
        members.setdefault(at, []).append(moved)
    # Loads are rows of panels, the other settings columns.
    ordered = sorted(
        members.items(),
        key=lambda each: (
            [_rank(value) for _, value in (*each[0][-1:], *each[0][:-1])]
            if has_load
            else [_rank(value) for _, value in each[0]]
        ),
    )
    return tuple(
        Panel(
            settings_text(group.workload, at),
            at,
            tuple(sorted(own, key=lambda point: point.number or 0.0)),
        )
        for at, own in ordered
    )


def _along(found: Sequence[Point], names: Sequence[str], parallel: Collection[str]) -> str:
    """Return the setting along which the points of panels lie; empty without numbers."""
    values = {
        name: {dict(point.settings)[name] for point in found}
        for name in names
        if all(_number(dict(point.settings)[name]) is not None for point in found)
    }
    numeric = [name for name in names if name in values]
    counting = [name for name in numeric if name.rpartition(".")[2] in parallel]
    return max(counting or numeric, key=lambda name: len(values[name]), default="")


def _rank(value: str) -> tuple[bool, float, str]:
    """Return what values are ordered by: numbers by size, then ``none``, then other words."""
    known = _number(value)
    return known is None, known or 0.0, "" if value == NO_LOAD else value


def settings_text(workload: str, settings: Sequence[tuple[str, str]]) -> str:
    """Return swept settings with their values, such as ``4 KiB blocks, 8 threads``."""
    return ", ".join(_setting_text(workload, *each) for each in settings)


def _setting_text(workload: str, name: str, value: str) -> str:
    """Return a swept setting with its value: ``4 KiB blocks``, ``idle host`` or ``8 workers``."""
    number = _number(value)
    if name == LOAD:
        return {NO_LOAD: "idle host", "busy": "busy host"}.get(value, f"load {value}")
    if name.endswith("block_bytes") and number is not None:
        return f"{block_text(number)} blocks"
    if name.rpartition(".")[2] in view_named(workload).parallel and number is not None:
        words = label(name)
        return f"{value} {words.removesuffix('s') if number == 1 else words}"
    return f"{label(name)} {value}"


def point_text(point: Point) -> str:
    """Return the swept value in words, with the drives where targets share one."""
    if not point.axis:
        return ""
    sweep = view_named(point.group.workload).sweep
    if sweep is not None and point.axis == _TARGETS and (shared := _shared(point.group, sweep)):
        return listed(shared)
    return _setting_text(point.group.workload, point.axis, point.value)


def _shared(group: Group, sweep: Sweep[Any]) -> list[str]:
    """Return which targets share drives, in words."""
    return [
        *dict.fromkeys(filter(None, (asked(run.record, sweep.shared, "") for run in group.runs)))
    ]


def setting_values(record: RunRecord, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the values of a run's settings, by their keys."""
    if not keys:
        return ()
    facts = facts_of(record)
    return tuple(facts.get(key, NOT_SET) for key in keys)


@cache_by_identity
def axes(group: Group) -> tuple[str, ...]:
    """Return the keys that split the arms' runs, without redundant ones."""
    facts = {run.id: facts_of(run.record) for run in group.runs}
    parts: dict[str, tuple[str, ...]] = {
        run.id: (arm,) for arm, runs in group.arms.items() for run in runs
    }
    found = []
    for key in _varying(group, facts):
        finer = {name: (*part, facts[name].get(key, NOT_SET)) for name, part in parts.items()}
        if len(set(finer.values())) > len(set(parts.values())):
            parts = finer
            found.append(key)
    return tuple(found)


def _varying(group: Group, facts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the keys with two values or more within an arm, those named in commands first.

    A run that lacks a key, such as an older record, does not make it vary.
    """
    found: dict[str, None] = {}
    for runs in group.arms.values():
        values: dict[str, set[str]] = {}
        for run in runs:
            for key, value in facts[run.id].items():
                values.setdefault(key, set()).add(value)
        found.update(dict.fromkeys(key for key, seen in values.items() if len(seen) > 1))
    named = {key for run in group.runs for key in _command_keys(run.record.command)}
    return sorted(found, key=lambda key: not (key in named or key.removesuffix(".name") in named))


def _command_keys(command: Sequence[str]) -> Iterator[str]:
    for word in command:
        key, equals, _ = word.partition("=")
        if equals:
            yield key.lstrip("+")


def axis_names(keys: Sequence[str]) -> list[str]:
    """Return each key's last part, or the whole key if two last parts are equal.

    A choice from a configuration group, such as ``scale.name``, is named by the group.
    """
    short = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    return [name if short.count(name) == 1 else key for name, key in zip(short, keys, strict=True)]


def _shown(key: str, text: str) -> str:
    """Return a value as printed: a limit of the rate has a unit."""
    if not key.endswith(_RATE_LIMIT):
        return text
    value = _number(text)
    return _UNLIMITED if value is None else quantity(value, Unit.BYTES_PER_SECOND, 3)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _in_order(
    members: Mapping[tuple[str, ...], dict[str, list[Run]]],
) -> list[tuple[tuple[str, ...], dict[str, list[Run]]]]:
    """Return the points by value: numbers by size, then texts in their order."""
    seen = list(members)

    def rank(entry: tuple[tuple[str, ...], object]) -> list[tuple[bool, float]]:
        keys = []
        for index, text in enumerate(entry[0]):
            value = _number(text)
            texts = list(dict.fromkeys(at[index] for at in seen))
            keys.append((value is None, float(texts.index(text)) if value is None else value))
        return keys

    return sorted(members.items(), key=rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """Latency at one point of a sweep: the value swept, the rate, and percentiles in seconds.

    ``rate`` is the bytes of all valid runs ÷ their seconds, or the geometric mean of a workload's
    own rate, if its sweep has one. Mean and percentiles are of the merged histograms, ``None`` if
    there are too few operations; a program without histograms gives a mean alone, which is then
    the mean of its runs. ``has_failures`` is whether reads failed in a run.
    """

    value: str
    run_count: int
    operation_count: int | None
    rate: float
    percentiles_s: Mapping[str, float | None]
    mean_s: float
    has_failures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """One arm's points of latency against throughput, in order of the swept values."""

    letter: str
    name: str
    points: tuple[LoadPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurves:
    """The curves of one kind of operation in one phase and panel; ``axis`` is the swept setting.

    ``unit`` is that of the rates.
    """

    phase: str
    kind: Kind
    axis: str
    unit: Unit
    curves: tuple[LoadCurve, ...]
    panel: Panel

    @property
    def is_of_bytes(self) -> bool:
        return self.unit is Unit.BYTES_PER_SECOND

    @property
    def has_lines(self) -> bool:
        """Whether lines connect the points: those of words, or of true and false, have no order.

        A limit of the rate may be missing at the end.
        """
        found = self.panel.points
        return all(each.number is not None or each.value == _UNLIMITED for each in found)

    @property
    def rate_name(self) -> str:
        return "throughput" if self.is_of_bytes else "IOPS"

    @property
    def basis(self) -> str:
        """What a point is of its runs, as the caption of a table."""
        rate = "all bytes ÷ all seconds" if self.is_of_bytes else "the geometric mean of the rates"
        return f"Every point: {rate} of its runs; their histograms merged"


def load_curves(subject: Subject, group: Group) -> tuple[LoadCurves, ...]:
    """Return latency against throughput for arms with two or more points with latencies.

    Of a phase with a steady state only that is drawn, if every run has one.
    """
    keys: dict[tuple[str, Kind], None] = dict.fromkeys(
        (row.phase, row.kind) for run in group.runs for row in run.record.latencies
    )
    means = (asked(run.record, view_of(run.record).mean_latency, None) for run in group.runs)
    keys |= {(phase, "read"): None for phase, _ in filter(None, means)}
    judged = [
        {parents(run.record)[part.name] for part in timed_parts(run.record)} for run in group.runs
    ]
    wholes = set.intersection(*judged) if judged else set()
    keys = {(phase, kind): None for phase, kind in keys if phase not in wholes}
    made = (
        _load_curves(subject, panel, phase, kind) for phase, kind in keys for panel in panels(group)
    )
    return tuple(curves for curves in made if curves.curves)


def _load_curves(subject: Subject, panel: Panel, phase: str, kind: Kind) -> LoadCurves:
    curves, found = [], panel.points
    sweep = view_named(found[0].group.workload).sweep
    for letter, name, arm in _arms(subject):
        loaded = []
        for point in found:
            runs = _valid(subject, point, arm)
            at = _load_point(point.value, runs, phase, kind)
            if at is not None and sweep is not None:
                counted = mean_of_known(asked(run.record, sweep.rate, None) for run in runs)
                at = None if counted is None else replace(at, rate=counted)
            if at is not None:
                loaded.append(at)
        if len(loaded) > 1:
            curves.append(LoadCurve(letter=letter, name=name, points=tuple(loaded)))
    return LoadCurves(
        phase=phase,
        kind=kind,
        axis=found[0].axis,
        unit=Unit.BYTES_PER_SECOND if sweep is None else Unit.SAMPLES_PER_SECOND,
        curves=tuple(curves),
        panel=panel,
    )


def _arms(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield each arm's letter, its title on the page, and its name."""
    alone = len(subject.arms) == 1
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        yield letter, arm if alone else lettered(letter, arm), arm


def _valid(subject: Subject, point: Point, arm: str) -> list[Run]:
    return [run for run in point.group.arms.get(arm, ()) if not subject.faults(run)]


def _load_point(value: str, runs: Sequence[Run], phase: str, kind: Kind) -> LoadPoint | None:
    """Return a point's latency and rate over all of its runs that have both.

    ``None`` if there are too few operations for any percentile, and there is no mean, or if no byte
    was moved.
    """
    parts = [part for run in runs if (part := _timed(run.record, phase, kind)) is not None]
    has_failures = any(failed_operations(run.record) for run in runs)
    if not parts:
        return _mean_point(value, runs, phase, has_failures=has_failures)
    whole = reduce(Histogram.merged, (histogram for histogram, _, _ in parts))
    seconds = sum(active_s for _, _, active_s in parts)
    percentiles_s = {name: percentile_s(whole, share) for name, share in PERCENTILES.items()}
    moved_bytes = sum(moved for _, moved, _ in parts)
    if all(value is None for value in percentiles_s.values()) or not moved_bytes:
        return None
    return LoadPoint(
        value=value,
        run_count=len(parts),
        operation_count=whole.count,
        rate=moved_bytes / seconds,
        percentiles_s=percentiles_s,
        mean_s=(whole.mean_ns or 0.0) / NS_PER_S,
        has_failures=has_failures,
    )


def _mean_point(
    value: str, runs: Sequence[Run], phase: str, *, has_failures: bool
) -> LoadPoint | None:
    """Return a point of a program that reports a mean latency only."""
    known = [
        (mean[1], own)
        for run in runs
        if (mean := asked(run.record, view_of(run.record).mean_latency, None)) is not None
        and mean[0] == phase
        and not out_of_range(mean[1])
        and (own := _phase(run.record, phase)) is not None
        and own.active_s > 0
    ]
    moved_bytes = sum(own.read_bytes for _, own in known)
    if not moved_bytes:
        return None
    return LoadPoint(
        value=value,
        run_count=len(known),
        operation_count=None,
        rate=moved_bytes / sum(own.active_s for _, own in known),
        percentiles_s=dict.fromkeys(PERCENTILES),
        mean_s=fmean(mean_s for mean_s, _ in known),
        has_failures=has_failures,
    )


def _timed(record: RunRecord, phase: str, kind: Kind) -> tuple[Histogram, int, float] | None:
    """Return a run's latencies of one kind in a phase, the bytes of it, and its active seconds."""
    rows = [row for row in record.latencies if (row.phase, row.kind) == (phase, kind)]
    histograms = [row.histogram() for row in rows]
    own = _phase(record, phase)
    if not histograms or own is None or own.active_s <= 0:
        return None
    moved_bytes = own.written_bytes if kind == "write" else own.read_bytes
    return reduce(Histogram.merged, histograms), moved_bytes, own.active_s


def _phase(record: RunRecord, name: str) -> Phase | None:
    return next((phase for phase in phases_of(record) if phase.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """A rate at one point of a sweep: the position on the axis, and the rates of valid runs."""

    number: float
    rates: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean_of_known(self.rates) or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCurve:
    """One arm's rate over a numeric axis, in order of the axis.

    ``peak`` is the best rate of a single drive at any point of the sweep, where the axis counts
    drives; ``None`` otherwise.
    """

    letter: str
    name: str
    points: tuple[RatePoint, ...]
    peak: float | None = None

    def ideal(self, number: float) -> float:
        """Return the rate at ``number`` if it were proportional to the peak, or the first point."""
        first = self.points[0]
        return (first.mean / first.number if self.peak is None else self.peak) * number


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One rate of all arms over the swept setting.

    ``is_count`` is whether the axis counts parallel workers, so that proportional growth is ideal;
    for a size or a state it is not. ``better`` is the direction of the rate. ``ceilings`` are the
    positions on the axis, and what bounds the rate there, which is ``ceiling_text``; empty where
    unknown.
    ``watts`` are the mean power of the drives of the arms that have it. ``note`` is why a count
    has no ideal, as a sentence; empty otherwise.
    """

    axis: str
    label: str
    unit: Unit
    is_count: bool
    curves: tuple[ScaleCurve, ...]
    panel: Panel
    better: Better = "higher"
    ceilings: tuple[tuple[float, float], ...] = ()
    ceiling_text: str = ""
    watts: tuple[ScaleCurve, ...] = ()
    note: str = ""
    bounds: tuple[ScaleCurve, ...] = ()


def scalings(subject: Subject, group: Group) -> tuple[Scaling, ...]:
    """Return each headline rate, and operations per second, over a numeric axis of two or more.

    A workload whose rate counts operations also has the mean power of its drives, and its ceiling.
    Empty for a group without a sweep over numbers, and for one over a limit of the rate.
    """
    found = [
        scaling
        for name, unit, rate in _rates(group)
        for panel in panels(group)
        if (scaling := _scaling(subject, panel, (name, unit, rate))) is not None
    ]
    sweep = view_named(group.workload).sweep
    if sweep is None:
        return tuple(found)
    return tuple(_compared(subject, group, sweep, each) for each in found)


def _compared(subject: Subject, group: Group, sweep: Sweep[Any], scaling: Scaling) -> Scaling:
    """Return a scaling of operations with its ceilings and watts, and an ideal where it is one.

    The ideal over targets is that of the best single drive; targets on one drive are no drives.
    """
    name = scaling.axis.rpartition(".")[2]
    shared = _shared(group, sweep)
    note = f"No ideal scaling: {listed(shared)}." if shared and name == _TARGETS else ""
    curves = scaling.curves
    if name == _TARGETS and not note:
        curves = tuple(
            replace(curve, peak=_peak(subject, group, sweep, curve.letter)) for curve in curves
        )
    _, found = _numbered(scaling.panel.points)
    ceilings = [
        (number, mean_of_known(asked(run.record, sweep.ceiling, None) for run in runs))
        for number, point in found
        for runs in [[run for run in point.group.runs if not subject.faults(run)]]
    ]
    return replace(
        scaling,
        is_count=scaling.is_count and not note and name not in sweep.not_workers,
        note=note,
        curves=curves,
        ceilings=tuple((number, each) for number, each in ceilings if each),
        ceiling_text=sweep.ceiling_text,
        watts=tuple(_scale_curves(subject, found, _mean_watts)),
    )


def _peak(subject: Subject, group: Group, sweep: Sweep[Any], letter: str) -> float | None:
    """Return the best rate of one drive in an arm, of the points with one target if there are any.

    Otherwise it is the best rate per target.
    """
    arm = next(own for found, _, own in _arms(subject) if found == letter)
    rates: dict[int, list[float]] = {}
    for point in points(group):
        known: dict[int, list[float]] = {}
        for run in _valid(subject, point, arm):
            rate = asked(run.record, sweep.rate, None)
            count = asked(run.record, sweep.targets, None)
            if rate is not None and count:
                known.setdefault(count, []).append(rate)
        for count, own in known.items():
            rates.setdefault(count, []).append((mean_of_known(own) or 0.0) / count)
    return max(rates.get(1) or [rate for own in rates.values() for rate in own], default=None)


def _mean_watts(record: RunRecord) -> float | None:
    """Return the mean power of the drives in the timed phase, if it is known as one figure."""
    found = phase_energies(record)
    return found[0].mean_w if found and found[0].illustrates else None


def _scaling(subject: Subject, panel: Panel, of: tuple[str, Unit, Rate]) -> Scaling | None:
    """Return a rate along a panel's setting; ``None`` without two numbers, or over a limit."""
    name, unit, rate = of
    axis, found = _numbered(panel.points)
    if len(found) < 2 or axis.endswith(_RATE_LIMIT):  # noqa: PLR2004 - a line needs two points
        return None
    curves = tuple(_scale_curves(subject, found, rate))
    if not curves:
        return None
    is_count = axis.rpartition(".")[2] in view_named(found[0][1].group.workload).parallel
    return Scaling(
        axis=axis,
        label=name,
        unit=unit,
        is_count=is_count,
        curves=curves,
        panel=panel,
        bounds=tuple(_bounds(subject, found, rate)),
    )


def _numbered(found: Sequence[Point]) -> tuple[str, list[tuple[float, Point]]]:
    axis = found[0].axis
    known = [
        (point.number, point)
        for point in found
        if point.number is not None and point.number > 0 and not out_of_range(point.number)
    ]
    if len(known) < len(found) or len({number for number, _ in known}) < len(found):
        return axis, []
    return axis, sorted(known, key=lambda pair: pair[0])


def _target_counts(group: Group) -> Mapping[str, str]:
    """Return how many targets each list of paths has; empty unless the lists differ in that."""
    counts: dict[str, set[int]] = {}
    for run in group.runs:
        (path,) = setting_values(run.record, (_PATH,))
        counts.setdefault(path, set()).add(len(run.record.targets))
    single = {path: own.pop() for path, own in counts.items() if len(own) == 1}
    is_told_apart = len(set(single.values())) == len(counts) > 1
    return {path: str(count) for path, count in single.items()} if is_told_apart else {}


def _rates(group: Group) -> list[tuple[str, Unit, Rate]]:
    """Return the rates that the group's runs have: the name of each, and how to read it."""
    found: dict[tuple[str, ...], tuple[str, Unit, Rate]] = {}
    for run in group.runs:
        for metric in run.record.metrics:
            if metric.headline and metric.unit in _RATES and metric.better == "higher":
                name = label(metric.name, metric.unit)
                found[(metric.name,)] = (name, metric.unit, _metric(metric.name))
        if view_named(group.workload).sweep is not None:
            continue  # its rate is that of the reads, and requests are a sample
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
        of_arm = [(number, _valid(subject, point, arm)) for number, point in found]
        if len(measured := _rate_points(of_arm, rate)) > 1:
            yield ScaleCurve(letter=letter, name=name, points=measured)


def _bounds(
    subject: Subject, found: Sequence[tuple[float, Point]], rate: Rate
) -> Iterator[ScaleCurve]:
    """Yield what bounds a rate over a setting: the same work without storage."""
    valid = [(number, compared_group(subject, point.group).ceilings) for number, point in found]
    for name in dict.fromkeys(name for _, own in valid for name in own):
        if measured := _rate_points([(number, own.get(name, ())) for number, own in valid], rate):
            yield ScaleCurve(letter="", name=name, points=measured)


def _rate_points(found: Sequence[tuple[float, Sequence[Run]]], rate: Rate) -> tuple[RatePoint, ...]:
    """Return the rates of runs at each number; a number without any is left out."""
    known = [
        (number, tuple(each for run in runs if (each := rate(run.record)) is not None))
        for number, runs in found
    ]
    return tuple(RatePoint(number=number, rates=rates) for number, rates in known if rates)
