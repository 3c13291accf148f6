"""Steady state by the rule of SNIA's Solid State Storage Performance Test Specification (PTS).

PTS 2.0.2, section 2.1.24: over a measurement window of five rounds of one minute each the tracked
variable ranges over no more than 20 % of its average, and the least-squares line through it rises
or falls by no more than 10 % of that average from the window's first round to its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S
from wattload.reports.load import Run
from wattload.reports.phases import CommonClock, Phase

ROUND_S = 60
"""Seconds of a round (PTS, section 7: each test point runs for one minute)."""

WINDOW_ROUNDS = 5
RANGE_LIMIT = 0.20
SLOPE_LIMIT = 0.10
LEAST_S = ROUND_S * WINDOW_ROUNDS
"""Seconds of work that the first window needs."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A measurement window: five rounds from round ``first`` (from 0) on, and how they spread.

    ``range_fraction`` is (most - least) ÷ average, ``excursion_fraction`` is |slope per round| x 4
    ÷ average: what the fitted line covers between the first round and the fifth, four steps on.
    """

    first: int
    average: float
    slope_per_round: float
    range_fraction: float
    excursion_fraction: float

    @property
    def is_steady(self) -> bool:
        """Whether both conditions hold; each limit itself is allowed."""
        return self.range_fraction <= RANGE_LIMIT and self.excursion_fraction <= SLOPE_LIMIT

    def fitted(self, place: int) -> float:
        """Return the fitted line at a round of the window, 0 to 4."""
        return self.average + self.slope_per_round * (place - (WINDOW_ROUNDS - 1) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The rate of a phase over its active time, in bytes per second.

    ``seconds`` is per whole second, ``rounds`` per whole round of ``ROUND_S``; the rest at the end
    is left out. Both are bytes ÷ seconds, the rounds no means of the seconds.
    """

    seconds: Array
    rounds: Array


def window_of(rounds: Sequence[float] | Array) -> Window | None:
    """Return the first steady window; the last window where none is; ``None`` under five rounds."""
    windows = [
        _judged(first, np.asarray(rounds[first : first + WINDOW_ROUNDS], dtype=np.float64))
        for first in range(len(rounds) - WINDOW_ROUNDS + 1)
    ]
    steady = (window for window in windows if window.is_steady)
    return next(steady, windows[-1] if windows else None)


def _judged(first: int, values: Array) -> Window:
    average = float(values.mean())
    slope = float(np.polynomial.polynomial.polyfit(np.arange(values.size), values, 1)[1])
    steps = values.size - 1
    return Window(
        first=first,
        average=average,
        slope_per_round=slope,
        range_fraction=float(np.ptp(values)) / average if average > 0 else np.inf,
        excursion_fraction=abs(slope) * steps / average if average > 0 else np.inf,
    )


def progress_of(run: Run, phase: Phase) -> Progress | None:
    """Return a phase's rate over its active time; ``None`` where no throughput trace was kept.

    A bin of the trace that begins before a stretch of the phase counts at the stretch's start.
    """
    trace = run.traces.throughput
    if trace is None:
        return None
    own = trace.phase.are(phase.name)
    clock = CommonClock(run.record)
    shift_ns = np.array([clock.shift_ns(host) for host in trace.host.words], dtype=np.int64)
    time_s = (trace.time_ns[own] + shift_ns[trace.host.numbers[own]]) / NS_PER_S
    moved_bytes = trace.read_bytes[own] + trace.written_bytes[own]
    active_s = _active(time_s, phase)
    return Progress(
        seconds=_rates(active_s, moved_bytes, phase, 1),
        rounds=_rates(active_s, moved_bytes, phase, ROUND_S),
    )


def _active(time_s: Array, phase: Phase) -> Array:
    """Return how many seconds of the phase's active time lay before each moment."""
    starts, ends = np.array(phase.intervals_s, dtype=np.float64).T
    before_s = np.concatenate(([0.0], np.cumsum(ends - starts)))
    at = np.clip(np.searchsorted(ends, time_s, side="right"), 0, starts.size - 1)
    inside_s = np.clip(time_s - starts[at], 0.0, ends[at] - starts[at])
    active_s: Array = before_s[at] + inside_s
    return active_s


def _rates(active_s: Array, moved_bytes: NDArray[np.int64], phase: Phase, width_s: int) -> Array:
    whole_s = sum(end - start for start, end in phase.intervals_s)
    count = int(whole_s // width_s)
    place = (active_s // width_s).astype(np.int64)
    inside = place < count
    sums = np.bincount(place[inside], weights=moved_bytes[inside], minlength=count)
    rates: Array = sums / width_s
    return rates
