"""The tracks of a chart over time: phases as strips, throughput, and power beneath it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from wattload.core.units import Unit
from wattload.reports.charts.bounds import is_declared
from wattload.reports.quantity import Scale, scale_for
from wattload.reports.svg import layered
from wattload.reports.themes import light
from wattload.reports.thinning import Places, thin
from wattload.reports.timeline import Array, Band, Line, Timeline

_LANE = 22
_LETTER = 6.6
_HEADROOM = 1.04
_WATTS = Scale(1, "W")
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Extent:
    """What the axes of one chart or of several show: seconds, and the most of each track."""

    start_s: float
    end_s: float
    rate_bytes_per_s: float
    power_w: float
    lanes: int

    @property
    def span_s(self) -> tuple[float, float]:
        """Both ends of the time axis."""
        return self.start_s, self.end_s


def extent_of(timelines: Sequence[Timeline]) -> Extent:
    """Return axes that hold all of the given timelines."""
    rates = [line.value for timeline in timelines for line in timeline.rates]
    watts = [line.value for timeline in timelines for line in timeline.watts]
    uppers = [band.upper for timeline in timelines for band in timeline.bands]
    lanes = [strip.lane + 1 for timeline in timelines for strip in timeline.strips]
    return Extent(
        start_s=min(timeline.start_s for timeline in timelines),
        end_s=max(timeline.end_s for timeline in timelines),
        rate_bytes_per_s=_most(rates),
        power_w=_most([*watts, *uppers]),
        lanes=max(lanes, default=0),
    )


def _most(values: Sequence[Array]) -> float:
    return max((float(np.fmax.reduce(value, initial=0.0)) for value in values), default=0.0)


def has_power(timeline: Timeline) -> bool:
    """Return whether a run's power is known over time, as a line or as bounds."""
    return bool(timeline.watts or timeline.bands)


class Tracks:
    """Draws one run's tracks; their rows go into ``data`` under names that begin with ``prefix``.

    Several runs on one chart are drawn to one ``extent``, so that heights compare.
    """

    def __init__(
        self, timeline: Timeline, extent: Extent, *, width: int, prefix: str, data: dict[str, Rows]
    ) -> None:
        self._timeline = timeline
        self._extent = extent
        self._width = width
        self._prefix = prefix
        self._data = data
        self._x = alt.Scale(domain=list(extent.span_s), nice=False)
        data[f"{prefix}shades"] = _shade_rows(timeline)

    def panels(self, *, rates: bool, power: bool) -> list[alt.LayerChart]:
        """Return the panels from the top; ``rates`` and ``power`` say which tracks there are."""
        panels = [self._strips()] if self._extent.lanes else []
        if rates:
            panels.append(self._rates(last=not power))
        if power:
            panels.append(self._power())
        return panels

    def _time(self, *, last: bool) -> alt.X:
        axis = alt.Axis(
            title="seconds since the first phase began" if last else None,
            labels=last,
            ticks=last,
            domain=last,
            tickCount=self._width // 80,
        )
        return alt.X("t:Q", scale=self._x, axis=axis)

    def _rows(self, name: str, rows: Rows) -> alt.Chart:
        self._data[self._prefix + name] = rows
        return alt.Chart(alt.NamedData(name=self._prefix + name))

    def _strips(self) -> alt.LayerChart:
        lanes = self._extent.lanes
        x = alt.X("t:Q", scale=self._x, axis=None)
        y_scale = alt.Scale(domain=list(range(lanes)), paddingInner=0.15)
        y = alt.Y("lane:O", axis=None, scale=y_scale)
        base = self._rows("strips", self._strip_rows())
        boxes = base.mark_rect(cornerRadius=2).encode(
            x=x, x2=alt.X2("t2:Q"), y=y, fill=alt.Fill("fill:N", scale=None)
        )
        words = base.mark_text(align="left", dx=5, fontSize=11, baseline="middle").encode(
            x=x, y=y, text=alt.Text("word:N"), fill=alt.FillValue(light("strong"))
        )
        return layered([boxes, words], width=self._width, height=_LANE * lanes)

    def _strip_rows(self) -> Rows:
        per_s = self._width / max(self._extent.end_s - self._extent.start_s, 1e-9)
        return [
            {
                "t": strip.start_s,
                "t2": strip.end_s,
                "lane": strip.lane,
                "fill": light("timed" if strip.timed else "untimed"),
                "word": _fitting(strip.name, (strip.end_s - strip.start_s) * per_s),
            }
            for strip in self._timeline.strips
        ]

    def _shade(self, x: alt.X) -> alt.Chart:
        base = alt.Chart(alt.NamedData(name=f"{self._prefix}shades"))
        shade: alt.Chart = base.mark_rect(fill=light("timed"), opacity=0.28).encode(
            x=x, x2=alt.X2("t2:Q")
        )
        return shade

    def _rates(self, *, last: bool) -> alt.LayerChart:
        shown = scale_for(Unit.BYTES_PER_SECOND, self._extent.rate_bytes_per_s)
        x, y = self._time(last=last), _height(shown.shown(self._extent.rate_bytes_per_s), 5)
        layers = [self._shade(x)]
        lines = sorted(self._timeline.rates, key=lambda line: line.role != "device")
        for index, line in enumerate(lines):
            base = self._rows(f"rate{index}", self._points(line, shown)).encode(x=x, y=y)
            layers.append(_stroke(base, line.role))
        title = alt.TitleParams(f"Throughput, {shown.unit}")
        return layered(layers, width=self._width, height=180, title=title)

    def _power(self) -> alt.LayerChart:
        x, y = self._time(last=True), _height(self._extent.power_w, 4)
        layers = [self._shade(x)]
        for index, band in enumerate(self._timeline.bands):
            base = self._rows(f"band{index}", self._band_rows(band))
            layers.extend(_band_layers(base, x, y, known=band.lower is not None))
        for index, line in enumerate(self._timeline.watts):
            base = self._rows(f"watt{index}", self._points(line, _WATTS)).encode(x=x, y=y)
            dash = [7, 4] if line.role == "declared" else [1, 0]
            layers.append(base.mark_line(stroke=light(line.role), strokeWidth=1.3, strokeDash=dash))
        title = alt.TitleParams(_power_title(self._timeline))
        return layered(layers, width=self._width, height=130, title=title)

    def _thin(self, time_s: Array, value: Array) -> Places:
        return thin(time_s, value, self._extent.span_s, self._width)

    def _points(self, line: Line, shown: Scale) -> Rows:
        kept = self._thin(line.time_s, line.value)
        times, values = line.time_s[kept].tolist(), line.value[kept].tolist()
        return [
            {"t": _short(moment), "v": _value(shown.shown(height))}
            for moment, height in zip(times, values, strict=True)
        ]

    def _band_rows(self, band: Band) -> Rows:
        """Return both bounds at each moment that either needs to keep its extremes."""
        lower = band.lower if band.lower is not None else np.zeros_like(band.upper)
        kept = np.union1d(
            self._thin(band.time_s, band.upper),
            self._thin(band.time_s, lower),
        )
        return [
            {
                "t": _short(band.time_s[at]),
                "v": _value(float(band.upper[at])),
                "v2": _value(float(lower[at])),
            }
            for at in kept
        ]


def _height(most: float, ticks: int) -> alt.Y:
    domain = [0, most * _HEADROOM] if most > 0 else [0, 1]
    scale = alt.Scale(domain=domain, nice=False)
    return alt.Y("v:Q", axis=alt.Axis(title=None, tickCount=ticks), scale=scale)


def _fitting(word: str, pixels: float) -> str:
    """Return the word, shortened to what a strip of that width holds."""
    room = int((pixels - 8) / _LETTER)
    if len(word) <= room:
        return word
    return word[: room - 1] + "…" if room > 3 else ""  # noqa: PLR2004 - fewer letters say nothing


def _shade_rows(timeline: Timeline) -> Rows:
    return [
        {"t": strip.start_s, "t2": strip.end_s}
        for strip in timeline.strips
        if strip.timed and strip.lane == 0
    ]


def _stroke(base: alt.Chart, role: str) -> alt.Chart:
    colour = light(role)
    line: alt.Chart
    if role == "device":
        line = base.mark_line(
            stroke=colour, strokeWidth=1, strokeDash=[3, 2], interpolate="step-after"
        )
    else:  # a line that begins and ends at zero, filled, is an area in half the bytes
        line = base.mark_line(
            stroke=colour, strokeWidth=1.3, fill=colour, fillOpacity=0.16, interpolate="step-after"
        )
    return line


def _power_title(timeline: Timeline) -> str:
    if timeline.bands and not timeline.watts:
        if all(is_declared(band.evidence) for band in timeline.bands):
            return "Power, W: declared, not measured"
        known = all(band.lower is not None for band in timeline.bands)
        return "Power, W: " + ("between these bounds" if known else "at most")
    declared = bool(timeline.watts) and all(line.role == "declared" for line in timeline.watts)
    return "Power, W: declared, not measured" if declared else "Power, W"


def _band_layers(base: alt.Chart, x: alt.X, y: alt.Y, *, known: bool) -> list[alt.Chart]:
    area = base.mark_area(
        fill=light("bound"), fillOpacity=0.22 if known else 0.09, interpolate="step-after"
    )
    edge = base.mark_line(stroke=light("bound"), strokeWidth=1.3, strokeDash=[5, 3])
    layers = [area.encode(x=x, y=y, y2=alt.Y2("v2:Q")), edge.encode(x=x, y=y)]
    if known:
        layers.append(edge.encode(x=x, y=alt.Y("v2:Q")))
    return layers


def _short(seconds: float) -> float:
    return round(float(seconds), 3)


def _value(height: float) -> float | None:
    return None if np.isnan(height) else round(height, 6)
