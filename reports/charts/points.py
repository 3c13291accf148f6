"""Charts of measured points of all arms over a quantity, which lines connect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.plot import Axis, Frame
from wattload.reports.charts.themes import PART_ROLES, arm_role
from wattload.results.quantity import MISSING, Scale, number, scale_for, scaled
from wattload.results.shapes import PointLine, PointLines

_HEIGHT = 190
_HEADROOM = 1.15
_LOG_FROM = 8.0
"""An axis whose largest number is so many times the smallest is logarithmic."""
_TICKS = 8
_TICK_GAP = 0.1
"""Of points closer than this share of the axis, the first has a tick."""


def point_lines_figure(chart: PointLines) -> Figure | None:
    """Return the points and their lines; ``None`` if no value is known."""
    known = [y for line in chart.lines for y in line.ys if y is not None]
    if not known:
        return None
    xs = sorted({x for line in chart.lines for x in line.xs})
    over, scale = scale_for(chart.over_unit, xs[-1]), scale_for(chart.unit, max(known))
    top = max(*known, chart.limit or 0.0, 0.0) * _HEADROOM or scale.factor
    frame = Frame(
        _x_axis([over.shown(x) for x in xs], over.unit),
        Axis(low=0, high=scale.shown(top), unit=scale.unit),
        height=_HEIGHT,
        x_title=chart.over,
    )
    if chart.limit is not None:
        across = [frame.x.low, frame.x.high]
        frame.line(across, [scale.shown(chart.limit)] * 2, "strong", dash="5 4")
    roles = _roles(chart.lines)
    words = [
        _draw(frame, line, role, (over, scale), chart.gap)
        for line, role in zip(chart.lines, roles, strict=True)
    ]
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=frame.svg(f"{chart.title}. {'; '.join(words)}", "half"),
        caption=chart.caption,
        table=_table(chart, over, scale),
        legend=[(role, line.title) for role, line in zip(roles, chart.lines, strict=True)]
        if len(chart.lines) > 1
        else [],
    )


def _roles(lines: Sequence[PointLine]) -> list[str]:
    """Return the role of each line: that of its arm, where each arm has one."""
    letters = [line.letter for line in lines]
    if len(lines) == 1 or (all(letters) and len({*letters}) == len(letters)):
        return [arm_role(letter or "A") for letter in letters]
    return [role for role, _ in zip(cycle(PART_ROLES), lines, strict=False)]


def _x_axis(xs: list[float], unit: str) -> Axis:
    """Return the lower axis; of few points with a tick at each that has room for one."""
    if xs[0] > 0 and xs[-1] / xs[0] >= _LOG_FROM:
        axis = Axis(low=xs[0] / 1.2, high=xs[-1] * 1.2, unit=unit, log=True)
    else:
        pad = (xs[-1] - xs[0]) * 0.06 or xs[0] * 0.5 or 1.0
        axis = Axis(low=xs[0] - pad, high=xs[-1] + pad, unit=unit)
    at: list[float] = []
    for x in xs if len(xs) <= _TICKS else ():
        if not at or axis.share(x) - axis.share(at[-1]) >= _TICK_GAP:
            at.append(x)
    return replace(axis, at=[float(f"{x:.3g}") for x in at])


def _draw(frame: Frame, line: PointLine, role: str, scales: tuple[Scale, Scale], gap: str) -> str:
    """Draw a line and its points; return them in words."""
    over, scale = scales
    xs = [over.shown(x) for x in line.xs]
    ys = [None if y is None else scale.shown(y) for y in line.ys]
    frame.line(xs, ys, role)
    for x, y in zip(xs, ys, strict=True):
        value = gap if y is None else f"{number(y, 3)} {scale.unit}".rstrip()
        tip = f"{line.title} at {f'{number(x, 3)} {over.unit}'.rstrip()}: {value}"
        frame.mark(x, frame.y.high if y is None else y, role, tip, hollow=y is None)
    return f"{line.title}: {', '.join(MISSING if y is None else number(y, 3) for y in ys)}"


def _table(chart: PointLines, over: Scale, scale: Scale) -> Table:
    heads = [
        ", ".join(filter(None, (name, each.unit)))
        for name, each in ((chart.over, over), (chart.what, scale))
    ]
    return Table(
        columns=columns("arm", *(f"#{head}" for head in heads)),
        rows=[
            row(line.title, scaled(x, over), chart.gap if y is None else scaled(y, scale))
            for line in chart.lines
            for x, y in zip(line.xs, line.ys, strict=True)
        ],
        caption=chart.title,
    )
