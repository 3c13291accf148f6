"""The uncertainty of an energy: its known parts, and their sum if no part is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Boxcar, Counter, Instant, Sensor, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import WindowResult, gap_j
from wattload.power.energy.profile import Profile, is_tumbling
from wattload.power.energy.trace import Trace, Values
from wattload.power.energy.window_edges import edge_steps, step_w

COVERAGE_FACTOR = 2.0
"""k: expanded uncertainty is twice the standard one, about 95 % (JCGM 100:2008, 6.2)."""
HELD_REACH = 3
"""The range of a held reading is taken from so many updates before and after a window."""
LARGE_SHARE = 0.25
"""Changes of at least this share of the largest one may be synchronous with the reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Joules at k = 2. If a part is unknown, ``total_j`` is ``None`` and ``reason`` says why."""

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
    """Return the uncertainty of ``result``. Its parts add in quadrature.

    * ``gain``: the accuracy that the source states, taken as its limit at k = 2.
    * ``quantisation``: k * LSB / sqrt(12) over the window, assuming the same error in all readings.
      For a counter: k * step / sqrt(12) at each end, where step is the smallest change of the
      count.
    * ``edge``: at each edge, the power step near it times the delay with which the trace may show
      it. A phase begins and ends with work, so both errors have the same sign and add up.
    * ``sampling``: with instantaneous readings, it is unknown when power changed between two reads:
      k * step * seconds / sqrt(12) for each change, added as in ``_moments_j``. A reading that is
      held over several reads is one of few samples, see ``_held_j``. Means miss no energy, but a
      sliding mean bends unseen between two reads (``_bends_j``). The time of each read is uncertain
      by half its length.
    * ``gap``: the difference between the power around each hole and the power that the hole is
      filled with, times its seconds.
    """
    if result.energy_j is None:
        return Uncertainty(total_j=None, parts_j={}, reason=result.reason)
    parts_j = {
        "gain": None
        if facts.accuracy_percent is None
        else abs(result.energy_j) * facts.accuracy_percent / 100,
        "quantisation": _quantisation_j(profile, result.seconds, facts, window_ns),
        "edge": edges_j(trace, profile, facts.sensor, window_ns),
        "sampling": _sampling_j(trace, profile, facts.sensor, window_ns),
        "gap": gap_j(profile, result.curve.observed, *window_ns),
    }
    known_j = {name: part for name, part in parts_j.items() if part is not None}
    unknown = [name for name in parts_j if name not in known_j]
    if unknown:
        reason = f"the {' and '.join(unknown)} uncertainty of {facts.name} is unknown"
        return Uncertainty(total_j=None, parts_j=known_j, reason=reason)
    return Uncertainty(total_j=math.hypot(*known_j.values()), parts_j=known_j, reason=None)


def edges_j(trace: Trace, profile: Profile, sensor: Sensor, window_ns: tuple[int, int]) -> float:
    """Return the uncertainty of both edges in joules; ``_lateness_s`` is the delay of each.

    The two are added linearly: a phase begins and ends with work, so the errors of the step up at
    its start and of the step down at its end have the same sign.
    """
    total_j = 0.0
    for edge_ns in window_ns:
        piece_s = profile.piece_s(edge_ns) or 0.0
        reach_ns = round(_reach_s(sensor, piece_s) * NS_PER_S)
        timing_s = trace.greatest_spread_s(edge_ns - reach_ns, edge_ns + reach_ns) / 2
        late_s = _lateness_s(profile, sensor, piece_s) + timing_s
        total_j += _step_w(profile, sensor, edge_ns, reach_ns) * late_s
    if profile.mean_ns:
        total_j += edge_steps(profile, *window_ns).hidden_j
    return total_j


def _reach_s(sensor: Sensor, piece_s: float) -> float:
    """Return the largest distance in seconds at which a step may be mistaken for the edge's."""
    if isinstance(sensor, Counter):
        return max(piece_s, sensor.update_period_s)
    if isinstance(sensor, Boxcar):
        return max(piece_s, sensor.window_s) + _hidden_s(sensor)
    return piece_s + _update_s(sensor)


def _step_w(profile: Profile, sensor: Sensor, edge_ns: int, reach_ns: int) -> float:
    """Return the range of power around an edge in watts; a slow counter's from its changes."""
    if isinstance(sensor, Boxcar):
        return step_w(profile, sensor.window_s, edge_ns, reach_ns)
    low_w, high_w = profile.range_w(edge_ns - reach_ns, edge_ns + reach_ns) or (0.0, 0.0)
    if not isinstance(sensor, Counter):
        return high_w - low_w
    starts = (edge_ns + reach_ns * half // 2 for half in (-3, -1, 1))
    means = [profile.mean_w(start_ns, start_ns + reach_ns) for start_ns in starts]
    known = [watts for watts in means if watts is not None]
    return max(high_w - low_w, max(known) - min(known) if known else 0.0)


def _lateness_s(profile: Profile, sensor: Sensor, piece_s: float) -> float:
    """Return for how many seconds a step near an edge can count on the wrong side, at most.

    A straight piece of length d that hides a step: d / 2. The same holds for a constant piece
    (counter, tumbling mean) that an edge splits, because it is resolved into a step that may be at
    either end (``cut``). For a sliding mean, ``edge_steps`` adds the hidden part. In addition, the
    updates of any sensor may be late without the reads showing it.
    """
    if isinstance(sensor, Counter):
        return max(piece_s, sensor.update_period_s) / 2
    if isinstance(sensor, Boxcar) and is_tumbling(sensor):
        return piece_s / 2 + sensor.unseen_s
    if isinstance(sensor, Boxcar) and profile.mean_ns:
        return _hidden_s(sensor)
    if isinstance(sensor, Boxcar):
        edge_s = (sensor.window_s**2 + piece_s**2) / (8 * sensor.window_s)
        return min(edge_s, max(piece_s, sensor.window_s) / 2) + _hidden_s(sensor)
    return piece_s / 2 + _update_s(sensor)


def _update_s(sensor: Sensor) -> float:
    """Return how long an instantaneous reading is held in seconds, 0 if each read is new."""
    return sensor.update_period_s if isinstance(sensor, Instant) else 0.0


def _hidden_s(sensor: Boxcar) -> float:
    """Return how late the updates of a mean may be, in seconds, without the reads showing it.

    If no update period was found, that is the length of the mean.
    """
    if sensor.update_period_s is None:
        return sensor.window_s
    is_placed = sensor.update_period_s == 0 or sensor.phase_s is not None
    return sensor.unseen_s if is_placed else sensor.update_period_s


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
    """Return the smallest change of a counter near an edge, in joules."""
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
    """Return the joules that straight pieces miss of a sliding mean, as a standard uncertainty.

    The mean bends where power steps. A bend by a slope s, x after one read and d - x before the
    next, is worth s x (d - x) / 2 joules. Its root mean square over x is s d^2 / sqrt(120).
    """
    length_s = (inside.end_ns - inside.start_ns) / NS_PER_S
    bend = np.abs(np.diff((inside.end_w - inside.start_w) / length_s))
    longer_s = np.maximum(length_s[1:], length_s[:-1])
    return float(np.linalg.norm(bend * longer_s**2)) / math.sqrt(120)


def _moments_j(inside: Profile) -> float:
    """Return the joules of changes at unknown times between reads, as a standard uncertainty.

    Each change may be anywhere in its piece. Small changes have independent errors. Large ones may
    be synchronous with the reads, like a load of period 7 s with reads every 1 s: then all rises
    have the same error, and so do all falls. See ``_locked_j``.
    """
    step_w = inside.end_w - inside.start_w
    each_j = np.abs(step_w) * (inside.end_ns - inside.start_ns) / NS_PER_S / math.sqrt(12)
    is_large = np.abs(step_w) >= LARGE_SHARE * np.abs(step_w).max(initial=0.0)
    rises, falls = is_large & (step_w > 0), is_large & (step_w < 0)
    return math.hypot(
        float(np.linalg.norm(each_j[~is_large])), _locked_j(each_j, rises), _locked_j(each_j, falls)
    )


def _held_j(profile: Profile, sensor: Instant, window_ns: tuple[int, int]) -> float:
    """Return the joules that held readings leave unknown, as a standard uncertainty.

    Power between two updates is not seen, so n = seconds / period readings are n samples of its
    range. The standard deviation within a range is at most half of it (Popoviciu), and that of the
    mean of n samples is 1 / sqrt(n) of this. The range includes ``HELD_REACH`` updates around the
    window, because few samples are likely to be equal by chance. A load that is synchronous with
    the updates cannot be measured with such a sensor.
    """
    if not sensor.update_period_s:
        return 0.0
    start_ns, end_ns = window_ns
    reach_ns = round(HELD_REACH * sensor.update_period_s * NS_PER_S)
    low_w, high_w = profile.range_w(start_ns - reach_ns, end_ns + reach_ns) or (0.0, 0.0)
    seconds = (end_ns - start_ns) / NS_PER_S
    sample_count = max(1.0, seconds / sensor.update_period_s)
    return (high_w - low_w) / 2 * seconds / math.sqrt(sample_count)


def _locked_j(each_j: Values, group: NDArray[np.bool_]) -> float:
    """Return the total error in joules of changes of one direction that may be synchronous.

    If the number of reads between two of them is constant, their errors are equal and add up. Each
    time this number differs, the load has shifted by one read against the reads. Then its errors
    have taken all possible values once, and only the error of one such cycle remains.
    """
    own_j = each_j[group]
    _, counts = np.unique(np.diff(np.flatnonzero(group)), return_counts=True)
    slips = int(counts.sum() - counts.max()) if counts.size else 0
    return max(float(np.linalg.norm(own_j)), float(own_j.sum()) / (1 + slips))
