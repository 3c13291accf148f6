"""The readings of one device by one source over time.

Readings that no meter of a drive, GPU or node can have are refused, never integrated.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
    is that of ``EVIDENCE_RANK``, strongest 0. ``back_ns`` (k, 2) are the times of each reading that
    has an earlier time than one taken before it, and the latest time of those: none for a clock
    that only advances.
    """

    key: TraceKey
    time_ns: Times
    spread_ns: Times
    value: Values
    evidence_rank: NDArray[np.int8]
    back_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))

    @classmethod
    def from_columns(cls, key: TraceKey, taken_ns: Times, *columns: NDArray[Any]) -> Trace:
        """Return readings in the order they were taken: spreads, values and ranks, (n,) each."""
        latest_ns = np.maximum.accumulate(taken_ns)
        is_back = taken_ns < latest_ns
        back_ns = np.column_stack((taken_ns[is_back], latest_ns[is_back]))
        spread_ns, value, evidence_rank = columns
        if is_back.any():
            order = np.argsort(taken_ns, kind="stable")
            taken_ns, spread_ns = taken_ns[order], spread_ns[order]
            value, evidence_rank = value[order], evidence_rank[order]
        return cls(
            key=key,
            time_ns=taken_ns,
            spread_ns=spread_ns,
            value=value,
            evidence_rank=evidence_rank,
            back_ns=back_ns,
        )

    def known(self) -> tuple[Times, Values]:
        """Return times and values of the successful reads."""
        is_known = ~np.isnan(self.value)
        if is_known.all():  # a run of days has millions: they are not copied without need
            return self.time_ns, self.value
        return self.time_ns[is_known], self.value[is_known]

    def values(self, start_ns: int, end_ns: int) -> Values:
        """Return the successful readings in ``[start_ns, end_ns]``, both ends included."""
        first = int(np.searchsorted(self.time_ns, start_ns))
        values = self.value[first : int(np.searchsorted(self.time_ns, end_ns, "right"))]
        return values[~np.isnan(values)]

    def evidence(self, start_ns: int, end_ns: int) -> Evidence:
        """Return the weakest evidence of the samples that determine the window.

        These are the samples inside and the next one beyond each edge, which is used to interpolate
        at the edge. ``NONE`` without any.
        """
        first = max(0, int(np.searchsorted(self.time_ns, start_ns, "right")) - 1)
        part = slice(first, int(np.searchsorted(self.time_ns, end_ns, "left")) + 1)
        ranks = self.evidence_rank[part][~np.isnan(self.value[part])]
        return weakest(_BY_RANK[rank] for rank in np.unique(ranks))


class TraceBuilder:
    """Collects samples of a host as columns of 25 bytes a sample: a run of days has millions."""

    def __init__(self) -> None:
        self._columns: defaultdict[tuple[str, str, Channel], list[array[Any]]]
        self._columns = defaultdict(lambda: [array(code) for code in "qqdb"])

    def adding(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples, each after adding it: for what else is made of them meanwhile."""
        for sample in samples:
            value = math.nan if sample.value is None else sample.value
            row = sample.time_ns, sample.spread_ns, value, EVIDENCE_RANK[sample.evidence]
            columns = self._columns[sample.source, sample.device, sample.channel]
            for column, figure in zip(columns, row, strict=True):
                column.append(figure)
            yield sample

    def extend(self, key: TraceKey, *columns: NDArray[Any]) -> None:
        """Add the next samples of one key: times, spreads, values and ranks, of shape (n,) each."""
        for column, values in zip(self._columns[key], columns, strict=True):
            column.frombytes(values.tobytes())

    def traces(self) -> dict[TraceKey, Trace]:
        """Return the samples as traces; the builder can't be used afterwards."""
        columns, self._columns = self._columns, defaultdict()
        return {
            TraceKey(*key): Trace.from_columns(
                TraceKey(*key), *(np.frombuffer(each, dtype=each.typecode) for each in own)
            )
            for key, own in columns.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused:
    """The times with refused readings, (n, 2) from first to last, and why the first one was."""

    span_ns: NDArray[np.int64]
    reason: str

    def in_window(self, start_ns: int, end_ns: int) -> bool:
        """Return whether one of them lies in a window, both ends included."""
        return bool(((self.span_ns[:, 1] >= start_ns) & (self.span_ns[:, 0] <= end_ns)).any())


def plausible(trace: Trace, facts: SourceFacts) -> tuple[Trace, Refused | None]:
    """Return the trace with a gap for each refused reading, and these; ``None`` without any.

    Readings whose times are swapped within the time between two reads are sorted. Where times run
    back further, it is unknown which of them are right, so all of that time is refused.
    """
    most = MOST_J if trace.key.channel is Channel.ENERGY_J else MOST_W
    with np.errstate(invalid="ignore"):
        is_negative = (trace.value < 0) & (not facts.may_be_negative)
        is_bad = (np.abs(trace.value) > most) | is_negative
    back_s = (trace.back_ns[:, 1] - trace.back_ns[:, 0]) / NS_PER_S
    is_far = back_s > facts.period_s
    if not is_bad.any() and not is_far.any():
        return trace, None
    if is_far.any():
        reason = f"the times of {facts.name} run back by {back_s.max():.3g} s"
    else:
        unit = "J" if trace.key.channel is Channel.ENERGY_J else "W"
        first = float(trace.value[is_bad][0])
        is_possible = abs(first) <= most
        why = "and its readings can't be negative" if is_possible else "which is impossible"
        reason = f"{facts.name} reported {first:g} {unit}, {why}"
    bad_ns = trace.time_ns[is_bad]
    return (
        replace(trace, value=np.where(is_bad, np.nan, trace.value)),
        Refused(
            span_ns=np.concatenate((trace.back_ns[is_far], np.column_stack((bad_ns, bad_ns)))),
            reason=reason,
        ),
    )


def refused_energy(energy_j: float, seconds: float, *, may_be_negative: bool = False) -> str:
    """Return why an energy is refused; empty if it is plausible."""
    most_j = MOST_W * seconds
    if (-most_j if may_be_negative else 0.0) <= energy_j <= most_j:
        return ""
    return f"an energy of {energy_j:g} J in {seconds:.3f} s is impossible"
