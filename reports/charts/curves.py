"""Curves over a swept setting: latency against throughput, and rates with ideal scaling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.svg import Data, join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import arm_colour, arm_marker, arm_role, light
from wattload.reports.quantity import DIRECTIONS, Scale, label, number, scale_for, scaled, whole
from wattload.reports.stats.sweeps import (
    PERCENTILES,
    LoadCurve,
    LoadCurves,
    LoadPoint,
    ScaleCurve,
    Scaling,
)

_WIDTH = 372
_HEIGHT = 230
_GUTTER = 44
_LETTER = 6.6
_LINE = 10.0
_LIFT = 12
_MARK_RADIUS = 5.0
_DOUBLINGS = 3
"""An axis over which values double at least so often is logarithmic."""

_IDEAL_STEPS = 32


def load_figure(name: str, subject: str, found: LoadCurves) -> Figure:
    """Return latency (logarithmic) against throughput: a panel per percentile, on one scale.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        found: a curve for each arm.
    """
    loads = [at for curve in found.curves for at in curve.points]
    rate = scale_for(Unit.BYTES_PER_SECOND, max(at.rate_bytes_per_s for at in loads))
    latencies = [value for at in loads for value in at.percentiles_s.values() if value is not None]
    time = scale_for(Unit.SECONDS, math.sqrt(min(latencies) * max(latencies)))
    frame = _Frame(
        most=rate.shown(max(at.rate_bytes_per_s for at in loads)) * 1.08,
        low=time.shown(min(latencies)) / 1.5,
        high=time.shown(max(latencies)) * 1.8,
    )
    data: Data = {}
    panels = [
        _load_panel(share, found.curves, (rate, time), frame, data)
        for share in PERCENTILES
        if any(at.percentiles_s[share] is not None for at in loads)
    ]
    axis = label(found.axis)
    caption = (
        f"Each point is one value of {axis}, which is its label where there is room: the latency "
        f"of single {found.kind}s, lower is better, over throughput, higher is better. The latency "
        "axis is logarithmic."
    )
    return make_figure(
        join_panels("hconcat", panels, spacing=_GUTTER),
        data,
        name=name,
        title=f"{subject}: latency against throughput",
        caption=caption,
        table=_load_table(found, rate, time),
        legend=[(arm_role(curve.letter), curve.name) for curve in found.curves],
    )


def scaling_figure(name: str, subject: str, found: Sequence[Scaling]) -> Figure:
    """Return a panel per rate over the swept setting, with ideal scaling where it is a count.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        found: one for each rate.
    """
    data: Data = {}
    panels = [_ScalePanel(scaling, index, data).chart() for index, scaling in enumerate(found)]
    axis = label(found[0].axis)
    every = [curve for scaling in found for curve in scaling.curves]
    caption = f"Rates over {axis}: lines connect the medians of valid runs"
    caption += ", dots are single runs." if any(map(_has_dots, every)) else "."
    if any(scaling.is_count for scaling in found):
        caption += (
            f" The dashed line is ideal scaling: the arm's rate at its first value of {axis}, "
            "scaled in proportion."
        )
    return make_figure(
        join_panels("concat", panels, columns=2, spacing={"row": 26, "column": _GUTTER}),
        data,
        name=name,
        title=f"{subject}: rates over {axis}",
        caption=caption,
        table=_scaling_table(found),
        legend=list(dict.fromkeys((arm_role(curve.letter), curve.name) for curve in every)),
    )


class _Frame:
    """The axes of latency against throughput: throughput from 0, latency logarithmic."""

    def __init__(self, *, most: float, low: float, high: float) -> None:
        self.most, self.low, self.high = most, low, high

    def pixels(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point, from the top left."""
        height = math.log(self.high / y) / math.log(self.high / self.low)
        return x / self.most * _WIDTH, height * _HEIGHT

    def channels(self, rate: Scale, time: Scale) -> tuple[alt.X, alt.Y]:
        """Return both axes; the title of throughput has its unit and its better direction."""
        x_axis = alt.Axis(title=f"throughput, {rate.unit} ({DIRECTIONS['higher']})", tickCount=6)
        y_axis = alt.Axis(title=None, values=_log_ticks(self.low, self.high))
        x = alt.X("x:Q", axis=x_axis, scale=alt.Scale(domain=[0, self.most], nice=False))
        y_scale = alt.Scale(type="log", domain=[self.low, self.high], nice=False)
        return x, alt.Y("y:Q", axis=y_axis, scale=y_scale)


def _log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten between two ends."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = (float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5))
    return [tick for tick in ticks if low <= tick <= high]


def _load_panel(
    share: str, curves: Sequence[LoadCurve], scales: tuple[Scale, Scale], frame: _Frame, data: Data
) -> alt.LayerChart:
    rate, time = scales
    x, y = frame.channels(rate, time)
    found = {curve.letter: list(_load_rows(curve.points, share, scales)) for curve in curves}
    places = [frame.pixels(at["x"], at["y"]) for rows in found.values() for at in rows]
    labels = _PointLabels(places)
    lines, marks, texts = [], [], []
    for letter, rows in found.items():
        key = f"{share}{letter}"
        data[key] = [at | labels.place(at["value"], *frame.pixels(at["x"], at["y"])) for at in rows]
        base = alt.Chart(alt.NamedData(name=key)).encode(x=x, y=y)
        line = base.mark_line(stroke=arm_colour(letter), strokeWidth=1.6)
        lines.append(line.encode(order=alt.Order("order:Q")))
        marks.append(_marks(base, letter, 58))
        texts += [_text(base, "above", -_LIFT), _text(base, "below", _LIFT)]
    title = alt.TitleParams(f"{share} latency, {time.unit}", subtitle=DIRECTIONS["lower"])
    return layer_charts([*lines, *marks, *texts], width=_WIDTH, height=_HEIGHT, title=title)


def _load_rows(
    points: Sequence[LoadPoint], share: str, scales: tuple[Scale, Scale]
) -> Iterator[dict[str, Any]]:
    """Yield the points that have the percentile, in order of the swept setting."""
    rate, time = scales
    for order, at in enumerate(points):
        latency = at.percentiles_s[share]
        if latency is not None:
            x, y = rate.shown(at.rate_bytes_per_s), time.shown(latency)
            yield {"x": round(x, 6), "y": round(y, 6), "order": order, "value": at.value}


class _PointLabels:
    """Places each label above its point, else below it, else nowhere: none covers another mark."""

    def __init__(self, marks: Sequence[tuple[float, float]]) -> None:
        self._taken = [(x, y, _MARK_RADIUS) for x, y in marks]

    def place(self, word: str, x: float, y: float) -> dict[str, str]:
        """Return the label by its side, and reserve its room; empty where there is none."""
        half = len(word) * _LETTER / 2
        for side, middle in (("above", y - _LIFT), ("below", y + _LIFT)):
            if middle <= _HEIGHT and self._is_free(x, middle, half):
                self._taken.append((x, middle, half))
                return {side: word}
        return {}

    def _is_free(self, x: float, middle: float, half: float) -> bool:
        return all(
            abs(middle - top) >= _LINE or abs(x - centre) > half + other
            for centre, top, other in self._taken
        )


def _marks(base: alt.Chart, letter: str, size: int) -> alt.Chart:
    marks: alt.Chart = base.mark_point(
        shape=arm_marker(letter),
        fill=arm_colour(letter),
        stroke=light("surface"),
        size=size,
        opacity=1,
    )
    return marks


def _text(base: alt.Chart, side: str, lift: float) -> alt.Chart:
    """Return the labels on one side of their points."""
    placed = base.transform_filter(f"isValid(datum.{side})")
    words: alt.Chart = placed.mark_text(
        dy=lift, fontSize=11, baseline="middle", fill=light("strong")
    )
    return words.encode(text=alt.Text(f"{side}:N"))


def _load_table(found: LoadCurves, rate: Scale, time: Scale) -> Table:
    titles = [f"#{share}, {time.unit}" for share in PERCENTILES]
    rows = [
        row(
            curve.name,
            at.value,
            whole(at.run_count),
            whole(at.operation_count),
            scaled(at.rate_bytes_per_s, rate),
            *[scaled(at.percentiles_s[share], time) for share in PERCENTILES],
        )
        for curve in found.curves
        for at in curve.points
    ]
    heads = ("arm", label(found.axis), "#runs", "#operations", f"#throughput, {rate.unit}")
    return Table(
        columns=columns(*heads, *titles),
        rows=rows,
        caption="Every point: all bytes ÷ all seconds of its runs; their histograms merged",
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
        return layer_charts(layers, width=_WIDTH, height=_HEIGHT, title=title)

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
        dots = runs.mark_point(
            shape="circle", fill=light("surface"), stroke=light("strong"), size=11, opacity=1
        )
        return [
            line.mark_line(stroke=colour, strokeWidth=1.6),
            _marks(line, curve.letter, 64),
            *([dots] if _has_dots(curve) else []),
        ]


def _has_dots(curve: ScaleCurve) -> bool:
    """Return whether single runs are drawn: where each is its own median they coincide with it."""
    return any(len(place.rates) > 1 for place in curve.places)


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
