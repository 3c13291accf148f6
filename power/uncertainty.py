"""How far an energy may be off: the parts that are known, and their sum where none is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Counter, Instant, Sensor, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.cut import cut
from wattload.power.edges import edges_j
from wattload.power.energy import WindowResult
from wattload.power.gaps import gap_j
from wattload.power.profile import Profile
from wattload.power.trace import Trace, Values

COVERAGE_FACTOR = 2.0
"""k: expanded uncertainty is twice the standard one, about 95 % (JCGM 100:2008, 6.2)."""
HELD_REACH = 3
"""How many updates around a window tell in what range the power of a held reading lies."""
LARGE_SHARE = 0.25
"""Changes of at least this share of the greatest one may be locked to the reads."""


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
    * ``edge``: at each edge, the power step near it times how late the trace may show it. A phase
      begins and ends with work, so that both edges are off the same way, and add up.
    * ``sampling``: a reading of the moment leaves open when power changed since the last; k times
      step * seconds / sqrt(12) each, added as ``_moments_j`` says; one that is held over several
      reads is one of few draws, see ``_held_j``. Means miss nothing, but one that slides bends
      unseen between reads (``_bends_j``), and of either the moment is uncertain by half the length
      of the read.
    * ``gap``: how far power beside each hole lies from what the hole is filled with, times its
      seconds.
    """
    if result.energy_j is None:
        return Uncertainty(total_j=None, parts_j={}, reason=result.reason)
    parts_j = {
        "gain": _gain_j(result.energy_j, facts),
        "quantisation": _quantisation_j(profile, result.seconds, facts, window_ns),
        "edge": edges_j(trace, profile, facts.sensor, window_ns),
        "sampling": _sampling_j(trace, profile, facts.sensor, window_ns),
        "gap": gap_j(profile, cut(profile, *window_ns), *window_ns),
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
        steps_j = [_counter_step_j(profile, sensor, edge_ns) for edge_ns in window_ns]
        return COVERAGE_FACTOR * math.hypot(*steps_j) / math.sqrt(12)
    if facts.resolution_w is None:
        return None
    return COVERAGE_FACTOR * facts.resolution_w / math.sqrt(12) * seconds


def _counter_step_j(profile: Profile, sensor: Counter, edge_ns: int) -> float:
    """Return the joules that a count moves by at a time near an edge."""
    reach_ns = round(max(sensor.update_period_s, profile.piece_s(edge_ns) or 0.0) * NS_PER_S)
    sides = (
        profile.mean_w(edge_ns - reach_ns, edge_ns),
        profile.mean_w(edge_ns, edge_ns + reach_ns),
    )
    high_w = max(watts or 0.0 for watts in sides)
    return max(sensor.quantum_j, sensor.update_period_s * high_w)


def _sampling_j(
    trace: Trace, profile: Profile, sensor: Sensor, window_ns: tuple[int, int]
) -> float:
    if isinstance(sensor, Counter):
        return 0.0
    timing_j = trace.timing_j(*window_ns) / math.sqrt(3)
    moments_j = 0.0
    if isinstance(sensor, Instant):
        moments_j = math.hypot(
            _moments_j(profile.clip(*window_ns)), _held_j(profile, sensor, window_ns)
        )
    elif profile.mean_ns:
        moments_j = _bends_j(profile.clip(*window_ns))
    return COVERAGE_FACTOR * math.hypot(moments_j, timing_j)


def _bends_j(inside: Profile) -> float:
    """Return what straight pieces miss of a sliding mean, as a standard uncertainty.

    It bends where power steps: by a slope s, x after the read before and d - x before the next one,
    that is s x (d - x) / 2 joules, whose root mean square over x is s d^2 / sqrt(120).
    """
    length_s = (inside.end_ns - inside.start_ns) / NS_PER_S
    bend = np.abs(np.diff((inside.end_w - inside.start_w) / length_s))
    longer_s = np.maximum(length_s[1:], length_s[:-1])
    return float(np.linalg.norm(bend * longer_s**2)) / math.sqrt(120)


def _moments_j(inside: Profile) -> float:
    """Return by how much changes between reads may be misplaced, as a standard uncertainty.

    Each change lies anywhere in its piece. Small ones are off independently of each other. Large
    ones may be locked to the reads, as a load of 7 s is to reads of 1 s: all rises are off the same
    way, and all falls. See ``_locked_j``.
    """
    step_w = inside.end_w - inside.start_w
    each_j = np.abs(step_w) * (inside.end_ns - inside.start_ns) / NS_PER_S / math.sqrt(12)
    is_large = np.abs(step_w) >= LARGE_SHARE * np.abs(step_w).max(initial=0.0)
    rises, falls = is_large & (step_w > 0), is_large & (step_w < 0)
    return math.hypot(
        float(np.linalg.norm(each_j[~is_large])), _locked_j(each_j, rises), _locked_j(each_j, falls)
    )


def _held_j(profile: Profile, sensor: Instant, window_ns: tuple[int, int]) -> float:
    """Return what readings that are held leave open, as a standard uncertainty.

    Whatever power does between two updates is not seen, so that n = seconds / period readings are n
    draws out of the range that it has. A quantity within a range deviates by half of it at most
    (Popoviciu), and the mean of n draws by that / sqrt(n). The range is that of the window and
    ``HELD_REACH`` updates around it: the fewer the draws, the likelier it is that they are all
    alike. A load that keeps time with the updates is seen by no such sensor.
    """
    if not sensor.update_period_s:
        return 0.0
    start_ns, end_ns = window_ns
    reach_ns = round(HELD_REACH * sensor.update_period_s * NS_PER_S)
    low_w, high_w = profile.range_w(start_ns - reach_ns, end_ns + reach_ns) or (0.0, 0.0)
    seconds = (end_ns - start_ns) / NS_PER_S
    draws = max(1.0, seconds / sensor.update_period_s)
    return (high_w - low_w) / 2 * seconds / math.sqrt(draws)


def _locked_j(each_j: Values, group: NDArray[np.bool_]) -> float:
    """Return what changes of one direction come to, that may be off the same way.

    If there are always as many reads between two of them, they are, and add up. Each time that
    there are more or fewer, the load has moved on by a read, and its errors have gone through all
    that they can be, so that what is left is that of one such round.
    """
    own_j = each_j[group]
    _, counts = np.unique(np.diff(np.flatnonzero(group)), return_counts=True)
    slips = int(counts.sum() - counts.max()) if counts.size else 0
    return max(float(np.linalg.norm(own_j)), float(own_j.sum()) / (1 + slips))
