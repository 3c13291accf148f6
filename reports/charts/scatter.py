"""Traced operations over time: a dot for each, with a panel for each target."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import Figure, Table, columns, listing, row
from wattload.reports.charts.plot import Axis, Frame, round_ticks
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock
from wattload.reports.runs.timeline import Strip
from wattload.reports.runs.traces import OperationTrace
from wattload.results.quantity import counted, percent, quantity, scale_for, whole

POINT_LIMIT = 4000
"""The most dots of a run; of more operations every second, third... by time is drawn."""

LANES_MAX = 6
"""The most targets, of all arms or of all hosts, that are drawn together."""

_UNFINISHED = ".partial"
"""The suffix of a folder until it is complete; it is then renamed, with the same files."""

_HEIGHT, _LOW = 200, 110
_ACROSS = 2
"""More panels than these are beside each other, and low."""
Array = NDArray[np.float64]
Integers = NDArray[np.int64]


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
        name: the target's path, and its host in a run of several.
        files: those of all traced operations.
        time_s: seconds on the common clock, shape (points,), in order.
        position_bytes: the offset into all files of the lane, shape (points,).
        is_write: shape (points,).
    """

    name: str
    files: tuple[FileExtent, ...]
    time_s: Array
    position_bytes: Integers
    is_write: NDArray[np.bool_]

    @property
    def size_bytes(self) -> int:
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

    @property
    def drawn_share(self) -> float | None:
        return self.drawn_count / self.operation_count if self.operation_count else None


def make_scatter(run: Run, limit: int = POINT_LIMIT) -> Scatter | None:
    """Return at most ``limit`` traced operations; ``None`` for a run without such a trace."""
    trace = run.traces.operations
    if trace is None or not trace.time_ns.size:
        return None
    common_ns = CommonClock(run.record).rows_ns(trace.host, trace.time_ns)
    order = np.lexsort((trace.offset_bytes, common_ns))
    drawn = order[:: -(-order.size // limit)]
    lanes = tuple(
        _lane(run.record, trace, (host, int(target)), common_ns, drawn)
        for host in dict.fromkeys(trace.host.words)
        for target in np.unique(trace.target[drawn[trace.host.are(host)[drawn]]])
    )
    # A request is a read, and only a sample of them is timed.
    rows = [row for row in run.record.latencies if row.kind != "request"]
    counts = [row.count for row in rows]
    return Scatter(
        lanes=lanes,
        drawn_count=drawn.size,
        traced_count=order.size,
        operation_count=sum(counts) if counts else None,
    )


def _lane(
    record: RunRecord,
    trace: OperationTrace,
    of: tuple[str, int],
    common_ns: Integers,
    drawn: Integers,
) -> Lane:
    """Return the lane of a host's target, by its number."""
    host, target = of
    own = trace.host.are(host) & (trace.target == target)
    rows = drawn[own[drawn]]
    files = _files(trace, np.flatnonzero(own))
    starts = {file.name: file.start_bytes for file in files}
    start_of = np.array([starts.get(_final_name(word), 0) for word in trace.file.words])
    paths = [each.facts.path for each in record.targets if each.facts.host == host]
    path = paths[target] if 0 <= target < len(paths) else None
    of_host = f"{host}: " if len(record.hosts) > 1 else ""
    return Lane(
        name=f"{of_host}{path or f'target {target}'}",
        files=files,
        time_s=common_ns[rows] / NS_PER_S,
        position_bytes=start_of[trace.file.numbers[rows]] + trace.offset_bytes[rows],
        is_write=trace.kind.are("write")[rows],
    )


def _files(trace: OperationTrace, rows: Integers) -> tuple[FileExtent, ...]:
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
    """Return a panel for each of the first targets on one time axis, with timed phases shaded.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        scatter: the operations.
        strips: the phases of the run.
    """
    ends = [strip.end_s for strip in strips if strip.timed]
    starts = [strip.start_s for strip in strips if strip.timed]
    times = np.concatenate([lane.time_s for lane in scatter.lanes])
    low, high = min([*starts, float(times.min())]), max([*ends, float(times.max())])
    x = Axis(low=low, high=max(high, low + 1e-3), unit="s")
    return Figure(
        name=name,
        title=f"{subject}: offsets of operations over time",
        svg="".join(_panel(lane, x, strips) for lane in scatter.lanes[:LANES_MAX]),
        caption=_caption(scatter) + _left_out(len(scatter.lanes) - LANES_MAX),
        table=_table(scatter),
        legend=list(_legend(scatter)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScatter:
    """One run of an arm: its traced operations, and when its timed phase began and ended."""

    letter: str
    name: str
    scatter: Scatter
    start_s: float
    end_s: float


def arms_scatter_figure(name: str, title: str, caption: str, arms: Sequence[ArmScatter]) -> Figure:
    """Return a panel per arm and target, all on one axis of seconds since the timed start.

    Args:
        name: unique on the page.
        title: of the figure.
        caption: what a dot is; how many are drawn follows.
        arms: one or more; of many targets only the first are drawn.
    """
    end_s = max(*(each.end_s - each.start_s for each in arms), 1e-3)
    x = Axis(low=0, high=end_s, unit="s", at=round_ticks(0, end_s))
    most = max(LANES_MAX // len(arms), 1)
    lanes, parts = [], []
    for each in arms:
        own = f"{each.letter}: " if each.letter else ""
        lanes += [
            replace(lane, name=f"{own}{lane.name}", time_s=lane.time_s - each.start_s)
            for lane in each.scatter.lanes[:most]
        ]
        share = each.scatter.drawn_share
        parts.append(
            f"{own}{whole(each.scatter.drawn_count)} of "
            + (
                f"{counted(each.scatter.operation_count, 'operation')} ({percent(share, 2)})"
                if share is not None and each.scatter.operation_count is not None
                else "an unknown number of operations"
            )
        )
    left = max(len(each.scatter.lanes) for each in arms) - most
    return Figure(
        name=name,
        title=title,
        svg="".join(_panel(lane, x, (), is_low=len(lanes) > _ACROSS) for lane in lanes),
        caption=f"{caption} Drawn, of one run: {'; '.join(parts)}." + _left_out(left),
        table=Table(
            columns=columns("arm", *(each.title for each in _table(arms[0].scatter).columns)),
            rows=[row(each.name, *cells) for each in arms for cells in _table(each.scatter).rows],
            caption="The operations drawn, by arm and target",
        ),
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


def _left_out(count: int) -> str:
    return f" {counted(count, 'more target')} not drawn; the table has them." if count > 0 else ""


def _legend(scatter: Scatter) -> Iterator[tuple[str, str]]:
    if not all(lane.is_write.all() for lane in scatter.lanes):
        yield "read", "read, round"
    if any(lane.is_write.any() for lane in scatter.lanes):
        yield "write", "write, square"


def _panel(lane: Lane, x: Axis, strips: Sequence[Strip], *, is_low: bool = False) -> str:
    shown = scale_for(Unit.BYTES, lane.size_bytes)
    files = counted(len(lane.files), "file")
    title = f"{lane.name}: offset in {files}, {shown.unit}"
    height = _LOW if is_low else _HEIGHT
    high = max(shown.shown(lane.size_bytes), 1e-9)
    frame = Frame(x, Axis(low=0, high=high, unit=shown.unit), height=height, title=title)
    for strip in strips:
        if strip.timed:
            frame.shade(strip.start_s, strip.end_s, "timed", 0.28)
    positions = lane.position_bytes / shown.factor
    for role, which in (("read", ~lane.is_write), ("write", lane.is_write)):
        frame.specks(
            lane.time_s[which].tolist(), positions[which].tolist(), role, square=role == "write"
        )
    return frame.svg(f"{title} over time", "third" if is_low else "time")


def _table(scatter: Scatter) -> Table:
    return listing(
        "The operations by target; the trace has each of them",
        scatter.lanes,
        {
            "target": lambda lane: lane.name,
            "#files": lambda lane: whole(len(lane.files)),
            "#bytes": lambda lane: quantity(lane.size_bytes, Unit.BYTES),
            "#reads drawn": lambda lane: whole(int((~lane.is_write).sum())),
            "#writes drawn": lambda lane: whole(int(lane.is_write.sum())),
        },
    )
