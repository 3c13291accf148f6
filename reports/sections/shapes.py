"""The blocks of what a workload's view yields: notices, tables and charts, by their shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wattload.core.power import Channel, Scope
from wattload.core.units import NS_PER_S
from wattload.reports.blocks import (
    Block,
    Cell,
    Figure,
    FigureRow,
    Fold,
    Heading,
    Notice,
    Paragraph,
    Table,
    columns,
    row,
)
from wattload.reports.charts.bars import ceiling_bars_figure, part_bars_figure, value_bars_figure
from wattload.reports.charts.points import point_lines_figure
from wattload.reports.charts.scatter import ArmScatter, arms_scatter_figure, make_scatter
from wattload.reports.charts.steps import (
    curves_figure,
    step_lines_figure,
    step_panels_figure,
    supply_figure,
)
from wattload.reports.charts.tracks import Track
from wattload.reports.runs.energy import phase_energies, scope_energy_j
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import compared_group
from wattload.reports.stats.subject import Group, Subject, lettered, named
from wattload.reports.stats.sweeps import panels, point_text
from wattload.results.labels import workload_title
from wattload.results.reading import run_of, view_named
from wattload.results.shapes import (
    CeilingBars,
    Chart,
    Curves,
    Grid,
    Note,
    Offsets,
    PartBars,
    PointLines,
    Row,
    Shape,
    Sheet,
    StepLines,
    StepPanels,
    SupplyPanels,
    Text,
    Title,
    ValueBars,
    unique,
)
from wattload.results.shapes import Group as ShapeGroup
from wattload.results.view import Arm, Readings, Shown, ShownRun, TracedRun, View

_COLUMNS_MAX = 6
"""More arms than these are rows of a table of facts, and not its columns."""
_POINTS = 4000
"""Operations that a chart of all arms draws at most."""


def opening_blocks(subject: Subject, group: Group, name: str) -> Iterator[Block]:
    """Yield what a workload's section begins with."""
    view, shown = view_named(group.workload), _shown(subject, group, ())
    yield from map(Paragraph, outcome_sentences(shown, view))
    yield from _blocks(view.opening(shown), group, name, ())


def outcome_sentences(shown: Shown[Any], view: View[Any]) -> list[str]:
    """Return what a benchmark's rules make of the runs of each arm; of a sweep, nothing."""
    arms = shown.arms or shown.every  # without a valid run, of those that there are
    if any(arm.at for arm in arms):
        return []
    found = {arm.letter: view.outcome(arm.runs) for arm in arms}
    texts = unique(found.values())
    if len(texts) == 1:
        return [f"{texts[0]}."]
    return [f"{letter}: {text}." for letter, text in found.items() if text]


def closing_blocks(
    subject: Subject, group: Group, name: str, tracks: Sequence[Track]
) -> Iterator[Block]:
    """Yield what follows the figures over time."""
    view = view_named(group.workload)
    yield from _blocks(view.closing(_shown(subject, group, tracks)), group, name, tracks)


def over_time_figures(
    subject: Subject, group: Group, name: str, title: str, tracks: Sequence[Track]
) -> list[Figure]:
    """Return charts of a workload's own in place of its rate over time."""
    charts = view_named(group.workload).over_time(_shown(subject, group, tracks))
    return _figures(charts, name, title, tracks)


def _figures(
    charts: Sequence[Chart], name: str, title: str, tracks: Sequence[Track]
) -> list[Figure]:
    drawn = (chart_figure(_named(chart, name, title), tracks) for chart in charts)
    return [figure for figure in drawn if figure is not None]


def _shown(subject: Subject, group: Group, tracks: Sequence[Track]) -> Shown[Any]:
    several = len(group.arms) > 1
    titles = {
        arm: lettered(letter, arm) if several else arm if group.ceilings else "all runs"
        for letter, arm in zip(group.letters, group.arms, strict=False)
    }
    letters = dict(zip(group.arms, group.letters, strict=False))

    def arms_of(at: str, of: Group) -> Iterator[Arm[Any]]:
        for arm, runs in [*of.arms.items(), *of.ceilings.items()]:
            known = tuple(each for each in map(_shown_run, runs) if each is not None)
            if known and arm in letters:
                letter = letters[arm]
                yield Arm(letter if several else "", named(letter, arm), titles[arm], at, known)
            elif known and arm in of.ceilings:
                yield Arm("", arm, arm, at, known)

    compared = [
        each
        for panel in panels(group)
        for point in panel.points
        for each in arms_of(
            ", ".join(filter(None, (panel.name, point_text(point)))),
            compared_group(subject, point.group),
        )
    ]
    traced = [
        TracedRun(
            letter=track.letter if len(tracks) > 1 else "",
            title=lettered(track.letter, track.name) if len(tracks) > 1 else track.name,
            run=run,
            tables=track.run.traces.tables,
            track=index,
            readings=partial(_readings, track),
        )
        for index, track in enumerate(tracks)
        if (run := _shown_run(track.run)) is not None
    ]
    return Shown(compared, list(arms_of("", group)), traced)


def _shown_run(run: Run) -> ShownRun[Any] | None:
    found, record = run_of(run.record), run.record
    if found is None:
        return None

    def joules(scope: Scope, phase: str) -> float | None:
        if scope is not Scope.DRIVE:
            return scope_energy_j(record, scope, phase)
        return next((e.energy_j for e in phase_energies(record) if e.phase == phase), None)

    def evidence(phase: str) -> str:
        known = (e for e in phase_energies(record) if e.phase == phase)
        return next((each.words for each in known if each.energy_j is not None), "")

    return ShownRun(record, found.facts, joules, evidence)


def _readings(track: Track, channel: Channel) -> list[Readings]:
    run, power = track.run, track.run.traces.power
    if channel is not Channel.POWER_W:
        signals = power.of(channel) if power is not None else ()
        clock = run.record.clock
        return [Readings(clock.ns(each.host, each.time_ns), each.value) for each in signals]
    windows = run.record.joined_windows
    start_ns = windows[0].start_ns if windows else 0
    return [
        Readings((line.time_s * NS_PER_S).astype(np.int64) + start_ns, line.value, line.evidence)
        for line in track.timeline.watts
    ]


def _blocks(
    shapes: Iterable[Shape],
    group: Group,
    name: str,
    tracks: Sequence[Track],
) -> Iterator[Block]:
    title = workload_title(group.workload)
    for shape in shapes:
        match shape:
            case Note():
                yield Notice(shape.title, list(shape.sentences), shape.tone or "open")
            case Title():
                yield Heading(shape.text)
            case Text():
                yield Paragraph(shape.text, quiet=shape.quiet)
            case Grid():
                yield _grid(shape)
            case Sheet():
                yield _sheet(shape)
            case ShapeGroup():
                yield Fold(shape.title, list(_blocks(shape.shapes, group, name, tracks)))
            case Row():
                if figures := _figures(shape.charts, name, title, tracks):
                    yield FigureRow(figures)
            case _:
                figure = chart_figure(_named(shape, name, title), tracks)
                if figure is not None:
                    yield FigureRow([figure]) if isinstance(shape, Curves) else figure


def _named(chart: Any, name: str, title: str) -> Any:  # noqa: ANN401 - any chart
    """Return a chart whose name and title begin with those of its workload."""
    return replace(chart, name=f"{name}-{chart.name}", title=f"{title}: {chart.title}")


def chart_figure(chart: Any, tracks: Sequence[Track]) -> Figure | None:  # noqa: ANN401 - any chart
    """Return a drawn chart, by its shape; ``None`` without data."""
    return _DRAWN[type(chart)](chart, tracks)


def _offsets(chart: Offsets, tracks: Sequence[Track]) -> Figure | None:
    limit = _POINTS // max(len(tracks), 1)
    drawn = [
        ArmScatter(
            letter=track.letter if len(tracks) > 1 else "",
            name=track.name,
            scatter=scatter,
            start_s=track.zero_s,
            end_s=track.zero_s + track.end_s,
        )
        for track in tracks
        if (scatter := make_scatter(track.run, limit)) is not None
    ]
    return arms_scatter_figure(chart.name, chart.title, chart.caption, drawn) if drawn else None


_DRAWN: Mapping[type, Callable[[Any, Sequence[Track]], Figure | None]] = {
    PartBars: lambda chart, _: part_bars_figure(chart),
    ValueBars: lambda chart, _: value_bars_figure(chart),
    CeilingBars: lambda chart, _: ceiling_bars_figure(chart),
    StepPanels: lambda chart, _: step_panels_figure(chart),
    Curves: lambda chart, _: curves_figure(chart),
    SupplyPanels: supply_figure,
    StepLines: lambda chart, _: step_lines_figure(chart),
    PointLines: lambda chart, _: point_lines_figure(chart),
    Offsets: _offsets,
}
"""How each shape is drawn, with the tracks of the page."""


def _grid(grid: Grid) -> Table:
    cells = [
        [
            each if isinstance(each, str) else Cell(each.text, each.tone, "", each.remark)
            for each in own
        ]
        for own in grid.rows
    ]
    return Table(
        columns=columns(*grid.columns),
        rows=[row(*own) for own in cells],
        caption=grid.caption,
        note=grid.note,
    )


def _sheet(sheet: Sheet) -> Table:
    """Return facts by arm; of few arms, these are its columns."""
    if len(sheet.arms) <= _COLUMNS_MAX:
        return Table(
            columns=columns("", *(f"#{arm}" for arm in sheet.arms)),
            rows=[row(name, *texts) for name, texts in sheet.facts],
            caption=sheet.caption,
            note=sheet.note,
        )
    return Table(
        columns=columns("arm", *(f"#{name}" for name, _ in sheet.facts)),
        rows=[
            row(arm, *(texts[index] for _, texts in sheet.facts))
            for index, arm in enumerate(sheet.arms)
        ],
        caption=sheet.caption,
        note=sheet.note,
    )
