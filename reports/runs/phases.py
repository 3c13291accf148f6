"""Phases of a run over all its hosts, on one clock."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.phase import PhaseWindow, merge_intervals
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.results.identity_cache import cache_by_identity


class CommonClock:
    """Converts the monotonic clocks of several hosts to one: seconds since the run's first phase.

    The offset of each host is its (monotonic, realtime) pair from before the run. With one host the
    result is its monotonic clock, shifted.
    """

    def __init__(self, record: RunRecord) -> None:
        self._offset_ns = {
            host.facts.name: host.before.clock.realtime_ns - host.before.clock.monotonic_ns
            for host in record.hosts
        }
        self._default_ns = next(iter(self._offset_ns.values()), 0)
        starts = [
            window.start_ns + self._offset_ns.get(window.host, self._default_ns)
            for window in record.windows
        ]
        self._origin_ns = min(starts, default=0)

    def shift_ns(self, host: str) -> int:
        """Return what to add to a host's monotonic ns to get ns since the run's first phase."""
        return self._offset_ns.get(host, self._default_ns) - self._origin_ns

    def seconds(self, host: str, time_ns: int) -> float:
        """Return a host's monotonic time as seconds since the run's first phase."""
        return (time_ns + self.shift_ns(host)) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase over all hosts: bytes summed, times in seconds on the common clock.

    ``is_part``: its bytes are those of an enclosing phase (``core.record.phase.PhaseSpan``).
    ``intervals_s`` are the times in which any rank was in the phase, disjoint and in order; a phase
    that was entered once has one.
    """

    name: str
    timed: bool
    intervals_s: tuple[tuple[float, float], ...]
    active_s: float
    read_bytes: int
    written_bytes: int
    operations: int
    cpu_s: float
    rank_count: int
    spread_s: float
    half_rates_bytes_per_s: tuple[float, float] | None
    is_part: bool = False

    @property
    def start_s(self) -> float:
        return self.intervals_s[0][0]

    @property
    def seconds(self) -> float:
        return self.intervals_s[-1][1] - self.start_s

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@cache_by_identity
def phases_of(record: RunRecord) -> tuple[Phase, ...]:
    """Return the phases of a run in order of their start."""
    clock = CommonClock(record)
    groups: dict[str, list[PhaseWindow]] = defaultdict(list)
    for window in record.windows:
        groups[window.name].append(window)
    phases = [_joined(name, windows, clock) for name, windows in groups.items()]
    return tuple(sorted(phases, key=lambda phase: (phase.start_s, -phase.intervals_s[-1][1])))


def _joined(name: str, windows: Sequence[PhaseWindow], clock: CommonClock) -> Phase:
    alone = windows[0] if len(windows) == 1 else None
    intervals = merge_intervals(
        (clock.seconds(window.host, start), clock.seconds(window.host, end))
        for window in windows
        for start, end in window.intervals
    )
    return Phase(
        name=name,
        timed=windows[0].timed,
        intervals_s=tuple(intervals),
        active_s=alone.active_s if alone else sum(end - start for start, end in intervals),
        read_bytes=sum(window.read_bytes for window in windows),
        written_bytes=sum(window.written_bytes for window in windows),
        operations=sum(window.operations for window in windows),
        cpu_s=sum(window.cpu_s for window in windows),
        rank_count=sum(window.rank_count for window in windows),
        spread_s=max(max(window.start_spread_s, window.end_spread_s) for window in windows),
        half_rates_bytes_per_s=alone.half_rates_bytes_per_s if alone else None,
        is_part=windows[0].is_part,
    )


def parents(record: RunRecord) -> Mapping[str, str | None]:
    return {span.name: span.parent for span in record.spans}


def depth(name: str, above: Mapping[str, str | None]) -> int:
    return len(_ancestors(name, above))


@cache_by_identity
def leading(record: RunRecord) -> tuple[Phase, ...]:
    """Return the timed phases without an enclosing timed phase: they are the run's result.

    The parts of a phase are none of them: what was found in it afterwards adds to no sum.
    """
    above = parents(record)
    phases = phases_of(record)
    timed = {phase.name for phase in phases if phase.timed}
    return tuple(
        p for p in phases if p.timed and not p.is_part and not _ancestors(p.name, above) & timed
    )


@cache_by_identity
def timed_parts(record: RunRecord) -> tuple[Phase, ...]:
    """Return the timed parts of other phases, such as a steady state.

    Their bytes and seconds are those of their parents too, so no sum includes both.
    """
    names = {window.name for window in record.windows if window.timed and window.is_part}
    return tuple(phase for phase in phases_of(record) if phase.name in names)


def counted_phases(record: RunRecord, name: str, *, every: Collection[str] = ("",)) -> list[Phase]:
    """Return the phases that a figure is of: a leading phase, a part, or all leading ones.

    Args:
        record: the run.
        name: of the phase.
        every: the names that stand for all leading phases.
    """
    if name in every:
        return list(leading(record))
    return [phase for phase in (*leading(record), *timed_parts(record)) if phase.name == name]


def _ancestors(name: str, above: Mapping[str, str | None]) -> set[str]:
    found: set[str] = set()
    while (parent := above.get(name)) is not None and parent not in found:
        found.add(parent)
        name = parent
    return found


def overlap(phases: Sequence[Phase]) -> bool:
    """Return whether any two phases share time, which sums over them would count twice."""
    ordered = sorted(interval for phase in phases for interval in phase.intervals_s)
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(ordered))
