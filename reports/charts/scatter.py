"""Operations over time: a dot where and when each traced one was handed to the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.quantity import Scale, counted, percent, quantity, scale_for, whole
from wattload.reports.scatter import Lane, Scatter
from wattload.reports.svg import joined, layered, render
from wattload.reports.themes import light
from wattload.reports.timeline import Strip

_WIDTH = 800
_ROOM_FOR_NAMES = 170
_NAMED_FILES = 8
_HEIGHT = 210
_LETTERS = 26
_DOT = 3.2
_CAPS: dict[str, Literal["round", "square"]] = {"read": "round", "write": "square"}
"""A line of no length is its cap alone: colour is not all that tells reads from writes."""

Rows = list[dict[str, Any]]
Data = dict[str, Rows]


def scatter_figure(name: str, subject: str, scatter: Scatter, strips: Sequence[Strip]) -> Figure:
    """Return a panel per target on one time axis; timed phases are shaded."""
    data: Data = {"shades": [{"t": s.start_s, "t2": s.end_s} for s in strips if s.timed]}
    ends = [strip.end_s for strip in strips if strip.timed]
    starts = [strip.start_s for strip in strips if strip.timed]
    times = np.concatenate([lane.time_s for lane in scatter.lanes])
    span = (min([*starts, float(times.min())]), max([*ends, float(times.max())]))
    panels = [
        _panel(lane, index, span, data, is_last=index == len(scatter.lanes) - 1)
        for index, lane in enumerate(scatter.lanes)
    ]
    description = _description(scatter)
    return Figure(
        svg=render(
            joined("vconcat", panels, spacing=18),
            data,
            name=name,
            title=f"{subject}: where operations went over time",
            description=description,
        ),
        caption=description,
        table=_table(scatter),
        legend=list(_legend(scatter)),
    )


def _description(scatter: Scatter) -> str:
    """Return what is seen, and which share of all operations it is."""
    traced = f"Traced: {whole(scatter.traced_count)}, of an unknown number of operations"
    if scatter.operation_count:
        share = percent(scatter.traced_count / scatter.operation_count)
        total = counted(scatter.operation_count, "operation")
        traced = f"Traced: {whole(scatter.traced_count)} of {total} ({share})"
    drawn = "all of these are drawn"
    if scatter.drawn_count < scatter.traced_count:
        drawn = f"{whole(scatter.drawn_count)} of these are drawn, evenly by count"
    return (
        "A dot is one operation: when it was handed to the kernel, and where in the data, files "
        "end to end by name. Where a file lies on the drive is the file system's to choose. "
        f"{traced}; {drawn}."
    )


def _legend(scatter: Scatter) -> Iterator[tuple[str, str]]:
    if not all(lane.is_write.all() for lane in scatter.lanes):
        yield "read", "read, round"
    if any(lane.is_write.any() for lane in scatter.lanes):
        yield "write", "write, square"


def _panel(
    lane: Lane, index: int, span: tuple[float, float], data: Data, *, is_last: bool
) -> alt.LayerChart:
    shown = scale_for(Unit.BYTES, lane.size_bytes)
    is_named = 1 < len(lane.files) <= _NAMED_FILES
    axis = alt.Axis(title="seconds since the first phase began" if is_last else None, tickCount=10)
    x = alt.X("t:Q", axis=axis, scale=alt.Scale(domain=list(span), nice=False))
    y_scale = alt.Scale(domain=[0, max(shown.shown(lane.size_bytes), 1e-9)], nice=False)
    y = alt.Y("v:Q", axis=alt.Axis(title=None, tickCount=5), scale=y_scale)
    shades = alt.Chart(alt.NamedData(name="shades")).mark_rect(fill=light("timed"), opacity=0.28)
    layers = [shades.encode(x=x, x2=alt.X2("t2:Q"))]
    if is_named:
        layers += _names(lane, index, (shown, span[1]), (x, y), data)
    for role, which in (("read", ~lane.is_write), ("write", lane.is_write)):
        data[f"{role}{index}"] = _dots(lane, which, shown)
        dots = alt.Chart(alt.NamedData(name=f"{role}{index}")).mark_line(
            stroke=light(role), strokeWidth=_DOT, strokeCap=_CAPS[role]
        )
        layers.append(dots.encode(x=x, y=y))
    files = counted(len(lane.files), "file")
    title = alt.TitleParams(f"{lane.name}: offset in {files}, {shown.unit}")
    width = _WIDTH - _ROOM_FOR_NAMES if is_named else _WIDTH
    return layered(layers, width=width, height=_HEIGHT, title=title)


def _dots(lane: Lane, which: np.ndarray[Any, np.dtype[np.bool_]], shown: Scale) -> Rows:
    """Return a line of single points with a hole behind each: one path holds thousands of dots."""
    rows: Rows = []
    positions = lane.position_bytes[which].tolist()
    for moment, position in zip(lane.time_s[which].tolist(), positions, strict=True):
        t = round(moment, 4)
        rows += [{"t": t, "v": round(shown.shown(position), 6)}, {"t": t, "v": None}]
    return rows


def _names(
    lane: Lane, index: int, ends: tuple[Scale, float], axes: tuple[alt.X, alt.Y], data: Data
) -> list[alt.Chart]:
    """Return a line where each file but the first begins, and the files' names beside them."""
    shown, end_s = ends
    x, y = axes
    data[f"name{index}"] = [
        {
            "t": end_s,
            "v": shown.shown(file.start_bytes),
            "mid": shown.shown(file.start_bytes + file.size_bytes / 2),
            "word": _tail(file.name),
        }
        for file in lane.files
    ]
    base = alt.Chart(alt.NamedData(name=f"name{index}"))
    rule: alt.Chart = base.mark_rule(stroke=light("axis"), strokeDash=[3, 3]).encode(y=y)
    words: alt.Chart = base.mark_text(
        align="left", dx=8, fontSize=11, baseline="middle", fill=light("text")
    ).encode(x=x, y=alt.Y("mid:Q"), text=alt.Text("word:N"))
    return [rule, words]


def _tail(name: str) -> str:
    """Return the end of a file's name: its beginning is that of all."""
    short = "/".join(name.split("/")[-2:])
    return short if len(short) <= _LETTERS else f"…{short[1 - _LETTERS :]}"


def _table(scatter: Scatter) -> Table:
    rows = [
        row(
            lane.name,
            whole(len(lane.files)),
            quantity(lane.size_bytes, Unit.BYTES),
            whole(int((~lane.is_write).sum())),
            whole(int(lane.is_write.sum())),
        )
        for lane in scatter.lanes
    ]
    titles = columns("target", "#files", "#bytes in them", "#reads drawn", "#writes drawn")
    return Table(columns=titles, rows=rows, caption="What the dots are; each is in the trace")
