"""How far an energy may be off: the parts that are known, and their sum where none is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wattload.core.power import Boxcar, Counter, Instant, Sensor, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.energy import WindowResult
from wattload.power.profile import Profile
from wattload.power.trace import Trace

COVERAGE_FACTOR = 2.0
"""k: expanded uncertainty is twice the standard one, about 95 % (JCGM 100:2008, 6.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Joules at k = 2. ``total_j`` is ``None`` for the ``reason`` given when a part is unknown."""

    total_j: float | None
    parts_j: Mapping[str, float]
    reason: str | None


def uncertainty(
    trace: Trace,
    profile: Profile,
    result: WindowResult,
    facts: SourceFacts,
    window_ns: tuple[int, int],
) -> Uncertainty:
    """Return the uncertainty of ``result``, by parts that add in quadrature.

    * ``gain``: the accuracy that the source states, taken as its limit at k = 2.
    * ``quantisation``: k * LSB / sqrt(12) over the window, all readings taken as off the same way;
      for a counter k * step / sqrt(12) at each end, the step being what it moves by at a time.
    * ``edge``: at each edge, the power step near it times how late the trace may show it.
    * ``sampling``: a reading of the moment leaves open when power changed since the last; k times
      step * seconds / sqrt(12) each, as if changes knew nothing of the reads. Means miss nothing.
    * ``gap``: half the range of power in the window, times the seconds not covered.
    """
    if result.energy_j is None:
        return Uncertainty(total_j=None, parts_j={}, reason=result.reason)
    parts_j = {
        "gain": _gain_j(result.energy_j, facts),
        "quantisation": _quantisation_j(profile, result.seconds, facts, window_ns),
        "edge": _edges_j(trace, profile, facts.sensor, window_ns),
        "sampling": _sampling_j(profile, facts.sensor, window_ns),
        "gap": _gap_j(profile, result, window_ns),
    }
    known_j = {name: part for name, part in parts_j.items() if part is not None}
    unknown = [name for name in parts_j if name not in known_j]
    if unknown:
        reason = f"{facts.name} states nothing that the part {' and '.join(unknown)} follows from"
        return Uncertainty(total_j=None, parts_j=known_j, reason=reason)
    return Uncertainty(total_j=math.hypot(*known_j.values()), parts_j=known_j, reason=None)


def _gain_j(energy_j: float, facts: SourceFacts) -> float | None:
    if facts.accuracy_percent is None:
        return None
    return abs(energy_j) * facts.accuracy_percent / 100


def _quantisation_j(
    profile: Profile, seconds: float, facts: SourceFacts, window_ns: tuple[int, int]
) -> float | None:
    sensor = facts.sensor
    if isinstance(sensor, Counter):
        extremes_w = [profile.range_w(edge_ns, edge_ns) or (0.0, 0.0) for edge_ns in window_ns]
        steps_j = [max(sensor.quantum_j, sensor.update_period_s * high) for _, high in extremes_w]
        return COVERAGE_FACTOR * math.hypot(*steps_j) / math.sqrt(12)
    if facts.resolution_w is None:
        return None
    return COVERAGE_FACTOR * facts.resolution_w / math.sqrt(12) * seconds


def _edges_j(trace: Trace, profile: Profile, sensor: Sensor, window_ns: tuple[int, int]) -> float:
    """Return both edges' parts together; see ``_lateness_s`` for the time each step may be off."""
    timing_s = trace.mean_spread_s() / 2
    parts = []
    for edge_ns in window_ns:
        piece_s = profile.piece_s(edge_ns) or 0.0
        reach_s = max(piece_s, sensor.window_s if isinstance(sensor, Boxcar) else 0.0)
        reach_ns = round(reach_s * NS_PER_S)
        extremes_w = profile.range_w(edge_ns - reach_ns, edge_ns + reach_ns) or (0.0, 0.0)
        step_w = extremes_w[1] - extremes_w[0]
        parts.append(step_w * (_lateness_s(sensor, piece_s) + timing_s))
    return math.hypot(*parts)


def _lateness_s(sensor: Sensor, piece_s: float) -> float:
    """Return how many seconds of a unit step beside an edge can land on its wrong side, at worst.

    A straight piece of length d that hides a step: d / 2. A constant piece (counter, tumbling
    mean) that an edge splits at x: x * (d - x) / d, at most d / 4. A sliding mean over w, centred,
    whose step is at the edge: the triangle w / 8.
    """
    if isinstance(sensor, Counter):
        return piece_s / 4
    if isinstance(sensor, Boxcar):
        is_tumbling = bool(sensor.update_period_s)
        return piece_s / 4 if is_tumbling else max(sensor.window_s / 8, piece_s / 2)
    return piece_s / 2


def _sampling_j(profile: Profile, sensor: Sensor, window_ns: tuple[int, int]) -> float:
    if not isinstance(sensor, Instant):
        return 0.0
    inside = profile.clip(*window_ns)
    length_s = (inside.end_ns - inside.start_ns) / NS_PER_S
    each_j = (inside.end_w - inside.start_w) * length_s / math.sqrt(12)
    return COVERAGE_FACTOR * float(np.linalg.norm(each_j))


def _gap_j(profile: Profile, result: WindowResult, window_ns: tuple[int, int]) -> float:
    extremes_w = profile.range_w(*window_ns) or (0.0, 0.0)
    return (extremes_w[1] - extremes_w[0]) * max(0.0, result.seconds - result.covered_s) / 2
