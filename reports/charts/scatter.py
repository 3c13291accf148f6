"""Traced operations over time: a dot for each, with a panel for each target."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np
from numpy.typing import NDArray

from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.svg import Data, Rows, join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import light
from wattload.reports.quantity import Scale, counted, percent, quantity, scale_for, whole
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock
from wattload.reports.runs.timeline import Strip
from wattload.reports.runs.traces import OperationTrace

POINT_LIMIT = 4000
"""The most dots of a run; of more operations every second, third... by time is drawn."""

_UNFINISHED = ".partial"
"""The suffix of a folder until it is complete; it is then renamed, with the same files."""

_WIDTH = 800
_ROOM_FOR_NAMES = 170
_NAMED_FILES = 8
_HEIGHT = 210
_NAME_LETTERS = 26
_DOT = 3.2
_CAPS: dict[str, Literal["round", "square"]] = {"read": "round", "write": "square"}
"""A dot is a line of no length: its cap distinguishes reads from writes without colour."""

Array = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FileExtent:
    """A file's position in its lane, in bytes: files follow each other in the order of names."""

    name: str
    start_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The drawn operations on one target.

    Attributes:
        name: the target's path.
        files: those of all traced operations.
        time_s: seconds on the common clock, shape (points,), in order.
        position_bytes: the offset into all files of the lane, shape (points,).
        is_write: shape (points,).
    """

    name: str
    files: tuple[FileExtent, ...]
    time_s: Array
    position_bytes: Places
    is_write: NDArray[np.bool_]

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """A run's traced operations: those drawn, and the numbers drawn, traced and performed.

    ``operation_count`` is ``None`` where the record does not count operations.
    """

    lanes: tuple[Lane, ...]
    drawn_count: int
    traced_count: int
    operation_count: int | None


def make_scatter(run: Run) -> Scatter | None:
    """Return a run's traced operations; ``None`` for a run without such a trace."""
    trace = run.traces.operations
    if trace is None or not trace.time_ns.size:
        return None
    clock = CommonClock(run.record)
    shift_ns = np.array([clock.shift_ns(host) for host in trace.host.words], dtype=np.int64)
    common_ns = trace.time_ns + shift_ns[trace.host.numbers]
    order = np.lexsort((trace.offset_bytes, common_ns))
    drawn = order[:: -(-order.size // POINT_LIMIT)]
    lanes = tuple(
        _lane(run.record, trace, int(target), common_ns, drawn)
        for target in np.unique(trace.target[drawn])
    )
    counts = [row.count for row in run.record.latencies if row.buckets]
    return Scatter(
        lanes=lanes,
        drawn_count=drawn.size,
        traced_count=order.size,
        operation_count=sum(counts) if counts else None,
    )


def _lane(
    record: RunRecord, trace: OperationTrace, target: int, common_ns: Places, drawn: Places
) -> Lane:
    rows = drawn[trace.target[drawn] == target]
    files = _files(trace, np.flatnonzero(trace.target == target))
    starts = {file.name: file.start_bytes for file in files}
    start_of = np.array([starts.get(_final_name(word), 0) for word in trace.file.words])
    is_known = 0 <= target < len(record.targets)
    path = record.targets[target].facts.path if is_known else None
    return Lane(
        name=path or f"target {target}",
        files=files,
        time_s=common_ns[rows] / NS_PER_S,
        position_bytes=start_of[trace.file.numbers[rows]] + trace.offset_bytes[rows],
        is_write=trace.kind.are("write")[rows],
    )


def _files(trace: OperationTrace, rows: Places) -> tuple[FileExtent, ...]:
    """Return the files of these operations, end to end in the order of their names."""
    sizes: dict[str, int] = {}
    for number in np.unique(trace.file.numbers[rows]):
        own = rows[trace.file.numbers[rows] == number]
        name = _final_name(trace.file.words[number])
        sizes[name] = max(sizes.get(name, 0), int(trace.file_bytes[own].max()))
    names = sorted(sizes)
    starts = itertools.accumulate((sizes[name] for name in names), initial=0)
    return tuple(FileExtent(*each, sizes[each[0]]) for each in zip(names, starts, strict=False))


def _final_name(name: str) -> str:
    return "/".join(part.removesuffix(_UNFINISHED) for part in name.split("/"))


def scatter_figure(name: str, subject: str, scatter: Scatter, strips: Sequence[Strip]) -> Figure:
    """Return a panel per target on one time axis, with timed phases shaded.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        scatter: the operations.
        strips: the phases of the run.
    """
    data: Data = {"shades": [{"t": s.start_s, "t2": s.end_s} for s in strips if s.timed]}
    ends = [strip.end_s for strip in strips if strip.timed]
    starts = [strip.start_s for strip in strips if strip.timed]
    times = np.concatenate([lane.time_s for lane in scatter.lanes])
    span = (min([*starts, float(times.min())]), max([*ends, float(times.max())]))
    panels = [
        _panel(lane, index, span, data, is_last=index == len(scatter.lanes) - 1)
        for index, lane in enumerate(scatter.lanes)
    ]
    return make_figure(
        join_panels("vconcat", panels, spacing=18),
        data,
        name=name,
        title=f"{subject}: offsets of operations over time",
        caption=_caption(scatter),
        table=_table(scatter),
        legend=list(_legend(scatter)),
    )


def _caption(scatter: Scatter) -> str:
    traced = f"Traced: {whole(scatter.traced_count)} of an unknown number of operations"
    if scatter.operation_count:
        share = percent(scatter.traced_count / scatter.operation_count)
        total = counted(scatter.operation_count, "operation")
        traced = f"Traced: {whole(scatter.traced_count)} of {total} ({share})"
    drawn = "all traced operations are drawn"
    if scatter.drawn_count < scatter.traced_count:
        drawn = f"{whole(scatter.drawn_count)} of them are drawn, at even intervals"
    return (
        "A dot is one operation: when it was submitted to the kernel, and its offset in the data, "
        "with files in order of their names. The file system decides where a file is on the drive. "
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
        layers += _name_layers(lane, index, (shown, span[1]), (x, y), data)
    for role, which in (("read", ~lane.is_write), ("write", lane.is_write)):
        data[f"{role}{index}"] = _dots(lane, which, shown)
        dots = alt.Chart(alt.NamedData(name=f"{role}{index}")).mark_line(
            stroke=light(role), strokeWidth=_DOT, strokeCap=_CAPS[role]
        )
        layers.append(dots.encode(x=x, y=y))
    files = counted(len(lane.files), "file")
    title = alt.TitleParams(f"{lane.name}: offset in {files}, {shown.unit}")
    width = _WIDTH - _ROOM_FOR_NAMES if is_named else _WIDTH
    return layer_charts(layers, width=width, height=_HEIGHT, title=title)


def _dots(lane: Lane, which: np.ndarray[Any, np.dtype[np.bool_]], shown: Scale) -> Rows:
    """Return points with a gap after each: a line mark then draws them all in one path."""
    rows: Rows = []
    positions = lane.position_bytes[which].tolist()
    for moment, position in zip(lane.time_s[which].tolist(), positions, strict=True):
        t = round(moment, 4)
        rows += [{"t": t, "v": round(shown.shown(position), 6)}, {"t": t, "v": None}]
    return rows


def _name_layers(
    lane: Lane, index: int, ends: tuple[Scale, float], axes: tuple[alt.X, alt.Y], data: Data
) -> list[alt.Chart]:
    """Return a line where each file begins, and the files' names at the right edge."""
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
    """Return the end of a file's path: the beginning is the same for all."""
    short = "/".join(name.split("/")[-2:])
    return short if len(short) <= _NAME_LETTERS else f"…{short[1 - _NAME_LETTERS :]}"


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
    titles = columns("target", "#files", "#bytes", "#reads drawn", "#writes drawn")
    return Table(
        columns=titles, rows=rows, caption="The operations by target; the trace has each of them"
    )
