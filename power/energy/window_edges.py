"""Energy at the edges of a window, where an averaging sensor blurs each step of power.

Means without overlap: a mean between its two neighbours contains one step from one to the other,
and its energy gives the time of the step. A mean beyond both contains more, such as a pause. If
power is steady inside the window, the rest of that mean is outside.

Sliding means: a mean v over w gives exact energy in steps of w, E(t + w) - E(t) = w v(t + w). Such
steps lead from an edge into the window, up to where power is steadier. Only from there on, straight
pieces between the readings are used as power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wattload.core.units import NS_PER_S
from wattload.power.energy.profile import Profile
from wattload.power.energy.trace import Times, Values

STEPS_MAX = 8
"""The most means that lead from an edge into a window."""

EQUAL_SHARE = 0.25
"""Two means are equal if they differ by at most this share of the distance to a third."""
BEYOND_SHARE = 0.1
"""A mean is beyond a neighbour if it differs by this share of the distance to the other one."""
PLAUSIBLE_FACTOR = 1.25
"""The largest plausible power outside a window, as a multiple of the largest mean near it."""


def cut(profile: Profile, start_ns: int, end_ns: int) -> Profile:
    """Return the part in ``[start_ns, end_ns]``, including its holes."""
    if profile.is_mean:
        return _stepped(profile, (start_ns, end_ns)).clip(start_ns, end_ns)
    if profile.mean_ns:
        path = edge_steps(profile, start_ns, end_ns)
        inner = profile.clip(path.inner_ns[0], path.inner_ns[1])
        return inner.merged(step_means(profile, path.starts_ns)) if path.starts_ns.size else inner
    return profile.clip(start_ns, end_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A mean split in two: ``first_w`` up to a time within its piece, then ``second_w``."""

    time_ns: int
    first_w: float
    second_w: float


def _stepped(profile: Profile, window_ns: tuple[int, int]) -> Profile:
    """Return the means near a window, with those at its edges split in two where possible.

    The energy of each piece does not change.
    """
    splits: dict[int, _Split] = {}
    for edge_ns, inward in zip(window_ns, (1, -1), strict=True):
        at = int(np.searchsorted(profile.start_ns, edge_ns, "right")) - 1
        if at >= 0 and profile.start_ns[at] < edge_ns < profile.end_ns[at]:
            found = _step(profile, at)
            if found is None or not _is_steady(profile, at, -inward):
                found = _outside(profile, at, inward, window_ns) or found
            if found is not None and at not in splits:
                splits[at] = found
    touched = profile.touching(*window_ns)
    kept = np.setdiff1d(np.arange(touched.start, touched.stop), list(splits)).astype(np.intp)
    return profile.of(kept).merged(*(_halves(profile, at, each) for at, each in splits.items()))


def _halves(profile: Profile, at: int, split: _Split) -> Profile:
    whole = profile.of(np.array([at, at]))
    watts = np.array([split.first_w, split.second_w])
    return replace(
        whole,
        start_ns=np.array([whole.start_ns[0], split.time_ns]),
        end_ns=np.array([split.time_ns, whole.end_ns[0]]),
        start_w=watts,
        end_w=watts,
    )


def _step(profile: Profile, at: int) -> _Split | None:
    """Return the one step between the powers of both neighbours that gives a piece its mean."""
    if not (_abuts(profile, at - 1) and _abuts(profile, at)):
        return None
    before_w, mean_w, after_w = (float(watts) for watts in profile.start_w[at - 1 : at + 2])
    if (after_w - mean_w) * (mean_w - before_w) <= 0:
        return None
    start_ns, end_ns = int(profile.start_ns[at]), int(profile.end_ns[at])
    length_ns = end_ns - start_ns
    spent = (after_w - mean_w) / (after_w - before_w) * length_ns
    # The step is at a whole nanosecond, and the longer part is adjusted to keep the exact energy.
    # The longer part is rounded up, so that its power stays between those of both neighbours.
    is_first = spent > length_ns / 2
    spent_ns = math.ceil(spent) if is_first else math.floor(spent)
    if not 0 < spent_ns < length_ns:
        return None
    left_ns = length_ns - spent_ns
    odd_wns = mean_w * length_ns - before_w * spent_ns - after_w * left_ns
    if is_first:
        before_w += odd_wns / spent_ns
    else:
        after_w += odd_wns / left_ns
    return _Split(time_ns=start_ns + spent_ns, first_w=before_w, second_w=after_w)


def _outside(profile: Profile, at: int, inward: int, window_ns: tuple[int, int]) -> _Split | None:
    """Return a piece split into steady power inside the window and the rest outside.

    A mean beyond both neighbours, or next to one with a step, contains more than one step, such as
    a pause between two intervals of a phase. If power is steady inside the window, it was so from
    the edge on, and the difference is outside. The power outside must be plausible.
    """
    innermost = at + 2 * inward
    if not _is_steady(profile, at, inward) or not _abuts(profile, min(at, at - inward)):
        return None
    if profile.start_ns[innermost] < window_ns[0] or profile.end_ns[innermost] > window_ns[1]:
        return None
    outer_w, mean_w, inner_w = (float(profile.start_w[at + each * inward]) for each in (-1, 0, 1))
    if abs(mean_w - outer_w) < BEYOND_SHARE * abs(mean_w - inner_w):
        return None
    edge_ns = window_ns[0] if inward > 0 else window_ns[1]
    parts_ns = (edge_ns - int(profile.start_ns[at]), int(profile.end_ns[at]) - edge_ns)
    outer_ns, inner_ns = parts_ns[::inward]
    rest_w = (mean_w * (outer_ns + inner_ns) - inner_w * inner_ns) / outer_ns
    if not 0 <= rest_w <= PLAUSIBLE_FACTOR * max(outer_w, mean_w, inner_w):
        return None
    first_w, second_w = (rest_w, inner_w)[::inward]
    return _Split(time_ns=edge_ns, first_w=first_w, second_w=second_w)


def _is_steady(profile: Profile, at: int, towards: int) -> bool:
    """Return whether the next two pieces on one side are equal, relative to this piece's."""
    first, last = sorted((at, at + 2 * towards))
    if not all(_abuts(profile, each) for each in range(first, last)):
        return False
    mean_w, next_w, farther_w = (float(profile.start_w[at + each * towards]) for each in range(3))
    return abs(next_w - farther_w) <= EQUAL_SHARE * abs(mean_w - next_w)


def _abuts(profile: Profile, at: int) -> bool:
    """Return whether a piece and the next one exist, without a hole between them."""
    exist = 0 <= at < profile.start_ns.size - 1
    return exist and bool(profile.end_ns[at] == profile.start_ns[at + 1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeSteps:
    """The means that lead from the edges of a window to its inner part.

    ``starts_ns`` (n,) are the starts of their windows, each ``mean_ns`` long. ``hidden_j`` is the
    remaining uncertainty of both edges together.
    """

    starts_ns: Times
    inner_ns: tuple[int, int]
    hidden_j: float


def edge_steps(profile: Profile, start_ns: int, end_ns: int) -> EdgeSteps:
    """Return the steps into the window with the least uncertainty; there may be none."""
    mean_ns = profile.mean_ns
    whole = (end_ns - start_ns) // mean_ns
    from_start_j = _hidden_j(profile, start_ns, mean_ns, min(whole, STEPS_MAX))
    from_end_j = _hidden_j(profile, end_ns, -mean_ns, min(whole, STEPS_MAX))
    hidden_j, first, last = min(
        (at_start_j + at_end_j, first, last)
        for first, at_start_j in enumerate(from_start_j)
        for last, at_end_j in enumerate(from_end_j)
        if first + last <= whole
    )
    starts_ns = np.concatenate(
        (
            start_ns + mean_ns * np.arange(first, dtype=np.int64),
            end_ns - mean_ns * np.arange(last, 0, -1, dtype=np.int64),
        )
    )
    return EdgeSteps(
        starts_ns=starts_ns,
        inner_ns=(start_ns + first * mean_ns, end_ns - last * mean_ns),
        hidden_j=hidden_j,
    )


def _hidden_j(profile: Profile, edge_ns: int, step_ns: int, count: int) -> list[float]:
    """Return the uncertainty in joules after each number of steps from an edge, starting with none.

    The list ends at the first hole between the readings.
    """
    hidden_j = [_smear_j(profile, edge_ns)]
    bends_j = 0.0
    for step in range(count):
        from_ns, to_ns = sorted((edge_ns + step * step_ns, edge_ns + (step + 1) * step_ns))
        if not _has_dense_reads(profile, from_ns, to_ns):
            break
        bends_j += _bend_j(profile, (from_ns + to_ns) // 2)
        hidden_j.append(bends_j + _smear_j(profile, edge_ns + (step + 1) * step_ns))
    return hidden_j


def _has_dense_reads(profile: Profile, from_ns: int, to_ns: int) -> bool:
    """Return whether readings are close to each other, without a hole, in a stretch of time."""
    near = profile.of(profile.touching(from_ns, to_ns))
    if not near.start_ns.size or near.start_ns[0] > from_ns or near.end_ns[-1] < to_ns:
        return False
    is_whole = bool((near.end_ns[:-1] == near.start_ns[1:]).all())
    length_ns = int((near.end_ns - near.start_ns).max())
    return is_whole and 2 * length_ns <= profile.mean_ns


def _smear_j(profile: Profile, time_ns: int) -> float:
    """Return how many joules straight pieces may put on the wrong side of a time.

    A step at that time puts a triangle of w / 8 times the step there, and with pieces of length
    d <= w between the reads (w^2 + d^2) / (8 w). ``step_w`` bounds the step.
    """
    mean_s = profile.mean_ns / NS_PER_S
    piece_s = profile.piece_s(time_ns) or 0.0
    if piece_s > mean_s / 2:
        reach_ns = round(max(piece_s, mean_s) * NS_PER_S)
    else:
        reach_ns = profile.mean_ns // 2 - round(piece_s * NS_PER_S)
    smear_s = min((mean_s**2 + piece_s**2) / (8 * mean_s), max(piece_s, mean_s) / 2)
    return step_w(profile, mean_s, time_ns, reach_ns) * smear_s


def step_w(profile: Profile, mean_s: float, time_ns: int, reach_ns: int) -> float:
    """Return the largest change of power around a time in watts, from means over ``mean_s``.

    The slope of a sliding mean times its window is the change of power. Other means show their
    range if they are read often enough. If reads are more than half a window apart, power may have
    been anything from 0 to twice the mean.
    """
    around = (time_ns - reach_ns, time_ns + reach_ns)
    low_w, high_w = profile.range_w(*around) or (0.0, 0.0)
    if (profile.piece_s(time_ns) or 0.0) <= mean_s / 2:
        slope_w = mean_s * profile.greatest_slope(*around) if profile.mean_ns else 0.0
        return max(high_w - low_w, slope_w)
    return max(high_w - low_w, abs(profile.mean_w(*around) or 0.0))


def _bend_j(profile: Profile, middle_ns: int) -> float:
    """Return the uncertainty in joules of a mean between two reads: it bends where power steps.

    If the slopes around a piece of length d differ by s, the bend may be at any x in the piece, and
    the mean is off by up to s x (d - x) / d.
    """
    near, into_s, length_s = _piece(profile, middle_ns)
    slopes = _slopes(near)
    bend_w = float(np.ptp(slopes)) * into_s * (length_s - into_s) / length_s
    return bend_w * profile.mean_ns / NS_PER_S


def step_means(profile: Profile, starts_ns: Times) -> Profile:
    """Return one constant piece of ``mean_ns`` from each start, at its mean power."""
    middles_ns = starts_ns + profile.mean_ns // 2
    watts = np.array([_mean_near_w(profile, int(middle_ns)) for middle_ns in middles_ns])
    return Profile(
        start_ns=starts_ns,
        end_ns=starts_ns + profile.mean_ns,
        start_w=watts,
        end_w=watts,
        observed=np.ones(watts.size),
        mean_ns=profile.mean_ns,
    )


def _mean_near_w(profile: Profile, middle_ns: int) -> float:
    """Return the mean around a time in watts, from the reads before and after it.

    If the slope between them is between those of the neighbouring pieces, power had one step: the
    mean bends where the lines from both sides meet.
    """
    near, into_s, length_s = _piece(profile, middle_ns)
    first_w, last_w = near.start_w[near.start_w.size // 2], near.end_w[near.end_w.size // 2]
    slopes = _slopes(near)
    straight_w = first_w + (last_w - first_w) * into_s / length_s
    if slopes.size == 1 or (slopes[2] - slopes[1]) * (slopes[1] - slopes[0]) <= 0:
        return float(straight_w)
    from_left_w = first_w + slopes[0] * into_s
    from_right_w = last_w - slopes[2] * (length_s - into_s)
    pick = min if slopes[0] > slopes[2] else max
    return float(pick(from_left_w, from_right_w))


def _piece(profile: Profile, time_ns: int) -> tuple[Profile, float, float]:
    """Return the piece around a time with both neighbours, the time into it, and its length (s).

    A piece at an end of the profile is returned alone.
    """
    at = max(0, int(np.searchsorted(profile.start_ns, time_ns, "right")) - 1)
    has_both = 0 < at < profile.start_ns.size - 1
    near = profile.of(slice(at - 1, at + 2) if has_both else slice(at, at + 1))
    start_ns, end_ns = int(profile.start_ns[at]), int(profile.end_ns[at])
    return near, (time_ns - start_ns) / NS_PER_S, (end_ns - start_ns) / NS_PER_S


def _slopes(near: Profile) -> Values:
    slopes: Values = (near.end_w - near.start_w) / ((near.end_ns - near.start_ns) / NS_PER_S)
    return slopes
