"""Phases of a run over all its hosts, on one clock."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattload.core.record.clocks import Times, TimesNs
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.traces import Categories
from wattload.results.identity_cache import cache_by_identity

Intervals = tuple[tuple[float, float], ...]
"""Starts and ends in seconds on the common clock."""


class CommonClock:
    """Converts each host's monotonic clock to ns, or seconds, since the run's first phase."""

    def __init__(self, record: RunRecord) -> None:
        self._clock = record.clock
        windows = record.joined_windows
        self._origin_ns = windows[0].start_ns if windows else 0

    def since_ns(self, host: str, times: Times) -> Times:
        """Return a host's times, a number or an array (n,), as ns since the run's first phase."""
        return self._clock.ns(host, times) - self._origin_ns

    def rows_ns(self, hosts: Categories, time_ns: TimesNs) -> TimesNs:
        """Return the times of a trace's rows (n,), each of its own host, in the same way."""
        since_ns = np.empty_like(time_ns)
        for number, host in enumerate(hosts.words):
            own = hosts.numbers == number
            since_ns[own] = self.since_ns(host, time_ns[own])
        return since_ns

    def seconds(self, host: str, time_ns: int) -> float:
        """Return a host's time as seconds since the run's first phase."""
        return self.since_ns(host, time_ns) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase over all hosts: bytes summed, times in seconds on the common clock.

    ``is_part``: its bytes are those of an enclosing phase (``core.record.phase.PhaseSpan``).
    ``intervals_s`` are the times in which any rank was in the phase, disjoint and in order; a phase
    that was entered once has one. ``of_hosts_s`` are those of the ranks of each host.
    """

    name: str
    timed: bool
    intervals_s: Intervals
    of_hosts_s: Mapping[str, Intervals]
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
    of_hosts: defaultdict[str, dict[str, Intervals]] = defaultdict(dict)
    for window in record.windows:
        of_hosts[window.name][window.host] = tuple(
            (clock.seconds(window.host, start), clock.seconds(window.host, end))
            for start, end in window.intervals
        )
    windows = record.joined_windows
    phases = [_phase(each, windows[0].start_ns, of_hosts[each.name]) for each in windows]
    return tuple(sorted(phases, key=lambda phase: (phase.start_s, -phase.intervals_s[-1][1])))


def _phase(window: PhaseWindow, origin_ns: int, of_hosts_s: Mapping[str, Intervals]) -> Phase:
    return Phase(
        name=window.name,
        timed=window.timed,
        intervals_s=tuple(
            ((start - origin_ns) / NS_PER_S, (end - origin_ns) / NS_PER_S)
            for start, end in window.intervals
        ),
        of_hosts_s=of_hosts_s,
        active_s=window.active_s,
        read_bytes=window.read_bytes,
        written_bytes=window.written_bytes,
        operations=window.operations,
        cpu_s=window.cpu_s,
        rank_count=window.rank_count,
        spread_s=max(window.start_spread_s, window.end_spread_s),
        half_rates_bytes_per_s=window.half_rates_bytes_per_s,
        is_part=window.is_part,
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
    """Return whether a host was in two phases at once, which sums over them would count twice.

    Phases of different hosts may: their clocks are not known to be equal, nor do hosts leave a
    phase at one time.
    """
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for phase in phases:
        for host, intervals in phase.of_hosts_s.items():
            found[host] += intervals
    return any(
        later[0] < earlier[1]
        for of_host in found.values()
        for earlier, later in itertools.pairwise(sorted(of_host))
    )
