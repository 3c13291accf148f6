"""What nobody read: holes in a window, and the power that is put there.

A hole says nothing of the window's mean power. The drive idles before and after a run, and that is
where readings begin late and end early: filled with the mean power of the run, such a hole would
add joules that were never used. So a hole has the power beside it, by as long a stretch as itself
on each side (at an edge of the window on its one side), and a mean that was read less often than it
is long goes on as it was read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattload.core.units import NS_PER_S
from wattload.power.profile import Profile
from wattload.power.trace import Times, Values

REACH_NS = 3 * NS_PER_S
"""Power at least this near to a hole is power that the hole may have had."""


def filled(inside: Profile, start_ns: int, end_ns: int, *, power_w: float | None = None) -> Profile:
    """Return a window's profile without holes; they have ``power_w``, where that is known.

    ``inside`` has no piece beyond the window. Without any piece all of it is at 0 W.
    """
    from_ns, to_ns = inside.holes(start_ns, end_ns)
    watts = _beside_w(inside, from_ns, to_ns)
    if power_w is not None:
        watts = np.full(from_ns.size, power_w)
    whole = replace(inside, observed=np.ones(inside.start_ns.size))
    return whole.merged(
        Profile(
            start_ns=from_ns,
            end_ns=to_ns,
            start_w=watts,
            end_w=watts,
            observed=np.ones(watts.size),
        )
    )


def _beside_w(inside: Profile, from_ns: Times, to_ns: Times) -> Values:
    """Return the mean power of both sides of each hole, or of the one that there is."""
    length_ns = to_ns - from_ns
    sides = [
        _mean_w(inside, from_ns - length_ns, from_ns),
        _mean_w(inside, to_ns, to_ns + length_ns),
    ]
    known = [~np.isnan(side) for side in sides]
    total_w = np.nansum(sides, axis=0)
    watts: Values = total_w / np.maximum(np.sum(known, axis=0), 1)
    return watts


def _mean_w(inside: Profile, from_ns: Times, to_ns: Times) -> Values:
    """Return the mean power of what was observed in each stretch, NaN where nothing was."""
    from_j, from_s = inside.cumulative(from_ns)
    to_j, to_s = inside.cumulative(to_ns)
    seconds = to_s - from_s
    is_known = seconds > 0
    return np.where(is_known, (to_j - from_j) / np.where(is_known, seconds, 1.0), np.nan)


def gap_j(profile: Profile, inside: Profile, start_ns: int, end_ns: int) -> float:
    """Return by how much the holes of a window may be off, filled as ``filled`` does.

    Each had power within the range of the window and of what was read beside it, on each side as
    far as it is long, and ``REACH_NS`` at least; one at an edge of the window within the latter
    alone, for there a run has not begun or has ended. So did what was not observed within a piece,
    by those next to it.
    """
    from_ns, to_ns = inside.holes(start_ns, end_ns)
    parts_j = []
    for first_ns, last_ns, watts in zip(
        from_ns.tolist(), to_ns.tolist(), _beside_w(inside, from_ns, to_ns).tolist(), strict=True
    ):
        reach_ns = max(last_ns - first_ns, REACH_NS)
        is_inner = start_ns < first_ns and last_ns < end_ns
        low_w, high_w = profile.range_w(
            min(start_ns, first_ns - reach_ns) if is_inner else first_ns - reach_ns,
            max(end_ns, last_ns + reach_ns) if is_inner else last_ns + reach_ns,
        ) or (0.0, 0.0)
        off_w = max(watts - low_w, high_w - watts)
        parts_j.append(off_w * (last_ns - first_ns) / NS_PER_S)
    return float(sum(parts_j)) + _thin_j(inside)


def _thin_j(inside: Profile) -> float:
    """Return the same for the unobserved part of pieces that stand for more than was observed."""
    at = np.flatnonzero(inside.observed < 1)
    if not at.size:
        return 0.0
    low_w = np.minimum(inside.start_w, inside.end_w)
    high_w = np.maximum(inside.start_w, inside.end_w)
    before, after = np.maximum(at - 1, 0), np.minimum(at + 1, low_w.size - 1)
    lowest_w = np.minimum(np.minimum(low_w[before], low_w[at]), low_w[after])
    highest_w = np.maximum(np.maximum(high_w[before], high_w[at]), high_w[after])
    own_w = (inside.start_w + inside.end_w)[at] / 2
    off_w = np.maximum(own_w - lowest_w, highest_w - own_w)
    missed_s = (1 - inside.observed[at]) * (inside.end_ns - inside.start_ns)[at] / NS_PER_S
    return float((off_w * missed_s).sum())
