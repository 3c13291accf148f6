"""Bars side by side, one per arm or phase: a median with its runs, an interval, or a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from wattload.reports.charts.marks import drawn
from wattload.reports.quantity import DIRECTIONS, Scale, out_of_range, scaled
from wattload.reports.svg import fill_of, layered
from wattload.reports.themes import light, named_axis

Rows = list[dict[str, Any]]
LABELS = (
    "replace(format(datum.value, datum.value && abs(datum.value) < 1e-5 ? '~e' : ',~f'), "
    "/,/g, '\u202f')"
)
"""How an axis writes its numbers: as the rest of the page does."""

_ROW = 28
_HEIGHT = 16
_LETTER = 6.6
_GAP = 10
_LIMIT = 34
_Way = tuple[str | None, Literal["start", "end"]]
_WAYS: Mapping[str, _Way] = {
    "higher": (f"{DIRECTIONS['higher']} →", "end"),
    "lower": (f"← {DIRECTIONS['lower']}", "start"),
}
_NO_WAY: _Way = (None, "start")
_SIZES = {"circle": 42, "square": 40, "diamond": 60}
_TRIANGLE = 80


@dataclass(frozen=True, slots=True)
class Dot:
    """One run's figure in SI base units; hollow if it is not ``valid``, or counts as ``forced``."""

    value: float
    valid: bool = True
    forced: bool = False

    @property
    def colours(self) -> tuple[str, str]:
        """What it is filled and outlined with."""
        strong, surface = light("strong"), light("surface")
        return (strong, surface) if self.valid and not self.forced else (surface, strong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of a panel, in SI base units: ``value``, or the ends of an interval in its place.

    ``role`` colours and hatches it, ``marker`` is the shape of its ``dots``. ``error`` is the half
    width of the value's uncertainty. ``note`` stands behind the figure, ``count`` at the right
    edge; ``reason`` says why there is neither a value nor an interval.
    """

    label: str
    role: str
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    error: float | None = None
    dots: Sequence[Dot] = ()
    marker: str = "circle"
    note: str = ""
    count: str = ""
    reason: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether only an interval is known, or an upper end alone."""
        return self.value is None and self.upper is not None

    @property
    def end(self) -> float | None:
        """Where its marks end; ``None`` for a row without any."""
        error = self.error or 0.0
        ends = [dot.value for dot in self.dots]
        ends += [end for end in (self.value, self.upper) if end is not None]
        return max(ends) + error if ends else None

    def text(self, scale: Scale) -> str:
        """Return what is printed behind its marks."""
        if self.value is not None:
            text = scaled(self.value, scale, 3)
        elif self.upper is not None:
            text = interval_text(self.lower, self.upper, scale)
        else:
            text = _short(self.reason or "no figure", _LIMIT)
        return f"{text}, {self.note}" if self.note and self.end is not None else text


def in_range(bar: Bar) -> Bar:
    """Return a bar that can be drawn: one with a mark out of range says so in place of all."""
    dots = [dot.value for dot in bar.dots]
    reasons = map(out_of_range, [bar.value, bar.lower, bar.upper, bar.error, *dots])
    reason = next((reason for reason in reasons if reason), "")
    return Bar(label=bar.label, role=bar.role, count=bar.count, reason=reason) if reason else bar


def interval_text(lower: float | None, upper: float, scale: Scale, digits: int = 3) -> str:
    """Return an interval as it must be printed: both ends, or ≤ where the lower is unknown."""
    text = scaled(upper, scale, digits)
    return f"≤ {text}" if lower is None else f"{scaled(lower, scale, digits)} to {text}"


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"


def axis_of(better: str, values: Sequence[float], *, extent: float = 0) -> alt.Axis:
    """Return an axis with these ticks; its title says in which direction better lies.

    ``extent`` is how many pixels it keeps for its labels, so that panels over each other align.
    """
    title, anchor = _WAYS.get(better, _NO_WAY)
    return alt.Axis(
        title=title,
        titleAnchor=anchor,
        values=list(values),
        labelExpr=LABELS,
        minExtent=extent,
    )


def marker_size(shape: str) -> int:
    """Return the area at which a marker looks as large as the others."""
    return _SIZES.get(shape, _TRIANGLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity of several bars: its question, what was drawn, and the width in pixels."""

    key: str
    bars: Sequence[Bar]
    scale: Scale
    question: str
    remark: Sequence[str]
    better: str
    width: int

    @property
    def largest(self) -> float:
        """The largest end of all marks, in the scale's unit."""
        ends = [bar.end for bar in self.bars if bar.end is not None]
        return self.scale.shown(max(ends, default=0.0)) or 1.0

    def data(self) -> dict[str, Rows]:
        """Return the rows of its marks, by the names that its chart gives them."""
        return {
            f"{self.key}bars": [self._bar(bar) for bar in self.bars],
            f"{self.key}dots": [
                self._dot(bar, dot)
                for bar in self.bars
                for dot in drawn(bar.dots, lambda dot: dot.value)
            ],
        }

    def _bar(self, bar: Bar) -> dict[str, Any]:
        shown = self.scale.shown
        found: dict[str, Any] = {
            "label": bar.label,
            "fill": fill_of(bar.role),
            "stroke": light(bar.role),
            "count": bar.count,
            "end": shown(bar.end or 0.0),
            ("text" if bar.end is not None else "reason"): bar.text(self.scale),
        }
        if bar.value is not None:
            found["v"] = shown(bar.value)
        elif bar.upper is not None:
            found |= {"from": shown(bar.lower or 0.0), "to": shown(bar.upper)}
            found["open"] = bar.lower is None
        if bar.value is not None and bar.error:
            found |= {"low": shown(bar.value - bar.error), "high": shown(bar.value + bar.error)}
        return found

    def _dot(self, bar: Bar, dot: Dot) -> dict[str, Any]:
        fill, stroke = dot.colours
        return {
            "label": bar.label,
            "v": self.scale.shown(dot.value),
            "shape": bar.marker,
            "size": marker_size(bar.marker),
            "fill": fill,
            "stroke": stroke,
        }

    def chart(self) -> alt.LayerChart:
        """Return the panel, its title the question."""
        labels = [bar.label for bar in self.bars]
        y = alt.Y("label:N", sort=labels, axis=named_axis(labels))
        bars = alt.Chart(alt.NamedData(name=f"{self.key}bars")).encode(y=y)
        dots = alt.Chart(alt.NamedData(name=f"{self.key}dots")).encode(y=y)
        x = self._x()
        layers = [
            bars.mark_bar(height=_HEIGHT).encode(x=x, fill=alt.Fill("fill:N", scale=None)),
            *_interval(bars),
            bars.transform_filter("isValid(datum.high)")
            .mark_rule(stroke=light("strong"), strokeWidth=2)
            .encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")),
            run_marks(dots.encode(x=x), stroke_width=1.2),
            *self._words(bars),
        ]
        title = alt.TitleParams(self.question, subtitle=list(self.remark))
        return layered(layers, width=self.width, height=_ROW * len(labels), title=title)

    def _x(self) -> alt.X:
        """Return the axis; ticks end where the marks do, words have room behind them."""
        letters = max((len(bar.text(self.scale)) for bar in self.bars if bar.end), default=0)
        counts = max((len(bar.count) for bar in self.bars), default=0)
        room = min((letters + counts) * _LETTER + 3 * _GAP, self.width * 0.62)
        axis = axis_of(self.better, ticks(self.largest))
        domain = [0, self.largest * self.width / (self.width - room)]
        return alt.X("v:Q", axis=axis, scale=alt.Scale(domain=domain, nice=False))

    def _words(self, bars: alt.Chart) -> list[alt.Chart]:
        soft, strong = alt.FillValue(light("text")), alt.FillValue(light("strong"))
        edge = alt.value(self.width)
        figure = bars.transform_filter("isValid(datum.text)")
        reason = bars.transform_filter("isValid(datum.reason)")
        return [
            figure.mark_text(align="left", dx=_GAP, fontWeight=600).encode(
                x=alt.X("end:Q"), text=alt.Text("text:N"), fill=strong
            ),
            reason.mark_text(align="left", dx=4, fontStyle="italic").encode(
                x=alt.value(0), text=alt.Text("reason:N"), fill=soft
            ),
            bars.mark_text(align="right").encode(x=edge, text=alt.Text("count:N"), fill=soft),
        ]


def ticks(largest: float) -> list[float]:
    """Return round numbers from 0 to the largest, about five of them."""
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= largest / 4.5)
    count = int(largest * 1.02 / step) + 1
    return [float(f"{index * step:.12g}") for index in range(count)]


def _interval(bars: alt.Chart) -> list[alt.Chart]:
    """Return the marks of bounds: a line with a cap at each end that is known."""
    bound = bars.transform_filter("isValid(datum.to)")
    stroke, fill = alt.Stroke("stroke:N", scale=None), alt.Fill("stroke:N", scale=None)
    cap = bound.mark_tick(opacity=1, thickness=2.5, size=_HEIGHT + 2)
    return [
        bound.transform_filter("!datum.open")
        .mark_rule(strokeWidth=2.5)
        .encode(x=alt.X("from:Q"), x2=alt.X2("to:Q"), stroke=stroke),
        bound.transform_filter("datum.open")
        .mark_rule(strokeWidth=2.5, strokeDash=[3, 3])
        .encode(x=alt.X("from:Q"), x2=alt.X2("to:Q"), stroke=stroke),
        cap.encode(x=alt.X("to:Q"), fill=fill),
        cap.transform_filter("!datum.open").encode(x=alt.X("from:Q"), fill=fill),
    ]


def run_marks(dots: alt.Chart, *, stroke_width: float) -> alt.Chart:
    """Return the marks of single runs, placed already, in the shapes and colours of their rows."""
    marks: alt.Chart = dots.mark_point(strokeWidth=stroke_width, opacity=1).encode(
        shape=alt.Shape("shape:N", scale=None),
        size=alt.Size("size:Q", scale=None),
        fill=alt.Fill("fill:N", scale=None),
        stroke=alt.Stroke("stroke:N", scale=None),
    )
    return marks
