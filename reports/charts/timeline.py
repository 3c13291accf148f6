"""Throughput and power over one time axis, for one run or for a run of each arm.

Phases are strips above them. Lines are thinned to the extremes of every column of pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
from numpy.typing import NDArray

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.captions import is_declared
from wattload.reports.charts.svg import Data, Rows, join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import light
from wattload.reports.quantity import Scale, number, scale_for, scaled
from wattload.reports.runs.timeline import Array, Band, Line, Timeline

Samples = NDArray[np.float64]
Places = NDArray[np.int64]

COLUMNS = 820
"""The width of a chart over time, in pixels."""

POINT_LIMIT = 3 * COLUMNS + 2
"""The most points of a drawn series: each column's minimum, maximum and gap, and both ends."""

_LANE = 22
_LETTER = 6.6
_HEADROOM = 1.04
_WATTS = Scale(1, "W")
_GUTTER = 44
_TABLE_ROWS = 24
_DECLARED = "the watts declared for the drive by a data sheet or the user, not measured"
_NAMES = {"read": "read by the workload", "write": "written by the workload"}


def timeline_figure(name: str, subject: str, timeline: Timeline) -> Figure | None:
    """Return the chart of a run over time; ``None`` where no trace of bytes or power was kept."""
    if not timeline.rates and not has_power(timeline):
        return None
    data: Data = {}
    tracks = _Tracks(timeline, extent_of([timeline]), width=COLUMNS, prefix="", data=data)
    panels = tracks.panels(rates=bool(timeline.rates), power=has_power(timeline))
    return make_figure(
        join_panels("vconcat", panels, spacing=16),
        data,
        name=name,
        title=f"{subject} over time",
        caption=_caption([timeline]),
        table=_table({"": timeline}),
        legend=_legend([timeline]),
    )


def arms_timeline_figure(
    name: str, subject: str, timelines: Mapping[str, Timeline]
) -> Figure | None:
    """Return a run of each arm over time, side by side on the same axes.

    ``None`` where fewer than two of them have a trace to draw.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        timelines: by the name of the arm.
    """
    drawn = {arm: each for arm, each in timelines.items() if each.rates or has_power(each)}
    if len(drawn) < 2:  # noqa: PLR2004 - one is no comparison
        return None
    shown = list(drawn.values())
    rates, power = any(each.rates for each in shown), any(map(has_power, shown))
    extent = extent_of(shown)
    width = (COLUMNS - _GUTTER * (len(shown) - 1)) // len(shown)
    data: Data = {}
    sides = []
    for index, (arm, timeline) in enumerate(drawn.items()):
        tracks = _Tracks(timeline, extent, width=width, prefix=f"arm{index}", data=data)
        panels = tracks.panels(rates=rates, power=power)
        sides.append(
            join_panels("vconcat", panels, spacing=16, title=alt.TitleParams(arm, offset=10))
        )
    return make_figure(
        join_panels("hconcat", sides, spacing=_GUTTER),
        data,
        name=name,
        title=f"{subject} over time, arm by arm",
        caption=f"{_caption(shown)} Both have the same axes.",
        table=_table(drawn),
        legend=_legend(shown),
    )


def _legend(timelines: Sequence[Timeline]) -> list[tuple[str, str]]:
    """Return what each colour means, with the evidence of power."""
    legend = []
    for timeline in timelines:
        legend += [
            (line.role, _NAMES.get(line.name, f"{line.name}, all traffic"))
            for line in timeline.rates
        ]
        legend += [(line.role, f"{line.name}: {line.evidence}") for line in timeline.watts]
        legend += [("bound", f"{band.name}: {band.evidence}") for band in timeline.bands]
    return list(dict.fromkeys(legend))


def _caption(timelines: Sequence[Timeline]) -> str:
    parts = []
    if any(each.rates for each in timelines):
        parts.append("bytes moved per 100 ms, as a rate")
    watts = [is_declared(line.evidence) for each in timelines for line in each.watts]
    if watts:
        parts.append(_DECLARED if all(watts) else "the drive's power")
    bands = [is_declared(band.evidence) for each in timelines for band in each.bands]
    if True in bands and not (watts and all(watts)):
        parts.append(f"the bounds of {_DECLARED}")
    if False in bands:
        parts.append("bounds on the drive's power from its power states")
    names = (strip.name for each in timelines for strip in each.strips if strip.timed)
    phases = ", ".join(dict.fromkeys(names))
    text = ", and ".join(parts)
    return (
        f"{text[:1].upper()}{text[1:]}; timed phases are shaded: {phases or 'none'}. Each "
        "pixel shows the minimum and the maximum, not a mean; the line is broken where samples "
        "are missing."
    )


def _table(timelines: Mapping[str, Timeline]) -> Table:
    """Return means over equal parts of the run."""
    extent = extent_of(list(timelines.values()))
    edges = np.linspace(extent.start_s, extent.end_s, _TABLE_ROWS + 1)
    lines: list[tuple[str, Line, Unit]] = []
    for arm, each in timelines.items():
        prefix = f"{arm}: " if arm else ""
        lines += [(prefix, line, Unit.BYTES_PER_SECOND) for line in each.rates]
        lines += [(prefix, line, Unit.WATTS) for line in each.watts]
    titles, series = [], []
    for prefix, line, unit in lines:
        means = _means(line, edges)
        scale = scale_for(unit, *means)
        titles.append(f"#{prefix}{line.name}, {scale.unit}")
        series.append([scaled(mean, scale) for mean in means])
    rows = [
        row(
            f"{number(edges[index], 3)} to {number(edges[index + 1], 3)}",
            *[cells[index] for cells in series],
        )
        for index in range(_TABLE_ROWS)
    ]
    return Table(
        columns=columns("seconds", *titles), rows=rows, caption="Means over equal parts of the run"
    )


def _means(line: Line, edges: Array) -> list[float | None]:
    bounds = np.searchsorted(line.time_s, edges)
    means: list[float | None] = []
    for start, end in itertools.pairwise(bounds):
        inside = line.value[start:end]
        known = inside[~np.isnan(inside)]
        means.append(float(known.mean()) if known.size else None)
    return means


@dataclass(frozen=True, slots=True)
class Extent:
    """The axes of one chart or of several: seconds, the maximum of each track, rows of strips."""

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


class _Tracks:
    """Draws one run's tracks; their rows go into ``data`` under names that begin with ``prefix``.

    Runs on one chart share one ``extent``, so that their heights can be compared.
    """

    def __init__(
        self, timeline: Timeline, extent: Extent, *, width: int, prefix: str, data: Data
    ) -> None:
        self._timeline = timeline
        self._extent = extent
        self._width = width
        self._prefix = prefix
        self._data = data
        self._x = alt.Scale(domain=list(extent.span_s), nice=False)
        data[f"{prefix}shades"] = [
            {"t": strip.start_s, "t2": strip.end_s}
            for strip in timeline.strips
            if strip.timed and strip.lane == 0
        ]

    def panels(self, *, rates: bool, power: bool) -> list[alt.LayerChart]:
        """Return the panels from the top, with those of ``rates`` and ``power`` that are set."""
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
        return layer_charts([boxes, words], width=self._width, height=_LANE * lanes)

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
        return layer_charts(layers, width=self._width, height=180, title=title)

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
        return layer_charts(layers, width=self._width, height=130, title=title)

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
        """Return both bounds at each moment where thinning keeps one of them."""
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
    """Return the word, shortened to fit a strip of that width."""
    room = int((pixels - 8) / _LETTER)
    if len(word) <= room:
        return word
    return word[: room - 1] + "…" if room > 3 else ""  # noqa: PLR2004 - fewer letters are unreadable


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


def thin(
    time_s: Samples, value: Samples, span_s: tuple[float, float], columns: int = COLUMNS
) -> Places:
    """Return the indices of the samples that a chart ``columns`` pixels wide has to draw.

    Each column of pixels keeps its minimum, its maximum and its first gap, and the line keeps both
    ends: the chart looks as it would with every sample. Means would hide stalls and peaks.

    Args:
        time_s: shape (n,), in order.
        value: shape (n,), NaN for a gap.
        span_s: both ends of the axis; samples beyond them count in its outermost columns.
        columns: at most ``COLUMNS``.

    Returns:
        Indices, shape (m,), ``POINT_LIMIT`` at most, in order.
    """
    if time_s.size <= columns:
        return np.arange(time_s.size)
    edges = np.linspace(*span_s, columns + 1)[1:-1]
    starts = np.unique(np.concatenate(([0], np.searchsorted(time_s, edges))))
    starts = starts[starts < time_s.size]
    lengths = np.diff(starts, append=time_s.size)
    keep = [np.array([0, time_s.size - 1])]
    for extreme in (np.fmin, np.fmax):
        of_column = np.repeat(extreme.reduceat(value, starts), lengths)
        keep.append(_firsts(value == of_column, starts))
    keep.append(_firsts(np.isnan(value), starts))
    return np.unique(np.concatenate(keep))


def _firsts(marked: NDArray[np.bool_], starts: Places) -> Places:
    """Return the first marked index of each column that has one."""
    places = np.flatnonzero(marked)
    column = np.searchsorted(starts, places, side="right")
    return places[np.unique(column, return_index=True)[1]]
