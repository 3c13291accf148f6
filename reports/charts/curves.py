"""Latency against throughput: a line per arm through the values of what was swept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.curves import SHARES, LoadCurve, LoadCurves, Loaded
from wattload.reports.quantity import DIRECTIONS, Scale, label, scale_for, scaled, whole
from wattload.reports.svg import joined, layered, render
from wattload.reports.themes import arm_colour, arm_marker, arm_role, light

_WIDTH = 372
_HEIGHT = 230
_GUTTER = 44
_LETTER = 6.6
_LINE = 10.0
_LIFT = 12
_MARK = 5.0
Rows = list[dict[str, Any]]
Data = dict[str, Rows]


def load_figure(name: str, subject: str, found: LoadCurves) -> Figure:
    """Return latency (logarithmic) against throughput: a panel per percentile, same axes."""
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
        for share in SHARES
        if any(at.percentiles_s[share] is not None for at in loads)
    ]
    axis = label(found.axis)
    description = (
        f"Each point is one value of {axis}, written beside it where there is room: latency of "
        f"single {found.kind}s, lower is better, over throughput, higher is better. The "
        "latency axis is logarithmic."
    )
    return Figure(
        svg=render(
            joined("hconcat", panels, spacing=_GUTTER),
            data,
            name=name,
            title=f"{subject}: latency against throughput",
            description=description,
        ),
        caption=description,
        table=_load_table(found, rate, time),
        legend=[(arm_role(curve.letter), curve.name) for curve in found.curves],
    )


class _Frame:
    """The axes of latency against throughput: throughput from 0, latency logarithmic."""

    def __init__(self, *, most: float, low: float, high: float) -> None:
        self.most, self.low, self.high = most, low, high

    def pixels(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies, from the top left."""
        height = math.log(self.high / y) / math.log(self.high / self.low)
        return x / self.most * _WIDTH, height * _HEIGHT

    def channels(self, rate: Scale, time: Scale) -> tuple[alt.X, alt.Y]:
        """Return the two axes, titled with their units and which way is better."""
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
    words = _Words(places)
    lines, marks, texts = [], [], []
    for letter, rows in found.items():
        key = f"{share}{letter}"
        data[key] = [at | words.beside(at["value"], *frame.pixels(at["x"], at["y"])) for at in rows]
        base = alt.Chart(alt.NamedData(name=key)).encode(x=x, y=y)
        line = base.mark_line(stroke=arm_colour(letter), strokeWidth=1.6)
        lines.append(line.encode(order=alt.Order("order:Q")))
        marks.append(_marks(base, letter))
        texts += [_text(base, "above", -_LIFT), _text(base, "below", _LIFT)]
    title = alt.TitleParams(f"{share} latency, {time.unit}", subtitle=DIRECTIONS["lower"])
    return layered([*lines, *marks, *texts], width=_WIDTH, height=_HEIGHT, title=title)


def _load_rows(
    points: Sequence[Loaded], share: str, scales: tuple[Scale, Scale]
) -> Iterator[dict[str, Any]]:
    """Yield the points that have the percentile, in order of what was swept."""
    rate, time = scales
    for order, at in enumerate(points):
        latency = at.percentiles_s[share]
        if latency is not None:
            x, y = rate.shown(at.rate_bytes_per_s), time.shown(latency)
            yield {"x": round(x, 6), "y": round(y, 6), "order": order, "value": at.value}


class _Words:
    """Places each point's word above it, else below it, else nowhere: none covers another mark."""

    def __init__(self, marks: Sequence[tuple[float, float]]) -> None:
        self._taken = [(x, y, _MARK) for x, y in marks]

    def beside(self, word: str, x: float, y: float) -> dict[str, str]:
        """Return the word under the name of its side, and keep its place."""
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


def _marks(base: alt.Chart, letter: str) -> alt.Chart:
    marks: alt.Chart = base.mark_point(
        shape=arm_marker(letter),
        fill=arm_colour(letter),
        stroke=light("surface"),
        size=58,
        opacity=1,
    )
    return marks


def _text(base: alt.Chart, side: str, lift: float) -> alt.Chart:
    """Return the words on one side of their points."""
    placed = base.transform_filter(f"isValid(datum.{side})")
    words: alt.Chart = placed.mark_text(
        dy=lift, fontSize=11, baseline="middle", fill=light("strong")
    )
    return words.encode(text=alt.Text(f"{side}:N"))


def _load_table(found: LoadCurves, rate: Scale, time: Scale) -> Table:
    titles = [f"#{share}, {time.unit}" for share in SHARES]
    rows = [
        row(
            curve.name,
            at.value,
            whole(at.run_count),
            whole(at.operation_count),
            scaled(at.rate_bytes_per_s, rate),
            *[scaled(at.percentiles_s[share], time) for share in SHARES],
        )
        for curve in found.curves
        for at in curve.points
    ]
    heads = ("arm", label(found.axis), "#runs", "#operations", f"#throughput, {rate.unit}")
    return Table(
        columns=columns(*heads, *titles),
        rows=rows,
        caption="Every point: bytes of all its runs ÷ their seconds, their histograms merged",
    )
