"""Horizontal bars: a panel for one quantity, with a bar for each arm, phase or power state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from wattload.reports.charts.marks import (
    interval_marks,
    linear_ticks,
    run_marks,
    thin_marks,
    value_axis,
)
from wattload.reports.charts.svg import Data, fill_of, layer_charts
from wattload.reports.charts.themes import light, marker_size, name_axis
from wattload.reports.quantity import Scale, interval_text, out_of_range, scaled

_ROW = 28
_HEIGHT = 16
_LETTER = 6.6
_GAP = 10
_REASON_LETTERS = 34


@dataclass(frozen=True, slots=True)
class Dot:
    """One run's figure in SI base units; hollow if it is not ``valid``, or counts as ``forced``."""

    value: float
    valid: bool = True
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar in SI base units: a ``value``, or else an interval from ``lower`` to ``upper``.

    Attributes:
        role: what colours and hatches it.
        error: half the width of the value's uncertainty.
        dots: its runs, drawn with the shape ``marker``.
        note: printed after the figure.
        count: printed at the right edge.
        reason: why there is neither a value nor an interval.
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
    def end(self) -> float | None:
        """The largest value of its marks; ``None`` for a bar without any."""
        ends = [dot.value for dot in self.dots]
        ends += [end for end in (self.value, self.upper) if end is not None]
        return max(ends) + (self.error or 0.0) if ends else None

    def text(self, scale: Scale) -> str:
        """Return what is printed after its marks."""
        if self.value is not None:
            text = scaled(self.value, scale, 3)
        elif self.upper is not None:
            text = interval_text(self.lower, self.upper, scale, 3)
        else:
            text = self.reason or "no figure"
            if len(text) > _REASON_LETTERS:
                text = f"{text[: _REASON_LETTERS - 1].rstrip()}…"
        return f"{text}, {self.note}" if self.note and self.end is not None else text

    def mark_row(self, scale: Scale) -> dict[str, Any]:
        """Return what its value or its interval is drawn from, in the scale's unit."""
        shown = scale.shown
        fields = {
            "fill": fill_of(self.role),
            "stroke": light(self.role),
            "end": shown(self.end or 0.0),
        }
        if self.value is not None:
            return fields | {"v": shown(self.value)}
        if self.upper is None:
            return fields
        ends = {"from": shown(self.lower or 0.0), "to": shown(self.upper)}
        return fields | ends | {"open": self.lower is None}

    def dot_rows(self, scale: Scale) -> list[dict[str, Any]]:
        """Return what its runs are drawn from, in the scale's unit."""
        strong, surface = light("strong"), light("surface")
        return [
            {
                "v": scale.shown(dot.value),
                "shape": self.marker,
                "size": marker_size(self.marker),
                "fill": strong if dot.valid and not dot.forced else surface,
                "stroke": surface if dot.valid and not dot.forced else strong,
            }
            for dot in thin_marks(self.dots, lambda dot: dot.value)
        ]


def checked_range(bar: Bar) -> Bar:
    """Return the bar, or one with the reason alone where a value is too large or small to draw."""
    dots = [dot.value for dot in bar.dots]
    reasons = map(out_of_range, [bar.value, bar.lower, bar.upper, bar.error, *dots])
    reason = next((reason for reason in reasons if reason), "")
    return Bar(label=bar.label, role=bar.role, count=bar.count, reason=reason) if reason else bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity of several bars.

    Attributes:
        key: unique in the chart; the names of the panel's data begin with it.
        question: the panel's title.
        remark: the lines under the title.
        better: a key of ``DIRECTIONS``.
        width: in pixels.
    """

    key: str
    bars: Sequence[Bar]
    scale: Scale
    question: str
    remark: Sequence[str]
    better: str
    width: int

    @property
    def largest(self) -> float:
        """The largest end of all marks, in the scale's unit; 1 where there is none."""
        ends = [bar.end for bar in self.bars if bar.end is not None]
        return self.scale.shown(max(ends, default=0.0)) or 1.0

    def data(self) -> Data:
        """Return the rows of its marks, by the names that its chart gives them."""
        return {
            f"{self.key}bars": [self._bar_row(bar) for bar in self.bars],
            f"{self.key}dots": [
                {"label": bar.label} | dot for bar in self.bars for dot in bar.dot_rows(self.scale)
            ],
        }

    def _bar_row(self, bar: Bar) -> dict[str, Any]:
        fields = {"label": bar.label, "count": bar.count} | bar.mark_row(self.scale)
        fields["text" if bar.end is not None else "reason"] = bar.text(self.scale)
        if bar.value is not None and bar.error:
            fields["low"] = self.scale.shown(bar.value - bar.error)
            fields["high"] = self.scale.shown(bar.value + bar.error)
        return fields

    def chart(self) -> alt.LayerChart:
        """Return the panel, with the question as its title."""
        labels = [bar.label for bar in self.bars]
        y = alt.Y("label:N", sort=labels, axis=name_axis(labels))
        bars = alt.Chart(alt.NamedData(name=f"{self.key}bars")).encode(y=y)
        dots = alt.Chart(alt.NamedData(name=f"{self.key}dots")).encode(y=y)
        x = self._x()
        layers = [
            bars.mark_bar(height=_HEIGHT).encode(x=x, fill=alt.Fill("fill:N", scale=None)),
            *interval_marks(bars, "x", cap=_HEIGHT + 2),
            bars.transform_filter("isValid(datum.high)")
            .mark_rule(stroke=light("strong"), strokeWidth=2)
            .encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")),
            run_marks(dots.encode(x=x), stroke_width=1.2),
            *self._texts(bars),
        ]
        title = alt.TitleParams(self.question, subtitle=list(self.remark))
        return layer_charts(layers, width=self.width, height=_ROW * len(labels), title=title)

    def _x(self) -> alt.X:
        """Return the axis: ticks end where the marks do, and the texts have room after them."""
        letters = max((len(bar.text(self.scale)) for bar in self.bars if bar.end), default=0)
        counts = max((len(bar.count) for bar in self.bars), default=0)
        room = min((letters + counts) * _LETTER + 3 * _GAP, self.width * 0.62)
        axis = value_axis(self.better, linear_ticks(self.largest))
        domain = [0, self.largest * self.width / (self.width - room)]
        return alt.X("v:Q", axis=axis, scale=alt.Scale(domain=domain, nice=False))

    def _texts(self, bars: alt.Chart) -> list[alt.Chart]:
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
