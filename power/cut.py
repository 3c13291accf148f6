"""A window cut out of a profile, at both edges as the readings beside them tell it.

A phase begins and ends with work, so that power steps at its very edges. A mean smears each step
over what it is the mean of, and whoever cuts the smear in two loses joules at both edges, always of
the same sign. Two things are known besides:

* A mean over exactly its own time (a counter's difference, a mean that abuts the next one) that
  lies between the means beside it holds one step from the one to the other: its joules tell when.
  One that lies beyond both holds a pause, say, and where work is steady inside of the edge, the
  pause is outside.
* A sliding mean v over w tells energy without any smear in steps of w, E(t + w) - E(t) = w v(t + w)
  (the sum telescopes). Such steps lead from an edge into the window to where power is steadier, and
  only there its straight pieces are taken for power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wattload.power.profile import Profile
from wattload.power.telescope import means, telescope

ALIKE_SHARE = 0.25
"""Two means are alike that differ by no more than this share of how far a third lies apart."""
APART_SHARE = 0.1
"""A mean lies beyond the one beside it by at least this share of how far the other lies apart."""
HIGHEST_SHARE = 1.25
"""Power outside of a window is not above this share of the greatest mean beside it."""


def cut(profile: Profile, start_ns: int, end_ns: int) -> Profile:
    """Return the part in ``[start_ns, end_ns]``, holes left as they are."""
    if profile.is_mean:
        return _stepped(profile, (start_ns, end_ns)).clip(start_ns, end_ns)
    if profile.mean_ns:
        path = telescope(profile, start_ns, end_ns)
        inner = profile.clip(path.inner_ns[0], path.inner_ns[1])
        return inner.merged(means(profile, path.starts_ns)) if path.starts_ns.size else inner
    return profile.clip(start_ns, end_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A mean told as two: ``first_w`` up to a moment within its piece, then ``second_w``."""

    time_ns: int
    first_w: float
    second_w: float


def _stepped(profile: Profile, window_ns: tuple[int, int]) -> Profile:
    """Return the means near a window, those that its edges divide told as two where they can be.

    The joules of each piece stay what they are.
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
    """Return the one step from the power before a piece to that after it that makes its mean."""
    if not (_abuts(profile, at - 1) and _abuts(profile, at)):
        return None
    before_w, mean_w, after_w = (float(watts) for watts in profile.start_w[at - 1 : at + 2])
    if (after_w - mean_w) * (mean_w - before_w) <= 0:
        return None
    start_ns, end_ns = int(profile.start_ns[at]), int(profile.end_ns[at])
    length_ns = end_ns - start_ns
    spent = (after_w - mean_w) / (after_w - before_w) * length_ns
    # The step falls on a whole nanosecond: the longer part makes up for that, to the last joule.
    # The part is rounded up, so that its power stays between those of both sides.
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
    """Return a piece told as steady power inside of the window, and as the rest outside of it.

    A mean beyond both beside it, or beside one that holds a step itself, holds more than one step:
    a pause between two intervals of a phase, say. Where power is steady inside of the window, work
    is like that from its edge on, and what is not like it lies outside. Power outside must be one
    that can be.
    """
    innermost = at + 2 * inward
    if not _is_steady(profile, at, inward) or not _abuts(profile, min(at, at - inward)):
        return None
    if profile.start_ns[innermost] < window_ns[0] or profile.end_ns[innermost] > window_ns[1]:
        return None
    outer_w, mean_w, inner_w = (float(profile.start_w[at + each * inward]) for each in (-1, 0, 1))
    if abs(mean_w - outer_w) < APART_SHARE * abs(mean_w - inner_w):
        return None
    edge_ns = window_ns[0] if inward > 0 else window_ns[1]
    parts_ns = (edge_ns - int(profile.start_ns[at]), int(profile.end_ns[at]) - edge_ns)
    outer_ns, inner_ns = parts_ns[::inward]
    rest_w = (mean_w * (outer_ns + inner_ns) - inner_w * inner_ns) / outer_ns
    if not 0 <= rest_w <= HIGHEST_SHARE * max(outer_w, mean_w, inner_w):
        return None
    first_w, second_w = (rest_w, inner_w)[::inward]
    return _Split(time_ns=edge_ns, first_w=first_w, second_w=second_w)


def _is_steady(profile: Profile, at: int, towards: int) -> bool:
    """Return whether the two pieces beside one, on one side, are alike by how far it lies apart."""
    first, last = sorted((at, at + 2 * towards))
    if not all(_abuts(profile, each) for each in range(first, last)):
        return False
    mean_w, next_w, farther_w = (float(profile.start_w[at + each * towards]) for each in range(3))
    return abs(next_w - farther_w) <= ALIKE_SHARE * abs(mean_w - next_w)


def _abuts(profile: Profile, at: int) -> bool:
    """Return whether a piece and the next one exist, without a hole between them."""
    exist = 0 <= at < profile.start_ns.size - 1
    return exist and bool(profile.end_ns[at] == profile.start_ns[at + 1])
