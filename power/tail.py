"""The tail: when is a drive's power back at idle after the work has ended?"""

from __future__ import annotations

import numpy as np

from wattload.core.power import Sensor
from wattload.core.units import NS_PER_S
from wattload.power.sensors import profile_of
from wattload.power.trace import Trace

CALM_SHARE = 0.05
"""Power within this share above idle counts as idle."""
CALM_HOLD_S = 2.0
"""For so long the mean must stay there: longer than the pauses between two flushes of a cache."""


def tail_end(
    trace: Trace, sensor: Sensor, *, idle_w: float, after_ns: int, period_s: float
) -> int | None:
    """Return when power came back to idle after ``after_ns``; ``None`` while it has not.

    That is the first moment from which the mean over 2 s is at most 5 % above ``idle_w``. Power
    below idle is calm too. A stretch with a hole in it is not known to be calm.
    """
    profile = profile_of(trace, sensor, period_s=period_s)
    starts = profile.start_ns[profile.start_ns > after_ns]
    candidates = np.concatenate((np.array([after_ns], dtype=np.int64), starts))
    hold_ns = round(CALM_HOLD_S * NS_PER_S)
    from_j, from_s = profile.cumulative(candidates)
    to_j, to_s = profile.cumulative(candidates + hold_ns)
    covered_s = to_s - from_s
    is_watched = covered_s > CALM_HOLD_S * (1 - 1e-6)
    mean_w = (to_j - from_j) / np.where(is_watched, covered_s, 1.0)
    calm = candidates[is_watched & (mean_w <= idle_w * (1 + CALM_SHARE))]
    return int(calm[0]) if calm.size else None
