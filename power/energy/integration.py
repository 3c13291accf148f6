"""Energy of the windows of a phase, which are integrated together, and how far readings cover them.

If readings cover less than 95 % of the windows, there is no energy. A hole between readings of
power has the power around it (``fill_holes``), one between limits the widest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from wattload.core.power import Bounds, Channel, Counter, Evidence, SourceFacts, weakest
from wattload.core.units import NS_PER_S, format_percent
from wattload.power.energy.profile import Profile
from wattload.power.energy.trace import Times, Trace, Values, refused_energy

Window = tuple[int, int]
"""Start and end in ns of CLOCK_MONOTONIC."""

Course = Callable[[Times], Values]
"""Joules or bytes up to each time, shape (n,): only differences have a meaning."""

COVERAGE_FACTOR = 2.0
"""k: expanded uncertainty is twice the standard one, about 95 % (JCGM 100:2008, 6.2)."""
COVERAGE_MIN = 0.95
"""Windows covered for less than this share have no energy."""
QUANTUM_SHARE_MAX = 0.005
"""A counter is too coarse for a window if its step reaches this share of the energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Energy of one trace in the windows of one phase, holes included.

    If ``energy_j`` is ``None``, ``reason`` says why. ``coverage`` in [0, 1] is the share of the
    windows that readings cover.
    """

    energy_j: float | None
    reason: str
    coverage: float
    sample_count: int
    evidence: Evidence


def window_result(
    trace: Trace,
    profile: Profile,
    facts: SourceFacts,
    windows: Sequence[Window],
    energy_j: float,
) -> WindowResult:
    """Return the energy of some windows, which do not overlap, or why readings do not show it."""
    seconds = seconds_of(windows)
    covered_s = np.diff(profile.cumulative(np.array(windows))[1]).sum()
    # By whole nanoseconds: sums of seconds leave fractions.
    covered_ns, whole_ns = round(float(covered_s) * NS_PER_S), round(seconds * NS_PER_S)
    coverage = min(1.0, covered_ns / whole_ns) if whole_ns else 0.0
    reason = (
        (uncovered(coverage) if seconds else "the window is empty")
        or _too_coarse(facts, energy_j, seconds)
        or refused_energy(energy_j, seconds, may_be_negative=facts.may_be_negative)
    )
    return WindowResult(
        energy_j=None if reason else energy_j,
        reason=reason,
        coverage=coverage,
        sample_count=sum(trace.values(*window).size for window in windows),
        evidence=weakest(trace.evidence(*window) for window in windows),
    )


def seconds_of(windows: Iterable[Window]) -> float:
    return sum(end_ns - start_ns for start_ns, end_ns in windows) / NS_PER_S


def uncovered(coverage: float) -> str:
    """Return why times that readings cover so far have no energy; empty if they have one."""
    if coverage >= COVERAGE_MIN:
        return ""
    if coverage <= 0:
        return "no reading covers the time"
    return (
        f"readings cover {format_percent(coverage, 1)} of the time; "
        f"at least {format_percent(COVERAGE_MIN)} are required"
    )


def _too_coarse(facts: SourceFacts, energy_j: float, seconds: float) -> str:
    sensor = facts.sensor
    if not isinstance(sensor, Counter):
        return ""
    step_j = max(sensor.quantum_j, sensor.update_period_s * energy_j / seconds)
    if energy_j > 0 and step_j < QUANTUM_SHARE_MAX * energy_j:
        return ""
    return (
        f"the counter's step of {step_j:.6g} J is too coarse for {energy_j:.6g} J; it must be "
        f"under {format_percent(QUANTUM_SHARE_MAX, 1)} of the energy"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """Bounds of power over time, or the power of a data sheet; ``hole_w`` is that in holes."""

    trace: Trace
    profile: Profile
    facts: SourceFacts
    hole_w: float

    @classmethod
    def of(cls, trace: Trace, profile: Profile, facts: SourceFacts) -> Limits:
        """Return limits whose holes have what bounds all states, or else the widest of the run."""
        is_lower = trace.key.channel is Channel.LOWER_W
        hole_w, watts = None, profile.start_w
        if isinstance(facts.sensor, Bounds):
            hole_w = facts.sensor.lowest_w if is_lower else facts.sensor.highest_w
        if hole_w is None:
            hole_w = float(watts.min() if is_lower else watts.max()) if watts.size else 0.0
        return cls(trace=trace, profile=profile, facts=facts, hole_w=hole_w)

    def result(self, windows: Sequence[Window]) -> WindowResult:
        """Return the energy of some windows, which do not overlap."""
        energy_j = float(np.diff(self.energy_j(windows, np.array(windows))).sum())
        return window_result(self.trace, self.profile, self.facts, windows, energy_j)

    def energy_j(self, windows: Sequence[Window], time_ns: Times) -> Values:
        """Return joules up to each time, in any windows: only differences have a meaning."""
        joules, covered_s = self.profile.cumulative(time_ns)
        return joules + self.hole_w * (time_ns / NS_PER_S - covered_s)
