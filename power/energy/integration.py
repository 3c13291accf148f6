"""Energy of windows of time as readings or limits show it, and its share of each moment.

The windows of a phase are integrated together. If readings cover less than 95 % of them, there is
no energy. A hole has the widest limit, or else the mean power of the time around it: an interval of
its own length on each side (at an edge of the window, on one side).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from wattload.core.power import Channel, Counter, Evidence, Sensor, weakest
from wattload.core.units import NS_PER_S, format_percent
from wattload.power.energy.profile import Profile
from wattload.power.energy.trace import Times, Trace, Values

Window = tuple[int, int]
"""Start and end in ns of CLOCK_MONOTONIC."""

COVERAGE_FACTOR = 2.0
"""k: expanded uncertainty is twice the standard one, about 95 % (JCGM 100:2008, 6.2)."""
COVERAGE_MIN = 0.95
"""Windows covered for less than this share have no energy."""
QUANTUM_SHARE_MAX = 0.005
"""A counter is too coarse for a window if its step reaches this share of the energy."""


class Curve(Protocol):
    """The course of energy in one window."""

    def energy_j(self, time_ns: Times) -> Values:
        """Return joules from the window's start up to each time in it, shape (n,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Energy of one trace in the windows of one phase.

    If ``energy_j`` and ``mean_w`` are ``None``, ``reason`` says why; else ``reason`` is ``None``.
    ``covered_j`` and ``covered_s`` are the observed part; ``coverage`` in [0, 1] is ``covered_s``
    of ``seconds``. If it is less than 1, ``energy_j`` includes the holes. ``curves`` are the course
    of the energy in each window.
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
    curves: Sequence[Curve] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowCurve:
    """The course of energy in one window: ``observed`` with holes, ``filled`` without."""

    observed: Profile
    filled: Profile

    def energy_j(self, time_ns: Times) -> Values:
        """Return joules from the window's start up to each time in it, shape (n,)."""
        return self.filled.cumulative(time_ns)[0]


def integrate_profile(
    trace: Trace,
    profile: Profile,
    sensor: Sensor,
    windows: Sequence[Window],
    curves: Sequence[Curve] | None = None,
) -> WindowResult:
    """Return the energy of a trace's power over time in some windows, which do not overlap.

    ``curves`` are the course of the energy in each window if it is not that of ``profile``.

    Raises:
        ValueError: a window ends before it starts.
    """
    for start_ns, end_ns in windows:
        if end_ns < start_ns:
            raise ValueError(
                f"a window must not end before it starts, got {start_ns} to {end_ns} ns"
            )
    at_ns = np.array(windows, dtype=np.int64).reshape(-1)
    joules, observed_s = (np.diff(each.reshape(-1, 2)).sum() for each in profile.cumulative(at_ns))
    covered_j, covered_s = float(joules), float(observed_s)
    seconds = sum(end_ns - start_ns for start_ns, end_ns in windows) / NS_PER_S
    curves = curves or [window_curve(profile, trace.key.channel, *window) for window in windows]
    energy_j = math.fsum(
        float(curve.energy_j(np.array([end_ns]))[0])
        for curve, (_, end_ns) in zip(curves, windows, strict=True)
    )
    reason = _coverage_reason(covered_j, covered_s, seconds)
    if reason is None and isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        reason = _quantum_reason(sensor, energy_j, seconds)
    return WindowResult(
        energy_j=None if reason else energy_j,
        mean_w=None if reason else energy_j / seconds,
        reason=reason,
        covered_j=covered_j,
        covered_s=covered_s,
        seconds=seconds,
        coverage=_share(covered_s, seconds),
        sample_count=sum(trace.sample_count(*window) for window in windows),
        evidence=weakest(trace.evidence(*window) for window in windows),
        curves=curves,
    )


def _share(covered_s: float, seconds: float) -> float:
    """Return the share of a time that is covered, by whole nanoseconds: sums leave fractions."""
    covered_ns, whole_ns = round(covered_s * NS_PER_S), round(seconds * NS_PER_S)
    return min(1.0, covered_ns / whole_ns) if whole_ns else 0.0


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
    observed = profile.clip(start_ns, end_ns)
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
    whole = replace(inside, observed=np.ones(inside.start_ns.size))
    from_ns, to_ns = inside.holes(start_ns, end_ns)
    if not from_ns.size:
        return whole
    watts = _neighbour_w(inside, from_ns, to_ns)
    if power_w is not None:
        watts = np.full(from_ns.size, power_w)
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
    """Return the mean power of the observed part of each interval, NaN if nothing was observed."""
    from_j, from_s = inside.cumulative(from_ns)
    to_j, to_s = inside.cumulative(to_ns)
    seconds = to_s - from_s
    is_known = seconds > 0
    return np.where(is_known, (to_j - from_j) / np.where(is_known, seconds, 1.0), np.nan)
