"""How far energy may be off at both edges of a window, for what the sensor does not tell there."""

from __future__ import annotations

from wattload.core.power import Boxcar, Counter, Instant, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.profile import Profile
from wattload.power.sensors import is_tumbling
from wattload.power.telescope import step_w, telescope
from wattload.power.trace import Trace


def edges_j(trace: Trace, profile: Profile, sensor: Sensor, window_ns: tuple[int, int]) -> float:
    """Return both edges' parts together; see ``_lateness_s`` for the time each step may be off.

    They are added as they are: a phase begins and ends with work, and a step up at its start is
    off the same way as the step down at its end.
    """
    total_j = 0.0
    for edge_ns in window_ns:
        piece_s = profile.piece_s(edge_ns) or 0.0
        reach_ns = round(_reach_s(sensor, piece_s) * NS_PER_S)
        timing_s = trace.greatest_spread_s(edge_ns - reach_ns, edge_ns + reach_ns) / 2
        late_s = _lateness_s(profile, sensor, piece_s) + timing_s
        total_j += _step_w(profile, sensor, edge_ns, reach_ns) * late_s
    if profile.mean_ns:
        total_j += telescope(profile, *window_ns).hidden_j
    return total_j


def _reach_s(sensor: Sensor, piece_s: float) -> float:
    """Return how far from an edge a step may lie and still be taken for one at the edge."""
    if isinstance(sensor, Counter):
        return max(piece_s, sensor.update_period_s)
    if isinstance(sensor, Boxcar):
        return max(piece_s, sensor.window_s) + _hidden_s(sensor)
    return piece_s + _update_s(sensor)


def _step_w(profile: Profile, sensor: Sensor, edge_ns: int, reach_ns: int) -> float:
    """Return the range of power around an edge; a count that moves seldom has it by its moves."""
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
    """Return how many seconds of a unit step beside an edge can land on its wrong side, at worst.

    A straight piece of length d that hides a step: d / 2. So does a constant one (counter, tumbling
    mean) that an edge splits, for it is told as a step, which may lie at either end (``cut``). A
    sliding mean adds what the steps into the window hide (``telescope``). All of them: what updates
    may be late unseen.
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
    """Return how long a reading of the moment is held, 0 where every read takes it anew."""
    return sensor.update_period_s if isinstance(sensor, Instant) else 0.0


def _hidden_s(sensor: Boxcar) -> float:
    """Return how late the updates of a mean may be without the reads showing it.

    A mean of which no update was found may be as late as it is long.
    """
    if sensor.update_period_s is None:
        return sensor.window_s
    is_placed = sensor.update_period_s == 0 or sensor.phase_s is not None
    return sensor.unseen_s if is_placed else sensor.update_period_s
