"""The sensor of a source as declared, and what its own readings show of it.

What is read off a run's own readings is when they are updated, their noise and their step. The
response to a step of power is never inferred from a run, whose work may begin and end late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wattload.core.power import Boxcar, Counter, Sensor, SourceFacts
from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window
from wattload.power.energy.profile import Profile
from wattload.power.energy.response import declared_response
from wattload.power.energy.trace import Times, Values

CHANGES_MIN = 8
"""The fewest changes that show how often readings are updated."""
CHANGES_MAX = 10_000
"""The most changes whose values are compared."""
HELD_MAX_S = 2.5
"""Readings that are not declared to be held are held no longer than this."""
NEW_READS = 1.5
"""Readings that change after fewer reads than this are new at every read."""
NOT_CALIBRATED = "it was not calibrated"


def declared_sensor(
    facts: SourceFacts, profile: Profile, quiet: Sequence[Window] = ()
) -> SensorRecord:
    """Return the sensor of a source as declared, with the clock and noise of its own readings.

    ``quiet`` are the times without work, whose readings show the noise.
    """
    update_s, jitter_s = clock(facts.sensor, profile.end_ns, profile.end_w)
    # The profile of a counter begins at reads that see a change, which is at most a read late.
    held_s = min(update_s, facts.period_s) if isinstance(facts.sensor, Counter) else update_s
    response = declared_response(facts.sensor, held_s, usual_s(profile.end_ns))
    # Few data sheets mention filters, and some mention no delay at all.
    unsure_s = max(response.tau_s, held_s, usual_s(profile.end_ns))
    return SensorRecord(
        basis="declared",
        reason=NOT_CALIBRATED,
        tau_s=response.tau_s,
        tau_uncertainty_s=unsure_s,
        kappa_s=response.kappa_s,
        kappa_uncertainty_s=response.kappa_s,
        settle_s=response.settle_s,
        update_s=update_s,
        jitter_s=jitter_s,
        noise_w=_noise_w(profile, quiet, update_s),
        step_w=_step_w(facts, profile.end_w),
        declared_tau_s=response.tau_s,
    )


def clock(sensor: Sensor, time_ns: Times, watts: Values) -> tuple[float, float]:
    """Return the time between updates in seconds (0: at every read), and its jitter (k = 1).

    The time is as declared, else the usual one between changes. Where power is flat, readings stay
    equal for several updates, so the shorter times count.
    """
    declared_s = getattr(sensor, "update_period_s", None)
    changed = np.flatnonzero(np.diff(watts)) + 1
    is_sliding = isinstance(sensor, Boxcar) and declared_s == 0
    if isinstance(sensor, Counter) or is_sliding or changed.size < CHANGES_MIN:
        return declared_s or 0.0, 0.0
    if not declared_s and np.unique(watts[changed[:CHANGES_MAX]]).size < CHANGES_MIN:
        return 0.0, 0.0  # these are steps of the load between a few powers
    between_s = np.diff(time_ns[changed]) / NS_PER_S
    median_s, short_s = np.quantile(between_s, (0.5, 0.25))
    if short_s < NEW_READS * usual_s(time_ns):
        return declared_s or 0.0, 0.0
    likely_s = declared_s or (median_s if median_s < 1.5 * short_s else short_s)
    between_s = between_s[(between_s > likely_s / 2) & (between_s < 1.5 * likely_s)]
    if not between_s.size:
        return declared_s or 0.0, 0.0
    if not declared_s and likely_s > HELD_MAX_S:
        return 0.0, 0.0
    update_s = declared_s or float(between_s.mean())
    # Each change is seen up to a read late, which adds to the spread.
    jitter_s2 = float(((between_s - update_s) ** 2).mean()) - usual_s(time_ns) ** 2 / 6
    return update_s, math.sqrt(max(jitter_s2, 0.0))


def _noise_w(profile: Profile, quiet: Sequence[Window], update_s: float) -> float:
    """Return the standard deviation of a reading by the median change between two updates.

    Steps of power hardly affect a median.
    """
    time_ns, watts = profile.end_ns, profile.end_w
    parts = [
        watts[slice(*np.searchsorted(time_ns, (start_ns, end_ns)).tolist())]
        for start_ns, end_ns in quiet
    ]
    parts = [part for part in parts if part.size > CHANGES_MIN] or [watts]
    stride = update_stride(time_ns, update_s)
    changes_w = np.concatenate([np.abs(np.diff(part[::stride])) for part in parts])
    return float(np.median(changes_w)) * 1.4826 / np.sqrt(2) if changes_w.size else 0.0


def update_stride(time_ns: Times, update_s: float) -> int:
    """Return how many reads an update lasts, at least 1."""
    each_s = usual_s(time_ns)
    return max(1, round(update_s / each_s)) if each_s else 1


def usual_s(time_ns: Times) -> float:
    """Return the usual time between two reads in seconds, 0 for fewer than two."""
    return float(np.median(np.diff(time_ns))) / NS_PER_S if time_ns.size > 1 else 0.0


def _step_w(facts: SourceFacts, watts: Values) -> float:
    """Return the least difference of two readings, as declared or else as seen."""
    if facts.resolution_w is not None:
        return facts.resolution_w
    changes_w = np.abs(np.diff(watts))
    return float(changes_w.min(where=changes_w > 0, initial=np.inf)) if changes_w.any() else 0.0
