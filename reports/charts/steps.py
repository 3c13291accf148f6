"""Lines of steps of all arms on one pair of axes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.plot import Axis, Frame, round_ticks
from wattload.reports.charts.themes import arm_role
from wattload.results.quantity import (
    MISSING,
    Scale,
    duration_scale,
    number,
    scale_for,
)
from wattload.results.shapes import StepLine, StepLines

Array = NDArray[np.float64]

_HEIGHT, _LOW = 190, 120
_HEADROOM = 1.12
_CUT = 1.8
"""Ends of bands beyond this many times the highest value are cut off."""
_BAND = 0.16
_BAR = 0.03
"""Height of the bar of a marked part, as a share of the axis."""
_LOG_MARGIN = 1.5
_TICKS = 6
_TABLE_ROWS = 24


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
    frame.steps(edges, values, role, _name(line), line.dash)


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
