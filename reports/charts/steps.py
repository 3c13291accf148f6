"""Values over steps and over time: lines of all arms on one pair of axes, and panels of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.plot import Axis, Frame, round_ticks, second_axis
from wattload.reports.charts.themes import arm_role
from wattload.reports.charts.tracks import Track
from wattload.reports.runs.phases import CommonClock
from wattload.results.quantity import (
    MISSING,
    Scale,
    duration_scale,
    number,
    quantity,
    scale_for,
    scaled,
    whole,
)
from wattload.results.shapes import (
    Curves,
    StepLine,
    StepLines,
    StepPanels,
    Steps,
    Supply,
    SupplyPanels,
)

Array = NDArray[np.float64]

_HEIGHT, _LOW = 190, 120
_PANEL_HEIGHT, _SUPPLY_HEIGHT = 110, 130
_HEADROOM = 1.12
_CUT = 1.8
"""Ends of bands beyond this many times the highest value are cut off."""
_BAND = 0.16
_BAR = 0.03
"""Height of the bar of a marked part, as a share of the axis."""
_LOG_MARGIN = 1.5
_TICKS = 6
_TABLE_ROWS = 24
_PANEL_ROWS = 20
_BINS = 160
_SAME = 1e-6


def step_lines_figure(chart: StepLines) -> Figure | None:
    """Return the lines over time, or over another quantity; ``None`` if no value is known."""
    lines = [line for line in chart.lines if _known(line, is_log=chart.is_log).size]
    if not lines:
        return None
    end = max(float(line.edges[-1]) for line in lines)
    over = duration_scale(end) if chart.over == "time" else Scale(1.0, "")
    scale = _scale(chart, lines)
    frame = Frame(
        # The chart has half the width of a page.
        Axis(
            low=0,
            high=over.shown(end),
            unit=over.unit,
            at=round_ticks(0, over.shown(end), _TICKS),
        ),
        _values_axis(chart, lines, scale),
        height=_LOW if chart.is_small else _HEIGHT,
        x_title=chart.over_title,
    )
    letters = list(dict.fromkeys(line.letter for line in lines))
    for line in lines:
        _draw(frame, line, letters.index(line.letter), over, scale)
    if not chart.is_small and len(letters) > 1:
        for line in lines:
            half_way = line.values.size // 2
            at, value = float(line.edges[half_way]), float(line.values[half_way])
            frame.label(over.shown(at), scale.shown(value), line.letter)
    words = "; ".join(
        f"{_name(line)}: {number(scale.shown(float(np.nanmean(line.values))), 3)} {scale.unit}"
        for line in lines
    )
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=frame.svg(f"{chart.title}. {words}", "time"),
        caption=chart.caption,
        table=_table(chart, lines, over, scale),
        legend=list({line.letter: (arm_role(line.letter), line.title) for line in lines}.values())
        if len(letters) > 1
        else [],
    )


def _name(line: StepLine) -> str:
    return f"{line.letter or line.title} {line.name}".strip()


def _known(line: StepLine, *, is_log: bool) -> Array:
    return line.values[np.isfinite(line.values) & ((line.values > 0) | (not is_log))]


def _scale(chart: StepLines, lines: list[StepLine]) -> Scale:
    if not isinstance(chart.unit, Unit):
        return Scale(1.0, chart.unit)
    if chart.is_log:
        known = np.concatenate([_known(line, is_log=True) for line in lines])
        return scale_for(chart.unit, float(np.median(known)))
    return scale_for(chart.unit, *(float(np.nanmax(line.values)) for line in lines))


def _values_axis(chart: StepLines, lines: list[StepLine], scale: Scale) -> Axis:
    known = np.concatenate([_known(line, is_log=chart.is_log) for line in lines])
    least, most = (scale.shown(float(end)) for end in (known.min(), known.max()))
    if chart.is_log:
        return Axis(low=least / _LOG_MARGIN, high=most * _LOG_MARGIN, unit=scale.unit, log=True)
    if chart.least_span:
        span = max(most - least, chart.least_span) * _HEADROOM
        low = max((most + least - span) / 2, 0.0)
        return Axis(low=low, high=low + span, unit=scale.unit)
    tops = [float(np.nanmax(line.high, initial=0.0)) for line in lines if line.high is not None]
    if tops:
        most = min(scale.shown(max(tops)), _CUT * most)
    return Axis(low=0, high=most * _HEADROOM or 1.0, unit=scale.unit)


def _draw(frame: Frame, line: StepLine, place: int, over: Scale, scale: Scale) -> None:
    role = arm_role(line.letter) if line.letter else "a"
    edges = line.edges / over.factor
    if line.marked is not None:
        low = np.array([place * _BAR * frame.y.high])
        marked = np.array(line.marked) / over.factor
        frame.band(marked, low, low + 0.8 * _BAR * frame.y.high, role, 1.0)
    if line.low is not None and line.high is not None:
        frame.band(edges, line.low / scale.factor, line.high / scale.factor, role, _BAND)
    values = line.values / scale.factor
    if frame.y.log:
        values = np.where(values > 0, values, np.nan)
    frame.steps(edges, values, role, _name(line), dash=line.dash)


def _table(chart: StepLines, lines: list[StepLine], over: Scale, scale: Scale) -> Table:
    """Return the values of evenly chosen steps of each arm, a column for each of its lines."""
    by_arm: dict[str, list[StepLine]] = {}
    for line in lines:
        by_arm.setdefault(line.letter or line.title, []).append(line)
    of_arm = next(iter(by_arm.values()))
    names = [line.name or chart.what for line in of_arm]
    if of_arm[0].low is not None:
        names += ["lowest", "highest"]
    until = f"#until, {over.unit}" if over.unit else f"#{chart.over}"
    units = f", {scale.unit}" if scale.unit else ""

    def rows() -> Iterator[tuple[Cell, ...]]:
        for arm, own in by_arm.items():
            count = own[0].values.size
            chosen = np.linspace(0, count - 1, min(count, _TABLE_ROWS)).astype(np.int64)
            ends = (each for line in own for each in (line.values, line.low, line.high))
            shown = [values for values in ends if values is not None]
            for index in np.unique(chosen).tolist():
                at = number(over.shown(float(own[0].edges[index + 1])), 3)
                yield row(arm, at, *(_text(float(values[index]), scale) for values in shown))

    return Table(
        columns=columns("arm", until, *(f"#{name}{units}" for name in names)),
        rows=list(rows()),
        caption=chart.title,
    )


def _text(value: float, scale: Scale) -> str:
    return number(scale.shown(value), 3) if np.isfinite(value) else MISSING


def step_panels_figure(chart: StepPanels) -> Figure:
    """Return a panel for each value over time; those of one quantity share a scale."""
    highest: dict[str, float] = {}
    for panel in chart.panels:
        highest[panel.what] = max(highest.get(panel.what, 0.0), float(panel.values.max()))
    panels = []
    for panel in chart.panels:
        scale = scale_for(panel.unit, highest[panel.what])
        what = f"{panel.what}, {scale.unit}" if scale.unit else panel.what
        frame = Frame(
            Axis(low=0, high=float(panel.edges_s[-1]), unit="s"),
            Axis(low=0, high=highest[panel.what] / scale.factor * _HEADROOM, unit=scale.unit),
            height=_PANEL_HEIGHT,
            title=f"{panel.title}: {what}",
        )
        role = arm_role(panel.letter) if panel.letter else "read"
        frame.steps(panel.edges_s, panel.values / scale.factor, role, what)
        panels.append(frame.svg(f"{panel.title}: {what} over time", "half"))
    return Figure(
        name=chart.name,
        title=chart.title,
        svg="".join(panels),
        caption=chart.caption,
        table=_panels_table(chart, highest),
    )


def _panels_table(chart: StepPanels, highest: Mapping[str, float]) -> Table:
    """Return means over equal parts of the time."""
    scales = {panel.what: scale_for(panel.unit, highest[panel.what]) for panel in chart.panels}
    by_arm: dict[str, list[Steps]] = {}
    for panel in chart.panels:
        by_arm.setdefault(panel.title, []).append(panel)
    rows = []
    for arm, panels in by_arm.items():
        count = panels[0].values.size
        each = max(count // _PANEL_ROWS, 1)
        for index in range(0, count, each):
            means = [
                scaled(float(panel.values[index : index + each].mean()), scales[panel.what], 3)
                for panel in panels
            ]
            rows.append(row(arm, number(float(panels[0].edges_s[index]), 3), *means))
    titles = [f"#{what}, {scale.unit}".removesuffix(", ") for what, scale in scales.items()]
    return Table(columns=columns("arm", "#from, s", *titles), rows=rows, caption="Means over time")


def curves_figure(chart: Curves) -> Figure:
    """Return lines over numbered steps; equal ones are one line."""
    first = np.array(chart.curves[0].values)
    is_same = len(chart.curves) > 1 and all(
        len(curve.values) == first.size and np.allclose(curve.values, first, rtol=_SAME)
        for curve in chart.curves
    )
    drawn = chart.curves if not is_same else [replace(chart.curves[0], letter="", title="all arms")]
    longest = max(len(curve.values) for curve in drawn)
    high = max(max(curve.values) for curve in drawn)
    ticks = round_ticks(0, longest - 1, 8)
    frame = Frame(
        Axis(low=0, high=longest - 1, at=[at for at in ticks if at.is_integer()]),
        Axis(low=0, high=(high or 1.0) * _HEADROOM),
        height=_PANEL_HEIGHT,
        x_title=chart.over,
    )
    for curve in drawn:
        role = arm_role(curve.letter) if curve.letter else "strong"
        frame.line([float(step) for step in range(len(curve.values))], list(curve.values), role,
                   curve.title)  # fmt: skip
    ends = [
        f"{curve.title} {number(curve.values[0], 3)} to {number(curve.values[-1], 3)}"
        for curve in chart.curves
    ]
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=frame.svg(f"{chart.what} over {chart.over}s: {'; '.join(ends)}", "half"),
        caption=" ".join(filter(None, (chart.same if is_same else "", chart.caption))),
        table=Table(
            columns=columns(
                "arm", f"#{chart.over}s", f"#first {chart.what}", f"#last {chart.what}"
            ),
            rows=[
                row(
                    curve.title,
                    whole(len(curve.values)),
                    number(curve.values[0]),
                    number(curve.values[-1]),
                )
                for curve in chart.curves
            ],
            caption=f"First and last {chart.what}",
        ),
        legend=[(arm_role(each.letter), each.title) for each in drawn if each.letter]
        if len(drawn) > 1
        else [],
    )


@dataclass(frozen=True, slots=True)
class _Supplied:
    """One run: bandwidth of the drive by bin, and its power by sample."""

    track: Track
    edges_s: Array
    rate: Array
    time_s: Array
    watts: Array


def supply_figure(chart: SupplyPanels, tracks: Sequence[Track]) -> Figure | None:
    """Return bandwidth and power of the drive on one axis of time, a panel for each run.

    ``None`` where no run has both.
    """
    found = [
        each
        for panel in chart.panels
        if (each := _supplied(panel, tracks[panel.track])) is not None
    ]
    if not found:
        return None
    scale = scale_for(Unit.BYTES_PER_SECOND, *(float(each.rate.max()) for each in found))
    rates = Axis(
        low=0,
        high=max(scale.shown(float(each.rate.max())) for each in found) * _HEADROOM,
        unit=scale.unit,
    )
    most_w = max(float(np.nanmax(each.watts)) for each in found) * _HEADROOM
    right = second_axis(rates, most_w, "W")
    panels, rows = [], []
    for each in found:
        track = each.track
        arm = f"{track.letter}: " if len(tracks) > 1 else ""
        end_s = float(each.edges_s[-1])
        frame = Frame(
            Axis(low=0, high=end_s, unit="s"), rates, height=_SUPPLY_HEIGHT, right=right,
            title=f"{arm}{track.name}",
        )  # fmt: skip
        frame.steps(each.edges_s, each.rate / scale.factor, "read", "bandwidth")
        factor = rates.high / right.high
        frame.line(each.time_s.tolist(), (each.watts * factor).tolist(), "power", dash="6 3")
        panels.append(frame.svg(f"{track.name}: bandwidth and power over time", "half"))
        mean_rate = float((each.rate * np.diff(each.edges_s)).sum() / end_s)
        rows.append(
            row(
                track.name,
                quantity(end_s, Unit.SECONDS, 3),
                scaled(mean_rate, scale, 3),
                number(float(np.nanmean(each.watts)), 3),
            )
        )
    return Figure(
        name=chart.name,
        title=chart.title,
        svg="".join(panels),
        caption=chart.caption,
        table=Table(
            columns=columns("arm", f"#{chart.span}", f"#mean bandwidth, {scale.unit}", "#mean W"),
            rows=rows,
            caption=f"Bandwidth and power over the {chart.span}",
        ),
        legend=[("read", "bandwidth"), ("power", "power")],
    )


def _supplied(panel: Supply, track: Track) -> _Supplied | None:
    lines = [line for line in track.timeline.watts if line.role == "power"]
    if len(lines) != 1 or np.isnan(panel.bytes_per_s).any() or not panel.bytes_per_s.any():
        return None
    host = track.run.record.windows[0].host if track.run.record.windows else ""
    start_ns = int(panel.edges_ns[0])
    edges_s = (panel.edges_ns - start_ns) / NS_PER_S
    since_s = lines[0].time_s - CommonClock(track.run.record).seconds(host, start_ns)
    inside = (since_s >= 0) & (since_s <= edges_s[-1])
    if not np.isfinite(lines[0].value[inside]).any():
        return None
    time_s, watts = _means(since_s[inside], lines[0].value[inside])
    return _Supplied(track, edges_s, panel.bytes_per_s, time_s, watts)


def _means(time_s: Array, value: Array) -> tuple[Array, Array]:
    """Return the means of at most ``_BINS`` groups of successive samples, and their first times."""
    first = np.arange(0, value.size, -(-value.size // _BINS))
    known = ~np.isnan(value)
    counts = np.add.reduceat(known.astype(np.float64), first)
    sums = np.add.reduceat(np.where(known, value, 0.0), first)
    return time_s[first], np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)
