"""The observations in a trace: each new reading, its time, and the window it covers.

A sensor may update less often than it is read. Readings then repeat, and each update counts once.
The times of the updates are inferred from those at which readings change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Boxcar, Counter, Instant, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.energy.profile import Profile
from wattload.power.energy.trace import Times, Trace, Values

Shape = Literal["instant", "boxcar", "rc", "mean"]
"""How a sensor weighs the past; ``mean`` is over each observation's own window (a counter)."""

CHANGES_MIN = 8
"""The fewest changes that show a period without a declared one."""
FEW_CHANGES_MIN, DECLARED_CHANGES_MIN = 3, 2
"""The fewest changes that confirm the period of a mean's window, and a declared period."""
NEW_SHARE = 0.8
"""Readings that change at more than this share of the reads are new at every read."""
RESOLVABLE_READS = 1.5
"""An update period below this many read periods is indistinguishable from one per read."""
HELD_MAX_S = 2.5
"""Readings are not held for longer than this, or two windows of a mean."""
LATENESS_TOLERANCE = 0.05
"""How far reads may contradict a regular clock, in update periods (timing errors of reads)."""
TUMBLING_TOLERANCE = 0.01
"""An update period and a window that differ by less than this share are taken as equal."""
FIT_MAX = 1000
"""The most changes used in the fit, spread evenly: more would only cost time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """Readings without failed ones, in time order; all arrays have shape (n,).

    ``window_s`` are the lengths of the windows of a counter, else ``None``. ``slack_s`` is how far
    the true times may be before the given ones (the phase of a held reading's clock).
    ``is_tumbling``: readings are replaced once per declared window, which confirms that window.
    """

    time_ns: Times
    watts: Values
    window_s: Values | None = None
    slack_s: float = 0.0
    resolution_w: float = 0.0
    is_tumbling: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A sensor's response: its shape, its window (an RC filter's time constant) and its lag."""

    shape: Shape
    window_s: float
    lag_s: float

    @property
    def delay_s(self) -> float:
        return self.lag_s + self.window_s * (0.5 if self.shape == "boxcar" else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Updates at ``phase_ns + k * period_ns`` of CLOCK_MONOTONIC, known to ``slack_s`` seconds."""

    period_ns: int
    phase_ns: int
    slack_s: float


def declared_response(facts: SourceFacts) -> Response:
    """Return the response that a source declares; no source declares a lag."""
    sensor = facts.sensor
    if isinstance(sensor, Counter):
        return Response(shape="mean", window_s=0.0, lag_s=0.0)
    if isinstance(sensor, Boxcar):
        return Response(shape="boxcar", window_s=sensor.window_s, lag_s=0.0)
    return Response(shape="instant", window_s=0.0, lag_s=0.0)


def observe(trace: Trace, facts: SourceFacts) -> tuple[Observations, Clock | None]:
    """Return the observations in a trace of watts, and the clock of updates if one was found."""
    known = ~np.isnan(trace.value)
    time_ns, watts = trace.time_ns[known], trace.value[known]
    is_later = np.concatenate(([True], np.diff(time_ns) > 0)) if time_ns.size else known[:0]
    time_ns, watts = time_ns[is_later], watts[is_later]
    slack_s = float(np.median(trace.spread_ns[known])) / 2 / NS_PER_S if time_ns.size else 0.0
    clock = _clock(time_ns, watts, facts.sensor)
    if clock is not None:
        index = (time_ns - clock.phase_ns) // clock.period_ns
        is_last = np.concatenate((np.diff(index) > 0, [True]))
        time_ns = index[is_last] * clock.period_ns + clock.phase_ns
        watts, slack_s = watts[is_last], max(slack_s, clock.slack_s)
    return (
        Observations(
            time_ns=time_ns,
            watts=watts,
            slack_s=slack_s,
            resolution_w=facts.resolution_w or 0.0,
            is_tumbling=_is_tumbling(facts.sensor, clock, watts),
        ),
        clock,
    )


def _is_tumbling(sensor: object, clock: Clock | None, watts: Values) -> bool:
    """Return whether readings are replaced once per window, as found or, unseen, as declared."""
    if not isinstance(sensor, Boxcar):
        return False
    if clock is not None:
        period_s = clock.period_ns / NS_PER_S
    elif np.count_nonzero(np.diff(watts)) < DECLARED_CHANGES_MIN:
        period_s = sensor.update_period_s or 0.0
    else:
        return False
    return abs(period_s - sensor.window_s) <= TUMBLING_TOLERANCE * sensor.window_s


def observe_means(means: Profile, quantum_j: float) -> Observations:
    """Return the means, each over its own piece, of a counter with steps of ``quantum_j``."""
    window_s = (means.end_ns - means.start_ns) / NS_PER_S
    return Observations(
        time_ns=means.end_ns,
        watts=means.start_w,
        window_s=window_s,
        resolution_w=quantum_j / float(np.median(window_s)) if window_s.size else 0.0,
    )


def is_new_at_each_read(trace: Trace) -> bool:
    """Return whether nearly every read saw another value, as of a sliding mean."""
    watts = trace.value[~np.isnan(trace.value)]
    changes = int(np.count_nonzero(np.diff(watts)))
    return changes >= CHANGES_MIN and changes > NEW_SHARE * (watts.size - 1)


def _clock(time_ns: Times, watts: Values, sensor: object) -> Clock | None:
    """Return when readings are updated, ``None`` if every read is new or no clock is found."""
    changed = np.flatnonzero(np.diff(watts) != 0)
    period_s = sensor.update_period_s if isinstance(sensor, Boxcar | Instant) else None
    window_s = sensor.window_s if isinstance(sensor, Boxcar) else 0.0
    is_sliding = isinstance(sensor, Boxcar) and period_s == 0
    least = DECLARED_CHANGES_MIN if period_s else FEW_CHANGES_MIN
    if is_sliding or changed.size < least or changed.size > NEW_SHARE * (watts.size - 1):
        return None
    before_ns, after_ns = time_ns[changed], time_ns[changed + 1]
    read_s = float(np.median(np.diff(time_ns))) / NS_PER_S
    if isinstance(sensor, Boxcar) and sensor.phase_s is not None and period_s:
        return Clock(
            period_ns=round(period_s * NS_PER_S),
            phase_ns=round(sensor.phase_s * NS_PER_S),
            slack_s=sensor.unseen_s,
        )
    guesses = [period_s] if period_s else [window_s] if window_s else []
    if changed.size >= CHANGES_MIN and not period_s:
        between_s = np.diff((before_ns + after_ns) / 2) / NS_PER_S
        guesses += [float(np.median(between_s)), float(np.quantile(between_s, 0.1))]
    for guess_s in guesses:
        found = _fit(before_ns, after_ns, guess_s)
        if found is None:
            continue
        period_ns, phase_ns, slack_s = found
        if period_ns > max(HELD_MAX_S, 2 * window_s, period_s or 0.0) * NS_PER_S:
            continue
        if period_ns < RESOLVABLE_READS * read_s * NS_PER_S:
            return None
        slack_s = slack_s if slack_s >= 0 else read_s
        return Clock(period_ns=period_ns, phase_ns=phase_ns, slack_s=slack_s)
    return None


def _fit(before_ns: Times, after_ns: Times, guess_s: float) -> tuple[int, int, float] | None:
    """Return period (ns), phase (ns) and slack (s) of a clock that ticks in each change's bounds.

    The slack is how far the ticks may be shifted without a read showing it. It is negative if reads
    contradict the clock by so much. ``None`` if no regular clock fits within the tolerance. Ticks
    without a change (flat power) are allowed: the number of ticks between two changes is rounded,
    then refined.
    """
    middle_s = ((before_ns + after_ns) / 2 - before_ns[0]) / NS_PER_S
    for tick in (_ticks_between(middle_s, guess_s), _ticks_since_first(middle_s, guess_s)):
        found = _placed(before_ns, after_ns, tick)
        if found is not None:
            return found
    return None


def _ticks_between(middle_s: Values, guess_s: float) -> Values:
    """Return the tick of each change (n,), each counted from the previous one."""
    between_s = np.diff(middle_s)
    period_s = guess_s
    for _ in range(4):
        ticks = np.maximum(np.rint(between_s / period_s), 1)
        period_s = float(between_s.sum() / ticks.sum())
    return np.concatenate(([0.0], np.cumsum(ticks)))


def _ticks_since_first(middle_s: Values, guess_s: float) -> Values:
    """Return the tick of each change (n,), all counted from the first.

    If reads are half a period apart, two consecutive changes may be seen half a period or one and a
    half apart. Counted from the previous change, that is a tick too few or too many. But each
    change is less than half a period from its own tick.
    """
    period_s, first_s = guess_s, _common_phase_s(middle_s, guess_s)
    for _ in range(4):
        tick = np.rint((middle_s - first_s) / period_s)
        if np.ptp(tick) == 0:
            break
        period_s, first_s = (float(each) for each in np.polyfit(tick, middle_s, 1))
    since: Values = tick - tick[0]
    return since


def _common_phase_s(middle_s: Values, period_s: float) -> float:
    """Return the circular mean of the changes' phases, in seconds."""
    angle = np.angle(np.exp(2j * np.pi * middle_s / period_s).mean())
    return float(angle / (2 * np.pi) * period_s)


def _placed(before_ns: Times, after_ns: Times, tick: Values) -> tuple[int, int, float] | None:
    """Return period, phase and slack as ``_fit``, of the clock with these ticks."""
    fitted = np.unique(np.linspace(0, tick.size - 1, FIT_MAX).astype(np.intp))
    low_s = (before_ns[fitted] - before_ns[0]) / NS_PER_S
    high_s = (after_ns[fitted] - before_ns[0]) / NS_PER_S
    solved = _centre(tick[fitted], low_s, high_s)
    if solved is None:
        return None
    first_s, period_s, slack_s = solved
    if slack_s < -LATENESS_TOLERANCE * period_s:
        return None
    period_ns = round(period_s * NS_PER_S)
    middle_tick = int(tick[-1] // 2)
    moment_ns = int(before_ns[0]) + round((first_s + middle_tick * period_s) * NS_PER_S)
    return period_ns, moment_ns % period_ns, slack_s


def _centre(
    tick: NDArray[np.float64], low_s: Values, high_s: Values
) -> tuple[float, float, float] | None:
    """Return first tick, period and slack, in seconds, of the clock farthest from every limit.

    The linear programme: maximise slack subject to low + slack <= first + tick * period <= high -
    slack. A negative slack is the smallest contradiction of any regular clock.
    """
    from scipy.optimize import linprog

    ones = np.ones(tick.size)
    limits = np.block(
        [
            [-ones[:, None], -tick[:, None], ones[:, None]],
            [ones[:, None], tick[:, None], ones[:, None]],
        ]
    )
    solved = linprog(
        c=[0.0, 0.0, -1.0],
        A_ub=limits,
        b_ub=np.concatenate((-low_s, high_s)),
        bounds=[(None, None), (1e-6, None), (None, None)],
    )
    if not solved.success:
        return None
    first_s, period_s, slack_s = (float(number) for number in solved.x)
    return first_s, period_s, slack_s
