"""Ratios of two arms with their intervals, on one logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.compare import Row
from wattload.reports.quantity import number
from wattload.reports.svg import layered, render
from wattload.reports.themes import light, named_axis

WIDTH = 640
_ROW = 26
_TICKS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.7,
    0.8,
    0.9,
    1,
    1.1,
    1.2,
    1.5,
    2,
    3,
    5,
    10,
    20,
    50,
)
_ROLES = {"a": "a", "b": "b", "none": "device", "barred": "device"}


def effects_figure(name: str, subject: str, rows: Sequence[Row], a: str, b: str) -> Figure | None:
    """Return B/A per quantity; ``None`` where there is no ratio to draw."""
    drawn = [entry for entry in rows if entry.effect is not None]
    if not drawn:
        return None
    description = (
        f"{b} over {a}: the point is the ratio of medians, the line its 95 % interval (with 5 runs "
        "per arm or more). Coloured by the arm that is better; grey where nothing is called."
    )
    data = {"effects": [_row(entry) for entry in drawn], "one": [{"ratio": 1.0}]}
    return Figure(
        svg=render(
            _chart(drawn),
            data,
            name=name,
            title=f"{subject}: {b} over {a}",
            description=description,
        ),
        caption=description,
        table=_table(drawn),
        legend=[("a", f"{a} is better"), ("b", f"{b} is better"), ("device", "not called")],
    )


def _row(entry: Row) -> dict[str, Any]:
    found = entry.effect
    ratio = found.ratio if found else 1.0
    return {
        "quantity": entry.quantity.label,
        "ratio": ratio,
        "lower": found.lower if found else None,
        "upper": found.upper if found else None,
        "text": number(ratio, 3),
        "colour": light(_ROLES[entry.call]),
    }


def _domain(rows: Sequence[Row]) -> list[float]:
    """Return an axis that holds every ratio and interval, and 1, with room at both ends."""
    ends = [0.8, 1.25]
    for entry in rows:
        if entry.effect is not None:
            found = entry.effect
            ends += [end for end in (found.ratio, found.lower, found.upper) if end is not None]
    return [min(ends) / 1.1, max(ends) * 1.18]


def _chart(rows: Sequence[Row]) -> alt.LayerChart:
    domain = _domain(rows)
    scale = alt.Scale(type="log", domain=domain, nice=False)
    order = [entry.quantity.label for entry in rows]
    ticks = [tick for tick in _TICKS if domain[0] <= tick <= domain[1]]
    axis = alt.Axis(title="B/A, logarithmic", values=ticks, format="~g")
    x = alt.X("ratio:Q", scale=scale, axis=axis)
    y = alt.Y("quantity:N", sort=order, axis=named_axis(order))
    base = alt.Chart(alt.NamedData(name="effects")).encode(y=y)
    stroke = alt.Stroke("colour:N", scale=None)
    one = alt.Chart(alt.NamedData(name="one")).mark_rule(stroke=light("strong"), strokeWidth=1)
    interval = base.transform_filter("isValid(datum.lower)")
    layers = [
        one.encode(x=x),
        interval.mark_rule(strokeWidth=2).encode(x=alt.X("lower:Q"), x2="upper:Q", stroke=stroke),
        base.mark_point(size=64, strokeWidth=0, opacity=1).encode(
            x=x, fill=alt.Fill("colour:N", scale=None)
        ),
        base.mark_text(dy=-10, fontWeight=600, fill=light("strong")).encode(x=x, text="text:N"),
    ]
    return layered(layers, width=WIDTH, height=_ROW * len(rows) + 14)


def _table(rows: Sequence[Row]) -> Table:
    found = [
        row(
            entry.quantity.label,
            number(entry.effect.ratio),
            number(entry.effect.lower),
            number(entry.effect.upper),
            entry.reason,
        )
        for entry in rows
        if entry.effect is not None
    ]
    titles = columns("quantity", "#B/A", "#95 % from", "#to", "call")
    return Table(columns=titles, rows=found, caption="Ratios with their intervals")
