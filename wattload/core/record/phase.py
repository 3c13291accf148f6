"""Phases, windows, counters and traces: what happened when, and what block devices counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Self, TypeVar

from pydantic import Field, model_validator

from wattload.core.base_models import Frozen, Observed
from wattload.core.units import NS_PER_S

T = TypeVar("T", int, float)
Item = TypeVar("Item")

Count = Annotated[int, Field(ge=0, lt=1 << 64)]
"""A count of bytes or operations, or a time of CLOCK_MONOTONIC in ns."""


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
    """One phase on one rank: CLOCK_MONOTONIC of ``host``, and the application's byte counts.

    The bytes of a nested phase are its own, and not its parent's. A part (``is_part``) is an
    interval of its parent, found afterwards: its bytes are the parent's too, so sums leave it out.

    ``stopped_s`` is for how long the rank's process did not run: stopped by a signal, frozen, or
    without a CPU. Waiting for I/O is no such time. ``throttled_s`` is for how long a CPU quota
    stopped the rank's control groups, in CPU seconds. ``None``: this version did not count it, or
    no group does.
    """

    name: str
    parent: str | None
    host: str
    rank: int
    timed: bool
    start_ns: Count
    end_ns: Count
    read_bytes: Count
    written_bytes: Count
    operations: Count
    cpu_s: float = Field(ge=0)
    stopped_s: float | None = Field(default=None, ge=0)
    throttled_s: float | None = Field(default=None, ge=0)
    is_part: bool = False

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        if self.end_ns < self.start_ns:
            raise ValueError(
                f"phase {self.name}: end_ns {self.end_ns} is before start_ns {self.start_ns}"
            )
        return self


class PhaseHalves(Frozen):
    """The bytes of a phase on one host in the first and second half of its active time.

    They are counted in bins of 100 ms. A phase of less than two active seconds has none.
    """

    phase: str
    host: str
    first_bytes: Count
    second_bytes: Count


class PhaseWindow(Frozen):
    """One phase over all ranks of a host: first start to last end, and the spread of the ranks.

    It is computed from the spans of the ranks. For a phase that was entered several times (epochs,
    checkpoints), byte counts are the sum over its spans, ``seconds`` runs from the first start to
    the last end, ``intervals`` is the union of the spans (start and end in ns) and ``active_s`` its
    length. ``half_rates_bytes_per_s`` are the rates of the first and second half of the active
    time, if that is at least 2 s. ``parents`` are the phases in which its spans lay. ``is_part``:
    see ``PhaseSpan``. A window over several hosts has no ``host``, and no half rates.
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
    intervals: tuple[tuple[int, int], ...]
    half_rates_bytes_per_s: tuple[float, float] | None = None
    parents: frozenset[str] = frozenset()
    is_part: bool = False


class IoCounter(Observed):
    """What one block device counted in one phase (``/sys/block/<device>/stat``).

    ``weighted_s`` / ``busy_s`` is the mean queue depth.
    """

    host: str
    device: str
    phase: str
    read_bytes: int | None
    written_bytes: int | None
    read_operations: int | None
    write_operations: int | None
    busy_s: float | None
    weighted_s: float | None


TRACE_NAMES = ("throughput", "power", "operations")
"""The traces with columns of ours; any other is a table of the run's workload."""


class TraceFile(Frozen):
    """A Parquet file in the run's folder, with the unit in each column's name."""

    name: str
    file: str
    sha256: str
    rows: int
    columns: tuple[str, ...]


def phase_windows(
    spans: Sequence[PhaseSpan], halves: Sequence[PhaseHalves] = ()
) -> tuple[PhaseWindow, ...]:
    """Return one window per phase and host, in order of their start."""
    by_window = {(each.host, each.phase): each for each in halves}
    groups = by_phase((span.host, span.name, span) for span in spans)
    windows = [_window(group, by_window.get(key)) for key, group in groups.items()]
    return tuple(sorted(windows, key=lambda window: (window.start_ns, window.end_ns)))


def by_phase(items: Iterable[tuple[str, str, Item]]) -> dict[tuple[str, str], list[Item]]:
    """Return items by host and phase, which come with each, in their order."""
    groups: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for host, phase, item in items:
        groups[host, phase].append(item)
    return dict(groups)


def _window(spans: Sequence[PhaseSpan], halves: PhaseHalves | None) -> PhaseWindow:
    ranks = _by_rank(spans)
    first_by_rank = [min(s.start_ns for s in own) for own in ranks]
    last_by_rank = [max(s.end_ns for s in own) for own in ranks]
    start_ns, end_ns = min(first_by_rank), max(last_by_rank)
    intervals = merge_intervals((s.start_ns, s.end_ns) for s in spans)
    active_s = sum(end - start for start, end in intervals) / NS_PER_S
    return PhaseWindow(
        name=spans[0].name,
        host=spans[0].host,
        timed=spans[0].timed,
        start_ns=start_ns,
        end_ns=end_ns,
        seconds=(end_ns - start_ns) / NS_PER_S,
        active_s=active_s,
        start_spread_s=(max(first_by_rank) - start_ns) / NS_PER_S,
        end_spread_s=(end_ns - min(last_by_rank)) / NS_PER_S,
        rank_count=len(first_by_rank),
        read_bytes=sum(s.read_bytes for s in spans),
        written_bytes=sum(s.written_bytes for s in spans),
        operations=sum(s.operations for s in spans),
        cpu_s=sum(s.cpu_s for s in spans),
        intervals=tuple(intervals),
        half_rates_bytes_per_s=(
            (halves.first_bytes / (active_s / 2), halves.second_bytes / (active_s / 2))
            if halves is not None and active_s
            else None
        ),
        parents=frozenset(span.parent for span in spans if span.parent is not None),
        is_part=all(span.is_part for span in spans),
    )


def _by_rank(spans: Iterable[PhaseSpan]) -> list[list[PhaseSpan]]:
    ranks: dict[int, list[PhaseSpan]] = defaultdict(list)
    for span in spans:
        ranks[span.rank].append(span)
    return list(ranks.values())
