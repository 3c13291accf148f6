"""Power over time as straight pieces: what each sensor's trace becomes before integration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S
from wattload.power.trace import Times, Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """Straight pieces of power, ascending and not overlapping; time between two pieces is a hole.

    Piece i runs from ``start_ns[i]`` at ``start_w[i]`` to ``end_ns[i]`` at ``end_w[i]``; all arrays
    have shape (n,). ``observed`` in (0, 1] is the share of the piece that the sensor watched: less
    than 1 where a mean over ``window_s`` was read less often than that.
    ``outside_w`` is the power that is known to hold in a hole, ``None`` where none is.

    With ``is_mean`` each piece is the mean of exactly its own time. With ``mean_ns`` the ends of
    the pieces are means over so many nanoseconds, each at the middle of what it is the mean of; 0
    says that they are not.
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
        """Return the profile of the pieces that ``keep`` marks, fully observed and divisible."""
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
        """Return which pieces touch the interval, if only by an end."""
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
        """Return the pieces of several profiles in order of time; they must not overlap."""
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
        """Return where each stretch without a piece starts and ends, of an interval."""
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

        Both are exact integrals of the straight pieces: the trapezoid rule, piece by piece. Time is
        summed in whole nanoseconds, so that pieces that abut cover a window to the last bit.
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
        """Return the mean power of what of the interval is covered, ``None`` where nothing is."""
        joules, seconds = self.clip(start_ns, end_ns).cumulative(np.array([end_ns]))
        return float(joules[0] / seconds[0]) if seconds[0] > 0 else None

    def piece_s(self, time_ns: int) -> float | None:
        """Return the length in seconds of the piece that holds ``time_ns``; ``None`` in a hole."""
        holds = self.touching(time_ns, time_ns)
        if holds.start >= holds.stop:
            return None
        return float((self.end_ns - self.start_ns)[holds].max()) / NS_PER_S
