"""Readings that show what a meter can't measure: pinned at its maximum, or faster than its mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Boxcar, Sensor, SourceFacts
from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window
from wattload.power.energy.profile import Profile
from wattload.power.energy.sensor import update_stride, usual_s
from wattload.power.energy.trace import Refused, Times, Trace, Values

PINNED_UPDATES = 12
"""A reading is pinned if it stays at the greatest value for so many updates, and others vary."""
VARY_UPDATES, VARY_TURNS = 30, 1 / 3
"""So many readings vary if this share of them turns up or down: half of those of a random walk
does, two thirds of those with noise of their own, and at most a quarter of those of two steps."""
PINNED_TIMES = 3
"""Where idle power stays equal, a steady load may as well, but not so many times at the most."""
RANGE_SHARE = 0.999
"""Readings of at least this share of a meter's range are at its end."""
DROP_SHARE = 0.5
"""A reading that falls by this share of the run's range in a fraction of its window is no mean over
that window."""
DROP_WINDOWS = 0.25


def pinned(
    trace: Trace, facts: SourceFacts, sensor: SensorRecord, windows: Sequence[Window]
) -> Refused | None:
    """Return the times whose power is in readings at the meter's maximum; ``None`` without any.

    Without a known range, it shows in the readings in ``windows``, in time order. A calibration is
    in none of them: its pulses are as steady, and as often, as no work is.
    """
    if facts.range_w is not None:
        most_w = RANGE_SHARE * facts.range_w
    else:
        watts = np.concatenate([np.empty(0), *(trace.values(*window) for window in windows)])
        watts = watts[:: update_stride(trace.time_ns, sensor.update_s)]
        if not watts.size or not _is_pinned(watts):
            return None
        most_w = float(watts.max())
    with np.errstate(invalid="ignore"):
        pinned_ns = trace.time_ns[trace.value >= most_w]
    return _refused(pinned_ns, round(sensor.settle_s * NS_PER_S), 0, most_w)


def _refused(pinned_ns: Times, before_ns: int, after_ns: int, most_w: float) -> Refused | None:
    if not pinned_ns.size:
        return None
    return Refused(
        span_ns=np.column_stack((pinned_ns - before_ns, pinned_ns + after_ns)),
        reason=f"readings are pinned at the meter's maximum of {most_w:.4g} W",
    )


def _is_pinned(watts: Values) -> bool:
    """Return whether updates stay at their greatest value, but vary elsewhere or under load."""
    is_most = watts == watts.max()
    ends = np.flatnonzero(np.diff(is_most, prepend=False, append=False))
    lengths = ends[1::2] - ends[::2]
    is_turn = np.diff(watts[1:]) * np.diff(watts[:-1]) < 0

    def vary(which: NDArray[np.bool_]) -> bool:
        return bool(which.sum() >= VARY_UPDATES and is_turn[which].mean() > VARY_TURNS)

    is_free = ~is_most[1:-1]
    is_loaded = is_free & (watts[1:-1] > (watts.min() + watts.max()) / 2)  # nearer to it than idle
    is_again = lengths.size >= PINNED_TIMES
    is_long = lengths.max() >= PINNED_UPDATES
    return bool(is_long and (vary(is_free) or (is_again and vary(is_loaded))))


def saturated(peaks: Trace | None, facts: SourceFacts) -> Refused | None:
    """Return the times in which a fast meter was at the end of its range; ``None`` without any.

    ``peaks`` are the greatest readings of each period, timed at its middle.
    """
    if peaks is None or facts.range_w is None:
        return None
    pinned_ns = peaks.time_ns[peaks.value >= RANGE_SHARE * facts.range_w]
    half_ns = round(facts.period_s / 2 * NS_PER_S)
    return _refused(pinned_ns, half_ns, half_ns, facts.range_w)


def drops_too_fast(whole: Profile, sensor: SensorRecord, declared: Sensor) -> bool:
    """Return whether readings fall faster than those of the declared mean can."""
    spacing_s = max(sensor.update_s, usual_s(whole.end_ns))
    if sensor.basis == "calibrated" or not isinstance(declared, Boxcar):
        return False
    if spacing_s > DROP_WINDOWS * declared.window_s:
        return False
    share = max(DROP_SHARE, 2 * spacing_s / declared.window_s)
    allowed_w = max(share * float(np.ptp(whole.end_w)), 10 * sensor.noise_w)
    return bool(-np.diff(whole.end_w).min(initial=0.0) > max(allowed_w, 1e-9))
