"""Marks and axes that charts share: runs, intervals, round ticks and how they are labelled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import altair as alt

from wattload.reports.quantity import DIRECTIONS

Mark = TypeVar("Mark")

MARKS_MAX = 60
"""The most runs of an arm that are drawn one by one; the table under a chart lists all of them."""

TICK_LABELS = (
    "replace(format(datum.value, datum.value && abs(datum.value) < 1e-5 ? '~e' : ',~f'), "
    "/,/g, '\u202f')"
)
"""A Vega expression: tick labels have the number format of the rest of the page."""


def thin_marks(marks: Sequence[Mark], value: Callable[[Mark], float]) -> list[Mark]:
    """Return at most ``MARKS_MAX`` marks, chosen evenly by rank, with the lowest and the highest.

    Args:
        marks: one for each run.
        value: what the marks are ranked by.
    """
    if len(marks) <= MARKS_MAX:
        return list(marks)
    ranked = sorted(marks, key=value)
    last = len(ranked) - 1
    return [ranked[round(index * last / (MARKS_MAX - 1))] for index in range(MARKS_MAX)]


def run_marks(dots: alt.Chart, *, stroke_width: float) -> alt.Chart:
    """Return point marks for single runs.

    Args:
        dots: a chart whose position channels are set; each of its rows has ``shape``, ``size``,
            ``fill`` and ``stroke``.
        stroke_width: of the outline, in pixels.
    """
    marks: alt.Chart = dots.mark_point(strokeWidth=stroke_width, opacity=1).encode(
        shape=alt.Shape("shape:N", scale=None),
        size=alt.Size("size:Q", scale=None),
        fill=alt.Fill("fill:N", scale=None),
        stroke=alt.Stroke("stroke:N", scale=None),
    )
    return marks


def interval_marks(bars: alt.Chart, way: Literal["x", "y"], *, cap: int) -> list[alt.Chart]:
    """Return the marks of intervals: a line with a cap at each end that is known.

    Args:
        bars: a chart whose rows have ``to``, ``from``, ``stroke`` and ``open`` (the lower end is
            unknown) where there is an interval.
        way: the axis that the line runs along.
        cap: the length of a cap, in pixels.
    """
    channel: Any = alt.X if way == "x" else alt.Y
    second: Any = alt.X2 if way == "x" else alt.Y2
    interval = bars.transform_filter("isValid(datum.to)")
    ends = {way: channel("from:Q"), f"{way}2": second("to:Q")}
    stroke, fill = alt.Stroke("stroke:N", scale=None), alt.Fill("stroke:N", scale=None)
    caps = interval.mark_tick(
        opacity=1, thickness=2.5, size=cap, orient="vertical" if way == "x" else "horizontal"
    )
    return [
        interval.transform_filter("!datum.open")
        .mark_rule(strokeWidth=2.5)
        .encode(**ends, stroke=stroke),
        interval.transform_filter("datum.open")
        .mark_rule(strokeWidth=2.5, strokeDash=[3, 3])
        .encode(**ends, stroke=stroke),
        caps.encode(**{way: channel("to:Q")}, fill=fill),
        caps.transform_filter("!datum.open").encode(**{way: channel("from:Q")}, fill=fill),
    ]


def value_axis(better: str, values: Sequence[float], *, extent: float = 0) -> alt.Axis:
    """Return an axis with ticks at these values; its title says which direction is better.

    Args:
        better: a key of ``DIRECTIONS``.
        values: where the ticks are, in the unit of the axis.
        extent: pixels reserved for the labels, so that panels above each other align.
    """
    anchor: Literal["start", "end"] = "end" if better == "higher" else "start"
    titles = {"higher": f"{DIRECTIONS['higher']} →", "lower": f"← {DIRECTIONS['lower']}"}
    return alt.Axis(
        title=titles.get(better),
        titleAnchor=anchor,
        values=list(values),
        labelExpr=TICK_LABELS,
        minExtent=extent,
    )


def linear_ticks(largest: float) -> list[float]:
    """Return about five round numbers from 0 to the largest value, which is above 0."""
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= largest / 4.5)
    count = int(largest * 1.02 / step) + 1
    return [float(f"{index * step:.12g}") for index in range(count)]
