"""Whole means that lead from the edges of a window to where power is steadier.

A sliding mean v over w smears each step over w, but E(t + w) - E(t) = w v(t + w) exactly: a sum of
readings w apart telescopes to the energy between its ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattload.core.units import NS_PER_S
from wattload.power.profile import Profile
from wattload.power.trace import Times, Values

STEPS_MAX = 8
"""How many means lead into a window at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Telescope:
    """Which means lead from the edges of a window to its inner part, and what they still hide.

    ``starts_ns`` (n,) are the starts of their times, each ``mean_ns`` long. ``hidden_j`` is by how
    much both edges together may be off for what a mean hides.
    """

    starts_ns: Times
    inner_ns: tuple[int, int]
    hidden_j: float


def telescope(profile: Profile, start_ns: int, end_ns: int) -> Telescope:
    """Return the way into the window that hides the least; it may be that of no step at all."""
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
    return Telescope(
        starts_ns=starts_ns,
        inner_ns=(start_ns + first * mean_ns, end_ns - last * mean_ns),
        hidden_j=hidden_j,
    )


def _hidden_j(profile: Profile, edge_ns: int, step_ns: int, count: int) -> list[float]:
    """Return what stays hidden after each number of steps from an edge, from none on.

    There are no more of them than lead through readings without a hole between.
    """
    hidden_j = [_smear_j(profile, edge_ns)]
    told_j = 0.0
    for step in range(count):
        from_ns, to_ns = sorted((edge_ns + step * step_ns, edge_ns + (step + 1) * step_ns))
        if not _is_told(profile, from_ns, to_ns):
            break
        told_j += _bend_j(profile, (from_ns + to_ns) // 2)
        hidden_j.append(told_j + _smear_j(profile, edge_ns + (step + 1) * step_ns))
    return hidden_j


def _is_told(profile: Profile, from_ns: int, to_ns: int) -> bool:
    """Return whether readings follow each other closely all along a stretch of time."""
    near = profile.of(profile.touching(from_ns, to_ns))
    if not near.start_ns.size or near.start_ns[0] > from_ns or near.end_ns[-1] < to_ns:
        return False
    abuts = bool((near.end_ns[:-1] == near.start_ns[1:]).all())
    length_ns = int((near.end_ns - near.start_ns).max())
    return abuts and 2 * length_ns <= profile.mean_ns


def _smear_j(profile: Profile, time_ns: int) -> float:
    """Return how many joules straight pieces may put on the wrong side of a moment.

    A step there puts the triangle w / 8 of it, with straight pieces of length d up to w between the
    reads (w^2 + d^2) / (8 w). How large a step may be is told by ``step_w``.
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
    """Return how much power may change by around a moment, by means over ``mean_s``.

    The slope of one that slides, times what it is the mean of, is what power changed by. One that
    does not slide, or whose updates are unknown, is read often enough to show its range. Where
    reads are more than half as far apart as it is long, power may have been anything up to twice
    the mean.
    """
    around = (time_ns - reach_ns, time_ns + reach_ns)
    low_w, high_w = profile.range_w(*around) or (0.0, 0.0)
    if (profile.piece_s(time_ns) or 0.0) <= mean_s / 2:
        slope_w = mean_s * profile.greatest_slope(*around) if profile.mean_ns else 0.0
        return max(high_w - low_w, slope_w)
    return max(high_w - low_w, abs(profile.mean_w(*around) or 0.0))


def _bend_j(profile: Profile, middle_ns: int) -> float:
    """Return by how much a mean between two reads may be off: it bends where power steps.

    Slopes that differ by s may bend anywhere in the piece: s x (d - x) / d at x of its length d.
    """
    near, into_s, length_s = _piece(profile, middle_ns)
    slopes = _slopes(near)
    bend_w = float(np.ptp(slopes)) * into_s * (length_s - into_s) / length_s
    return bend_w * profile.mean_ns / NS_PER_S


def means(profile: Profile, starts_ns: Times) -> Profile:
    """Return one constant piece of ``mean_ns`` from each start, at the power that was its mean."""
    middles_ns = starts_ns + profile.mean_ns // 2
    watts = np.array([_told_w(profile, int(middle_ns)) for middle_ns in middles_ns])
    return Profile(
        start_ns=starts_ns,
        end_ns=starts_ns + profile.mean_ns,
        start_w=watts,
        end_w=watts,
        observed=np.ones(watts.size),
        mean_ns=profile.mean_ns,
    )


def _told_w(profile: Profile, middle_ns: int) -> float:
    """Return the mean around a moment, from the reads before and after it.

    Where the slope between them lies between those beside it, power stepped once meanwhile: the
    mean bends where the lines from both sides meet.
    """
    near, into_s, length_s = _piece(profile, middle_ns)
    first_w, last_w = near.start_w[near.start_w.size // 2], near.end_w[near.end_w.size // 2]
    slopes = _slopes(near)
    straight_w = first_w + (last_w - first_w) * into_s / length_s
    if slopes.size < 3 or (slopes[2] - slopes[1]) * (slopes[1] - slopes[0]) <= 0:  # noqa: PLR2004
        return float(straight_w)
    from_left_w = first_w + slopes[0] * into_s
    from_right_w = last_w - slopes[2] * (length_s - into_s)
    pick = min if slopes[0] > slopes[2] else max
    return float(pick(from_left_w, from_right_w))


def _piece(profile: Profile, time_ns: int) -> tuple[Profile, float, float]:
    """Return the piece that holds a moment between its neighbours, how far into it, its length.

    A piece at an end of the profile comes alone.
    """
    at = max(0, int(np.searchsorted(profile.start_ns, time_ns, "right")) - 1)
    has_both = 0 < at < profile.start_ns.size - 1
    near = profile.of(slice(at - 1, at + 2) if has_both else slice(at, at + 1))
    start_ns, end_ns = int(profile.start_ns[at]), int(profile.end_ns[at])
    return near, (time_ns - start_ns) / NS_PER_S, (end_ns - start_ns) / NS_PER_S


def _slopes(near: Profile) -> Values:
    slopes: Values = (near.end_w - near.start_w) / ((near.end_ns - near.start_ns) / NS_PER_S)
    return slopes
