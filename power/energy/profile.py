"""Power over time as straight pieces, from a trace and the kind of sensor behind it.

* ``instant``: the power of the moment, interpolated linearly between two readings.
* ``boxcar``: the mean of the ``window_s`` seconds before the last update. A reading is moved to the
  middle of its window. If windows follow each other without overlap (update period = window), it
  applies to exactly its window.
* ``counter``: the energy between two readings, whatever the course of power between them. The count
  was last updated at an unknown time before the read, on average half an update period.
* ``bounds``: limits that apply in a power state. Between two readings the wider limit applies, and
  after a change for as long as the transition may take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Bounds, Boxcar, Channel, Counter, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Times, Trace, Values

GAP_PERIODS = 3
GAP_MIN_S = 3.0
TUMBLING_TOLERANCE = 0.01
"""An update period and a window that differ by less than this share are taken as equal."""
CLOSE_READS_SHARE = 1 / 3
"""Reads this close, in windows, prove that means follow each other without overlap."""
WRAP_FACTOR_MAX = 10.0
"""A decrease that would be this many times the largest other power is not a wrap."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """Straight pieces of power, ascending and not overlapping; time between two pieces is a hole.

    Piece i runs from ``start_ns[i]`` at ``start_w[i]`` to ``end_ns[i]`` at ``end_w[i]``; all arrays
    have shape (n,). ``observed`` in (0, 1] is the share of the piece that the sensor measured: less
    than 1 if a mean over ``window_s`` was read less often than that.
    ``outside_w`` is the power in a hole, ``None`` if unknown.

    With ``is_mean``, each piece is the mean of exactly its own time. A ``mean_ns`` other than 0
    says that the ends of the pieces are means over so many nanoseconds, placed at the middle of
    their windows.
    """

    start_ns: Times
    end_ns: Times
    start_w: Values
    end_w: Values
    observed: Values
    outside_w: float | None = None
    is_mean: bool = False
    mean_ns: int = 0

    @classmethod
    def build(
        cls,
        start_ns: Times,
        end_ns: Times,
        start_w: Values,
        end_w: Values,
        *,
        keep: NDArray[np.bool_],
        observed: Values | None = None,
        outside_w: float | None = None,
        is_mean: bool = False,
        mean_ns: int = 0,
    ) -> Profile:
        """Return the profile of the pieces that ``keep`` marks, by default fully observed."""
        count = start_ns.shape[0]
        return cls(
            start_ns=start_ns[keep],
            end_ns=end_ns[keep],
            start_w=start_w[keep],
            end_w=end_w[keep],
            observed=(np.ones(count) if observed is None else observed)[keep],
            outside_w=outside_w,
            is_mean=is_mean,
            mean_ns=mean_ns,
        )

    def touching(self, start_ns: int, end_ns: int) -> slice:
        """Return which pieces touch the interval, including at an end only."""
        return slice(
            int(np.searchsorted(self.end_ns, start_ns, "left")),
            int(np.searchsorted(self.start_ns, end_ns, "right")),
        )

    def of(self, pieces: slice | NDArray[np.intp]) -> Profile:
        """Return the profile of some of the pieces."""
        return replace(
            self,
            start_ns=self.start_ns[pieces],
            end_ns=self.end_ns[pieces],
            start_w=self.start_w[pieces],
            end_w=self.end_w[pieces],
            observed=self.observed[pieces],
        )

    def merged(self, *others: Profile) -> Profile:
        """Return the pieces of several profiles in time order; they must not overlap."""
        parts = (self, *others)
        order = np.argsort(np.concatenate([part.start_ns for part in parts]), kind="stable")
        return replace(
            self,
            start_ns=np.concatenate([part.start_ns for part in parts])[order],
            end_ns=np.concatenate([part.end_ns for part in parts])[order],
            start_w=np.concatenate([part.start_w for part in parts])[order],
            end_w=np.concatenate([part.end_w for part in parts])[order],
            observed=np.concatenate([part.observed for part in parts])[order],
        )

    def holes(self, start_ns: int, end_ns: int) -> tuple[Times, Times]:
        """Return the start and end of each stretch of an interval without a piece."""
        inside = self.of(self.touching(start_ns, end_ns))
        from_ns = np.maximum(np.concatenate(([start_ns], inside.end_ns)), start_ns)
        to_ns = np.minimum(np.concatenate((inside.start_ns, [end_ns])), end_ns)
        is_hole = to_ns > from_ns
        return from_ns[is_hole], to_ns[is_hole]

    def clip(self, start_ns: int, end_ns: int) -> Profile:
        """Return the part in ``[start_ns, end_ns]``; powers at both cuts are interpolated."""
        near = self.of(self.touching(start_ns, end_ns))
        first = np.maximum(near.start_ns, start_ns)
        last = np.minimum(near.end_ns, end_ns)
        slope = (near.end_w - near.start_w) / (near.end_ns - near.start_ns)
        return Profile.build(
            first,
            last,
            near.start_w + slope * (first - near.start_ns),
            near.end_w - slope * (near.end_ns - last),
            keep=last > first,
            observed=near.observed,
            outside_w=self.outside_w,
            is_mean=self.is_mean,
            mean_ns=self.mean_ns,
        )

    def cumulative(self, time_ns: Times) -> tuple[Values, Values]:
        """Return joules and observed seconds from the first piece up to each time, shapes (n,).

        Both are exact integrals of the straight pieces, by the trapezoid rule. Time is summed in
        whole nanoseconds, so that adjoining pieces cover a window exactly.
        """
        if self.start_ns.size == 0:
            return np.zeros(time_ns.shape), np.zeros(time_ns.shape)
        length_ns = (self.end_ns - self.start_ns).astype(np.float64)
        observed_ns = length_ns * self.observed
        whole_ns = np.concatenate(([0.0], np.cumsum(observed_ns)))
        whole_wns = np.concatenate(
            ([0.0], np.cumsum(observed_ns * (self.start_w + self.end_w) / 2))
        )
        piece = np.maximum(np.searchsorted(self.start_ns, time_ns, "right") - 1, 0)
        into_ns = np.clip(time_ns - self.start_ns[piece], 0.0, length_ns[piece])
        slope = (self.end_w[piece] - self.start_w[piece]) / length_ns[piece]
        part_ns = into_ns * self.observed[piece]
        part_wns = part_ns * (self.start_w[piece] + slope * into_ns / 2)
        return (
            (whole_wns[piece] + part_wns) / NS_PER_S,
            (whole_ns[piece] + part_ns) / NS_PER_S,
        )

    def range_w(self, start_ns: int, end_ns: int) -> tuple[float, float] | None:
        """Return the least and the greatest power at the ends of pieces that touch the interval."""
        touches = self.touching(start_ns, end_ns)
        if touches.start >= touches.stop:
            return None
        ends = np.concatenate((self.start_w[touches], self.end_w[touches]))
        return float(ends.min()), float(ends.max())

    def greatest_slope(self, start_ns: int, end_ns: int) -> float:
        """Return the steepest slope, in W/s, of pieces that touch the interval; 0 without any."""
        touches = self.touching(start_ns, end_ns)
        length_s = (self.end_ns - self.start_ns)[touches] / NS_PER_S
        slopes = np.abs(self.end_w - self.start_w)[touches] / length_s
        return float(slopes.max(initial=0.0))

    def mean_w(self, start_ns: int, end_ns: int) -> float | None:
        """Return the mean power of the interval's covered part, ``None`` if nothing is covered."""
        joules, seconds = self.clip(start_ns, end_ns).cumulative(np.array([end_ns]))
        return float(joules[0] / seconds[0]) if seconds[0] > 0 else None

    def piece_s(self, time_ns: int) -> float | None:
        """Return the length in seconds of the piece that holds ``time_ns``; ``None`` in a hole."""
        holds = self.touching(time_ns, time_ns)
        if holds.start >= holds.stop:
            return None
        return float((self.end_ns - self.start_ns)[holds].max()) / NS_PER_S


def max_gap_ns(period_s: float) -> int:
    """Return the longest time between two reads that is not a hole, in ns."""
    return round(max(GAP_PERIODS * period_s, GAP_MIN_S) * NS_PER_S)


def is_tumbling(sensor: Boxcar) -> bool:
    """Return whether each update is the mean since the previous update, without overlap."""
    if not sensor.update_period_s or sensor.phase_s is None:
        return False
    return abs(sensor.update_period_s - sensor.window_s) <= TUMBLING_TOLERANCE * sensor.window_s


def profile_of(
    trace: Trace, sensor: Sensor, *, period_s: float, resets_ns: Sequence[int] = ()
) -> Profile:
    """Return the trace as power over time; failed reads and long gaps are holes.

    ``sensor`` is used as it is; ``sensor_inference.resolve_boxcar`` infers when a mean is updated.
    ``period_s`` is the configured time between reads. ``resets_ns`` are times of known restarts of
    the device: a counter that decreases there has not wrapped.
    """
    gap_ns = max_gap_ns(period_s)
    if trace.key.channel in (Channel.LOWER_W, Channel.UPPER_W):
        return _bounds(trace, sensor if isinstance(sensor, Bounds) else Bounds(), gap_ns)
    if isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        return _counter(trace, sensor, gap_ns, resets_ns)
    if isinstance(sensor, Boxcar):
        return _boxcar(trace, sensor, gap_ns)
    return _straight(trace.time_ns, trace.value, gap_ns)


def _straight(
    time_ns: Times, value: Values, gap_ns: int, *, window_s: float | None = None, mean_ns: int = 0
) -> Profile:
    """Return straight pieces between neighbours; ``window_s`` is the averaging time of each value.

    ``mean_ns`` is the same in ns if the time of each window is known, else 0.
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
    """Return the bound that applies whatever the state was between the reads.

    A change between two reads may have begun during the first, and its transition may last until
    ``settle_s`` after the second. During all of this time, the wider of both bounds applies.
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
    """Return the earliest start and latest end of each change (n,), and both bounds (2, n)."""
    known = ~np.isnan(trace.value)
    time_ns, value, half_ns = trace.time_ns[known], trace.value[known], trace.spread_ns[known] // 2
    at = np.flatnonzero(np.diff(value) != 0)
    from_ns = time_ns[at] - half_ns[at]
    to_ns = time_ns[at + 1] + half_ns[at + 1] + settle_ns
    return from_ns, to_ns, np.stack((value[at], value[at + 1]))


def _counter(trace: Trace, sensor: Counter, gap_ns: int, resets_ns: Sequence[int]) -> Profile:
    """Return the mean power between two successful reads.

    A failed read loses no energy, as the counter goes on. A long gap is a hole: the counter may
    have wrapped, or been reset and grown beyond its last value. A decrease is a hole too, unless it
    is a wrap. It is not a wrap if the counter has no declared range, at a known reset, if the
    increase would be more than half the range, or if the power would be far above all others.
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
    largest_w = mean_w[keep & ~fell].max(initial=0.0)
    if largest_w > 0:
        keep &= ~fell | (mean_w <= WRAP_FACTOR_MAX * largest_w)
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
    """Return times and counts of the successful reads, without single erroneous ones.

    The middle one of three successive counts is erroneous if the outer two ascend and it is outside
    their range: a counter cannot jump and return. One that wraps can, so it is left as it is.
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
    """Return how often the count decreased without a wrap: resets and erroneous readings."""
    step_j = np.diff(trace.value[~np.isnan(trace.value)])
    has_wrapped = np.zeros(step_j.size, np.bool_)
    if sensor.wrap_j is not None:
        has_wrapped = step_j <= -sensor.wrap_j / 2
    return int(np.count_nonzero((step_j < 0) & ~has_wrapped))


def _boxcar(trace: Trace, sensor: Boxcar, gap_ns: int) -> Profile:
    """Return readings at the middle of their windows, or over the windows if these adjoin."""
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
            is_mean=(trace.usual_period_s() or 0.0) <= CLOSE_READS_SHARE * sensor.window_s,
        )
    middle_ns = update_ns - window_ns // 2
    return _straight(middle_ns, value, gap_ns, window_s=window_s, mean_ns=window_ns)


def _one_read_per_update(trace: Trace, period_ns: int, phase_ns: int) -> tuple[Times, Values]:
    """Return the times of the updates seen, and one reading of each.

    Of several reads of one update, the one nearest the middle of its period is taken, because a
    timing error can assign reads near an update to the wrong one. NaN if every read failed.
    """
    index, into_ns = np.divmod(trace.time_ns - phase_ns, period_ns)
    order = np.lexsort((np.abs(2 * into_ns - period_ns), np.isnan(trace.value), index))
    updates, first = np.unique(index[order], return_index=True)
    return updates * period_ns + phase_ns, trace.value[order][first]
