"""Phases, windows, counters and traces: what happened when, and the bytes of each counter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

from pydantic import Field

from wattload.core.base_models import Frozen, Observed

T = TypeVar("T", int, float)


def merge_intervals(intervals: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """Return the union of intervals as disjoint ones, in order; intervals that touch are joined."""
    union: list[tuple[T, T]] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


class PhaseSpan(Frozen):
    """One phase on one rank: CLOCK_MONOTONIC of ``host``, and the application's byte counts."""

    name: str
    parent: str | None
    host: str
    rank: int
    timed: bool
    start_ns: int
    end_ns: int
    read_bytes: int = Field(ge=0)
    written_bytes: int = Field(ge=0)
    operations: int = Field(ge=0)
    cpu_s: float = Field(ge=0)


class PhaseWindow(Frozen):
    """One phase over all ranks of one host: first start to last end, and the spread of the ranks.

    For a phase that was entered several times (epochs, checkpoints), byte counts are the sum over
    its spans, ``seconds`` runs from the first start to the last end, ``intervals`` is the union of
    the spans (start and end in ns) and ``active_s`` its length. ``half_rates_bytes_per_s`` are the
    rates of the first and second half of the active time, if that is at least 2 s.
    """

    name: str
    host: str
    timed: bool
    start_ns: int
    end_ns: int
    seconds: float = Field(ge=0)
    active_s: float = Field(ge=0)
    start_spread_s: float = Field(ge=0)
    end_spread_s: float = Field(ge=0)
    rank_count: int = Field(ge=1)
    read_bytes: int = Field(ge=0)
    written_bytes: int = Field(ge=0)
    operations: int = Field(ge=0)
    cpu_s: float = Field(ge=0)
    intervals: tuple[tuple[int, int], ...] = ()
    half_rates_bytes_per_s: tuple[float, float] | None = None

    @property
    def active_intervals(self) -> tuple[tuple[int, int], ...]:
        """The active intervals in order of time; the whole window if the record has none."""
        return self.intervals or ((self.start_ns, self.end_ns),)


class IoCounter(Observed):
    """Bytes of one phase by one counter, named by ``source``.

    ``application`` is counted in our loops (``device`` is the target's index), ``block`` is
    ``/sys/block/<device>/stat``, ``smart`` is the drive's own log. ``busy_s`` and ``weighted_s``
    are the block layer's; ``weighted_s`` / ``busy_s`` is the mean queue depth.
    """

    host: str
    device: str
    source: Literal["application", "block", "smart"]
    phase: str
    read_bytes: int | None
    written_bytes: int | None
    read_operations: int | None
    write_operations: int | None
    busy_s: float | None
    weighted_s: float | None


class Total(Observed):
    """A sum over keyed parts; ``None`` when a part is missing. ``keys`` names what was summed."""

    name: str
    value: float | None
    unit: str
    keys: tuple[str, ...]


class TraceFile(Frozen):
    """A Parquet file in the run's folder, with the unit in each column's name."""

    name: str
    file: str
    sha256: str
    rows: int
    columns: tuple[str, ...]
