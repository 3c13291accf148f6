"""What random writes did over time: a row per second and a row per round of a minute."""

from __future__ import annotations

from array import array
from math import isnan
from typing import TYPE_CHECKING

from wattload.core.histogram import Histogram
from wattload.core.io import IOReading
from wattload.core.steady import ROUND_S
from wattload.core.units import NS_PER_S
from wattload.results.random_write.facts import PERCENTILES
from wattload.results.tables import TraceTable

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = ("start_ns", "end_ns", "written_bytes", "operations")


class Series:
    """Rows of successive readings of the same counts.

    In 49 hours a row per second takes 14 MB. A percentile of few operations is the maximum, as in
    any histogram; the rows have the number of operations.
    """

    def __init__(self, first: IOReading) -> None:
        self._counts = {name: array("q") for name in COUNTS}
        self._latencies = {name: array("d") for name in (*PERCENTILES, "max_s")}
        self._last = first

    @property
    def last(self) -> IOReading:
        return self._last

    def add(self, reading: IOReading) -> None:
        """Add the row from the last reading to this one; nothing if no time has passed."""
        last = self._last
        if reading.time_ns <= last.time_ns:
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


class Record:
    """The seconds and the rounds of a job under way."""

    def __init__(self, start: IOReading) -> None:
        self.seconds = Series(start)
        self.rounds = Series(start)

    def add(self, reading: IOReading, *, at_end: bool = False) -> None:
        """Add a reading, about one per second; the last round may be shorter."""
        self.seconds.add(reading)
        if at_end or reading.time_ns - self.rounds.last.time_ns >= ROUND_S * NS_PER_S:
            self.rounds.add(reading)


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
