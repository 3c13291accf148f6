"""From a trace and the sensor behind it to power over time.

Each kind of sensor says something else about the time around a reading:

* ``instant``: the power at that moment; between two readings it is taken as straight.
* ``boxcar``: the mean of the ``window_s`` seconds before the last update. A reading is moved to the
  middle of what it averaged; where windows abut (update period = window) it holds for exactly them.
* ``counter``: the energy between two readings, whatever happened between them; a reading stands for
  the middle of the time since the count last moved.
* ``bounds``: limits that hold in a power state; between two readings the wider one does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattload.core.power import Boxcar, Channel, Counter, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.boxcar import resolve_boxcar
from wattload.power.profile import Profile
from wattload.power.trace import Times, Trace, Values

GAP_PERIODS = 3
GAP_MIN_S = 3.0
TUMBLING_TOLERANCE = 0.01
"""Update period and window that differ by less than this share are the same."""


def max_gap_ns(period_s: float) -> int:
    """Return the longest time between two reads that is not a hole, in nanoseconds."""
    return round(max(GAP_PERIODS * period_s, GAP_MIN_S) * NS_PER_S)


def profile_of(
    trace: Trace, sensor: Sensor, *, period_s: float, resets_ns: Sequence[int] = ()
) -> Profile:
    """Return power over time as the trace tells it; failed reads and long gaps are holes.

    ``period_s`` is the time between reads that was asked for. ``resets_ns`` are moments at which
    the device is known to have restarted: a counter that falls there has not wrapped.
    """
    gap_ns = max_gap_ns(period_s)
    if trace.key.channel in (Channel.LOWER_W, Channel.UPPER_W):
        return _bounds(trace, gap_ns)
    if isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        return _counter(trace, sensor, gap_ns, resets_ns)
    if isinstance(sensor, Boxcar):
        return _boxcar(trace, resolve_boxcar(trace, sensor), gap_ns)
    return _straight(trace.time_ns, trace.value, gap_ns)


def _straight(
    time_ns: Times, value: Values, gap_ns: int, *, window_s: float | None = None
) -> Profile:
    """Return straight pieces between neighbours; ``window_s`` is what each value averaged."""
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
    )


def _bounds(trace: Trace, gap_ns: int) -> Profile:
    """Return the bound that holds whenever the state changed between two reads."""
    step_ns = np.diff(trace.time_ns)
    before, after = trace.value[:-1], trace.value[1:]
    pick = np.minimum if trace.key.channel is Channel.LOWER_W else np.maximum
    bound_w = pick(before, after)
    keep = ~np.isnan(bound_w) & (step_ns > 0) & (step_ns <= gap_ns)
    return Profile.build(trace.time_ns[:-1], trace.time_ns[1:], bound_w, bound_w, keep=keep)


def _counter(trace: Trace, sensor: Counter, gap_ns: int, resets_ns: Sequence[int]) -> Profile:
    """Return the mean power between two successful reads.

    A failed read loses nothing: the counter went on counting. Nor does a long gap that lies whole
    in a window, unless the counter wraps, since nobody knows how often it did. A fall without a
    declared range, at a reset, or of more than half the range is no wrap but a hole.
    """
    known = ~np.isnan(trace.value)
    late_ns = round(sensor.update_period_s * NS_PER_S / 2)
    time_ns, value_j = trace.time_ns[known] - late_ns, trace.value[known]
    step_ns, step_j = np.diff(time_ns), np.diff(value_j)
    is_long = step_ns > gap_ns
    keep = step_ns > 0
    if sensor.wrap_j is not None:
        step_j = np.where(step_j < 0, step_j + sensor.wrap_j, step_j)
        keep &= (step_j <= sensor.wrap_j / 2) & ~is_long
    resets = np.sort(np.asarray(resets_ns, dtype=np.int64))
    was_reset = np.searchsorted(resets, time_ns[1:], "right") > np.searchsorted(
        resets, time_ns[:-1], "right"
    )
    mean_w = step_j * NS_PER_S / np.maximum(step_ns, 1)
    return Profile.build(
        time_ns[:-1],
        time_ns[1:],
        mean_w,
        mean_w,
        keep=keep & (step_j >= 0) & ~was_reset,
        is_whole=is_long,
    )


def _boxcar(trace: Trace, sensor: Boxcar, gap_ns: int) -> Profile:
    """Return readings moved to the middle of what they averaged, or spread over it if tumbling."""
    if not sensor.update_period_s or sensor.phase_s is None:
        middle_ns = trace.time_ns - round(sensor.window_s * NS_PER_S / 2)
        return _straight(middle_ns, trace.value, gap_ns, window_s=sensor.window_s)
    period_ns = round(sensor.update_period_s * NS_PER_S)
    update_ns, value = _one_read_per_update(trace, period_ns, round(sensor.phase_s * NS_PER_S))
    if abs(sensor.update_period_s - sensor.window_s) <= TUMBLING_TOLERANCE * sensor.window_s:
        return Profile.build(update_ns - period_ns, update_ns, value, value, keep=~np.isnan(value))
    middle_ns = update_ns - round(sensor.window_s * NS_PER_S / 2)
    return _straight(middle_ns, value, gap_ns, window_s=sensor.window_s)


def _one_read_per_update(trace: Trace, period_ns: int, phase_ns: int) -> tuple[Times, Values]:
    """Return the times of the updates that were seen, and what was read after each.

    Of several reads after one update the one nearest the middle counts: the timing error of a read
    can put it on the wrong side of an update only at its edges. NaN where every read failed.
    """
    index, into_ns = np.divmod(trace.time_ns - phase_ns, period_ns)
    order = np.lexsort((np.abs(2 * into_ns - period_ns), np.isnan(trace.value), index))
    updates, first = np.unique(index[order], return_index=True)
    return updates * period_ns + phase_ns, trace.value[order][first]
