"""Energy on exactly ``[start, end]``: what is covered, what is not, and why there may be no figure.

The rules are those of section 5 of the project's design: edges are interpolated, gaps are never
bridged silently, and a window that is covered for less than 95 % has no figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattload.core.power import Boxcar, Channel, Counter, Evidence, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.cut import cut
from wattload.power.gaps import filled
from wattload.power.profile import Profile
from wattload.power.sensors import profile_of
from wattload.power.trace import Times, Trace, Values

COVERAGE_MIN = 0.95
"""Below this share of a window covered, there is no figure."""
QUANTUM_SHARE_MAX = 0.005
"""A counter is no source where its step reaches this share of the energy counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Energy of one trace in one window.

    ``energy_j`` and ``mean_w`` are ``None`` for the ``reason`` given, else ``reason`` is ``None``.
    ``covered_j`` and ``covered_s`` are what was observed; ``coverage`` in [0, 1] is ``covered_s``
    of ``seconds``. Where it is less than 1, ``energy_j`` has the holes filled: with the power
    beside them (``power/gaps.py``), for bounds with the widest that any state of the device has.
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowCurve:
    """Energy as it grew over one window: ``observed`` has its holes, ``filled`` has none."""

    observed: Profile
    filled: Profile

    def energy_j(self, time_ns: Times) -> Values:
        """Return joules from the window's start up to each time in it, shape (n,)."""
        return self.filled.cumulative(time_ns)[0]


def window_curve(profile: Profile, channel: Channel, start_ns: int, end_ns: int) -> WindowCurve:
    """Return how the energy grew from ``start_ns`` to ``end_ns``; see ``WindowResult``."""
    observed = cut(profile, start_ns, end_ns)
    fill_w = observed.outside_w
    extremes_w = observed.range_w(start_ns, end_ns)
    if fill_w is None and extremes_w is not None and channel is Channel.LOWER_W:
        fill_w = extremes_w[0]
    elif fill_w is None and extremes_w is not None and channel is Channel.UPPER_W:
        fill_w = extremes_w[1]
    return WindowCurve(observed=observed, filled=filled(observed, start_ns, end_ns, power_w=fill_w))


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

    ``period_s`` is the time between reads that was asked for; more than three of them, and more
    than 3 s, without a reading is a hole. ``resets_ns`` are known restarts of the device.

    Raises:
        ValueError: the window ends before it starts.
    """
    profile = profile_of(trace, sensor, period_s=period_s, resets_ns=resets_ns)
    return integrate_profile(trace, profile, sensor, start_ns, end_ns)


def integrate_profile(
    trace: Trace, profile: Profile, sensor: Sensor, start_ns: int, end_ns: int
) -> WindowResult:
    """Return what ``integrate`` does, for a profile that several windows share."""
    if end_ns < start_ns:
        raise ValueError(f"a window must not end before it starts, got {start_ns} to {end_ns} ns")
    curve = window_curve(profile, trace.key.channel, start_ns, end_ns)
    covered_j, covered_s = _covered(curve.observed, end_ns)
    seconds = (end_ns - start_ns) / NS_PER_S
    coverage = min(1.0, covered_s / seconds) if seconds else 0.0
    energy_j = float(curve.energy_j(np.array([end_ns]))[0])
    reason = _coverage_reason(covered_j, covered_s, seconds)
    if reason is None and isinstance(sensor, Counter) and trace.key.channel is Channel.ENERGY_J:
        reason = _quantum_reason(sensor, energy_j, seconds)
    if reason is None and isinstance(sensor, Boxcar) and seconds < sensor.window_s:
        reason = (
            f"an interval of {seconds:.6g} s is shorter than the {sensor.window_s:g} s that a "
            "reading of its power is the mean of"
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
    )


def _covered(clipped: Profile, end_ns: int) -> tuple[float, float]:
    joules, seconds = clipped.cumulative(np.array([end_ns]))
    return float(joules[0]), float(seconds[0])


def _coverage_reason(covered_j: float, covered_s: float, seconds: float) -> str | None:
    if not seconds:
        return "the window has no length"
    if covered_s <= 0:
        return "no reading covers any of the window"
    if covered_s < COVERAGE_MIN * seconds:
        return (
            f"readings cover {covered_s / seconds:.1%} of the window "
            f"({covered_j:.6g} J in {covered_s:.6g} of {seconds:.6g} s); "
            f"a figure needs {COVERAGE_MIN:.0%}"
        )
    return None


def _quantum_reason(sensor: Counter, energy_j: float, seconds: float) -> str | None:
    step_j = max(sensor.quantum_j, sensor.update_period_s * energy_j / seconds)
    if energy_j > 0 and step_j < QUANTUM_SHARE_MAX * energy_j:
        return None
    return (
        f"the counter's step of {step_j:.6g} J is too coarse for the {energy_j:.6g} J it "
        f"counted; it must be under {QUANTUM_SHARE_MAX:.1%} of them"
    )
