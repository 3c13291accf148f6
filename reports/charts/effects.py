"""Ratios of two arms with their intervals, on logarithmic axes that agree."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import marker_size
from wattload.reports.charts.forced import captioned, forced_past, titled
from wattload.reports.compare import Row
from wattload.reports.quantity import number
from wattload.reports.svg import joined, layered, render
from wattload.reports.themes import arm_marker, arm_role, light, named_axis

WIDTH = 640
_ROW = 26
_LETTER = 6.9
_LINE = 104
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
_WAYS = {
    "higher": (
        "What multiple of {a} is {b}, where higher is better?",
        "← {a} is better  ·  {b} / {a}  ·  {b} is better →",
    ),
    "lower": (
        "What multiple of {a} is {b}, where lower is better?",
        "← {b} is better  ·  {b} / {a}  ·  {a} is better →",
    ),
    "neither": ("What multiple of {a} is {b}, where neither is better?", "{b} / {a}"),
}
"""By direction of better: what the panel is called, and which side of 1 is whose."""


def effects_figure(name: str, subject: str, rows: Sequence[Row], a: str, b: str) -> Figure | None:
    """Return B/A per quantity; ``None`` where there is no ratio to draw."""
    drawn = [entry for entry in rows if entry.effect is not None]
    if not drawn:
        return None
    ways = [way for way in _WAYS if any(entry.quantity.better == way for entry in drawn)]
    members = {way: [entry for entry in drawn if entry.quantity.better == way] for way in ways}
    domain = _domain(drawn)
    words = {way: [text.format(a=a, b=b) for text in _WAYS[way]] for way in ways}
    panels = [_panel(way, members[way], domain, *words[way]) for way in ways]
    data = {way: [_row(entry) for entry in members[way]] for way in ways}
    past = forced_past(drawn)
    description = captioned((_DESCRIPTION + _FORCED * bool(past)).format(a=a, b=b), past)
    return Figure(
        svg=render(
            joined("vconcat", panels, spacing=18),
            data | {"one": [{"ratio": 1.0}]},
            name=name,
            title=titled(f"{subject}: {b} over {a}", past),
            description=" ".join([description, *_told(drawn, a, b)]),
        ),
        caption=description,
        table=_table(drawn),
        legend=[(arm_role("A"), f"{a} is better"), (arm_role("B"), f"{b} is better")],
    )


_DESCRIPTION = (
    "{b} over {a}: the mark is the ratio of geometric means, the line its 95 % interval (with 5 "
    "runs per arm or more). A filled mark has the colour and shape of the arm that is better; a "
    "hollow grey one calls neither. The axis is logarithmic: half and twice are as far from 1."
)
_FORCED = " A hollow mark in an arm's colour and shape is a call that only force lets through."


def _told(rows: Sequence[Row], a: str, b: str) -> list[str]:
    return [
        f"{entry.quantity.label}: {b}/{a} = {number(entry.effect.ratio, 3)}{_forced(entry)}."
        for entry in rows
        if entry.effect is not None
    ]


def _row(entry: Row) -> dict[str, Any]:
    found = entry.effect
    ratio = found.ratio if found else 1.0
    letter = entry.call.upper() if entry.call in ("a", "b") else ""
    shape = arm_marker(letter) if letter else "circle"
    colour = light(arm_role(letter) if letter else "device")
    return {
        "quantity": entry.quantity.label,
        "ratio": ratio,
        "lower": found.lower if found else None,
        "upper": found.upper if found else None,
        "end": (found.upper if found else None) or ratio,
        "text": _text(entry),
        "colour": colour,
        "fill": colour if letter and not entry.forced else light("surface"),
        "shape": shape,
        "size": 2 * marker_size(shape),
    }


def _text(entry: Row) -> str:
    found = entry.effect
    if found is None:
        return ""
    if found.lower is None or found.upper is None:
        return number(found.ratio, 3) + _forced(entry)
    ends = f"{number(found.lower, 3)} to {number(found.upper, 3)}"
    return f"{number(found.ratio, 3)} ({ends}){_forced(entry)}"


def _forced(entry: Row) -> str:
    return ", forced" if entry.forced else ""


def _domain(rows: Sequence[Row]) -> list[float]:
    """Return an axis that holds every ratio and interval, and 1, with room at both ends."""
    ends = [0.8, 1.25]
    for entry in rows:
        if entry.effect is not None:
            found = entry.effect
            ends += [end for end in (found.ratio, found.lower, found.upper) if end is not None]
    low, high = min(ends) / 1.1, max(ends) * 1.05
    letters = max(len(_text(entry)) for entry in rows)
    return [low, low * (high / low) ** (WIDTH / (WIDTH - letters * _LETTER - 14))]


def _ticks(domain: Sequence[float]) -> list[float]:
    """Return the round ratios of an axis that stand clear of each other."""
    found: list[float] = [1.0]
    least = (domain[1] / domain[0]) ** 0.055
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        inside = domain[0] <= tick <= domain[1]
        if inside and all(max(tick / other, other / tick) >= least for other in found):
            found.append(tick)
    return sorted(found)


def _panel(
    way: str, rows: Sequence[Row], domain: list[float], question: str, axis_title: str
) -> alt.LayerChart:
    scale = alt.Scale(type="log", domain=domain, nice=False)
    order = [entry.quantity.label for entry in rows]
    axis = alt.Axis(title=axis_title, values=_ticks(domain), format="~g")
    x = alt.X("ratio:Q", scale=scale, axis=axis)
    y = alt.Y("quantity:N", sort=order, axis=named_axis(order))
    base = alt.Chart(alt.NamedData(name=way)).encode(y=y)
    stroke = alt.Stroke("colour:N", scale=None)
    one = alt.Chart(alt.NamedData(name="one")).mark_rule(stroke=light("strong"), strokeWidth=1)
    interval = base.transform_filter("isValid(datum.lower)")
    layers = [
        one.encode(x=x),
        interval.mark_rule(strokeWidth=2).encode(
            x=alt.X("lower:Q"), x2=alt.X2("upper:Q"), stroke=stroke
        ),
        base.mark_point(strokeWidth=1.6, opacity=1).encode(
            x=x,
            fill=alt.Fill("fill:N", scale=None),
            stroke=stroke,
            shape=alt.Shape("shape:N", scale=None),
            size=alt.Size("size:Q", scale=None),
        ),
        _words(base, stroke=light("surface")),  # keeps the lines behind it off the figures
        _words(base),
    ]
    past = textwrap.wrap(forced_past(rows), _LINE)
    title = alt.TitleParams(question, subtitle=past or alt.Undefined)
    return layered(layers, width=WIDTH, height=_ROW * len(rows), title=title)


def _words(base: alt.Chart, stroke: str | None = None) -> alt.Chart:
    look = {"stroke": stroke, "strokeWidth": 4} if stroke else {"fill": light("strong")}
    mark = alt.MarkDef(type="text", align="left", dx=11, fontWeight=600, **look)
    words: alt.Chart = base.mark_text().encode(x=alt.X("end:Q"), text=alt.Text("text:N"))
    words.mark = mark
    return words


def _table(rows: Sequence[Row]) -> Table:
    found = [
        row(
            entry.quantity.label,
            number(entry.effect.ratio),
            number(entry.effect.lower),
            number(entry.effect.upper),
            entry.reason + (f"; forced: {entry.forced}" if entry.forced else ""),
        )
        for entry in rows
        if entry.effect is not None
    ]
    titles = columns("quantity", "#B/A", "#95 % from", "#to", "call")
    return Table(columns=titles, rows=found, caption="Ratios with their intervals")
