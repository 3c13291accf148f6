"""Series over time: the readings of one device by one source, and the bytes moved so far.

Readings that no meter of a drive, GPU or node can have are refused, never integrated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import EVIDENCE_RANK, Channel, Evidence, Sample, SourceFacts, weakest
from wattload.core.units import NS_PER_S

Times = NDArray[np.int64]
"""Nanoseconds of CLOCK_MONOTONIC, shape (n,)."""
Values = NDArray[np.float64]

MOST_W = 1e6
"""No node draws a megawatt."""
MOST_J = 1e15
"""A megawatt for thirty years: more than any counter of joules can have."""

_MOST: Mapping[Channel, float] = {
    Channel.POWER_W: MOST_W,
    Channel.LOWER_W: MOST_W,
    Channel.UPPER_W: MOST_W,
    Channel.ENERGY_J: MOST_J,
}

_BY_RANK = tuple(EVIDENCE_RANK)


class TraceKey(NamedTuple):
    """The identity of a trace."""

    source: str
    device: str
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Readings in ascending ``time_ns``; all arrays have shape (n,).

    ``value`` is in the channel's unit; a failed read is NaN, in traces only. ``evidence_rank``
    is that of ``EVIDENCE_RANK``, strongest 0. ``back_s`` is how far a time is before that of a
    reading that was taken earlier, at most: 0 for a clock that only advances.
    """

    key: TraceKey
    time_ns: Times
    spread_ns: Times
    value: Values
    evidence_rank: NDArray[np.int8]
    back_s: float = 0.0

    @classmethod
    def from_samples(cls, key: TraceKey, samples: Sequence[Sample]) -> Trace:
        """Return the trace of samples that all have ``key``, in the order they were taken."""
        taken_ns = np.array([sample.time_ns for sample in samples], dtype=np.int64)
        back_ns = np.maximum.accumulate(taken_ns) - taken_ns
        order = np.argsort(taken_ns, kind="stable")
        values = [np.nan if sample.value is None else sample.value for sample in samples]
        ranks = [EVIDENCE_RANK[sample.evidence] for sample in samples]
        return cls(
            key=key,
            time_ns=taken_ns[order],
            spread_ns=np.array([sample.spread_ns for sample in samples], dtype=np.int64)[order],
            value=np.array(values, dtype=np.float64)[order],
            evidence_rank=np.array(ranks, dtype=np.int8)[order],
            back_s=int(back_ns.max(initial=0)) / NS_PER_S,
        )

    def sample_count(self, start_ns: int, end_ns: int) -> int:
        """Return how many reads succeeded in ``[start_ns, end_ns]``, both ends included."""
        inside = (self.time_ns >= start_ns) & (self.time_ns <= end_ns)
        return int(np.count_nonzero(inside & ~np.isnan(self.value)))

    def evidence(self, start_ns: int, end_ns: int) -> Evidence:
        """Return the weakest evidence of the samples that determine the window.

        These are the samples inside and the next one beyond each edge, which is used to interpolate
        at the edge. ``NONE`` without any.
        """
        part = self._around(start_ns, end_ns)
        ranks = self.evidence_rank[part][~np.isnan(self.value[part])]
        return weakest(_BY_RANK[rank] for rank in np.unique(ranks))

    def change_count(self, start_ns: int, end_ns: int) -> int:
        """Return how many times the reading changed in ``[start_ns, end_ns]``."""
        inside = (self.time_ns >= start_ns) & (self.time_ns <= end_ns) & ~np.isnan(self.value)
        return int(np.count_nonzero(np.diff(self.value[inside])))

    def usual_period_s(self) -> float | None:
        """Return the median time between two reads in seconds; ``None`` for fewer than two."""
        if self.time_ns.size < 2:  # noqa: PLR2004 - a period has two ends
            return None
        return float(np.median(np.diff(self.time_ns))) / NS_PER_S

    def _around(self, start_ns: int, end_ns: int) -> slice:
        """Return the reads in the interval, with the next one beyond each edge."""
        first = max(0, int(np.searchsorted(self.time_ns, start_ns, "right")) - 1)
        return slice(first, int(np.searchsorted(self.time_ns, end_ns, "left")) + 1)


def traces(samples: Iterable[Sample]) -> dict[TraceKey, Trace]:
    """Return the samples as traces."""
    groups: defaultdict[tuple[str, str, Channel], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.source, sample.device, sample.channel].append(sample)
    keys = {TraceKey(*key): group for key, group in groups.items()}
    return {key: Trace.from_samples(key, group) for key, group in keys.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByteSeries:
    """The total ``moved_bytes[i]`` up to ``time_ns[i]``; both ascending, shape (n,), n >= 2."""

    time_ns: Times
    moved_bytes: Values

    @classmethod
    def from_bins(
        cls, bins: Mapping[int, int], *, bin_ns: int, intervals: Sequence[tuple[int, int]]
    ) -> ByteSeries:
        """Return the series of one phase from its bytes per bin of ``bin_ns``, by bin start.

        The bytes of a bin are spread evenly over its parts in the phase's active ``intervals``
        (start and end in ns, ascending). None moved in a pause, so the series ends at their exact
        sum. A bin outside all intervals counts at the nearest end of one.
        """
        ends = [end_ns for _, end_ns in intervals]
        grown: dict[int, float] = {moment: 0.0 for span in intervals for moment in span}
        pieces = [
            piece
            for bin_start_ns, moved in sorted(bins.items())
            for piece in _spread(
                moved, *_parts(bin_start_ns, bin_start_ns + bin_ns, intervals, ends)
            )
        ]
        for first, last, moved in pieces:
            grown.setdefault(first, 0.0)
            grown[last] = grown.get(last, 0.0) + moved
        times = sorted(grown)
        moved_bytes = np.cumsum([grown[time_ns] for time_ns in times])
        return cls(time_ns=np.array(times, dtype=np.int64), moved_bytes=moved_bytes)

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Return whether the series covers all of ``[start_ns, end_ns]``."""
        return bool(self.time_ns[0] <= start_ns and self.time_ns[-1] >= end_ns)

    def at(self, time_ns: Times) -> Values:
        """Return bytes moved by each time, interpolated and rounded to whole bytes, shape (n,)."""
        origin = self.time_ns[0]
        moved: Values = np.interp(time_ns - origin, self.time_ns - origin, self.moved_bytes)
        return np.rint(moved)


def _parts(
    start_ns: int, end_ns: int, intervals: Sequence[tuple[int, int]], ends: Sequence[int]
) -> list[tuple[int, int]]:
    """Return a bin's parts in the intervals, at least one; ``ends`` are the intervals' ends."""
    parts: list[tuple[int, int]] = []
    for index in range(bisect_right(ends, start_ns), len(intervals)):
        first, last = intervals[index]
        if first >= end_ns:
            break
        parts.append((max(start_ns, first), min(end_ns, last)))
    nearest = min(ends, key=lambda moment: abs(moment - start_ns)) if not parts else 0
    return parts or [(nearest, nearest)]


def _spread(moved: int, *parts: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and bytes of each part of a bin; the integers sum to ``moved``."""
    left, left_ns = moved, sum(last - first for first, last in parts)
    for first, last in parts:
        share = left * (last - first) // left_ns if left_ns else left
        yield first, last, share
        left, left_ns = left - share, left_ns - (last - first)


def refusal(value: float, channel: Channel, facts: SourceFacts) -> str:
    """Return why a reading is refused, as a clause; empty for a plausible one."""
    unit = "J" if channel is Channel.ENERGY_J else "W"
    if not np.isfinite(value) or abs(value) > _MOST[channel]:
        return f"{facts.name} reported {value:g} {unit}, which is impossible"
    if value < 0 and not facts.may_be_negative:
        return f"{facts.name} reported {value:g} {unit}, and its readings can't be negative"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused:
    """The refused readings of a trace: when, and why the first one was."""

    time_ns: Times
    reason: str

    def in_window(self, start_ns: int, end_ns: int) -> bool:
        """Return whether one of them lies in a window, both ends included."""
        return bool(((self.time_ns >= start_ns) & (self.time_ns <= end_ns)).any())


def plausible(trace: Trace, facts: SourceFacts) -> tuple[Trace, Refused | None]:
    """Return the trace with a gap for each refused reading, and these; ``None`` without any.

    All are refused if their times run back by more than the time between two reads: it is unknown
    which of them are right.
    """
    known = ~np.isnan(trace.value)
    if trace.back_s > facts.period_s:
        reason = f"the times of {facts.name} run back by {trace.back_s:.3g} s"
        cleaned = replace(trace, value=np.full(trace.value.shape, np.nan))
        return cleaned, Refused(time_ns=trace.time_ns, reason=reason)
    least = -np.inf if facts.may_be_negative else 0.0
    with np.errstate(invalid="ignore"):
        is_bad = known & ((np.abs(trace.value) > _MOST[trace.key.channel]) | (trace.value < least))
    if not is_bad.any():
        return trace, None
    reason = refusal(float(trace.value[is_bad][0]), trace.key.channel, facts)
    cleaned = replace(trace, value=np.where(is_bad, np.nan, trace.value))
    return cleaned, Refused(time_ns=trace.time_ns[is_bad], reason=reason)


def refused_energy(energy_j: float | None, seconds: float, *, may_be_negative: bool = False) -> str:
    """Return why an energy is refused; empty if it is plausible or missing."""
    if energy_j is None or seconds <= 0:
        return ""
    most_j = MOST_W * seconds
    if (-most_j if may_be_negative else 0.0) <= energy_j <= most_j:
        return ""
    return f"an energy of {energy_j:g} J in {seconds:.3f} s is impossible"
