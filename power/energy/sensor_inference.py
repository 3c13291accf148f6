"""Inference of when an averaging sensor updates, from the times at which its readings change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Boxcar
from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Times, Trace, Values

CHANGES_MIN = 8
"""The fewest changes that show a period. With fewer, power was flat and it is irrelevant."""
SLIDING_SHARE = 0.8
"""Readings that change at more than this share of the reads belong to a sliding mean."""
RESOLVABLE_READS = 1.5
"""An update period below this many read periods is indistinguishable from a sliding mean."""
DISTINCT_SHARE = 0.25
"""Reads this close, in windows, distinguish a sliding mean from one update per window."""
LATENESS_TOLERANCE = 0.05
"""How far reads may contradict a regular clock, in update periods (timing errors of reads)."""
FIT_MAX = 1000
"""The most changes used in the fit, spread evenly: more would only cost time."""


def resolve_boxcar(trace: Trace, sensor: Boxcar) -> Boxcar:
    """Return the sensor with its update period and phase, as far as the trace shows them.

    ``update_period_s`` is 0 for a sliding mean, which is new at every read. Otherwise updates are
    at ``phase_s + k * update_period_s`` on CLOCK_MONOTONIC. If some reads contradict this clock,
    its uncertainty is the time between two reads. Values that the sensor states are kept; unknown
    ones stay ``None``.
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
            is_distinct = read_s <= sensor.window_s * DISTINCT_SHARE
            return _sliding(sensor, read_s if is_distinct else sensor.window_s)
        return sensor.model_copy(
            update={
                "update_period_s": period_ns / NS_PER_S,
                "phase_s": phase_ns / NS_PER_S,
                "unseen_s": slack_s if slack_s >= 0 else min(read_s, sensor.window_s),
            }
        )
    return sensor


def _sliding(sensor: Boxcar, read_s: float) -> Boxcar:
    """Return the sensor as a sliding mean, which may update unseen once per ``read_s``."""
    return sensor.model_copy(
        update={"update_period_s": 0.0, "unseen_s": min(read_s, sensor.window_s)}
    )


def _guesses_s(before_ns: Times, after_ns: Times, sensor: Boxcar) -> tuple[float, ...]:
    """Return first guesses of the period: as stated, else the window, or the time between changes.

    Means that follow each other without overlap are the usual sensor. Under a repeating load, its
    few changes may fit slower clocks as well.
    """
    if sensor.update_period_s is not None:
        return (sensor.update_period_s,)
    between_s = np.diff((before_ns + after_ns) / 2) / NS_PER_S
    return sensor.window_s, float(np.median(between_s)), float(np.quantile(between_s, 0.1))


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
