"""Power over time as straight pieces, as a trace shows it: at the times of its reads.

The delay of a sensor is not in it; ``edges`` allows for that.

* Readings of power: interpolated linearly between two readings.
* ``counter``: the energy between two readings, whatever the course of power between them.
* ``bounds``: limits that apply in a power state. Between two readings the wider limit applies, and
  after a change for as long as the transition may take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Bounds, Boxcar, Channel, Counter, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Times, Trace, Values

GAP_PERIODS = 3
GAP_MIN_S = 3.0
HOLE_NEAR_NS = NS_PER_S // 2
"""The power around a hole is that over its own length on each side, and over at least so long."""
FOREVER_NS = 1 << 60
WRAP_FACTOR_MAX = 10.0
"""A decrease that would be this many times the largest other power is not a wrap."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Straight pieces of power, ascending and not overlapping; time between two pieces is a hole.

    Piece i runs from ``start_ns[i]`` at ``start_w[i]`` to ``end_ns[i]`` at ``end_w[i]``; all arrays
    have shape (n,). ``observed`` in [0, 1] is the share of the piece that the sensor measured: less
    than 1 if a mean over ``window_s`` was read less often than that.
    """

    start_ns: Times
    end_ns: Times
    start_w: Values
    end_w: Values
    observed: Values

    @classmethod
    def build(
        cls,
        time_ns: Times,
        start_w: Values,
        end_w: Values,
        *,
        keep: NDArray[np.bool_],
        observed: Values | None = None,
    ) -> Profile:
        """Return the pieces between successive times that ``keep`` marks."""
        # A run of days has millions of pieces: they are not copied without need.
        part = slice(None) if keep.all() else np.flatnonzero(keep)
        return cls(
            start_ns=time_ns[:-1][part],
            end_ns=time_ns[1:][part],
            start_w=start_w[part],
            end_w=end_w[part],
            observed=(np.ones(keep.size) if observed is None else observed)[part],
        )

    def cumulative(self, time_ns: Times) -> tuple[Values, Values]:
        """Return joules and observed seconds from the first piece up to each time, shapes (n,).

        Both are exact integrals of the straight pieces, by the trapezoid rule. Time is summed in
        whole nanoseconds, so that adjoining pieces cover a window exactly.
        """
        if self.start_ns.size == 0:
            return np.zeros(time_ns.shape), np.zeros(time_ns.shape)
        whole_ns, whole_wns = self._totals
        piece = np.maximum(np.searchsorted(self.start_ns, time_ns, "right") - 1, 0)
        length_ns = (self.end_ns[piece] - self.start_ns[piece]).astype(np.float64)
        into_ns = np.clip(time_ns - self.start_ns[piece], 0.0, length_ns)
        slope = (self.end_w[piece] - self.start_w[piece]) / length_ns
        part_ns = into_ns * self.observed[piece]
        part_wns = part_ns * (self.start_w[piece] + slope * into_ns / 2)
        return (
            (whole_wns[piece] + part_wns) / NS_PER_S,
            (whole_ns[piece] + part_ns) / NS_PER_S,
        )

    @cached_property
    def _totals(self) -> tuple[Values, Values]:
        """Observed ns and W ns up to the start of each piece, shapes (n + 1,)."""
        observed_ns = (self.end_ns - self.start_ns) * self.observed
        whole_ns = np.concatenate(([0.0], np.cumsum(observed_ns)))
        observed_ns *= self.start_w + self.end_w
        return whole_ns, np.concatenate(([0.0], np.cumsum(observed_ns) / 2))


def fill_holes(profile: Profile) -> Profile:
    """Return a profile with its holes at the mean power around them, and fully observed.

    That is over an interval of the hole's own length on each side.
    """
    at = np.flatnonzero(profile.end_ns[:-1] < profile.start_ns[1:])
    from_ns, to_ns = profile.end_ns[at], profile.start_ns[at + 1]
    length_ns = to_ns - from_ns
    sides_ns = np.array([[from_ns - length_ns, from_ns], [to_ns, to_ns + length_ns]])
    joules, seconds = (np.diff(each, axis=1) for each in profile.cumulative(sides_ns))
    watts = (joules / seconds).mean(axis=(0, 1))
    return Profile(
        start_ns=np.insert(profile.start_ns, at + 1, from_ns),
        end_ns=np.insert(profile.end_ns, at + 1, to_ns),
        start_w=np.insert(profile.start_w, at + 1, watts),
        end_w=np.insert(profile.end_w, at + 1, watts),
        observed=np.ones(profile.start_ns.size + at.size),
    )


def hole_ranges(profile: Profile, sensor: Sensor) -> Profile:
    """Return where power may be anything in the range around it, as the range in watts.

    These are the holes, the times before the first piece and behind the last, and the time between
    two reads that are far apart, though a line joins them: but a mean shows that of its window, and
    a counter all of it. ``observed`` is the share that was not seen.
    """
    length_ns = profile.end_ns - profile.start_ns
    window_ns = round(sensor.window_s * NS_PER_S) if isinstance(sensor, Boxcar) else 0
    usual_ns = np.median(length_ns) if length_ns.size else 0
    is_far = length_ns > (
        FOREVER_NS if isinstance(sensor, Counter) else max(2 * usual_ns, window_ns)
    )
    end_ns, start_ns = np.append(0, profile.end_ns), np.append(profile.start_ns, FOREVER_NS)
    is_hole = end_ns < start_ns
    from_ns = np.concatenate((end_ns[is_hole], profile.start_ns[is_far]))
    to_ns = np.concatenate((start_ns[is_hole], profile.end_ns[is_far]))
    order = np.argsort(from_ns)
    from_ns, to_ns = from_ns[order], to_ns[order]
    unseen_ns = np.maximum(to_ns - from_ns - window_ns, 0)
    near_ns = np.maximum(unseen_ns, HOLE_NEAR_NS)
    first = np.searchsorted(profile.end_ns, from_ns - near_ns)
    last = np.searchsorted(profile.start_ns, to_ns + near_ns, "right")
    pieces = [slice(*each) for each in zip(first, last, strict=True)]
    range_w = np.array([np.ptp((profile.start_w[each], profile.end_w[each])) for each in pieces])
    unseen = unseen_ns / (to_ns - from_ns)
    return Profile(start_ns=from_ns, end_ns=to_ns, start_w=range_w, end_w=range_w, observed=unseen)


def max_gap_ns(period_s: float) -> int:
    """Return the longest time between two reads that is not a hole, in ns."""
    return round(max(GAP_PERIODS * period_s, GAP_MIN_S) * NS_PER_S)


def profile_of(
    trace: Trace, sensor: Sensor, *, period_s: float, resets_ns: Sequence[int] = ()
) -> Profile:
    """Return the trace as power over time; long times without a reading are holes.

    ``period_s`` is the configured time between reads. ``resets_ns`` are times of known restarts of
    the device: a counter that decreases there has not wrapped.
    """
    gap_ns = max_gap_ns(period_s)
    if trace.key.channel in (Channel.LOWER_W, Channel.UPPER_W):
        return _bounds(trace, sensor if isinstance(sensor, Bounds) else Bounds(), gap_ns)
    if isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        return _counter(trace, sensor, gap_ns, resets_ns)
    return _straight(trace, gap_ns, sensor.window_s if isinstance(sensor, Boxcar) else 0.0)


def _straight(trace: Trace, gap_ns: int, window_s: float) -> Profile:
    """Return straight pieces between neighbours, as if failed reads had not been made.

    A mean that is read less often than its window is long covers its window only.
    """
    time_ns, value = trace.known()
    step_ns = np.diff(time_ns)
    keep = (step_ns > 0) & (step_ns <= max(gap_ns, round(window_s * NS_PER_S)))
    observed = np.ones(step_ns.size)
    if window_s:
        observed = np.minimum(1.0, window_s * NS_PER_S / np.maximum(step_ns, 1))
    return Profile.build(time_ns, value[:-1], value[1:], keep=keep, observed=observed)


def _bounds(trace: Trace, sensor: Bounds, gap_ns: int) -> Profile:
    """Return the bound that applies whatever the state was between the reads.

    A change between two reads may have begun during the first, and its transition may last until
    ``settle_s`` after the second. In all times between reads that this touches, the wider of both
    bounds applies.
    """
    pick = np.minimum if trace.key.channel is Channel.LOWER_W else np.maximum
    time_ns, value = trace.time_ns, trace.value
    bound_w = pick(value[:-1], value[1:])
    known = np.flatnonzero(~np.isnan(value))
    changes = np.flatnonzero(np.diff(value[known]))
    before, after = known[changes], known[changes + 1]
    half_ns = trace.spread_ns // 2
    begun = np.searchsorted(time_ns, time_ns[before] - half_ns[before], "right") - 1
    settle_ns = round(sensor.settle_s * NS_PER_S)
    settled = np.searchsorted(time_ns, time_ns[after] + half_ns[after] + settle_ns)
    for first, last, watts in zip(begun, settled, pick(value[before], value[after]), strict=True):
        touched = slice(max(first, 0), last)
        bound_w[touched] = pick(bound_w[touched], watts)
    step_ns = np.diff(time_ns)
    keep = ~np.isnan(bound_w) & (step_ns > 0) & (step_ns <= gap_ns)
    # A bound that stays is one piece: in two days it is read two million times.
    is_same = keep[1:] & keep[:-1] & (bound_w[1:] == bound_w[:-1])
    begins = keep & ~np.concatenate(([False], is_same))
    ends = keep & ~np.concatenate((is_same, [False]))
    watts = bound_w[begins]
    return Profile(
        start_ns=time_ns[:-1][begins],
        end_ns=time_ns[1:][ends],
        start_w=watts,
        end_w=watts,
        observed=np.ones(watts.size),
    )


def _counter(trace: Trace, sensor: Counter, gap_ns: int, resets_ns: Sequence[int]) -> Profile:
    """Return the mean power between two successful reads.

    A failed read loses no energy, as the counter goes on. A long gap is a hole: the counter may
    have wrapped, or been reset and grown beyond its last value. A decrease is a hole too, unless it
    is a wrap. It is not a wrap if the counter has no declared range, at a known reset, if the
    increase would be more than half the range, or if the power would be far above all others.
    """
    time_ns, value_j = _counted(trace, sensor, gap_ns)
    step_ns, step_j = np.diff(time_ns), np.diff(value_j)
    is_long, fell = step_ns > gap_ns, step_j < 0
    keep = (step_ns > 0) & ~is_long
    if sensor.wrap_j is not None:
        step_j = np.where(fell, step_j + sensor.wrap_j, step_j)
        keep &= step_j <= sensor.wrap_j / 2
    mean_w = step_j * NS_PER_S / np.maximum(step_ns, 1)
    largest_w = mean_w[keep & ~fell].max(initial=0.0)
    if largest_w > 0:
        keep &= ~fell | (mean_w <= WRAP_FACTOR_MAX * largest_w)
    resets = np.sort(np.asarray(resets_ns, dtype=np.int64))
    was_reset = np.diff(np.searchsorted(resets, time_ns, "right")) > 0
    return Profile.build(time_ns, mean_w, mean_w, keep=keep & (step_j >= 0) & ~was_reset)


def _counted(trace: Trace, sensor: Counter, gap_ns: int) -> tuple[Times, Values]:
    """Return times and counts of the reads that saw a change, without single erroneous ones.

    A count is exact when it changes, and up to an update late later. Where it stays for long, reads
    without a change show that it does. The middle one of three successive counts is erroneous if
    the outer two ascend and it is outside their range: a counter cannot jump and return. One that
    wraps can, so it is left as it is.
    """
    time_ns, value = trace.known()
    if sensor.wrap_j is None:
        before, amid, after = value[:-2], value[1:-1], value[2:]
        is_right = np.ones(value.size, np.bool_)
        is_right[1:-1] = (before > after) | ((amid >= before) & (amid <= after))
        time_ns, value = time_ns[is_right], value[is_right]
    is_new = np.diff(value, prepend=np.nan) != 0
    since_ns = time_ns - np.maximum.accumulate(np.where(is_new, time_ns, 0))
    keep = is_new | (since_ns > gap_ns // 2)
    return time_ns[keep], value[keep]


def fall_count(trace: Trace, sensor: Counter) -> int:
    """Return how often the count decreased without a wrap: resets and erroneous readings."""
    step_j = np.diff(trace.known()[1])
    has_wrapped = np.zeros(step_j.size, np.bool_)
    if sensor.wrap_j is not None:
        has_wrapped = step_j <= -sensor.wrap_j / 2
    return int(np.count_nonzero((step_j < 0) & ~has_wrapped))
