"""Throughput and power of one run over one time axis, with its phases as strips above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.quantity import Scale, number, scale_for, scaled
from wattload.reports.svg import layered, render
from wattload.reports.themes import light
from wattload.reports.timeline import Array, Band, Line, Strip, Timeline, thin

WIDTH = 820
_LANE = 22
_LETTER = 6.6
_STRETCHES = 24
Rows = list[dict[str, Any]]


def timeline_figure(name: str, subject: str, timeline: Timeline) -> Figure | None:
    """Return the chart of a run over time; ``None`` where no trace of bytes or power was kept."""
    if not timeline.rates and not timeline.watts and not timeline.bands:
        return None
    x = _x(timeline)
    data: dict[str, Rows] = {"strips": _strip_rows(timeline), "shades": _shade_rows(timeline)}
    panels: list[alt.LayerChart] = []
    if timeline.strips:
        panels.append(_strip_panel(x, timeline.strips))
    if timeline.rates:
        panels.append(_rate_panel(x, timeline.rates, data, last=not _has_power(timeline)))
    if _has_power(timeline):
        panels.append(_power_panel(x, timeline, data))
    title = f"{subject} over time"
    description = _description(timeline)
    chart = alt.vconcat(*panels, spacing=16)
    return Figure(
        svg=render(chart, data, name=name, title=title, description=description),
        caption=description,
        table=_table(timeline),
        legend=_legend(timeline),
    )


def _has_power(timeline: Timeline) -> bool:
    return bool(timeline.watts or timeline.bands)


def _x(timeline: Timeline) -> alt.Scale:
    return alt.Scale(domain=[timeline.start_s, timeline.end_s], nice=False)


def _time(scale: alt.Scale, *, last: bool) -> alt.X:
    axis = alt.Axis(
        title="seconds since the first phase began" if last else None,
        labels=last,
        ticks=last,
        domain=last,
        tickCount=10,
    )
    return alt.X("t:Q", scale=scale, axis=axis)


def _strip_panel(scale: alt.Scale, strips: Sequence[Strip]) -> alt.LayerChart:
    lanes = max(strip.lane for strip in strips) + 1
    x = alt.X("t:Q", scale=scale, axis=None)
    y = alt.Y("lane:O", axis=None, scale=alt.Scale(domain=list(range(lanes)), paddingInner=0.15))
    base = alt.Chart(alt.NamedData(name="strips"))
    boxes = base.mark_rect(cornerRadius=2).encode(
        x=x, x2="t2:Q", y=y, fill=alt.Fill("fill:N", scale=None)
    )
    words = base.mark_text(align="left", dx=5, fontSize=11, baseline="middle").encode(
        x=x, y=y, text="word:N", fill=alt.value(light("strong"))
    )
    return layered([boxes, words], width=WIDTH, height=_LANE * lanes)


def _strip_rows(timeline: Timeline) -> Rows:
    per_s = WIDTH / max(timeline.end_s - timeline.start_s, 1e-9)
    return [
        {
            "t": strip.start_s,
            "t2": strip.end_s,
            "lane": strip.lane,
            "fill": light("timed" if strip.timed else "untimed"),
            "word": _fitting(strip.name, (strip.end_s - strip.start_s) * per_s),
        }
        for strip in timeline.strips
    ]


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


def _shade(x: alt.X) -> alt.Chart:
    base = alt.Chart(alt.NamedData(name="shades"))
    shade: alt.Chart = base.mark_rect(fill=light("timed"), opacity=0.28).encode(x=x, x2="t2:Q")
    return shade


def _rate_panel(
    scale: alt.Scale, lines: Sequence[Line], data: dict[str, Rows], *, last: bool
) -> alt.LayerChart:
    largest = max((float(np.nanmax(line.value, initial=0.0)) for line in lines), default=0.0)
    shown = scale_for(Unit.BYTES_PER_SECOND, largest)
    x = _time(scale, last=last)
    y = alt.Y("v:Q", axis=alt.Axis(title=None, tickCount=5), scale=alt.Scale(domainMin=0))
    layers: list[alt.Chart] = [_shade(x)]
    for number_of, line in enumerate(sorted(lines, key=lambda line: line.role != "device")):
        key = f"rate{number_of}"
        data[key] = _points(line.time_s, line.value, shown)
        base = alt.Chart(alt.NamedData(name=key)).encode(x=x, y=y)
        layers.append(_stroke(base, line.role))
    title = alt.TitleParams(f"Throughput, {shown.unit}")
    return layered(layers, width=WIDTH, height=180, title=title)


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


def _power_panel(scale: alt.Scale, timeline: Timeline, data: dict[str, Rows]) -> alt.LayerChart:
    x = _time(scale, last=True)
    y = alt.Y("v:Q", axis=alt.Axis(title=None, tickCount=4), scale=alt.Scale(domainMin=0))
    watts = Scale(1, "W")
    layers: list[alt.Chart] = [_shade(x)]
    for index, band in enumerate(timeline.bands):
        data[f"band{index}"] = _band_rows(band)
        layers.extend(_band_layers(alt.Chart(alt.NamedData(name=f"band{index}")), x, band))
    for index, line in enumerate(timeline.watts):
        data[f"watt{index}"] = _points(line.time_s, line.value, watts)
        base = alt.Chart(alt.NamedData(name=f"watt{index}")).encode(x=x, y=y)
        dash = [7, 4] if line.role == "declared" else [1, 0]
        layers.append(base.mark_line(stroke=light(line.role), strokeWidth=1.3, strokeDash=dash))
    title = alt.TitleParams(_power_title(timeline))
    return layered(layers, width=WIDTH, height=130, title=title)


def _power_title(timeline: Timeline) -> str:
    if timeline.bands and not timeline.watts:
        known = all(band.lower is not None for band in timeline.bands)
        return "Power, W: " + ("between these bounds" if known else "at most")
    declared = all(line.role == "declared" for line in timeline.watts)
    return "Power, W: declared, not measured" if declared else "Power, W"


def _band_rows(band: Band) -> Rows:
    time_s, upper = thin(band.time_s, band.upper)
    lower = np.interp(time_s, band.time_s, band.lower) if band.lower is not None else None
    rows: Rows = []
    for index, moment in enumerate(time_s):
        least = float(lower[index]) if lower is not None else 0.0
        rows.append({"t": _short(moment), "v": _value(upper[index]), "v2": _value(least)})
    return rows


def _band_layers(base: alt.Chart, x: alt.X, band: Band) -> list[alt.Chart]:
    y = alt.Y("v:Q", axis=alt.Axis(title=None, tickCount=4), scale=alt.Scale(domainMin=0))
    opacity = 0.22 if band.lower is not None else 0.09
    area = base.mark_area(fill=light("bound"), fillOpacity=opacity, interpolate="step-after")
    edge = base.mark_line(stroke=light("bound"), strokeWidth=1.3, strokeDash=[5, 3])
    layers = [area.encode(x=x, y=y, y2="v2:Q"), edge.encode(x=x, y=y)]
    if band.lower is not None:
        layers.append(edge.encode(x=x, y=alt.Y("v2:Q")))
    return layers


def _points(time_s: Array, value: Array, shown: Scale) -> Rows:
    times, values = thin(time_s, value)
    return [
        {"t": _short(moment), "v": _value(shown.shown(height))}
        for moment, height in zip(times.tolist(), values.tolist(), strict=True)
    ]


def _short(seconds: float) -> float:
    return round(float(seconds), 3)


def _value(height: float) -> float | None:
    return None if np.isnan(height) else round(float(height), 6)


def _legend(timeline: Timeline) -> list[tuple[str, str]]:
    names = {"read": "read by the workload", "write": "written by the workload"}
    legend = [
        (line.role, names.get(line.name, f"{line.name}, all traffic")) for line in timeline.rates
    ]
    legend += [(line.role, line.name) for line in timeline.watts]
    legend += [("bound", f"bounds of {band.name}") for band in timeline.bands]
    return legend


def _description(timeline: Timeline) -> str:
    parts = []
    if timeline.rates:
        parts.append("bytes moved per 100 ms, as a rate")
    if timeline.watts:
        parts.append("the drive's power")
    if timeline.bands:
        parts.append("bounds on the drive's power from its power states")
    phases = ", ".join(dict.fromkeys(strip.name for strip in timeline.strips if strip.timed))
    text = " and ".join(parts).capitalize()
    return f"{text}; timed phases are shaded: {phases or 'none'}."


def _table(timeline: Timeline) -> Table:
    """Return means over equal stretches of the run: bytes over seconds, not a mean of rates."""
    edges = np.linspace(timeline.start_s, timeline.end_s, _STRETCHES + 1)
    lines = [*timeline.rates, *timeline.watts]
    units = [Unit.BYTES_PER_SECOND] * len(timeline.rates) + [Unit.WATTS] * len(timeline.watts)
    series = [_means(line, edges) for line in lines]
    scales = [
        scale_for(unit, *[value for value in means if value is not None])
        for unit, means in zip(units, series, strict=True)
    ]
    titles = [f"#{line.name}, {scale.unit}" for line, scale in zip(lines, scales, strict=True)]
    rows = [
        row(
            f"{number(edges[index], 3)} to {number(edges[index + 1], 3)}",
            *[scaled(means[index], scale) for means, scale in zip(series, scales, strict=True)],
        )
        for index in range(_STRETCHES)
    ]
    return Table(
        columns=columns("seconds", *titles), rows=rows, caption="Means over equal stretches"
    )


def _means(line: Line, edges: Array) -> list[float | None]:
    slots = np.searchsorted(edges, line.time_s, side="right") - 1
    means: list[float | None] = []
    for index in range(_STRETCHES):
        inside = line.value[slots == index]
        known = inside[~np.isnan(inside)]
        means.append(float(known.mean()) if known.size else None)
    return means
