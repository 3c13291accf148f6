"""Rates over a swept setting: a line per arm, and what growth in proportion would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.curves import ScaleCurve, Scaling
from wattload.reports.quantity import DIRECTIONS, label, number, scale_for, scaled
from wattload.reports.svg import joined, layered, render
from wattload.reports.themes import arm_colour, arm_marker, arm_role, light

_WIDTH = 372
_HEIGHT = 230
_GUTTER = 44
_DOUBLINGS = 3
"""An axis that doubles at least so often is logarithmic."""

_IDEAL_STEPS = 32
Rows = list[dict[str, Any]]
Data = dict[str, Rows]


def scaling_figure(name: str, subject: str, found: Sequence[Scaling]) -> Figure:
    """Return a panel per rate over the swept setting, with growth in proportion where it is one."""
    data: Data = {}
    panels = [_ScalePanel(scaling, index, data).chart() for index, scaling in enumerate(found)]
    axis = label(found[0].axis)
    description = f"Rates over {axis}: lines join the medians of valid runs"
    description += ", dots are single runs." if any(map(_has_dots, _curves(found))) else "."
    if any(scaling.is_count for scaling in found):
        description += (
            f" The dashed line is ideal scaling: the arm's rate at its first value of {axis}, "
            "grown in proportion."
        )
    curves = {curve.letter: curve.name for curve in _curves(found)}
    return Figure(
        svg=render(
            joined("concat", panels, columns=2, spacing={"row": 26, "column": _GUTTER}),
            data,
            name=name,
            title=f"{subject}: rates over {axis}",
            description=description,
        ),
        caption=description,
        table=_scaling_table(found),
        legend=[(arm_role(letter), text) for letter, text in curves.items()],
    )


class _ScalePanel:
    """One rate over a numeric axis; its rows go into ``data`` under names with its index."""

    def __init__(self, scaling: Scaling, index: int, data: Data) -> None:
        self._scaling, self._index, self._data = scaling, index, data
        places = [place for curve in scaling.curves for place in curve.places]
        most = max(rate for place in places for rate in place.rates)
        self._shown = scale_for(scaling.unit, most)
        self._most = self._shown.shown(most) * 1.12
        self._numbers = sorted({place.number for place in places})
        self._is_wide = self._numbers[-1] / self._numbers[0] >= 2**_DOUBLINGS

    def chart(self) -> alt.LayerChart:
        """Return the panel: ideal lines below, then each arm's runs, line and medians."""
        x, y = self._channels()
        layers: list[alt.Chart] = []
        if self._scaling.is_count:
            layers += [self._ideal(curve, x, y) for curve in self._scaling.curves]
        for curve in self._scaling.curves:
            layers += self._curve(curve, x, y)
        subtitle = f"{self._shown.unit}, {DIRECTIONS['higher']}".removeprefix(", ")
        title = alt.TitleParams(self._scaling.label, subtitle=subtitle)
        return layered(layers, width=_WIDTH, height=_HEIGHT, title=title)

    def _channels(self) -> tuple[alt.X, alt.Y]:
        low, high = self._numbers[0], self._numbers[-1]
        if self._is_wide:
            x_scale = alt.Scale(type="log", base=2, domain=[low / 1.15, high * 1.15], nice=False)
        else:
            pad = (high - low) * 0.06
            x_scale = alt.Scale(domain=[low - pad, high + pad], nice=False, zero=False)
        x_axis = alt.Axis(
            title=label(self._scaling.axis), values=self._numbers, labelOverlap="greedy", grid=False
        )
        y_scale = alt.Scale(domain=[0, self._most], nice=False)
        x = alt.X("x:Q", axis=x_axis, scale=x_scale)
        return x, alt.Y("y:Q", axis=alt.Axis(title=None, tickCount=5), scale=y_scale)

    def _rows(self, name: str, letter: str, pairs: Iterator[tuple[float, float]]) -> alt.Chart:
        key = f"{name}{self._index}{letter}"
        shown = self._shown
        self._data[key] = [{"x": x, "y": round(shown.shown(rate), 6)} for x, rate in pairs]
        return alt.Chart(alt.NamedData(name=key))

    def _ideal(self, curve: ScaleCurve, x: alt.X, y: alt.Y) -> alt.Chart:
        low, high = curve.places[0].number, self._numbers[-1]
        steps = (low * (high / low) ** (step / _IDEAL_STEPS) for step in range(_IDEAL_STEPS + 1))
        base = self._rows("ideal", curve.letter, ((at, curve.ideal(at)) for at in steps))
        line: alt.Chart = base.mark_line(
            stroke=arm_colour(curve.letter), strokeWidth=1.2, strokeDash=[5, 4], clip=True
        )
        return line.encode(x=x, y=y)

    def _curve(self, curve: ScaleCurve, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        colour = arm_colour(curve.letter)
        middles = ((place.number, place.middle) for place in curve.places)
        every = ((place.number, rate) for place in curve.places for rate in place.rates)
        line = self._rows("line", curve.letter, middles).encode(x=x, y=y)
        runs = self._rows("runs", curve.letter, every).encode(x=x, y=y)
        return [
            line.mark_line(stroke=colour, strokeWidth=1.6),
            line.mark_point(
                shape=arm_marker(curve.letter),
                fill=colour,
                stroke=light("surface"),
                size=64,
                opacity=1,
            ),
            *([_dots(runs)] if _has_dots(curve) else []),
        ]


def _curves(found: Sequence[Scaling]) -> list[ScaleCurve]:
    return [curve for scaling in found for curve in scaling.curves]


def _has_dots(curve: ScaleCurve) -> bool:
    return any(len(place.rates) > 1 for place in curve.places)


def _dots(runs: alt.Chart) -> alt.Chart:
    """Return the single runs; where each is its own median they are drawn already."""
    dots: alt.Chart = runs.mark_point(
        shape="circle", fill=light("surface"), stroke=light("strong"), size=11, opacity=1
    )
    return dots


def _scaling_table(found: Sequence[Scaling]) -> Table:
    rows = []
    for scaling in found:
        most = max(r for curve in scaling.curves for place in curve.places for r in place.rates)
        shown = scale_for(scaling.unit, most)
        for curve in scaling.curves:
            for place in curve.places:
                ideal = curve.ideal(place.number) if scaling.is_count else None
                rows.append(
                    row(
                        scaling.label,
                        shown.unit,
                        curve.name,
                        number(place.number),
                        scaled(place.middle, shown),
                        scaled(ideal, shown),
                        "; ".join(scaled(rate, shown) for rate in place.rates),
                    )
                )
    titles = ("rate", "unit", "arm", f"#{label(found[0].axis)}", "#median", "#ideal", "runs")
    return Table(
        columns=columns(*titles),
        rows=rows,
        caption=f"Rates over {label(found[0].axis)}",
    )
