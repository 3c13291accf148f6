"""Readings that show what a meter can't measure: pinned at its maximum, or faster than its mean."""

from __future__ import annotations

import numpy as np

from wattload.core.power import Boxcar, Sensor, SourceFacts
from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.profile import Profile
from wattload.power.energy.sensor import update_stride, usual_s
from wattload.power.energy.trace import Refused, Times, Trace

PINNED_UPDATES, FREE_UPDATES = 12, 6
"""A reading that stays at the greatest value for so many updates is pinned there, if no other one
stayed for as many as the second. That needs a meter whose readings change at each update, at least
under load."""
PINNED_TIMES, FREE_TURNS = 3, 5
"""Where readings of idle power stay equal, those of a steady load may as well. Power that was at
the greatest reading so many times, and above idle turned so many times elsewhere, is not steady."""
RANGE_SHARE = 0.999
"""Readings of at least this share of a meter's range are at its end."""
FREE_MIN = 30
"""The fewest other updates that show this."""
DROP_SHARE = 0.5
"""A reading that falls by this share of the run's range in a fraction of its window is no mean over
that window."""
DROP_WINDOWS = 0.25


def pinned(trace: Trace, facts: SourceFacts, sensor: SensorRecord) -> Refused | None:
    """Return the times whose power is in readings at the meter's maximum; ``None`` without any."""
    most_w = facts.range_w
    if most_w is None:
        most_w = _pinned_w(trace, sensor)
    else:
        most_w *= RANGE_SHARE
    if most_w is None:
        return None
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


def _pinned_w(trace: Trace, sensor: SensorRecord) -> float | None:
    """Return the reading at which a meter of unknown range is pinned, if readings show that."""
    watts = trace.value[~np.isnan(trace.value)][:: update_stride(trace.time_ns, sensor.update_s)]
    most_w = float(watts.max())
    begins = np.flatnonzero(np.diff(watts, prepend=np.nan) != 0)
    lengths = np.diff(np.append(begins, watts.size))
    is_most = watts[begins] == most_w
    if int(lengths[is_most].max()) < PINNED_UPDATES:
        return None
    is_loaded = watts[begins] > (float(watts.min()) + most_w) / 2
    turns = np.sign(np.diff(watts[begins], append=most_w))
    is_turn = (turns != np.roll(turns, 1)) & is_loaded & ~is_most
    free, loaded = lengths[~is_most], lengths[~is_most & is_loaded]
    varies = is_most.sum() >= PINNED_TIMES and is_turn.sum() >= FREE_TURNS
    is_pinned = (free.sum() >= FREE_MIN and free.max() < FREE_UPDATES) or (
        varies and loaded.max() < FREE_UPDATES
    )
    return most_w if is_pinned else None


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
