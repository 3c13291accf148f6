"""Readings that show what a meter can't measure: pinned at its maximum, or faster than its mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattload.core.power import SourceFacts
from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window
from wattload.power.energy.trace import Refused, Trace, Values

PINNED_UPDATES, FREE_UPDATES = 10, 3
"""A reading that stays at the greatest value for so many updates is pinned there, if no other one
stayed for as many as the second. That needs a meter whose readings change at each update."""
RANGE_SHARE = 0.999
"""Readings of at least this share of a meter's range are at its end."""
FREE_MIN = 30
"""The fewest other updates that show this."""
DROP_SHARE = 0.5
"""A reading that falls by this share of the run's range in a fraction of its window is no mean over
that window."""
DROP_WINDOWS = 0.25


def pinned_w(trace: Trace, facts: SourceFacts, stride: int) -> float | None:
    """Return the reading at which a meter is pinned, ``None`` if no reading shows that it is.

    ``stride`` is how many reads an update lasts.
    """
    if facts.range_w is not None:
        return RANGE_SHARE * facts.range_w
    watts = trace.value[::stride]
    watts = watts[~np.isnan(watts)]
    if not watts.size:
        return None
    most_w = float(watts.max())
    begins = np.flatnonzero(np.diff(watts, prepend=np.nan) != 0)
    lengths = np.diff(np.append(begins, watts.size))
    is_most = watts[begins] == most_w
    free = lengths[~is_most]
    is_pinned = (
        int(lengths[is_most].max()) >= PINNED_UPDATES
        and int(free.sum()) >= FREE_MIN
        and int(free.max()) < FREE_UPDATES
    )
    return most_w if is_pinned else None


def pinned_reason(trace: Trace, most_w: float | None, windows: Sequence[Window]) -> str:
    """Return why windows in which readings are pinned have no energy; empty if none are."""
    if most_w is None:
        return ""
    for window in windows:
        values = trace.values(*window)
        if values.size and float(np.nanmax(values, initial=-np.inf)) >= most_w:
            return f"readings are pinned at the meter's maximum of {most_w:g} W"
    return ""


def saturated(peaks: Trace | None, facts: SourceFacts) -> Refused | None:
    """Return the times in which a fast meter was at the end of its range; ``None`` without any.

    ``peaks`` are the greatest readings of each period, timed at its middle.
    """
    if peaks is None or facts.range_w is None:
        return None
    pinned_ns = peaks.time_ns[peaks.value >= RANGE_SHARE * facts.range_w]
    if not pinned_ns.size:
        return None
    half_ns = round(facts.period_s / 2 * NS_PER_S)
    return Refused(
        span_ns=np.column_stack((pinned_ns - half_ns, pinned_ns + half_ns)),
        reason=f"readings are pinned at the meter's maximum of {facts.range_w:g} W",
    )


def drops_too_fast(watts: Values, sensor: SensorRecord, window_s: float, spacing_s: float) -> bool:
    """Return whether readings fall faster than those of a mean over ``window_s`` can."""
    if sensor.basis == "calibrated" or not watts.size or spacing_s > DROP_WINDOWS * window_s:
        return False
    allowed_w = max(DROP_SHARE, 2 * spacing_s / window_s) * float(np.ptp(watts))
    return float(-np.diff(watts).min(initial=0.0)) > max(allowed_w, 10 * sensor.noise_w, 1e-9)
