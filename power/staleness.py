"""A reading that stands still while the drive does not: told from flat power by other accounts.

Flat power is information, above all in coarse steps: a drive at work may tell 14 W for an hour. So
that a reading repeats proves nothing by itself. It is stale where another account, which the sensor
has no part in, says that power must have changed meanwhile by more than its steps hide:

* the drive went from idleness into work or back. Either readings elsewhere in the run tell the two
  apart by 3 steps or more, or the bytes moved a second would, at ``BYTE_J`` each, by 2 steps;
* another sensor of the drive told powers that are ``RIVAL_SHARE`` and 2 steps of both apart;
* a fine sensor that elsewhere changed many times in work of the same unsteadiness no longer does.

Temperature is no such account, for it follows power by minutes, nor is the power state: work below
two caps draws the same under both. A standstill of less than ``STILL_S``
is too short to tell, and one over idleness and work alike, where the work may be too little to
show in the sensor's steps, is called neither stale nor fresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import MEASURING, Boxcar, Channel, Instant, Scope, SourceFacts
from wattload.core.record.energy import Freshness
from wattload.core.units import NS_PER_S
from wattload.power.accounts import BIN_S, Accounts, Bins, means
from wattload.power.trace import Trace, TraceKey, Values

STILL_S = 10.0
STILL_READS = 10
STILL_UPDATES = 5
"""A reading that is updated seldom repeats for that alone."""
BYTE_J = 0.5e-9
"""Less than any drive uses to move a byte, over what it uses at idle (1 W or more per GB/s)."""
FINE_W = 0.1
BUSY_SHARE, IDLE_SHARE = 0.25, 0.02
"""Shares of the greatest rate of the run from which on a bin is work, and up to which idleness."""
RIVAL_SHARE = 0.25
OTHER_STEP_W = 1.0
"""No sensor of a drive that is read has coarser steps than OCP's."""
EXPECTED_CHANGES = 20.0
"""So many are expected where none came: the chance of that is e^-20."""
UNSTEADY_MARGIN = 0.02
BINS_MIN = 2
"""Of each kind: one bin by itself may hold the change from one kind to the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Still:
    """A time in which one reading repeated; ``why`` says what contradicts it, empty for nothing.

    ``is_open``: it told the same at idle and at work, and nothing says whether that can be.
    """

    start_ns: int
    end_ns: int
    why: str = ""
    is_open: bool = False

    def seconds_in(self, start_ns: int, end_ns: int) -> float:
        """Return how many seconds of an interval it holds."""
        return max(0, min(end_ns, self.end_ns) - max(start_ns, self.start_ns)) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """When a sensor's reading stood still for ``least_s`` or more, and what is known of that."""

    least_s: float
    stills: tuple[Still, ...]
    is_judged: bool

    def stale_s(self, start_ns: int, end_ns: int) -> float:
        """Return the seconds of a window in which the reading was stale."""
        return sum(still.seconds_in(start_ns, end_ns) for still in self.stills if still.why)

    def freshness(self, start_ns: int, end_ns: int) -> tuple[Freshness, str]:
        """Return the verdict on a window, and what decided it."""
        stale = [each for each in self.stills if each.why and each.seconds_in(start_ns, end_ns)]
        if stale:
            return "stale", stale[0].why
        if (end_ns - start_ns) / NS_PER_S < self.least_s:
            return "unjudged", f"it takes {self.least_s:g} s to tell"
        long = [e for e in self.stills if e.seconds_in(start_ns, end_ns) >= self.least_s]
        if any(each.is_open for each in long):
            return (
                "unjudged",
                "it told the same at idle and at work, too little to show in its steps",
            )
        if self.is_judged or not long:
            return "fresh", ""
        return "unjudged", (
            "its reading stood still, and nothing that is known besides tells that from flat power"
        )

    def without_stale(self, trace: Trace) -> Trace:
        """Return the trace with the stale readings as failed ones, but for the first of each."""
        value = trace.value.copy()
        for still in self.stills:
            if still.why:
                value[(trace.time_ns > still.start_ns) & (trace.time_ns <= still.end_ns)] = np.nan
        return replace(trace, value=value)


def staleness(
    trace: Trace, facts: SourceFacts, by_key: Mapping[TraceKey, Trace]
) -> Staleness | None:
    """Return when a drive's sensor of power stood still; ``None`` where that is not asked.

    It is not asked of counters, of bounds and data sheets, of what covers more than a drive, and of
    another run's recording.
    """
    is_sensor = isinstance(facts.sensor, Boxcar | Instant) and facts.evidence in MEASURING
    is_power = trace.key.channel is Channel.POWER_W
    if not (is_sensor and is_power) or facts.scope is not Scope.DRIVE or facts.is_of_another_run:
        return None
    update_s = _update_s(facts)
    least_s = max(STILL_S, STILL_UPDATES * update_s)
    runs = list(_runs(trace, least_s))
    accounts = Accounts.of(by_key, facts)
    if not runs:
        return Staleness(least_s=least_s, stills=(), is_judged=True)
    judge = _Judge(trace, facts, accounts, runs, settle_s=_window_s(facts) + update_s + 1.0)
    return Staleness(
        least_s=least_s,
        stills=tuple(judge.judged(still) for still in runs),
        is_judged=judge.knows_steps and bool(accounts.moved or accounts.powers),
    )


def _update_s(facts: SourceFacts) -> float:
    sensor = facts.sensor
    return (sensor.update_period_s or 0.0) if isinstance(sensor, Boxcar | Instant) else 0.0


def _window_s(facts: SourceFacts) -> float:
    return facts.sensor.window_s if isinstance(facts.sensor, Boxcar) else 0.0


def _runs(trace: Trace, least_s: float) -> Iterator[Still]:
    """Yield the times of at least ``STILL_READS`` equal readings without a gap."""
    known = ~np.isnan(trace.value)
    time_ns, value = trace.time_ns[known], trace.value[known]
    if not value.size:
        return
    is_gap = np.diff(time_ns) > least_s * NS_PER_S / 3
    change = np.flatnonzero((np.diff(value) != 0) | is_gap)
    firsts = np.concatenate(([0], change + 1))
    lasts = np.concatenate((change, [value.size - 1]))
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        is_long = time_ns[last] - time_ns[first] >= least_s * NS_PER_S
        if is_long and last - first + 1 >= STILL_READS:
            yield Still(start_ns=int(time_ns[first]), end_ns=int(time_ns[last]))


class _Judge:
    """Holds each standstill of a sensor against the other accounts of its drive."""

    def __init__(
        self,
        trace: Trace,
        facts: SourceFacts,
        accounts: Accounts,
        runs: Sequence[Still],
        *,
        settle_s: float,
    ) -> None:
        self._trace = trace
        self._settle_ns = round(settle_s * NS_PER_S)
        self._step_w = facts.resolution_w or _smallest_step_w(trace)
        self._bins = Bins.of(trace, accounts)
        self._told_w = means(trace, self._bins.edge_ns)
        is_still = np.zeros(self._told_w.size, np.bool_)
        for still in runs:
            is_still[self._bins.within(still.start_ns, still.end_ns)] = True
        self._is_still = is_still

    @property
    def knows_steps(self) -> bool:
        """Whether anything tells what the sensor hides."""
        return self._step_w is not None

    def judged(self, still: Still) -> Still:
        """Return a standstill with what contradicts it, or that nothing tells."""
        inside = np.zeros(self._told_w.size, np.bool_)
        inside[self._bins.within(still.start_ns, still.end_ns - self._settle_ns)] = True
        why = self._why(still, inside)
        rate = self._bins.rate
        is_open = not why and rate is not None and _mixed(rate, inside)
        return replace(still, why=why, is_open=is_open)

    def _why(self, still: Still, inside: NDArray[np.bool_]) -> str:
        if self._step_w is None:
            return ""
        if self._bins.rate is not None and self._bins.rate.any():
            if self._woke(self._bins.rate, inside, self._step_w):
                return "the drive went from idleness into work or back"
            if self._fell_silent(self._bins.rate, inside, still):
                return "it worked as before, when the reading changed all the time"
        if any(self._differs(powers_w[inside], self._step_w) for powers_w in self._bins.powers_w):
            return "another sensor of the drive saw its power change"
        return ""

    def _woke(self, rate: Values, inside: NDArray[np.bool_], step_w: float) -> bool:
        if not _mixed(rate, inside):
            return False
        busy, idle = _kinds(rate)
        more = float(np.median(rate[busy & inside]) - np.median(rate[idle & inside]))
        if more * BYTE_J >= 2 * step_w:
            return True
        told = ~np.isnan(self._told_w) & ~self._is_still
        if min(np.count_nonzero(busy & told), np.count_nonzero(idle & told)) < BINS_MIN:
            return False
        apart_w = np.median(self._told_w[busy & told]) - np.median(self._told_w[idle & told])
        return bool(abs(apart_w) >= 3 * step_w)

    def _fell_silent(self, rate: Values, inside: NDArray[np.bool_], still: Still) -> bool:
        """Return whether a sensor that changed in such work before or after has ceased to."""
        if self._step_w is None or self._step_w > FINE_W:
            return False
        busy, outside = rate >= BUSY_SHARE * rate.max(), np.ones(rate.size, np.bool_)
        outside[self._bins.within(still.start_ns, still.end_ns)] = False
        here, there = rate[busy & inside], rate[busy & outside]
        if min(here.size, there.size) * BIN_S < STILL_S:
            return False
        expected = self._changes()[busy & outside].mean() * here.size
        return bool(
            expected >= EXPECTED_CHANGES
            and _unsteadiness(here) >= _unsteadiness(there) / 2 - UNSTEADY_MARGIN
        )

    def _changes(self) -> Values:
        """Return how often the reading changed in each bin."""
        known = ~np.isnan(self._trace.value)
        changed = np.flatnonzero(np.diff(self._trace.value[known]) != 0) + 1
        counts, _ = np.histogram(self._trace.time_ns[known][changed], self._bins.edge_ns)
        return counts.astype(np.float64)

    def _differs(self, powers_w: Values, step_w: float) -> bool:
        told = powers_w[~np.isnan(powers_w)]
        if told.size < BINS_MIN:
            return False
        apart_w = float(told.max() - told.min())
        return apart_w >= max(2 * (step_w + OTHER_STEP_W), RIVAL_SHARE * abs(float(told.mean())))


def _kinds(rate: Values) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which bins are work, and which idleness."""
    return rate >= BUSY_SHARE * rate.max(), rate <= IDLE_SHARE * rate.max()


def _mixed(rate: Values, inside: NDArray[np.bool_]) -> bool:
    """Return whether there was both work and idleness."""
    if not rate.any():
        return False
    return all(np.count_nonzero(kind & inside) >= BINS_MIN for kind in _kinds(rate))


def _unsteadiness(rate: Values) -> float:
    return float(rate.std() / rate.mean())


def _smallest_step_w(trace: Trace) -> float | None:
    """Return the smallest step between readings, ``None`` where there is none."""
    values = np.unique(trace.value[~np.isnan(trace.value)])
    return float(np.diff(values).min()) if values.size > 1 else None
