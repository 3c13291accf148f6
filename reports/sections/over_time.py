"""What is drawn over time of a workload: its leading figure first, then one run of each arm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Figure, FigureRow
from wattload.reports.charts.sweeps import rates_figure
from wattload.reports.charts.timeline import power_figure, rate_figure
from wattload.reports.charts.tracks import Track, has_power, make_track
from wattload.reports.charts.units import (
    BINS_MAX,
    BINS_MIN,
    RunsTrack,
    UnitTrack,
    runs_figure,
    unit_figure,
)
from wattload.reports.runs.energy import ALL_PHASES, REPLAYED, phase_energies, whole_energy
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, counted_phases, leading
from wattload.reports.runs.timeline import Array, ends_of_spans, rates_within, units_of
from wattload.reports.sections.shapes import over_time_figures
from wattload.reports.stats.bars import (
    Bar,
    Bars,
    ShownPoint,
    Work,
    counts_bytes,
    rate_bars,
    scale_of_rates,
    shown_point,
    unit_seconds,
    work_of_all,
)
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.conditions import has_excluded_energy
from wattload.reports.stats.effects import mean_log
from wattload.reports.stats.figures import FOR_WORK, IN_WINDOW
from wattload.reports.stats.subject import LETTERS, Group, Subject
from wattload.reports.stats.summary import rate_scale
from wattload.reports.stats.sweeps import Scaling, points, scalings
from wattload.results.labels import workload_title
from wattload.results.quantity import UNIT_SPACE, listed, number, one_unit, quantity
from wattload.results.reading import view_named

OWN = "own"
"""Charts that a workload has in place of its rate over time."""

Drawn = TypeVar("Drawn", RunsTrack, UnitTrack, Bar, Track)

_LISTED_MAX = 3
"""The most arms whose figures are in a title."""


def representative_run(subject: Subject, runs: Sequence[Run]) -> Run | None:
    """Return the valid run of median rate, the lower of two; ``None`` where no run is valid.

    Where the energy of some runs is excluded, it is one of the others.
    """
    valid = [run for run in runs if not subject.faults(run)]
    counting = [run for run in valid if not has_excluded_energy(subject, run)]
    ranked = sorted(counting or valid, key=_rate)
    return ranked[(len(ranked) - 1) // 2] if ranked else None


def _rate(run: Run) -> tuple[float, str]:
    """Return the rate over all leading phases, total bytes ÷ total seconds, and the id for ties."""
    phases = leading(run.record)
    seconds = sum(phase.active_s for phase in phases)
    moved_bytes = sum(phase.moved_bytes for phase in phases)
    return (moved_bytes / seconds if seconds > 0 else 0.0), run.id


def tracks_of(subject: Subject, group: Group) -> list[Track]:
    """Return the representative run of each arm, at the last point where all have one."""
    if len(group.arms) > len(LETTERS):
        return []
    best: list[Track] = []
    for point in reversed(points(group)):
        tracks = [
            make_track(letter, arm, run)
            for letter, arm in zip(group.letters, group.arms, strict=False)
            if (run := representative_run(subject, point.group.arms.get(arm, ()))) is not None
        ]
        if len(tracks) > len(best):
            best = tracks
        if len(best) == len(group.arms):
            break
    return best


def drawn_first(subject: Subject) -> tuple[str, str]:
    """Return what the first screen draws: a workload, and its power or, without any, its rate.

    A workload alone on the page that has charts of its own over time shows these, even with power.
    """
    tracks = {group.workload: tracks_of(subject, group) for group in subject.groups}
    own = {
        group.workload
        for group in subject.groups
        if over_time_figures(subject, group, "first", "", tracks[group.workload])
    }
    if list(tracks) == [*own]:
        return next(iter(own)), OWN
    with_power = (name for name, own in tracks.items() if any(map(has_power, own)))
    with_rate = (name for name, own in tracks.items() if any(each.timeline.rates for each in own))
    if workload := next(with_power, ""):
        return workload, "power"
    workload = next(with_rate, subject.groups[0].workload if subject.groups else "")
    if workload in own:
        return workload, OWN
    # A rate of bytes over time would contradict a page that leads with another figure.
    group = next((group for group in subject.groups if group.workload == workload), None)
    row = shown_point(subject, group).rate if group is not None else None
    is_of_bytes = row is None or row.quantity.unit is Unit.BYTES_PER_SECOND
    is_swept = group is not None and swept_rate(subject, group) is not None
    return workload, "rate" if is_of_bytes and not is_swept else ""


def with_choice(
    figure: Figure | None,
    subject: Subject,
    group: Group,
    tracks: Sequence[Track],
    *,
    is_first: bool = False,
) -> Figure | None:
    """Return a chart of one run of each arm; the first one's caption states which one it is.

    Args:
        figure: the chart, if there is one.
        subject: that of the page.
        group: the runs that one of each arm was taken from.
        tracks: those of the chart.
        is_first: whether it is the page's first chart over time, which speaks for the others.
    """
    if figure is None:
        return None
    parts = [figure.caption]
    excluded = [track.letter for track in tracks if has_excluded_energy(subject, track.run)]
    if is_first and any(len(runs) > 1 for runs in group.arms.values()):
        is_narrowed = not excluded and any(has_excluded_energy(subject, r) for r in group.runs)
        among = " among those whose energy counts" if is_narrowed else ""
        parts.append(f"Here and below, each line is its arm's run of median rate{among}.")
    if excluded:
        of = f" of {listed(excluded)}" if len(group.arms) > 1 else ""
        parts.append(f"The energy{of} is excluded.")
    return replace(figure, caption=" ".join(parts))


def _with_source(figure: Figure | None, tracks: Sequence[Track]) -> Figure | None:
    """Return a chart of power with a caption that says where its energies come from."""
    if figure is None or not any(track.timeline.watts for track in tracks):
        return figure
    caption = f"{figure.caption} Watts and energies are of one run's timed phases, in the window."
    return replace(figure, caption=caption)


def first_charts(subject: Subject) -> Block | None:
    """Return the page's first charts: the figure that it leads with, and a whole run over time."""
    workload, what = drawn_first(subject)
    group = next((group for group in subject.groups if group.workload == workload), None)
    if group is None:
        return None
    with one_unit(Unit.BYTES_PER_SECOND, rate_scale(subject, group)):
        figures = [_leading_figure(subject, group) if what != OWN else None]
        is_whole = what == "rate" and _unit(subject, shown_point(subject, group)) is None
        if figures[0] is None or not is_whole:
            figures += _whole_run(subject, group, what)
    drawn = [figure for figure in figures if figure is not None]
    if len(drawn) > 1:
        return FigureRow(drawn)
    return drawn[0] if drawn else None


def _whole_run(subject: Subject, group: Group, what: str) -> Sequence[Figure | None]:
    """Return what one run of each arm did over time: its power, its rate, or charts of its own."""
    title, tracks = workload_title(group.workload), tracks_of(subject, group)
    if what == "power":
        lines = [line for track in tracks for line in track.timeline.watts]
        is_replayed = any(line.evidence == REPLAYED for line in lines)
        name = f"Power during {title}{_mean_watts(tracks)}" + f", {REPLAYED}" * is_replayed
        figure = _with_source(power_figure("first-power", name, tracks), tracks)
        return [with_choice(figure, subject, group, tracks, is_first=True)]
    if what == "rate":
        times = _listed(tracks, lambda track: quantity(track.active_s, Unit.SECONDS, 3))
        figure = rate_figure("first-rate", f"Rate during {title}: {times} in all", tracks)
        return [with_choice(figure, subject, group, tracks, is_first=True)]
    if what == OWN:
        first, *others = over_time_figures(subject, group, "first-rate", title, tracks)
        chosen = with_choice(first, subject, group, tracks, is_first=True)
        return [chosen or first, *others]
    return []


def _mean_watts(tracks: Sequence[Track]) -> str:
    """Return the mean power in the timed phases of the runs that are drawn; empty if unknown."""
    found = []
    for track in tracks:
        energies = phase_energies(track.run.record)
        whole = whole_energy(track.run.record) or (energies[0] if len(energies) == 1 else None)
        if whole is None or whole.mean_w is None:
            return ""
        found.append((track.letter, quantity(whole.mean_w, Unit.WATTS, 3)))
    return f": {_lettered(found)}"


def _leading_figure(subject: Subject, group: Group) -> Figure | None:
    """Return a chart of the figure that the page leads with; ``None`` without one to draw.

    Of a sweep over numbers it is the figure over the setting; of a rate of bytes one unit of work,
    and of other figures each run.
    """
    point = shown_point(subject, group)
    if point.rate is None or len(group.arms) > len(LETTERS):
        return None
    bars, title = rate_bars(point, scale_of_rates(point)), workload_title(group.workload)
    if (swept := swept_rate(subject, group)) is not None:
        means = _listed([bar for bar in bars.bars if bar.value is not None], lambda bar: bar.text)
        at = point.at.removeprefix("shown: ").partition(",")[0]
        figure = rates_figure("first-sweep", title, [swept])
        return replace(figure, title=f"{title}: {means} {bars.title} at {at}")
    if point.rate.quantity.unit is Unit.BYTES_PER_SECOND:
        return _unit_figure(subject, point, point.rate, bars, title)
    if any(len(bar.marks) > 1 for bar in bars.bars):
        return _runs_figure(point, point.rate, bars, title)
    return None


def swept_rate(subject: Subject, group: Group) -> Scaling | None:
    """Return the figure that a page leads with over its only swept setting, if that is a number."""
    row = shown_point(subject, group).rate
    found = [
        each
        for each in scalings(subject, group)
        if row is not None and each.label == row.quantity.label
    ]
    return found[0] if len(found) == 1 else None


def _runs_figure(point: ShownPoint, row: Row, bars: Bars, title: str) -> Figure:
    """Return a figure run by run, in the order in which the runs of all arms started."""
    every = sorted(point.compared.runs, key=lambda run: (run.record.started_utc, run.id))
    places = {run.id: place for place, run in enumerate(every, 1)}
    tracks = []
    for bar in bars.bars:
        figures = row.figures.get(bar.arm, ())
        valid = [each for each in figures if each.valid and each.value is not None]
        own = zip((places[each.run] for each in valid), bar.marks, strict=True)
        pairs = sorted((place, mark.value) for place, mark in own)
        if bar.value is not None and pairs:
            numbers, values = zip(*pairs, strict=True)
            tracks.append(
                RunsTrack(
                    letter=bar.letter,
                    name=bar.arm,
                    mean=bar.value,
                    places=numbers,
                    values=values,
                )
            )
    means = _listed(tracks, lambda track: number(track.mean, 3))
    return runs_figure(
        "first-runs",
        f"{title}: {means} {bars.title}",
        bars.title,
        tracks,
        "A dot is one run; lines are the geometric means of all runs, as in the ratios.",
    )


def _unit_figure(
    subject: Subject, point: ShownPoint, row: Row, bars: Bars, title: str
) -> Figure | None:
    """Return the rate of each arm over one unit of work, or over all of it without a unit."""
    scale, work = scale_of_rates(point), _unit(subject, point)
    runs, count = _drawn_runs(subject, point), work.count if work is not None else 1.0
    tracks, (energies, of_energies) = [], _energies(point, count)
    for bar in bars.bars:
        seconds = unit_seconds(point, bar.arm, count)
        if bar.value is not None and seconds and bar.arm in runs:
            edges_s, rates = _traced(runs[bar.arm], point, row, count) or (None, None)
            tracks.append(
                UnitTrack(
                    letter=bar.letter,
                    name=bar.arm,
                    rate=bar.value,
                    seconds=math.exp(mean_log(seconds)),
                    edges_s=edges_s,
                    rates=None if rates is None else rates / scale.factor,
                    energy=energies.get(bar.arm, ""),
                )
            )
    named = work if work is not None else _only_unit(point)
    if not tracks or (named is None and all(track.rates is None for track in tracks)):
        return None  # it would have no more than the bars
    if named is not None:
        words = f"one {named.name} {point.verb}".strip()
        times = _listed(tracks, lambda track: quantity(track.seconds, Unit.SECONDS, 3))
        finding = f"{words} in {times}"
    else:
        finding = f"{_listed(tracks, lambda track: number(track.rate, 3))} {bars.title}"
    is_single = max(len(bar.marks) for bar in bars.bars) == 1
    means = "the mean" if is_single else "means of all runs, as in the ratios"
    caption = [f"Bold: {means}; the area under a bold line is the work."]
    caption.append(of_energies)
    if any(track.rates is not None for track in tracks):
        of = f"one {work.name} of about mean length, of " if work is not None else ""
        run = "the run" if is_single else "the arm's run of median rate"
        caption.append(f"Thin: {of}{run}, in bins of 0.1{UNIT_SPACE}s or more.")
    unit, text = scale.unit if point.verb else bars.title, " ".join(filter(None, caption))
    return unit_figure("first-unit", f"{title}: {finding}", unit, tracks, text)


def _drawn_runs(subject: Subject, point: ShownPoint) -> Mapping[str, Run]:
    """Return the representative run of each arm that has one, at the point that is shown."""
    found = {arm: representative_run(subject, own) for arm, own in point.compared.arms.items()}
    return {arm: run for arm, run in found.items() if run is not None}


def _unit(subject: Subject, point: ShownPoint) -> Work | None:
    """Return the unit of work that a rate is drawn over; ``None`` for all that a run did.

    The phases of the rate are entered as many times in each unit of a run.
    """
    if not view_named(point.group.workload).has_size:
        return None
    work = work_of_all(point.compared, point.phase)
    if work is None or work.count <= 1:
        return None
    phases = (_phases(run.record, point) for run in _drawn_runs(subject, point).values())
    return work if all(len(units_of(own, work.count)) == work.count for own in phases) else None


def _only_unit(point: ShownPoint) -> Work | None:
    """Return the unit of work of runs that did one, if it has a name."""
    if not view_named(point.group.workload).has_size:
        return None
    work = work_of_all(point.compared, point.phase)
    return work if work is not None and work.count == 1 and work.name != Work().name else None


def _phases(record: RunRecord, point: ShownPoint) -> Sequence[Phase]:
    return counted_phases(record, point.phase, every=("", ALL_PHASES))


def _traced(run: Run, point: ShownPoint, row: Row, count: float) -> tuple[Array, Array] | None:
    """Return the rate over a unit of a run, the one nearest to the mean length, from its start.

    ``None`` if no trace counts the bytes that the figure is of, or the unit has few bins.
    """
    phases, metric = _phases(run.record, point), run.record.metric(row.quantity.key)
    active_s = sum(phase.active_s for phase in phases)
    moved = sum(phase.moved_bytes for phase in phases)
    if metric is None or not counts_bytes(moved, active_s, metric.value or 0.0):
        return None
    units = units_of(phases, count)
    lengths_s = [end_s - start_s for start_s, end_s in map(ends_of_spans, units)]
    mean_s = fmean(lengths_s)
    off_s = [abs(length_s - mean_s) for length_s in lengths_s]
    unit = units[off_s.index(min(off_s))]
    found = rates_within(run, unit, BINS_MAX)
    if found is None or found[1].size < BINS_MIN:
        return None
    return found[0] - found[0][0], found[1]


def _energies(point: ShownPoint, count: float) -> tuple[Mapping[str, str], str]:
    """Return the energy of a unit of work in the phases of the rate, by arm, and a caption.

    They are of one kind: for the work where an arm has that, else in the window, which the caption
    says where the page's other energies are for the work.
    """
    if not view_named(point.group.workload).has_size:
        return {}, ""
    names = (FOR_WORK, IN_WINDOW) if point.is_for_work else (IN_WINDOW,)
    for name in names:
        found = point.rows.get(f"{name}, {point.phase}")
        known = {arm: each for arm, each in found.centres.items() if each} if found else {}
        if known:
            texts = {arm: quantity(each / count, Unit.JOULES, 3) for arm, each in known.items()}
            is_other = point.is_for_work and name == IN_WINDOW
            return texts, "Energies are in the window." if is_other else ""
    return {}, ""


def _listed(tracks: Sequence[Drawn], text: Callable[[Drawn], str]) -> str:
    """Return a text of each arm with its letter, or of the only arm alone; of many, of two."""
    return _lettered([(track.letter, text(track)) for track in tracks])


def _lettered(texts: Sequence[tuple[str, str]]) -> str:
    if len(texts) == 1:
        return texts[0][1]
    shown = [f"{text} ({letter})" for letter, text in texts]
    return listed(shown) if len(shown) <= _LISTED_MAX else f"{shown[0]} … {shown[-1]}"
