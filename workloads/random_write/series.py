"""What random writes did over time: a row per second and a row per round of a minute."""

from __future__ import annotations

from array import array
from math import isnan
from typing import TYPE_CHECKING

from wattload.core.histogram import Histogram
from wattload.core.io import IOReading
from wattload.core.units import NS_PER_S
from wattload.results.random_write.facts import PERCENTILES
from wattload.results.tables import TraceTable

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = ("start_ns", "end_ns", "written_bytes", "operations")


class Series:
    """Rows of successive readings of the same counts.

    In 49 hours a row per second takes 14 MB. A percentile of few operations is the maximum, as in
    any histogram; the rows have the number of operations. Rows are of ``least_s`` or more; the last
    may be shorter.
    """

    def __init__(self, first: IOReading, least_s: float = 0.0) -> None:
        self._least_ns = least_s * NS_PER_S
        self._counts = {name: array("q") for name in COUNTS}
        self._latencies = {name: array("d") for name in (*PERCENTILES, "max_s")}
        self._last = first

    @property
    def last(self) -> IOReading:
        return self._last

    def add(self, reading: IOReading, *, at_end: bool = False) -> None:
        """Add the row from the last reading to this one, if it is long enough."""
        last = self._last
        passed_ns = reading.time_ns - last.time_ns
        if passed_ns <= 0 or (passed_ns < self._least_ns and not at_end):
            return
        latency = reading.latency.since(last.latency)
        counts = (
            last.time_ns,
            reading.time_ns,
            reading.moved_bytes - last.moved_bytes,
            reading.operation_count - last.operation_count,
        )
        for name, count in zip(COUNTS, counts, strict=True):
            self._counts[name].append(count)
        for name, share in PERCENTILES.items():
            self._latencies[name].append(_seconds(latency.quantile_ns(share)))
        self._latencies["max_s"].append(_seconds(latency.maximum_ns))
        self._last = reading

    def rates_bytes_per_s(self, *, least_s: float = 0.0) -> list[float]:
        """Return the rate of each row that is at least that long."""
        columns = self._counts
        rows = zip(columns["written_bytes"], columns["start_ns"], columns["end_ns"], strict=True)
        return [
            written * NS_PER_S / (end - start)
            for written, start, end in rows
            if end - start >= least_s * NS_PER_S
        ]

    def table(self, declared: TraceTable) -> pa.Table:
        """Return the rows; a percentile of a row without operations is null."""
        latencies = {
            name: [None if isnan(value) else value for value in values]
            for name, values in self._latencies.items()
        }
        return declared.table({**self._counts, **latencies})


def summed(done: IOReading | None, now: IOReading) -> IOReading:
    """Return a reading of a job after another one, counted from the start of the first."""
    if done is None:
        return now
    return IOReading(
        time_ns=max(done.time_ns, now.time_ns),
        moved_bytes=done.moved_bytes + now.moved_bytes,
        operation_count=done.operation_count + now.operation_count,
        latency=done.latency.merged(now.latency),
    )


def empty_reading(time_ns: int) -> IOReading:
    """Return the reading of a job that has not begun."""
    return IOReading(time_ns=time_ns, moved_bytes=0, operation_count=0, latency=Histogram.of(()))


def _seconds(value_ns: int | None) -> float:
    return float("nan") if value_ns is None else value_ns / NS_PER_S
