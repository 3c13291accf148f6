"""A trace: every reading of one device by one source on one channel, in order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel, Evidence, Sample, weakest
from wattload.core.units import NS_PER_S

Times = NDArray[np.int64]
"""Nanoseconds of CLOCK_MONOTONIC, shape (n,)."""
Values = NDArray[np.float64]

_LADDER = tuple(Evidence)
_RANK = {evidence: rank for rank, evidence in enumerate(_LADDER)}


class TraceKey(NamedTuple):
    """What tells two traces apart."""

    source: str
    device: str
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Readings in ascending ``time_ns``; all arrays have shape (n,).

    ``value`` is in the channel's unit; a failed read is NaN, in here only. ``evidence_rank``
    indexes ``Evidence`` in its order, strongest 0.
    """

    key: TraceKey
    time_ns: Times
    spread_ns: Times
    value: Values
    evidence_rank: NDArray[np.int8]

    @classmethod
    def from_samples(cls, key: TraceKey, samples: Sequence[Sample]) -> Trace:
        """Return the trace of samples that all have ``key``, whatever their order."""
        ordered = sorted(samples, key=lambda sample: sample.time_ns)
        return cls(
            key=key,
            time_ns=np.array([sample.time_ns for sample in ordered], dtype=np.int64),
            spread_ns=np.array([sample.spread_ns for sample in ordered], dtype=np.int64),
            value=np.array(
                [np.nan if sample.value is None else sample.value for sample in ordered],
                dtype=np.float64,
            ),
            evidence_rank=np.array([_RANK[sample.evidence] for sample in ordered], dtype=np.int8),
        )

    def sample_count(self, start_ns: int, end_ns: int) -> int:
        """Return how many reads succeeded in ``[start_ns, end_ns]``, both ends included."""
        inside = (self.time_ns >= start_ns) & (self.time_ns <= end_ns)
        return int(np.count_nonzero(inside & ~np.isnan(self.value)))

    def evidence(self, start_ns: int, end_ns: int) -> Evidence:
        """Return the weakest evidence of the samples that the window rests on.

        These are the samples inside and the one beyond each edge, which the edge is interpolated
        with. ``NONE`` where there are none.
        """
        part = self._around(start_ns, end_ns)
        ranks = self.evidence_rank[part][~np.isnan(self.value[part])]
        return weakest(_LADDER[rank] for rank in np.unique(ranks))

    def change_count(self, start_ns: int, end_ns: int) -> int:
        """Return how often the reading changed in ``[start_ns, end_ns]``."""
        inside = (self.time_ns >= start_ns) & (self.time_ns <= end_ns) & ~np.isnan(self.value)
        return int(np.count_nonzero(np.diff(self.value[inside])))

    def usual_period_s(self) -> float | None:
        """Return the median time between two reads in seconds; ``None`` for fewer than two."""
        if self.time_ns.size < 2:  # noqa: PLR2004 - a period has two ends
            return None
        return float(np.median(np.diff(self.time_ns))) / NS_PER_S

    def greatest_spread_s(self, start_ns: int, end_ns: int) -> float:
        """Return the length of the longest successful read in the interval or next to it, or 0."""
        part = self._around(start_ns, end_ns)
        spread_ns = self.spread_ns[part][~np.isnan(self.value[part])]
        return float(spread_ns.max(initial=0)) / NS_PER_S

    def timing_j(self, start_ns: int, end_ns: int) -> float:
        """Return the joules by which reads may be off for their length, as root of squares.

        A reading that is moved by dt between its neighbours changes their integral by dt times half
        the difference of these; dt is at most half the length of the read.
        """
        part = self._around(start_ns, end_ns)
        known = ~np.isnan(self.value[part])
        value, spread_ns = self.value[part][known], self.spread_ns[part][known]
        each = spread_ns[1:-1] / 2 * (value[2:] - value[:-2]) / 2
        return float(np.linalg.norm(each)) / NS_PER_S

    def _around(self, start_ns: int, end_ns: int) -> slice:
        """Return the reads in the interval with the one beyond each edge."""
        first = max(0, int(np.searchsorted(self.time_ns, start_ns, "right")) - 1)
        return slice(first, int(np.searchsorted(self.time_ns, end_ns, "left")) + 1)


def traces(samples: Iterable[Sample]) -> dict[TraceKey, Trace]:
    """Return the samples sorted into traces."""
    groups: defaultdict[TraceKey, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[TraceKey(sample.source, sample.device, sample.channel)].append(sample)
    return {key: Trace.from_samples(key, group) for key, group in groups.items()}
