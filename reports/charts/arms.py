"""Arms side by side: a bar for each arm's median, a mark for each run, an interval for bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.compare import Figure as RunFigure
from wattload.reports.compare import Row
from wattload.reports.quantity import Scale, counted, listed, scale_for, scaled
from wattload.reports.subject import LETTERS, lettered
from wattload.reports.svg import hatch_fill, layered, render
from wattload.reports.themes import ARM_ROLES, light

PANEL_WIDTH = 372
_ROW = 26
_COLUMNS = 2
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-right")
_DIRECTIONS = {
    "higher": "more is better",
    "lower": "less is better",
    "neither": "neither is better",
}


def arms_figure(name: str, subject: str, rows: Sequence[Row], arms: Sequence[str]) -> Figure | None:
    """Return one panel per quantity, each on its own axis; ``None`` where nothing has a figure."""
    drawn = [entry for entry in rows if _largest(entry) is not None]
    if not drawn:
        return None
    data: dict[str, list[dict[str, Any]]] = {}
    panels = []
    for index, entry in enumerate(drawn):
        scale = scale_for(entry.quantity.unit, _largest(entry))
        data[f"bars{index}"] = _bars(entry, arms, scale)
        data[f"runs{index}"] = _runs(entry, arms, scale)
        panels.append(_panel(index, entry, arms, scale))
    description = (
        "Bars are medians of the valid runs of each arm, marks are single runs; a cross is a run "
        "that is not compared. Each panel has its own axis, from zero."
    )
    chart = alt.concat(*panels, columns=_COLUMNS, spacing={"row": 26, "column": 36})
    title = f"{subject}: {listed(list(arms))}"
    return Figure(
        svg=render(chart, data, name=name, title=title, description=description),
        caption=description,
        table=_table(drawn, arms),
        legend=_legend(arms),
    )


def _legend(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Return what each colour stands for; an arm alone needs no letter."""
    named = [lettered(*pair) for pair in zip(LETTERS, arms, strict=False)]
    return list(zip(ARM_ROLES, named if len(arms) > 1 else arms, strict=False))


def _largest(entry: Row) -> float | None:
    ends = [
        end
        for figures in entry.figures.values()
        for figure in figures
        for end in (figure.value, figure.upper)
        if end is not None
    ]
    return max(ends, default=None)


def _bars(entry: Row, arms: Sequence[str], scale: Scale) -> list[dict[str, Any]]:
    """Return a median per arm; of an arm known by bounds only, its widest interval."""
    rows = []
    for index, arm in enumerate(arms):
        spread = entry.spreads.get(arm)
        bounds = [f for f in entry.figures.get(arm, ()) if f.value is None and f.upper is not None]
        result: dict[str, Any] = {
            "arm": LETTERS[index],
            "fill": _fill(index),
            "stroke": light(ARM_ROLES[index]),
        }
        if spread is not None:
            result |= {"v": scale.shown(spread.median), "end": scale.shown(spread.maximum)}
            result["text"] = scaled(spread.median, scale, 3)
        elif bounds:
            result |= _bound(bounds, scale)
        rows.append(result)
    return rows


def _bound(figures: Sequence[RunFigure], scale: Scale) -> dict[str, Any]:
    upper = max(figure.upper or 0.0 for figure in figures)
    lowers = [figure.lower for figure in figures if figure.lower is not None]
    lower = min(lowers, default=None)
    text = f"≤ {scaled(upper, scale, 3)}"
    if lower is not None:
        text = f"{scaled(lower, scale, 3)} to {scaled(upper, scale, 3)}"
    return {
        "bound": scale.shown(lower or 0.0),
        "end": scale.shown(upper),
        "open": lower is None,
        "text": text,
    }


def _fill(index: int) -> str:
    return hatch_fill(f"hatch-{ARM_ROLES[index]}") if index else light(ARM_ROLES[0])


def _runs(entry: Row, arms: Sequence[str], scale: Scale) -> list[dict[str, Any]]:
    return [
        {
            "arm": LETTERS[index],
            "v": scale.shown(figure.value),
            "shape": _SHAPES[index] if figure.valid else "cross",
            "stroke": light("strong" if figure.valid else "device"),
            "size": 30 if figure.valid else 70,
        }
        for index, arm in enumerate(arms)
        for figure in entry.figures.get(arm, ())
        if figure.value is not None
    ]


def _panel(index: int, entry: Row, arms: Sequence[str], scale: Scale) -> alt.LayerChart:
    largest = scale.shown(_largest(entry) or 1.0) or 1.0
    y = alt.Y("arm:N", sort=list(LETTERS), axis=alt.Axis(title=None, minExtent=18))
    axis = alt.Axis(title=None, tickCount=5)
    x = alt.X("v:Q", axis=axis, scale=alt.Scale(domain=[0, largest * 1.3], nice=False))
    bars = alt.Chart(alt.NamedData(name=f"bars{index}")).encode(y=y)
    runs = alt.Chart(alt.NamedData(name=f"runs{index}")).encode(y=y)
    layers = [
        bars.mark_bar(height=16).encode(x=x, fill=alt.Fill("fill:N", scale=None)),
        *_interval(bars),
        runs.mark_point(fill=light("surface"), strokeWidth=1.3).encode(
            x=x,
            shape=alt.Shape("shape:N", scale=None),
            size=alt.Size("size:Q", scale=None),
            stroke=alt.Stroke("stroke:N", scale=None),
        ),
        bars.mark_text(align="left", dx=10, fontWeight=600, fill=light("strong")).encode(
            x=alt.X("end:Q"), text="text:N"
        ),
    ]
    direction = _DIRECTIONS[entry.quantity.better]
    subtitle = f"{scale.unit}, {direction}".removeprefix(", ")
    title = alt.TitleParams(entry.quantity.label, subtitle=subtitle)
    return layered(layers, width=PANEL_WIDTH, height=_ROW * len(arms), title=title)


def _interval(bars: alt.Chart) -> list[alt.Chart]:
    """Return the marks of an arm that is known by bounds: both ends, or the upper one alone."""
    bound = bars.transform_filter("isValid(datum.bound)")
    band = bound.mark_bar(height=8, fillOpacity=0.25)
    cap = bound.mark_tick(thickness=2, size=18)
    stroke = alt.Stroke("stroke:N", scale=None)
    return [
        band.encode(x=alt.X("bound:Q"), x2="end:Q", fill=alt.Fill("fill:N", scale=None)),
        cap.encode(x=alt.X("end:Q"), stroke=stroke),
        cap.transform_filter("!datum.open").encode(x=alt.X("bound:Q"), stroke=stroke),
    ]


def _table(rows: Sequence[Row], arms: Sequence[str]) -> Table:
    """Return every run's figure: nothing is drawn that is not listed."""
    found = []
    for entry in rows:
        scale = scale_for(entry.quantity.unit, _largest(entry))
        for arm in arms:
            values = [
                scaled(figure.value, scale) + ("" if figure.valid else " (not compared)")
                for figure in entry.figures.get(arm, ())
            ]
            found.append(
                row(
                    entry.quantity.label,
                    scale.unit,
                    arm,
                    counted(len(values), "run"),
                    "; ".join(values),
                )
            )
    titles = columns("quantity", "unit", "arm", "#runs", "figures in order of start")
    return Table(columns=titles, rows=found, caption="Every run's figure")
