"""Detection of a sensor that repeats one reading although the power of the drive changes.

Power may really be constant, above all in coarse steps: a busy drive may draw 14 W for an hour. So
a repeated reading is not stale by itself. It is stale if an independent trace shows that power must
have changed by more than the sensor's steps can hide:

* The drive went from idle to busy or back. Either the readings in the rest of the run differ
  between the two by 3 steps or more, or the bytes per second, at ``BYTE_J`` each, are worth 2.
* Another sensor of the drive reported powers that differ by ``RIVAL_SHARE`` and by 2 steps of both.
* A fine sensor that changed many times under equally variable work no longer changes.

Two traces are not used. Temperature follows power by minutes. The power state may change without
an effect: work below both caps draws the same. A repetition shorter than ``REPEATED_S`` is not
judged. One that spans idle and busy time, while the work may be too small for the sensor's steps,
is neither stale nor fresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.checks.sensors import FINE_W
from wattload.core.power import Boxcar, Channel, Instant, Scope, SourceFacts
from wattload.core.record.energy import Freshness
from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Times, Trace, TraceKey, Values

BIN_S = 2.0
"""Traces are compared in bins of this length, which is longer than a drive's sensor averages."""

_BYTES = (Channel.READ_BYTES, Channel.WRITTEN_BYTES)

REPEATED_S = 10.0
REPEATED_READS = 10
REPEATED_UPDATES = 5
"""A reading must repeat for this many updates, as one that is updated rarely repeats anyway."""
BYTE_J = 0.5e-9
"""Less than any drive needs per byte in addition to idle power (1 W or more per GB/s)."""
BUSY_SHARE, IDLE_SHARE = 0.25, 0.02
"""A bin is busy from the first share of the run's highest rate, and idle up to the second."""
RIVAL_SHARE = 0.25
OTHER_STEP_W = 1.0
"""The coarsest steps of any supported drive sensor (OCP's)."""
EXPECTED_CHANGES = 20.0
"""Changes expected where there were none; the probability of that is e^-20."""
VARIATION_MARGIN = 0.02
BINS_MIN = 2
"""The fewest busy and idle bins: a single bin may contain the transition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A time in which one reading repeated; ``why`` is the evidence that it is stale, or empty.

    ``is_open``: it was the same at idle and under work, and nothing shows whether that is correct.
    """

    start_ns: int
    end_ns: int
    why: str = ""
    is_open: bool = False

    def seconds_in(self, start_ns: int, end_ns: int) -> float:
        return max(0, min(end_ns, self.end_ns) - max(start_ns, self.start_ns)) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """The times in which a sensor's reading repeated for ``least_s`` or more, and the verdicts."""

    least_s: float
    repetitions: tuple[Repetition, ...]
    is_judged: bool

    def stale_s(self, start_ns: int, end_ns: int) -> float:
        """Return the seconds of a window in which the reading was stale."""
        return sum(each.seconds_in(start_ns, end_ns) for each in self.repetitions if each.why)

    def freshness(self, start_ns: int, end_ns: int) -> tuple[Freshness, str]:
        """Return the verdict on a window, and the reason."""
        stale = [
            each for each in self.repetitions if each.why and each.seconds_in(start_ns, end_ns)
        ]
        if stale:
            return "stale", stale[0].why
        if (end_ns - start_ns) / NS_PER_S < self.least_s:
            return "unjudged", f"the window is shorter than the {self.least_s:g} s needed"
        long = [e for e in self.repetitions if e.seconds_in(start_ns, end_ns) >= self.least_s]
        if any(each.is_open for each in long):
            return (
                "unjudged",
                "the reading was the same at idle and under work; its steps may be too coarse",
            )
        if self.is_judged or not long:
            return "fresh", ""
        return "unjudged", (
            "the reading repeated, and no other trace shows whether power was constant"
        )

    def without_stale(self, trace: Trace) -> Trace:
        """Return the trace with stale readings as failed ones, except the first of each."""
        value = trace.value.copy()
        for each in self.repetitions:
            if each.why:
                value[(trace.time_ns > each.start_ns) & (trace.time_ns <= each.end_ns)] = np.nan
        return replace(trace, value=value)


def staleness(
    trace: Trace, facts: SourceFacts, by_key: Mapping[TraceKey, Trace]
) -> Staleness | None:
    """Return when the reading of a drive's power sensor repeated; ``None`` if not applicable.

    Not applicable are counters, bounds, data sheets, sources of more than a drive, and recordings
    of another run.
    """
    sensor = facts.sensor
    if not isinstance(sensor, Boxcar | Instant) or not facts.measures or facts.is_of_another_run:
        return None
    if trace.key.channel is not Channel.POWER_W or facts.scope is not Scope.DRIVE:
        return None
    update_s = sensor.update_period_s or 0.0
    window_s = sensor.window_s if isinstance(sensor, Boxcar) else 0.0
    least_s = max(REPEATED_S, REPEATED_UPDATES * update_s)
    runs = list(_runs(trace, least_s))
    others = IndependentTraces.of(by_key, facts)
    if not runs:
        return Staleness(least_s=least_s, repetitions=(), is_judged=True)
    judge = _Judge(trace, facts, others, runs, settle_s=window_s + update_s + 1.0)
    return Staleness(
        least_s=least_s,
        repetitions=tuple(judge.judged(repetition) for repetition in runs),
        is_judged=judge.knows_steps and bool(others.moved or others.powers),
    )


def _runs(trace: Trace, least_s: float) -> Iterator[Repetition]:
    """Yield the times of at least ``REPEATED_READS`` equal readings without a gap."""
    known = ~np.isnan(trace.value)
    time_ns, value = trace.time_ns[known], trace.value[known]
    if not value.size:
        return
    is_gap = np.diff(time_ns) > least_s * NS_PER_S / 3
    change = np.flatnonzero((np.diff(value) != 0) | is_gap)
    firsts = np.concatenate(([0], change + 1))
    lasts = np.concatenate((change, [value.size - 1]))
    is_long = time_ns[lasts] - time_ns[firsts] >= least_s * NS_PER_S
    is_long &= lasts - firsts + 1 >= REPEATED_READS
    for first, last in zip(firsts[is_long], lasts[is_long], strict=True):
        yield Repetition(start_ns=int(time_ns[first]), end_ns=int(time_ns[last]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndependentTraces:
    """Traces of one drive that are independent of the sensor: block counters, other powers."""

    moved: tuple[Trace, ...]
    powers: tuple[Trace, ...]

    @classmethod
    def of(cls, by_key: Mapping[TraceKey, Trace], facts: SourceFacts) -> IndependentTraces:
        """Return the traces of the source's drive; block devices are found by the drive's name."""
        own = (facts.device_name, f"{facts.device_name}n")
        return cls(
            moved=tuple(
                trace
                for key, trace in by_key.items()
                if key.channel in _BYTES and (key.device == own[0] or key.device.startswith(own[1]))
            ),
            powers=tuple(
                trace
                for key, trace in by_key.items()
                if key.channel is Channel.POWER_W
                and key.device == facts.device
                and key.source != facts.name
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """A drive's independent traces in bins of ``BIN_S``: bin i starts at ``edge_ns[i]``.

    ``rate`` is bytes per second (n,), ``None`` if they were not counted. ``powers_w`` are the mean
    readings of each other sensor, NaN in bins without a reading.
    """

    edge_ns: Times
    rate: Values | None
    powers_w: tuple[Values, ...]

    @classmethod
    def of(cls, trace: Trace, others: IndependentTraces) -> Bins:
        """Return bins over the time that the trace and the block counters cover."""
        starts = [int(each.time_ns[0]) for each in (trace, *others.moved)]
        ends = [int(each.time_ns[-1]) for each in (trace, *others.moved)]
        edge_ns = np.arange(max(starts), max(min(ends), *starts) + 1, round(BIN_S * NS_PER_S))
        return cls(
            edge_ns=edge_ns,
            rate=_rate(others.moved, edge_ns) if others.moved else None,
            powers_w=tuple(bin_means(each, edge_ns) for each in others.powers),
        )

    def within(self, start_ns: int, end_ns: int) -> slice:
        first = int(np.searchsorted(self.edge_ns, start_ns, "left"))
        last = int(np.searchsorted(self.edge_ns, end_ns, "right")) - 1
        return slice(first, max(first, last))


def _rate(moved: Sequence[Trace], edge_ns: Times) -> Values:
    total = np.zeros(edge_ns.size)
    for trace in moved:
        known = ~np.isnan(trace.value)
        if known.any():
            at_s = (trace.time_ns[known] - edge_ns[0]) / NS_PER_S
            total += np.interp((edge_ns - edge_ns[0]) / NS_PER_S, at_s, trace.value[known])
    rate: Values = np.maximum(np.diff(total), 0.0) / BIN_S
    return rate


def bin_means(trace: Trace, edge_ns: Times) -> Values:
    """Return the mean reading of each bin, NaN without any."""
    known = ~np.isnan(trace.value)
    index = np.searchsorted(edge_ns, trace.time_ns[known], "right") - 1
    inside = (index >= 0) & (index < edge_ns.size - 1)
    size = max(edge_ns.size - 1, 0)
    count = np.bincount(index[inside], minlength=size)
    total = np.bincount(index[inside], trace.value[known][inside], minlength=size)
    found: Values = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return found


class _Judge:
    """Compares each repetition of a sensor's reading with the other traces of its drive."""

    def __init__(
        self,
        trace: Trace,
        facts: SourceFacts,
        others: IndependentTraces,
        runs: Sequence[Repetition],
        *,
        settle_s: float,
    ) -> None:
        self._trace = trace
        self._settle_ns = round(settle_s * NS_PER_S)
        self._step_w = facts.resolution_w or _smallest_step_w(trace)
        self._bins = Bins.of(trace, others)
        self._reading_w = bin_means(trace, self._bins.edge_ns)
        is_repeated = np.zeros(self._reading_w.size, np.bool_)
        for repetition in runs:
            is_repeated[self._bins.within(repetition.start_ns, repetition.end_ns)] = True
        self._is_repeated = is_repeated

    @property
    def knows_steps(self) -> bool:
        return self._step_w is not None

    def judged(self, repetition: Repetition) -> Repetition:
        inside = np.zeros(self._reading_w.size, np.bool_)
        inside[self._bins.within(repetition.start_ns, repetition.end_ns - self._settle_ns)] = True
        why = self._why(repetition, inside)
        rate = self._bins.rate
        is_open = not why and rate is not None and _mixed(rate, inside)
        return replace(repetition, why=why, is_open=is_open)

    def _why(self, repetition: Repetition, inside: NDArray[np.bool_]) -> str:
        if self._step_w is None:
            return ""
        if self._bins.rate is not None and self._bins.rate.any():
            if self._became_busy(self._bins.rate, inside, self._step_w):
                return "the drive went from idle to busy or back"
            if self._stopped_changing(self._bins.rate, inside, repetition):
                return "the drive worked as before, when the reading changed all the time"
        if any(self._differs(powers_w[inside], self._step_w) for powers_w in self._bins.powers_w):
            return "another sensor of the drive measured a change of power"
        return ""

    def _became_busy(self, rate: Values, inside: NDArray[np.bool_], step_w: float) -> bool:
        if not _mixed(rate, inside):
            return False
        busy, idle = _kinds(rate)
        more = float(np.median(rate[busy & inside]) - np.median(rate[idle & inside]))
        if more * BYTE_J >= 2 * step_w:
            return True
        known = ~np.isnan(self._reading_w) & ~self._is_repeated
        if min(np.count_nonzero(busy & known), np.count_nonzero(idle & known)) < BINS_MIN:
            return False
        apart_w = np.median(self._reading_w[busy & known]) - np.median(
            self._reading_w[idle & known]
        )
        return bool(abs(apart_w) >= 3 * step_w)

    def _stopped_changing(
        self, rate: Values, inside: NDArray[np.bool_], repetition: Repetition
    ) -> bool:
        """Return whether a sensor that changed under equal work elsewhere no longer changes."""
        if self._step_w is None or self._step_w > FINE_W:
            return False
        busy, outside = rate >= BUSY_SHARE * rate.max(), np.ones(rate.size, np.bool_)
        outside[self._bins.within(repetition.start_ns, repetition.end_ns)] = False
        here, there = rate[busy & inside], rate[busy & outside]
        if min(here.size, there.size) * BIN_S < REPEATED_S:
            return False
        expected = self._changes()[busy & outside].mean() * here.size
        return bool(
            expected >= EXPECTED_CHANGES
            and _variation(here) >= _variation(there) / 2 - VARIATION_MARGIN
        )

    def _changes(self) -> Values:
        """Return how many times the reading changed in each bin."""
        known = ~np.isnan(self._trace.value)
        changed = np.flatnonzero(np.diff(self._trace.value[known]) != 0) + 1
        counts, _ = np.histogram(self._trace.time_ns[known][changed], self._bins.edge_ns)
        return counts.astype(np.float64)

    def _differs(self, powers_w: Values, step_w: float) -> bool:
        known_w = powers_w[~np.isnan(powers_w)]
        if known_w.size < BINS_MIN:
            return False
        apart_w = float(known_w.max() - known_w.min())
        return apart_w >= max(2 * (step_w + OTHER_STEP_W), RIVAL_SHARE * abs(float(known_w.mean())))


def _kinds(rate: Values) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which bins are busy, and which are idle."""
    return rate >= BUSY_SHARE * rate.max(), rate <= IDLE_SHARE * rate.max()


def _mixed(rate: Values, inside: NDArray[np.bool_]) -> bool:
    if not rate.any():
        return False
    return all(np.count_nonzero(kind & inside) >= BINS_MIN for kind in _kinds(rate))


def _variation(rate: Values) -> float:
    return float(rate.std() / rate.mean())


def _smallest_step_w(trace: Trace) -> float | None:
    """Return the smallest difference between readings, ``None`` if all are equal."""
    values = np.unique(trace.value[~np.isnan(trace.value)])
    return float(np.diff(values).min()) if values.size > 1 else None
