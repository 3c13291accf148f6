"""Ratios of two arms with their intervals, on logarithmic axes that agree."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.captions import forced_caption, forced_clause, forced_title
from wattload.reports.charts.marks import run_marks
from wattload.reports.charts.svg import join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import arm_marker, arm_role, light, marker_size, name_axis
from wattload.reports.quantity import number
from wattload.reports.stats.comparison import Row

WIDTH = 640
_ROW = 26
_LETTER = 6.9
_LINE = 104
_TICKS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9),
    *(1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50),
)
_TITLES = {
    "higher": (
        "What multiple of {a} is {b}? (higher is better)",
        "← {a} is better  ·  {b} / {a}  ·  {b} is better →",
    ),
    "lower": (
        "What multiple of {a} is {b}? (lower is better)",
        "← {b} is better  ·  {b} / {a}  ·  {a} is better →",
    ),
    "neither": ("What multiple of {a} is {b}? (no better direction)", "{b} / {a}"),
}
"""By better direction: the titles of the panel and of its axis."""
_CAPTION = (
    "{b} divided by {a}: the mark is the ratio of geometric means, the line its 95 % interval "
    "(with at least 5 runs per arm). A filled mark has the colour and shape of the better arm; "
    "a hollow grey mark means no winner. The axis is logarithmic: half and twice are equally "
    "far from 1."
)
_FORCED_CAPTION = (
    " A hollow mark in an arm's colour and shape is a verdict that only --force allows."
)


def effects_figure(name: str, subject: str, rows: Sequence[Row], a: str, b: str) -> Figure | None:
    """Return B/A per quantity; ``None`` where there is no ratio to draw.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        rows: one for each quantity; those without a ratio are left out.
        a: the name of the first arm.
        b: the name of the second arm.
    """
    drawn = [entry for entry in rows if entry.effect is not None]
    if not drawn:
        return None
    members = {
        better: own
        for better in _TITLES
        if (own := [entry for entry in drawn if entry.quantity.better == better])
    }
    domain = _domain(drawn)
    panels = [
        _panel(better, own, domain, *[text.format(a=a, b=b) for text in _TITLES[better]])
        for better, own in members.items()
    ]
    data = {better: [_row(entry) for entry in own] for better, own in members.items()}
    forced = forced_clause(drawn)
    caption = (_CAPTION + _FORCED_CAPTION * bool(forced)).format(a=a, b=b)
    return make_figure(
        join_panels("vconcat", panels, spacing=18),
        data | {"one": [{"ratio": 1.0}]},
        name=name,
        title=forced_title(f"{subject}: {b} over {a}", forced),
        caption=forced_caption(caption, forced),
        sentences=[
            f"{entry.quantity.label}: {b}/{a} = "
            f"{number(entry.effect.ratio, 3)}{_forced_mark(entry)}."
            for entry in drawn
            if entry.effect is not None
        ],
        table=_table(drawn),
        legend=[(arm_role("A"), f"{a} is better"), (arm_role("B"), f"{b} is better")],
    )


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
        "stroke": colour,
        "fill": colour if letter and not entry.forced else light("surface"),
        "shape": shape,
        "size": 2 * marker_size(shape),
    }


def _text(entry: Row) -> str:
    found = entry.effect
    if found is None:
        return ""
    if found.lower is None or found.upper is None:
        return number(found.ratio, 3) + _forced_mark(entry)
    ends = f"{number(found.lower, 3)} to {number(found.upper, 3)}"
    return f"{number(found.ratio, 3)} ({ends}){_forced_mark(entry)}"


def _forced_mark(entry: Row) -> str:
    return ", forced" if entry.forced else ""


def _domain(rows: Sequence[Row]) -> list[float]:
    """Return the ends of an axis that holds 1, every ratio and interval, and the texts."""
    ends = [0.8, 1.25]
    for entry in rows:
        if entry.effect is not None:
            found = entry.effect
            ends += [end for end in (found.ratio, found.lower, found.upper) if end is not None]
    low, high = min(ends) / 1.1, max(ends) * 1.05
    letters = max(len(_text(entry)) for entry in rows)
    return [low, low * (high / low) ** (WIDTH / (WIDTH - letters * _LETTER - 14))]


def _ticks(domain: Sequence[float]) -> list[float]:
    """Return the round ratios of an axis whose labels do not overlap."""
    found: list[float] = [1.0]
    least = (domain[1] / domain[0]) ** 0.055
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        inside = domain[0] <= tick <= domain[1]
        if inside and all(max(tick / other, other / tick) >= least for other in found):
            found.append(tick)
    return sorted(found)


def _panel(
    better: str, rows: Sequence[Row], domain: list[float], question: str, axis_title: str
) -> alt.LayerChart:
    scale = alt.Scale(type="log", domain=domain, nice=False)
    order = [entry.quantity.label for entry in rows]
    axis = alt.Axis(title=axis_title, values=_ticks(domain), format="~g")
    x = alt.X("ratio:Q", scale=scale, axis=axis)
    y = alt.Y("quantity:N", sort=order, axis=name_axis(order))
    base = alt.Chart(alt.NamedData(name=better)).encode(y=y)
    stroke = alt.Stroke("stroke:N", scale=None)
    one = alt.Chart(alt.NamedData(name="one")).mark_rule(stroke=light("strong"), strokeWidth=1)
    interval = base.transform_filter("isValid(datum.lower)")
    layers = [
        one.encode(x=x),
        interval.mark_rule(strokeWidth=2).encode(
            x=alt.X("lower:Q"), x2=alt.X2("upper:Q"), stroke=stroke
        ),
        run_marks(base.encode(x=x), stroke_width=1.6),
        _texts(base, stroke=light("surface")),  # keeps the lines behind the text off it
        _texts(base),
    ]
    forced = textwrap.wrap(forced_clause(rows), _LINE)
    title = alt.TitleParams(question, subtitle=forced or alt.Undefined)
    return layer_charts(layers, width=WIDTH, height=_ROW * len(rows), title=title)


def _texts(base: alt.Chart, stroke: str | None = None) -> alt.Chart:
    look = {"stroke": stroke, "strokeWidth": 4} if stroke else {"fill": light("strong")}
    mark = alt.MarkDef(type="text", align="left", dx=11, fontWeight=600, **look)
    texts: alt.Chart = base.mark_text().encode(x=alt.X("end:Q"), text=alt.Text("text:N"))
    texts.mark = mark
    return texts


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
    titles = columns("quantity", "#B/A", "#95 % from", "#to", "verdict")
    return Table(columns=titles, rows=found, caption="Ratios with their intervals")
