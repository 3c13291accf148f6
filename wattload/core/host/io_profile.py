"""What block devices saw during a part of a run: sizes, depth and latency of their requests.

The kernel's trace has every request. Where it can't be used, the counters of the devices give
means alone. Tracing costs CPU time for each request, so the part is one of its own, untimed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wattload.core.errors import TargetError
from wattload.core.host.block_trace import (
    COMPLETE,
    ISSUE,
    BlockEvents,
    BlockTrace,
    TraceError,
    device_number,
)
from wattload.core.host.counters import RESET, BlockStat, read_block_stat
from wattload.core.interrupts import ignored
from wattload.core.sysfs import LIVE, SECTOR_BYTES, Roots, block_folder, read_text
from wattload.core.units import NS_PER_S

Source = Literal["tracefs", "block counters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCount:
    """How many reads had a size."""

    bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLatency:
    """Latency of reads in seconds; the percentiles are ``None`` where only a mean is known."""

    p50_s: float | None
    p99_s: float | None
    mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IOProfile:
    """What block devices saw.

    From ``tracefs``, reads are those issued and completed within that part, latency is that
    between, at the driver, and depth counts reads and writes of all devices together. From ``block
    counters``, latency is the mean over reads and writes, from the entry to the block layer on, and
    includes the time that the kernel queues them. ``mean_depth`` is over the time with a request in
    flight. ``None`` is unknown, and ``reason`` says why the trace is missing. ``lost_events`` are
    those that the trace had no room for: with any, sizes and latencies are those of a sample, and
    depths too low.
    """

    source: Source | None
    reason: str | None
    seconds: float
    reads: int | None = None
    read_bytes: int | None = None
    mean_read_bytes: float | None = None
    sizes: tuple[SizeCount, ...] | None = None
    mean_depth: float | None = None
    peak_depth: int | None = None
    latency: DeviceLatency | None = None
    lost_events: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Profile:
    """The traced part of the run; ``result`` and ``requests`` are there after its end.

    ``requests`` has a row per request, in the order of issue: ``issued_ns`` and ``completed_ns``
    (CLOCK_MONOTONIC), ``bytes``, ``device`` and ``is_read``. It is ``None`` without a trace.
    """

    def __init__(self) -> None:
        self.result: IOProfile | None = None
        self.requests: pa.Table | None = None


@contextmanager
def profile(devices: Sequence[str], roots: Roots = LIVE) -> Iterator[Profile]:
    """Profile what whole block devices see while the block runs.

    An exception leaves the trace unread and removes it.

    Args:
        devices: kernel names, as ``counting_devices`` returns them.
        roots: where proc and sysfs are.
    """
    found = Profile()
    trace, names, reason = None, {}, None
    try:
        try:
            names = {_number(name, roots): name for name in devices}
            trace = BlockTrace(list(names), roots)
        except TraceError as error:
            reason = str(error)
        before, start_ns = _stats(devices, roots), time.monotonic_ns()
        yield found
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        counted = _counted(before, _stats(devices, roots), seconds, reason)
        found.result = counted
        if trace is not None:
            events, lost_events = trace.stop()
            requests = pair(events)
            if len(requests) or not counted.reads:
                found.result = summary(requests, seconds, lost_events)
                found.requests = table(requests, names)
            else:
                reason = "the driver of these devices makes no requests that the kernel traces"
                found.result = replace(counted, reason=reason)
    finally:
        if trace is not None:
            with ignored():
                trace.close()


def _number(name: str, roots: Roots) -> int:
    """Return the number of a whole device; raises ``TraceError`` for one that has none."""
    folder = block_folder(name, roots)
    if folder is None:
        raise TraceError(f"there is no block device {name}")
    whole = folder.parent if (folder / "partition").exists() else folder
    try:
        return device_number(read_text(whole / "dev"))
    except (OSError, ValueError) as error:
        raise TraceError(f"{name} has no device number, by which traces are filtered") from error


def _stats(devices: Sequence[str], roots: Roots) -> dict[str, BlockStat] | None:
    try:
        return {name: read_block_stat(name, roots) for name in devices}
    except TargetError:
        return None


def _counted(
    before: Mapping[str, BlockStat] | None,
    after: Mapping[str, BlockStat] | None,
    seconds: float,
    reason: str | None,
) -> IOProfile:
    grown = [after[name].since(before[name]) for name in before] if before and after else []
    parts = [each for each in grown if each is not None]
    if not parts or len(parts) < len(grown):
        own = RESET if grown else "the block devices are unknown or do not count"
        why = "; ".join(filter(None, (reason, own)))
        return IOProfile(source=None, reason=why, seconds=seconds)
    reads, read_bytes = (sum(getattr(each, name) for each in parts) for name in _READ_FIELDS)
    operations = reads + sum(each.write_operations for each in parts)
    weighted_s = sum(each.weighted_s for each in parts)
    busy_s = max(each.busy_s for each in parts)  # of several devices: they are busy together
    mean_s = weighted_s / operations if operations else None
    return IOProfile(
        source="block counters",
        reason=reason,
        seconds=seconds,
        reads=reads,
        read_bytes=read_bytes,
        mean_read_bytes=read_bytes / reads if reads else None,
        mean_depth=weighted_s / busy_s if busy_s else None,
        latency=None if mean_s is None else DeviceLatency(p50_s=None, p99_s=None, mean_s=mean_s),
    )


_READ_FIELDS = ("read_operations", "read_bytes")

REQUEST = np.dtype(
    [
        ("issued_ns", np.int64),
        ("completed_ns", np.int64),
        ("bytes", np.uint32),
        ("number", np.uint32),
        ("is_read", np.bool_),
    ]
)


_CHUNK = 1 << 16
"""Events that are Python objects at once."""


def pair(events: BlockEvents) -> NDArray[np.void]:
    """Return requests (dtype ``REQUEST``) in the order of issue, from issue to completion.

    A request is known by its device and first sector; of several at once, the one issued first is
    completed first. One that the driver gives back is issued again. Requests whose other end is
    outside the trace are left out. A completion in parts ends with the first part.
    """
    waiting: dict[tuple[int, int], list[int]] = {}
    pairs: list[NDArray[np.int64]] = [np.zeros((0, 2), np.int64)]
    for start in range(0, len(events.times_ns), _CHUNK):
        part = slice(start, start + _CHUNK)
        columns = (events.kinds[part], events.numbers[part], events.sectors[part])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        found = []
        for index, (kind, number, sector) in enumerate(rows, start):
            if kind == ISSUE:
                waiting.setdefault((number, sector), []).append(index)
            elif issued := waiting.get((number, sector)):
                if kind == COMPLETE:
                    found.append((issued.pop(0), index))
                else:
                    issued.pop()
        pairs.append(np.array(found, dtype=np.int64).reshape(-1, 2))
    first, last = np.concatenate(pairs).T
    requests = np.zeros(len(first), dtype=REQUEST)
    requests["issued_ns"] = events.times_ns[first]
    requests["completed_ns"] = events.times_ns[last]
    requests["bytes"] = events.sector_counts[first] * np.uint32(SECTOR_BYTES)
    requests["number"] = events.numbers[first]
    requests["is_read"] = events.is_read[first]
    return requests[np.argsort(requests["issued_ns"], kind="stable")]


def summary(requests: NDArray[np.void], seconds: float, lost_events: int) -> IOProfile:
    reads = requests[requests["is_read"]]
    sizes, counts = np.unique(reads["bytes"], return_counts=True)
    read_bytes = int(reads["bytes"].sum(dtype=np.int64))
    mean_depth, peak_depth = _depth(requests)
    return IOProfile(
        source="tracefs",
        reason=None,
        seconds=seconds,
        reads=len(reads),
        read_bytes=read_bytes,
        mean_read_bytes=read_bytes / len(reads) if len(reads) else None,
        sizes=tuple(
            SizeCount(bytes=size, count=count)
            for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        ),
        mean_depth=mean_depth,
        peak_depth=peak_depth,
        latency=_latency(reads),
        lost_events=lost_events,
    )


def table(requests: NDArray[np.void], names: Mapping[int, str]) -> pa.Table:
    """Return the rows of ``Profile.requests``; ``names`` are the devices by number."""
    numbers = np.array(sorted(names), dtype=np.uint32)
    devices = pa.DictionaryArray.from_arrays(
        np.searchsorted(numbers, requests["number"]).astype(np.int32),
        [names[number] for number in numbers.tolist()],
    )
    columns = {name: pa.array(requests[name]) for name in ("issued_ns", "completed_ns", "bytes")}
    return pa.table(
        {**columns, "device": devices.cast(pa.string()), "is_read": pa.array(requests["is_read"])}
    )


def _latency(reads: NDArray[np.void]) -> DeviceLatency | None:
    if not len(reads):
        return None
    spans = (reads["completed_ns"] - reads["issued_ns"]) / NS_PER_S
    p50_s, p99_s = np.quantile(spans, (0.5, 0.99), method="higher")
    return DeviceLatency(p50_s=float(p50_s), p99_s=float(p99_s), mean_s=float(spans.mean()))


def _depth(requests: NDArray[np.void]) -> tuple[float | None, int | None]:
    """Return the mean of the requests in flight while there are some, and the most at once."""
    if not len(requests):
        return None, None
    times = np.concatenate([requests["issued_ns"], requests["completed_ns"]])
    steps = np.repeat([1, -1], len(requests))
    order = np.lexsort((steps, times))  # at the same time, an end comes first
    depths, spans = np.cumsum(steps[order])[:-1], np.diff(times[order])
    busy_ns = int(spans[depths > 0].sum())
    mean = float((depths * spans).sum() / busy_ns) if busy_ns else None
    return mean, int(depths.max())
