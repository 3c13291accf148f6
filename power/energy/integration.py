"""Energy on exactly ``[start, end]``: what is covered, what fills the holes, and the tail's end.

Edges are interpolated, and holes lower the coverage. A window that is covered for less than 95 %
has no energy. A hole is filled with the mean power of its neighbourhood: a stretch of its own
length on each side (at an edge of the window, on one side). The mean power of the run would add
energy to a hole before or after the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wattload.core.power import Boxcar, Channel, Counter, Evidence, Sensor
from wattload.core.units import NS_PER_S, format_percent
from wattload.power.energy.profile import Profile, profile_of
from wattload.power.energy.sensor_inference import resolve_boxcar
from wattload.power.energy.trace import Times, Trace, Values
from wattload.power.energy.window_edges import cut

REACH_NS = 3 * NS_PER_S
"""The least distance around a hole from which its possible power is taken."""

COVERAGE_MIN = 0.95
"""A window covered for less than this share has no energy."""
QUANTUM_SHARE_MAX = 0.005
"""A counter is too coarse for a window if its step reaches this share of the energy."""

IDLE_TOLERANCE = 0.05
"""Power of at most this share above idle counts as idle."""
IDLE_HOLD_S = 2.0
"""The mean over this time must be idle. It is longer than a pause between two cache flushes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Energy of one trace in one window.

    If ``energy_j`` and ``mean_w`` are ``None``, ``reason`` says why; else ``reason`` is ``None``.
    ``covered_j`` and ``covered_s`` are the observed part; ``coverage`` in [0, 1] is ``covered_s``
    of ``seconds``. If it is less than 1, ``energy_j`` includes the holes, filled with the power
    around them (``fill_holes``), or for bounds with the widest bound of any state of the device.
    ``curve`` is the course of the energy.
    """

    energy_j: float | None
    mean_w: float | None
    reason: str | None
    covered_j: float
    covered_s: float
    seconds: float
    coverage: float
    sample_count: int
    evidence: Evidence
    curve: WindowCurve = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowCurve:
    """The course of energy in one window: ``observed`` with holes, ``filled`` without."""

    observed: Profile
    filled: Profile

    def energy_j(self, time_ns: Times) -> Values:
        """Return joules from the window's start up to each time in it, shape (n,)."""
        return self.filled.cumulative(time_ns)[0]


def integrate(
    trace: Trace,
    sensor: Sensor,
    start_ns: int,
    end_ns: int,
    *,
    period_s: float,
    resets_ns: Sequence[int] = (),
) -> WindowResult:
    """Return the energy of the trace on exactly ``[start_ns, end_ns]``.

    ``period_s`` is the configured time between reads; a time of more than three periods and more
    than 3 s without a reading is a hole. ``resets_ns`` are known restarts of the device in ns.

    Raises:
        ValueError: the window ends before it starts.
    """
    if isinstance(sensor, Boxcar):
        sensor = resolve_boxcar(trace, sensor)
    profile = profile_of(trace, sensor, period_s=period_s, resets_ns=resets_ns)
    return integrate_profile(trace, profile, sensor, start_ns, end_ns)


def integrate_profile(
    trace: Trace, profile: Profile, sensor: Sensor, start_ns: int, end_ns: int
) -> WindowResult:
    """Return the same as ``integrate``, for a profile that several windows share."""
    if end_ns < start_ns:
        raise ValueError(f"a window must not end before it starts, got {start_ns} to {end_ns} ns")
    curve = window_curve(profile, trace.key.channel, start_ns, end_ns)
    covered_j, covered_s = (
        float(total[0]) for total in curve.observed.cumulative(np.array([end_ns]))
    )
    seconds = (end_ns - start_ns) / NS_PER_S
    coverage = min(1.0, covered_s / seconds) if seconds else 0.0
    energy_j = float(curve.energy_j(np.array([end_ns]))[0])
    reason = _coverage_reason(covered_j, covered_s, seconds)
    if reason is None and isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        reason = _quantum_reason(sensor, energy_j, seconds)
    if reason is None and isinstance(sensor, Boxcar) and seconds < sensor.window_s:
        reason = (
            f"an interval of {seconds:.6g} s is shorter than the {sensor.window_s:g} s over which "
            "the sensor averages"
        )
    return WindowResult(
        energy_j=None if reason else energy_j,
        mean_w=None if reason else energy_j / seconds,
        reason=reason,
        covered_j=covered_j,
        covered_s=covered_s,
        seconds=seconds,
        coverage=coverage,
        sample_count=trace.sample_count(start_ns, end_ns),
        evidence=trace.evidence(start_ns, end_ns),
        curve=curve,
    )


def _coverage_reason(covered_j: float, covered_s: float, seconds: float) -> str | None:
    if not seconds:
        return "the window is empty"
    if covered_s <= 0:
        return "no reading covers the window"
    if covered_s < COVERAGE_MIN * seconds:
        return (
            f"readings cover {format_percent(covered_s / seconds, 1)} of the window "
            f"({covered_j:.6g} J in {covered_s:.6g} of {seconds:.6g} s); "
            f"at least {format_percent(COVERAGE_MIN)} are required"
        )
    return None


def _quantum_reason(sensor: Counter, energy_j: float, seconds: float) -> str | None:
    step_j = max(sensor.quantum_j, sensor.update_period_s * energy_j / seconds)
    if energy_j > 0 and step_j < QUANTUM_SHARE_MAX * energy_j:
        return None
    return (
        f"the counter's step of {step_j:.6g} J is too coarse for {energy_j:.6g} J; it must be "
        f"under {format_percent(QUANTUM_SHARE_MAX, 1)} of the energy"
    )


def window_curve(profile: Profile, channel: Channel, start_ns: int, end_ns: int) -> WindowCurve:
    """Return the course of energy from ``start_ns`` to ``end_ns``; see ``WindowResult``."""
    observed = cut(profile, start_ns, end_ns)
    fill_w = observed.outside_w
    extremes_w = observed.range_w(start_ns, end_ns)
    if fill_w is None and extremes_w is not None and channel is Channel.LOWER_W:
        fill_w = extremes_w[0]
    elif fill_w is None and extremes_w is not None and channel is Channel.UPPER_W:
        fill_w = extremes_w[1]
    return WindowCurve(
        observed=observed, filled=fill_holes(observed, start_ns, end_ns, power_w=fill_w)
    )


def fill_holes(
    inside: Profile, start_ns: int, end_ns: int, *, power_w: float | None = None
) -> Profile:
    """Return a window's profile with its holes filled: by ``power_w``, else by their neighbours.

    ``inside`` has no piece beyond the window. A window without any piece is at 0 W.
    """
    from_ns, to_ns = inside.holes(start_ns, end_ns)
    watts = _neighbour_w(inside, from_ns, to_ns)
    if power_w is not None:
        watts = np.full(from_ns.size, power_w)
    whole = replace(inside, observed=np.ones(inside.start_ns.size))
    return whole.merged(
        Profile(
            start_ns=from_ns,
            end_ns=to_ns,
            start_w=watts,
            end_w=watts,
            observed=np.ones(watts.size),
        )
    )


def _neighbour_w(inside: Profile, from_ns: Times, to_ns: Times) -> Values:
    """Return the mean power of both sides of each hole, or of one side if the other is unknown."""
    length_ns = to_ns - from_ns
    sides = [
        _mean_w(inside, from_ns - length_ns, from_ns),
        _mean_w(inside, to_ns, to_ns + length_ns),
    ]
    known = [~np.isnan(side) for side in sides]
    total_w = np.nansum(sides, axis=0)
    watts: Values = total_w / np.maximum(np.sum(known, axis=0), 1)
    return watts


def _mean_w(inside: Profile, from_ns: Times, to_ns: Times) -> Values:
    """Return the mean power of the observed part of each stretch, NaN if nothing was observed."""
    from_j, from_s = inside.cumulative(from_ns)
    to_j, to_s = inside.cumulative(to_ns)
    seconds = to_s - from_s
    is_known = seconds > 0
    return np.where(is_known, (to_j - from_j) / np.where(is_known, seconds, 1.0), np.nan)


def gap_j(profile: Profile, inside: Profile, start_ns: int, end_ns: int) -> float:
    """Return the uncertainty in joules of the holes of a window, filled as by ``fill_holes``.

    The power of a hole was within the range of the window and of the readings around it, up to the
    hole's length and at least ``REACH_NS`` on each side. For a hole at an edge of the window, it is
    the range of the readings around it only, because the work has not begun or has ended there. The
    unobserved part of a piece is treated alike, with the range of its neighbours.
    """
    from_ns, to_ns = inside.holes(start_ns, end_ns)
    parts_j = []
    for first_ns, last_ns, watts in zip(
        from_ns.tolist(), to_ns.tolist(), _neighbour_w(inside, from_ns, to_ns).tolist(), strict=True
    ):
        reach_ns = max(last_ns - first_ns, REACH_NS)
        is_inner = start_ns < first_ns and last_ns < end_ns
        low_w, high_w = profile.range_w(
            min(start_ns, first_ns - reach_ns) if is_inner else first_ns - reach_ns,
            max(end_ns, last_ns + reach_ns) if is_inner else last_ns + reach_ns,
        ) or (0.0, 0.0)
        off_w = max(watts - low_w, high_w - watts)
        parts_j.append(off_w * (last_ns - first_ns) / NS_PER_S)
    return float(sum(parts_j)) + _thin_j(inside)


def _thin_j(inside: Profile) -> float:
    """Return the same for the unobserved parts of pieces."""
    at = np.flatnonzero(inside.observed < 1)
    if not at.size:
        return 0.0
    low_w = np.minimum(inside.start_w, inside.end_w)
    high_w = np.maximum(inside.start_w, inside.end_w)
    before, after = np.maximum(at - 1, 0), np.minimum(at + 1, low_w.size - 1)
    lowest_w = np.minimum(np.minimum(low_w[before], low_w[at]), low_w[after])
    highest_w = np.maximum(np.maximum(high_w[before], high_w[at]), high_w[after])
    own_w = (inside.start_w + inside.end_w)[at] / 2
    off_w = np.maximum(own_w - lowest_w, highest_w - own_w)
    missed_s = (1 - inside.observed[at]) * (inside.end_ns - inside.start_ns)[at] / NS_PER_S
    return float((off_w * missed_s).sum())


def tail_end(
    trace: Trace, sensor: Sensor, *, idle_w: float, after_ns: int, period_s: float
) -> int | None:
    """Return when power was back at idle after ``after_ns``, in ns; ``None`` if it was not.

    This is the first time from which the mean over 2 s is at most 5 % above ``idle_w``. Power below
    idle qualifies too. A stretch with a hole does not.
    """
    if isinstance(sensor, Boxcar):
        sensor = resolve_boxcar(trace, sensor)
    profile = profile_of(trace, sensor, period_s=period_s)
    starts = profile.start_ns[profile.start_ns > after_ns]
    candidates = np.concatenate((np.array([after_ns], dtype=np.int64), starts))
    hold_ns = round(IDLE_HOLD_S * NS_PER_S)
    from_j, from_s = profile.cumulative(candidates)
    to_j, to_s = profile.cumulative(candidates + hold_ns)
    covered_s = to_s - from_s
    is_covered = covered_s > IDLE_HOLD_S * (1 - 1e-6)
    mean_w = (to_j - from_j) / np.where(is_covered, covered_s, 1.0)
    idle_ns = candidates[is_covered & (mean_w <= idle_w * (1 + IDLE_TOLERANCE))]
    return int(idle_ns[0]) if idle_ns.size else None
