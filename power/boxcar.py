"""When does an averaging sensor update? Inferred from the moments at which its readings change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Boxcar
from wattload.core.units import NS_PER_S
from wattload.power.trace import Times, Trace, Values

CHANGES_MIN = 8
"""Fewer changes than this say nothing of a period; power was flat, and then it does not matter."""
SLIDING_SHARE = 0.8
"""Readings that change at more than this share of the reads follow the reads, not a clock."""
RESOLVABLE_READS = 1.5
"""An update period below this many read periods can't be told from sliding."""
TOLD_APART_SHARE = 0.25
"""Reads this close, in windows, tell a mean that slides from one that updates once a window."""
LATENESS_TOLERANCE = 0.05
"""How far, in update periods, reads may contradict a regular clock (the timing error of a read)."""
FIT_MAX = 1000
"""Changes that enter the fit, spread evenly: more would cost time and tell nothing."""


def resolve_boxcar(trace: Trace, sensor: Boxcar) -> Boxcar:
    """Return the sensor with its update period and phase, as far as the trace shows them.

    ``update_period_s`` 0 means sliding: every read sees a new mean. A period comes with the phase
    of its updates, ``phase_s + k * update_period_s`` on CLOCK_MONOTONIC; one that some reads
    contradict is known no better than they are apart. What the sensor states already stays; what
    can't be told stays ``None``.
    """
    if sensor.update_period_s == 0 or sensor.phase_s is not None:
        return sensor
    known = ~np.isnan(trace.value)
    time_ns, value = trace.time_ns[known], trace.value[known]
    changed = np.flatnonzero(np.diff(value) != 0)
    if changed.size < CHANGES_MIN:
        return sensor
    before_ns, after_ns = time_ns[changed], time_ns[changed + 1]
    read_s = float(np.median(np.diff(time_ns))) / NS_PER_S
    if sensor.update_period_s is None and changed.size > SLIDING_SHARE * (time_ns.size - 1):
        return _sliding(sensor, read_s)
    for guess_s in _guesses_s(before_ns, after_ns, sensor):
        found = _fit(before_ns, after_ns, guess_s)
        if found is None:
            continue
        period_ns, phase_ns, slack_s = found
        if period_ns < RESOLVABLE_READS * read_s * NS_PER_S:
            is_told = read_s <= sensor.window_s * TOLD_APART_SHARE
            return _sliding(sensor, read_s if is_told else sensor.window_s)
        return sensor.model_copy(
            update={
                "update_period_s": period_ns / NS_PER_S,
                "phase_s": phase_ns / NS_PER_S,
                "unseen_s": slack_s if slack_s >= 0 else min(read_s, sensor.window_s),
            }
        )
    return sensor


def _sliding(sensor: Boxcar, read_s: float) -> Boxcar:
    """Return the sensor as one that slides; it may update once in ``read_s``, unseen."""
    return sensor.model_copy(
        update={"update_period_s": 0.0, "unseen_s": min(read_s, sensor.window_s)}
    )


def _guesses_s(before_ns: Times, after_ns: Times, sensor: Boxcar) -> tuple[float, ...]:
    """Return first guesses of the period: as stated, else as long as the mean is, or as changes.

    A mean that abuts the next one is the usual sensor. Under a load that repeats, its few changes
    may fit slower clocks as well.
    """
    if sensor.update_period_s is not None:
        return (sensor.update_period_s,)
    between_s = np.diff((before_ns + after_ns) / 2) / NS_PER_S
    return sensor.window_s, float(np.median(between_s)), float(np.quantile(between_s, 0.1))


def _fit(before_ns: Times, after_ns: Times, guess_s: float) -> tuple[int, int, float] | None:
    """Return period and phase in ns of a clock that ticks once in each ``(before, after]``.

    Third comes how many seconds its ticks may lie elsewhere without a read showing it; negative
    where reads contradict it by so much.

    ``None`` where no regular clock does, within the tolerance. Ticks without a change (flat power)
    are allowed for: the number of ticks between two changes is rounded, then refined.
    """
    middle_s = ((before_ns + after_ns) / 2 - before_ns[0]) / NS_PER_S
    for tick in (_ticks_between(middle_s, guess_s), _ticks_since_first(middle_s, guess_s)):
        found = _placed(before_ns, after_ns, tick)
        if found is not None:
            return found
    return None


def _ticks_between(middle_s: Values, guess_s: float) -> Values:
    """Return the tick of each change (n,), each counted from the one before."""
    between_s = np.diff(middle_s)
    period_s = guess_s
    for _ in range(4):
        ticks = np.maximum(np.rint(between_s / period_s), 1)
        period_s = float(between_s.sum() / ticks.sum())
    return np.concatenate(([0.0], np.cumsum(ticks)))


def _ticks_since_first(middle_s: Values, guess_s: float) -> Values:
    """Return the tick of each change (n,), each counted from one beginning.

    Where reads are half a period apart, two changes in a row may be seen half a period or one and a
    half apart. Counted one from the other, that is a tick too few or too many; each of them is less
    than half a period from its own tick.
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
    """Return the mean phase of the changes, taken on the circle of one period."""
    angle = np.angle(np.exp(2j * np.pi * middle_s / period_s).mean())
    return float(angle / (2 * np.pi) * period_s)


def _placed(before_ns: Times, after_ns: Times, tick: Values) -> tuple[int, int, float] | None:
    """Return period, phase and slack of the clock whose ticks the changes show, as ``_fit``."""
    chosen = np.unique(np.linspace(0, tick.size - 1, FIT_MAX).astype(np.intp))
    low_s = (before_ns[chosen] - before_ns[0]) / NS_PER_S
    high_s = (after_ns[chosen] - before_ns[0]) / NS_PER_S
    solved = _centre(tick[chosen], low_s, high_s)
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
    slack. Negative slack is the least contradiction that a regular clock must bear.
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
