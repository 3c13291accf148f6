"""Where single operations went over time: files laid end to end, a lane for each target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.load import Run
from wattload.reports.phases import CommonClock
from wattload.reports.traces import OperationTrace

POINT_LIMIT = 4000
"""The most points that are drawn of a run: of more, every second, third... by time."""

_UNFINISHED = ".partial"
"""What a folder's name ends with until it is whole: the files in it are the same ones after."""

Array = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A file's place in its lane, in bytes: files lie end to end in the order of their names."""

    name: str
    start_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The operations on one target: seconds on the common clock, bytes into the data, and kind.

    The arrays have shape (points,), by time.
    """

    name: str
    files: tuple[Stretch, ...]
    time_s: Array
    position_bytes: Places
    is_write: NDArray[np.bool_]

    @property
    def size_bytes(self) -> int:
        """All files of the lane together."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """A run's traced operations: what is drawn, what was traced, and of how many.

    ``operation_count`` is ``None`` where the record does not count them.
    """

    lanes: tuple[Lane, ...]
    drawn_count: int
    traced_count: int
    operation_count: int | None


def make_scatter(run: Run) -> Scatter | None:
    """Return where a run's traced operations went; ``None`` for a run without such a trace."""
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
    """Return a target's lane; its files are those that an operation was traced in."""
    rows = drawn[trace.target[drawn] == target]
    files = _laid_out(trace, np.flatnonzero(trace.target == target))
    starts = {file.name: file.start_bytes for file in files}
    start_of = np.array([starts.get(_whole_name(word), 0) for word in trace.file.words])
    return Lane(
        name=_target_name(record, target),
        files=files,
        time_s=common_ns[rows] / NS_PER_S,
        position_bytes=start_of[trace.file.numbers[rows]] + trace.offset_bytes[rows],
        is_write=trace.kind.are("write")[rows],
    )


def _laid_out(trace: OperationTrace, rows: Places) -> tuple[Stretch, ...]:
    sizes: dict[str, int] = {}
    for number in np.unique(trace.file.numbers[rows]):
        own = rows[trace.file.numbers[rows] == number]
        name = _whole_name(trace.file.words[number])
        sizes[name] = max(sizes.get(name, 0), int(trace.file_bytes[own].max()))
    return tuple(_end_to_end(sizes))


def _end_to_end(sizes: Mapping[str, int]) -> list[Stretch]:
    files: list[Stretch] = []
    start_bytes = 0
    for name in sorted(sizes):
        files.append(Stretch(name, start_bytes, sizes[name]))
        start_bytes += sizes[name]
    return files


def _whole_name(name: str) -> str:
    return "/".join(part.removesuffix(_UNFINISHED) for part in name.split("/"))


def _target_name(record: RunRecord, target: int) -> str:
    known = 0 <= target < len(record.targets)
    return (record.targets[target].facts.path if known else None) or f"target {target}"
