"""Phases, windows, counters, traces: what happened when, and how many bytes each counter saw."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wattload.core.record.base import Frozen, Observed


class PhaseSpan(Frozen):
    """One phase on one rank: CLOCK_MONOTONIC of ``host``, bytes as the application counted."""

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
    """One phase over all ranks of one host: first start to last end, and how far ranks were apart.

    A phase that was entered several times (an epoch, a checkpoint) has the spans' sum in ``bytes``,
    first start to last end in ``seconds``, the union of its spans in ``intervals`` (start and end
    in ns) and their length in ``active_s``. ``half_rates_bytes_per_s`` are the
    rates of the first and the second half of its active time, from two active seconds on.
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


class IoCounter(Observed):
    """Bytes of one phase by one counter. ``source`` says who counted.

    ``application`` counts in our loops (device is the target's index), ``block`` is
    ``/sys/block/<device>/stat``, ``smart`` the drive's own log. ``busy_s`` and ``weighted_s`` are
    the block layer's: their quotient is the mean queue depth.
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
    """A trace beside the record: Parquet, with the unit in each column's name."""

    name: str
    file: str
    sha256: str
    rows: int
    columns: tuple[str, ...]
