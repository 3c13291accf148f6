"""From a trace and the sensor behind it to power over time.

Each kind of sensor says something else about the time around a reading:

* ``instant``: the power at that moment; between two readings it is taken as straight.
* ``boxcar``: the mean of the ``window_s`` seconds before the last update. A reading is moved to the
  middle of what it averaged; where windows abut (update period = window) it holds for exactly them.
* ``counter``: the energy between two readings, whatever happened between them; a reading stands for
  the middle of the time since the count last moved.
* ``bounds``: limits that hold in a power state; between two readings the wider one does, and after
  a change for as long as the transition may take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattload.core.power import Bounds, Boxcar, Channel, Counter, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.boxcar import resolve_boxcar
from wattload.power.profile import Profile
from wattload.power.trace import Times, Trace, Values

GAP_PERIODS = 3
GAP_MIN_S = 3.0
TUMBLING_TOLERANCE = 0.01
"""Update period and window that differ by less than this share are the same."""
TOLD_SHARE = 1 / 3
"""Reads this close, in windows, leave no doubt that a mean abuts the next one."""
WRAP_FACTOR_MAX = 10.0
"""A fall that would be this many times the greatest power seen otherwise has not wrapped."""


def max_gap_ns(period_s: float) -> int:
    """Return the longest time between two reads that is not a hole, in nanoseconds."""
    return round(max(GAP_PERIODS * period_s, GAP_MIN_S) * NS_PER_S)


def is_tumbling(sensor: Boxcar) -> bool:
    """Return whether the sensor's means abut: each update tells the mean since the last one."""
    if not sensor.update_period_s or sensor.phase_s is None:
        return False
    return abs(sensor.update_period_s - sensor.window_s) <= TUMBLING_TOLERANCE * sensor.window_s


def profile_of(
    trace: Trace, sensor: Sensor, *, period_s: float, resets_ns: Sequence[int] = ()
) -> Profile:
    """Return power over time as the trace tells it; failed reads and long gaps are holes.

    ``period_s`` is the time between reads that was asked for. ``resets_ns`` are moments at which
    the device is known to have restarted: a counter that falls there has not wrapped.
    """
    gap_ns = max_gap_ns(period_s)
    if trace.key.channel in (Channel.LOWER_W, Channel.UPPER_W):
        return _bounds(trace, sensor if isinstance(sensor, Bounds) else Bounds(), gap_ns)
    if isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        return _counter(trace, sensor, gap_ns, resets_ns)
    if isinstance(sensor, Boxcar):
        return _boxcar(trace, resolve_boxcar(trace, sensor), gap_ns)
    return _straight(trace.time_ns, trace.value, gap_ns)


def _straight(
    time_ns: Times, value: Values, gap_ns: int, *, window_s: float | None = None, mean_ns: int = 0
) -> Profile:
    """Return straight pieces between neighbours; ``window_s`` is what each value averaged.

    ``mean_ns`` is the same, where it is known when that was; else 0.
    """
    step_ns = np.diff(time_ns)
    observed = None
    if window_s is not None:
        observed = np.minimum(1.0, window_s * NS_PER_S / np.maximum(step_ns, 1))
    known = ~np.isnan(value)
    return Profile.build(
        time_ns[:-1],
        time_ns[1:],
        value[:-1],
        value[1:],
        keep=known[:-1] & known[1:] & (step_ns > 0) & (step_ns <= gap_ns),
        observed=observed,
        mean_ns=mean_ns,
    )


def _bounds(trace: Trace, sensor: Bounds, gap_ns: int) -> Profile:
    """Return the bound that holds whatever the state did between and after the reads.

    A change that two reads enclose may have begun as the first one did, and its transition may go
    on for ``settle_s`` after the second: all that time the wider of both bounds holds.
    """
    is_lower = trace.key.channel is Channel.LOWER_W
    pick = np.minimum if is_lower else np.maximum
    from_ns, to_ns, pair_w = _changes(trace, round(sensor.settle_s * NS_PER_S))
    edge_ns = np.unique(np.concatenate((trace.time_ns, from_ns, to_ns)))
    if trace.time_ns.size:
        edge_ns = edge_ns[(edge_ns >= trace.time_ns[0]) & (edge_ns <= trace.time_ns[-1])]
    stretch = np.searchsorted(trace.time_ns, edge_ns[:-1], "right") - 1
    bound_w = pick(trace.value[stretch], trace.value[stretch + 1])
    keep = ~np.isnan(bound_w) & (trace.time_ns[stretch + 1] - trace.time_ns[stretch] <= gap_ns)
    first, last = np.searchsorted(edge_ns, from_ns), np.searchsorted(edge_ns, to_ns)
    for change, watts in enumerate(pick(pair_w[0], pair_w[1])):
        touched = slice(first[change], last[change])
        bound_w[touched] = pick(bound_w[touched], watts)
    return Profile.build(
        edge_ns[:-1],
        edge_ns[1:],
        bound_w,
        bound_w,
        keep=keep,
        outside_w=sensor.lowest_w if is_lower else sensor.highest_w,
    )


def _changes(trace: Trace, settle_ns: int) -> tuple[Times, Times, Values]:
    """Return from when to when each change may have been under way (n,), and both bounds (2, n)."""
    known = ~np.isnan(trace.value)
    time_ns, value, half_ns = trace.time_ns[known], trace.value[known], trace.spread_ns[known] // 2
    at = np.flatnonzero(np.diff(value) != 0)
    from_ns = time_ns[at] - half_ns[at]
    to_ns = time_ns[at + 1] + half_ns[at + 1] + settle_ns
    return from_ns, to_ns, np.stack((value[at], value[at + 1]))


def _counter(trace: Trace, sensor: Counter, gap_ns: int, resets_ns: Sequence[int]) -> Profile:
    """Return the mean power between two successful reads.

    A failed read loses nothing: the counter went on counting. A long gap is a hole: in it a counter
    may have wrapped, or was reset and has grown beyond where it was. So is a fall without a
    declared range, at a reset, of more than half the range, or one that would be a power far above
    all others: it is no wrap.
    """
    time_ns, value_j = _counted(trace, sensor)
    time_ns = time_ns - round(sensor.update_period_s * NS_PER_S / 2)
    step_ns, step_j = np.diff(time_ns), np.diff(value_j)
    is_long, fell = step_ns > gap_ns, step_j < 0
    keep = (step_ns > 0) & ~is_long
    if sensor.wrap_j is not None:
        step_j = np.where(fell, step_j + sensor.wrap_j, step_j)
        keep &= step_j <= sensor.wrap_j / 2
    mean_w = step_j * NS_PER_S / np.maximum(step_ns, 1)
    usual_w = mean_w[keep & ~fell].max(initial=0.0)
    if usual_w > 0:
        keep &= ~fell | (mean_w <= WRAP_FACTOR_MAX * usual_w)
    resets = np.sort(np.asarray(resets_ns, dtype=np.int64))
    was_reset = np.searchsorted(resets, time_ns[1:], "right") > np.searchsorted(
        resets, time_ns[:-1], "right"
    )
    return Profile.build(
        time_ns[:-1],
        time_ns[1:],
        mean_w,
        mean_w,
        keep=keep & (step_j >= 0) & ~was_reset,
        is_mean=True,
    )


def _counted(trace: Trace, sensor: Counter) -> tuple[Times, Values]:
    """Return times and counts of the successful reads, without lone ones that were read wrong.

    Of three counts in a row the middle one is wrong where the outer two ascend and it lies outside
    of them: a counter can't fall and be back, nor leap ahead and be back. One that wraps can.
    """
    known = ~np.isnan(trace.value)
    time_ns, value = trace.time_ns[known], trace.value[known]
    if sensor.wrap_j is not None:
        return time_ns, value
    before, amid, after = value[:-2], value[1:-1], value[2:]
    is_wrong = (before <= after) & ((amid < before) | (amid > after))
    is_right = np.ones(value.size, np.bool_)
    is_right[1:-1] = ~is_wrong
    return time_ns[is_right], value[is_right]


def fall_count(trace: Trace, sensor: Counter) -> int:
    """Return how often the count fell without having wrapped: resets, and wrong readings."""
    step_j = np.diff(trace.value[~np.isnan(trace.value)])
    has_wrapped = np.zeros(step_j.size, np.bool_)
    if sensor.wrap_j is not None:
        has_wrapped = step_j <= -sensor.wrap_j / 2
    return int(np.count_nonzero((step_j < 0) & ~has_wrapped))


def _boxcar(trace: Trace, sensor: Boxcar, gap_ns: int) -> Profile:
    """Return readings moved to the middle of what they averaged, or spread over it if tumbling."""
    window_s, window_ns = sensor.window_s, round(sensor.window_s * NS_PER_S)
    if not sensor.update_period_s or sensor.phase_s is None:
        mean_ns = window_ns if sensor.update_period_s == 0 else 0
        middle_ns = trace.time_ns - window_ns // 2
        return _straight(middle_ns, trace.value, gap_ns, window_s=window_s, mean_ns=mean_ns)
    period_ns = round(sensor.update_period_s * NS_PER_S)
    update_ns, value = _one_read_per_update(trace, period_ns, round(sensor.phase_s * NS_PER_S))
    if is_tumbling(sensor):
        return Profile.build(
            update_ns - period_ns,
            update_ns,
            value,
            value,
            keep=~np.isnan(value),
            is_mean=(trace.usual_period_s() or 0.0) <= TOLD_SHARE * sensor.window_s,
        )
    middle_ns = update_ns - window_ns // 2
    return _straight(middle_ns, value, gap_ns, window_s=window_s, mean_ns=window_ns)


def _one_read_per_update(trace: Trace, period_ns: int, phase_ns: int) -> tuple[Times, Values]:
    """Return the times of the updates that were seen, and what was read after each.

    Of several reads after one update the one nearest the middle counts: the timing error of a read
    can put it on the wrong side of an update only at its edges. NaN where every read failed.
    """
    index, into_ns = np.divmod(trace.time_ns - phase_ns, period_ns)
    order = np.lexsort((np.abs(2 * into_ns - period_ns), np.isnan(trace.value), index))
    updates, first = np.unique(index[order], return_index=True)
    return updates * period_ns + phase_ns, trace.value[order][first]
