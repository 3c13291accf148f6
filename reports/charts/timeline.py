"""Throughput and power over one time axis: of one run, or of one run of each of two arms."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bounds import is_declared
from wattload.reports.charts.tracks import Rows, Tracks, extent_of, has_power
from wattload.reports.quantity import number, scale_for, scaled
from wattload.reports.svg import joined, render
from wattload.reports.thinning import COLUMNS
from wattload.reports.timeline import Array, Line, Timeline

WIDTH = COLUMNS
_GUTTER = 44
_STRETCHES = 24
_DECLARED = "the watts that a data sheet or the user declares for the drive, not measured"
_NAMES = {"read": "read by the workload", "write": "written by the workload"}


def timeline_figure(name: str, subject: str, timeline: Timeline) -> Figure | None:
    """Return the chart of a run over time; ``None`` where no trace of bytes or power was kept."""
    if not timeline.rates and not has_power(timeline):
        return None
    data: dict[str, Rows] = {}
    tracks = Tracks(timeline, extent_of([timeline]), width=WIDTH, prefix="", data=data)
    panels = tracks.panels(rates=bool(timeline.rates), power=has_power(timeline))
    description = _description([timeline])
    chart = joined("vconcat", panels, spacing=16)
    title = f"{subject} over time"
    return Figure(
        svg=render(chart, data, name=name, title=title, description=description),
        caption=description,
        table=_table({"": timeline}),
        legend=_legend([timeline]),
    )


def arms_timeline_figure(
    name: str, subject: str, timelines: Mapping[str, Timeline]
) -> Figure | None:
    """Return a run of each arm over time, side by side on the same scales, by the arm's name.

    ``None`` where fewer than two of them have a trace to draw.
    """
    drawn = {arm: each for arm, each in timelines.items() if each.rates or has_power(each)}
    if len(drawn) < 2:  # noqa: PLR2004 - one alone is beside nothing
        return None
    shown = list(drawn.values())
    rates, power = any(each.rates for each in shown), any(map(has_power, shown))
    extent = extent_of(shown)
    width = (WIDTH - _GUTTER * (len(shown) - 1)) // len(shown)
    data: dict[str, Rows] = {}
    sides = []
    for index, (arm, timeline) in enumerate(drawn.items()):
        tracks = Tracks(timeline, extent, width=width, prefix=f"arm{index}", data=data)
        panels = tracks.panels(rates=rates, power=power)
        sides.append(joined("vconcat", panels, spacing=16, title=alt.TitleParams(arm, offset=10)))
    description = f"{_description(shown)} Both have the same axes."
    chart = joined("hconcat", sides, spacing=_GUTTER)
    title = f"{subject} over time, arm by arm"
    return Figure(
        svg=render(chart, data, name=name, title=title, description=description),
        caption=description,
        table=_table(drawn),
        legend=_legend(shown),
    )


def _legend(timelines: Sequence[Timeline]) -> list[tuple[str, str]]:
    """Return what each colour stands for, and the evidence of what is power."""
    legend = []
    for timeline in timelines:
        legend += [
            (line.role, _NAMES.get(line.name, f"{line.name}, all traffic"))
            for line in timeline.rates
        ]
        legend += [(line.role, f"{line.name}: {line.evidence}") for line in timeline.watts]
        legend += [("bound", f"{band.name}: {band.evidence}") for band in timeline.bands]
    return list(dict.fromkeys(legend))


def _description(timelines: Sequence[Timeline]) -> str:
    parts = []
    if any(each.rates for each in timelines):
        parts.append("bytes moved per 100 ms, as a rate")
    watts = [is_declared(line.evidence) for each in timelines for line in each.watts]
    if watts:
        parts.append(_DECLARED if all(watts) else "the drive's power")
    bands = [is_declared(band.evidence) for each in timelines for band in each.bands]
    if True in bands and not (watts and all(watts)):
        parts.append(f"the ends of {_DECLARED}")
    if False in bands:
        parts.append("bounds on the drive's power from its power states")
    names = (strip.name for each in timelines for strip in each.strips if strip.timed)
    phases = ", ".join(dict.fromkeys(names))
    text = ", and ".join(parts)
    return (
        f"{text[:1].upper()}{text[1:]}; timed phases are shaded: {phases or 'none'}. Of each pixel "
        "the least and the most are drawn, no mean; where samples are missing the line is broken."
    )


def _table(timelines: Mapping[str, Timeline]) -> Table:
    """Return means over equal stretches of the run: bytes over seconds, not a mean of rates."""
    extent = extent_of(list(timelines.values()))
    edges = np.linspace(extent.start_s, extent.end_s, _STRETCHES + 1)
    lines: list[tuple[str, Line, Unit]] = []
    for arm, each in timelines.items():
        prefix = f"{arm}: " if arm else ""
        lines += [(prefix, line, Unit.BYTES_PER_SECOND) for line in each.rates]
        lines += [(prefix, line, Unit.WATTS) for line in each.watts]
    titles, series = [], []
    for prefix, line, unit in lines:
        means = _means(line, edges)
        scale = scale_for(unit, *means)
        titles.append(f"#{prefix}{line.name}, {scale.unit}")
        series.append([scaled(mean, scale) for mean in means])
    rows = [
        row(
            f"{number(edges[index], 3)} to {number(edges[index + 1], 3)}",
            *[cells[index] for cells in series],
        )
        for index in range(_STRETCHES)
    ]
    return Table(
        columns=columns("seconds", *titles), rows=rows, caption="Means over equal stretches"
    )


def _means(line: Line, edges: Array) -> list[float | None]:
    bounds = np.searchsorted(line.time_s, edges)
    means: list[float | None] = []
    for start, end in itertools.pairwise(bounds):
        inside = line.value[start:end]
        known = inside[~np.isnan(inside)]
        means.append(float(known.mean()) if known.size else None)
    return means
