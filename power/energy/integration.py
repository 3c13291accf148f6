"""Energy of windows of time, from fitted power or from limits, and its uncertainty.

The windows of a phase are integrated together. If readings cover less than 95 % of them, there is
no energy. Holes have the power of the fit, whose variance grows with their length. Without a fit
(limits, data sheets), a hole has the widest limit, or else the mean power of the time around it: an
interval of its own length on each side (at an edge of the window, on one side).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wattload.core.power import Channel, Counter, Evidence, Sensor, SourceFacts, weakest
from wattload.core.units import NS_PER_S, format_percent
from wattload.power.energy.model import FittedPower
from wattload.power.energy.observations import Observations, Response
from wattload.power.energy.profile import Profile, profile_of
from wattload.power.energy.trace import Times, Trace, Values

Window = tuple[int, int]
"""Start and end in ns of CLOCK_MONOTONIC."""

COVERAGE_FACTOR = 2.0
"""k: expanded uncertainty is twice the standard one, about 95 % (JCGM 100:2008, 6.2)."""
COVERAGE_MIN = 0.95
"""Windows covered for less than this share have no energy."""
QUANTUM_SHARE_MAX = 0.005
"""A counter is too coarse for a window if its step reaches this share of the energy."""

IDLE_TOLERANCE = 0.05
"""Power of at most this share above idle counts as idle."""
IDLE_HOLD_S = 2.0
"""The mean over this time must be idle. It is longer than a pause between two cache flushes."""


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
    curves: Sequence[WindowCurve] = field(compare=False, repr=False)


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
    """Return the energy of the trace on ``[start_ns, end_ns]``, by its readings alone.

    No sensor is fitted, so that edges are late by the sensor's lag and blurred by its window.
    ``period_s`` is the configured time between reads; a time of more than three periods and more
    than 3 s without a reading is a hole. ``resets_ns`` are known restarts of the device in ns.

    Raises:
        ValueError: the window ends before it starts.
    """
    profile = profile_of(trace, sensor, period_s=period_s, resets_ns=resets_ns)
    return integrate_profile(trace, profile, sensor, [(start_ns, end_ns)])


def integrate_profile(
    trace: Trace, profile: Profile, sensor: Sensor, windows: Sequence[Window]
) -> WindowResult:
    """Return the energy of a trace's power over time in some windows, which do not overlap.

    Raises:
        ValueError: a window ends before it starts.
    """
    for start_ns, end_ns in windows:
        if end_ns < start_ns:
            raise ValueError(
                f"a window must not end before it starts, got {start_ns} to {end_ns} ns"
            )
    curves = [window_curve(profile, trace.key.channel, *window) for window in windows]
    ends = [np.array([end_ns]) for _, end_ns in windows]
    observed = [
        curve.observed.cumulative(end_ns) for curve, end_ns in zip(curves, ends, strict=True)
    ]
    covered_j = math.fsum(float(joules[0]) for joules, _ in observed)
    covered_s = math.fsum(float(each_s[0]) for _, each_s in observed)
    seconds = sum(end_ns - start_ns for start_ns, end_ns in windows) / NS_PER_S
    energy_j = math.fsum(
        float(curve.energy_j(end_ns)[0]) for curve, end_ns in zip(curves, ends, strict=True)
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
        coverage=min(1.0, covered_s / seconds) if seconds else 0.0,
        sample_count=sum(trace.sample_count(*window) for window in windows),
        evidence=weakest(trace.evidence(*window) for window in windows),
        curves=curves,
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


def fitted_profile(
    fitted: FittedPower,
    observed: Observations,
    declared: Response,
    means: Profile | None,
    *,
    gap_ns: int,
) -> Profile:
    """Return fitted power with the share of each piece that readings cover.

    What they cover depends on the sensor: as found, or as ``declared`` if power was too flat.
    A time between two readings is covered if it is no longer than ``gap_ns``. A mean that is read
    less often than its window is long covers its window only. ``means`` are the pieces of a
    counter: each keeps exactly its energy, and the fit only distributes it over the piece.
    """
    found, response = fitted.sensor, declared
    if found.is_known:
        response = Response(shape=found.shape, window_s=found.window_s, lag_s=found.lag_s)
    edge_ns, watts = fitted.edge_ns, fitted.watts
    if means is not None:
        late_ns = round(response.lag_s * NS_PER_S)
        covered = replace(means, start_ns=means.start_ns - late_ns, end_ns=means.end_ns - late_ns)
        whole = _constant(edge_ns, watts, np.ones(watts.size))
        missed_j = (covered.end_ns - covered.start_ns) / NS_PER_S * covered.start_w - (
            whole.cumulative(covered.end_ns)[0] - whole.cumulative(covered.start_ns)[0]
        )
        missed_w = missed_j / ((covered.end_ns - covered.start_ns) / NS_PER_S)
        finer_ns = np.unique(np.concatenate((edge_ns, covered.start_ns, covered.end_ns)))
        finer_ns = finer_ns[(finer_ns >= edge_ns[0]) & (finer_ns <= edge_ns[-1])]
        watts = watts[np.searchsorted(edge_ns, finer_ns[:-1], "right") - 1]
        at = np.searchsorted(covered.start_ns, finer_ns[:-1], "right") - 1
        is_inside = (at >= 0) & (finer_ns[:-1] < covered.end_ns[np.maximum(at, 0)])
        edge_ns, watts = finer_ns, watts + np.where(is_inside, missed_w[np.maximum(at, 0)], 0.0)
    else:
        covered = _covered(observed, response, declared.window_s, gap_ns)
    share = np.diff(covered.cumulative(edge_ns)[1]) * NS_PER_S / np.diff(edge_ns)
    return _constant(edge_ns, watts, np.where(share > 1 - 1e-6, 1.0, share))


def _constant(edge_ns: Times, watts: Values, observed: Values) -> Profile:
    return Profile(
        start_ns=edge_ns[:-1],
        end_ns=edge_ns[1:],
        start_w=watts,
        end_w=watts,
        observed=observed,
    )


def _covered(observed: Observations, response: Response, declared_s: float, gap_ns: int) -> Profile:
    """Return the times that readings cover as pieces of no power.

    ``declared_s`` is the declared window: it alone shows that time between two reads was missed.
    """
    time_ns = observed.time_ns
    first_ns = time_ns[0] - round((2 * response.delay_s - response.lag_s) * NS_PER_S)
    last_ns = time_ns[-1] - round(response.lag_s * NS_PER_S)
    middle_ns = time_ns - round(response.delay_s * NS_PER_S)
    edge_ns = np.unique(np.concatenate(([min(first_ns, middle_ns[0])], middle_ns, [last_ns])))
    step_ns = np.diff(edge_ns)
    share = np.ones(step_ns.size)
    if declared_s:
        share = np.minimum(1.0, declared_s * NS_PER_S / step_ns)
    share = np.where(step_ns <= gap_ns, share, 0.0)
    return _constant(edge_ns, np.zeros(share.size), share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Joules at k = 2. If a part is unknown, ``total_j`` is ``None`` and ``reason`` says why."""

    total_j: float | None
    parts_j: Mapping[str, float]
    reason: str | None


def uncertainty(
    result: WindowResult,
    fitted: FittedPower,
    facts: SourceFacts,
    windows: Sequence[Window],
    means: Profile | None,
) -> Uncertainty:
    """Return the uncertainty of ``result``. Its parts add in quadrature.

    * ``gain``: the accuracy that the source states, taken as its limit at k = 2.
    * ``quantisation``: the error that rounding leaves in a mean of equal powers, over the windows
      (``_rounding_w``). For a counter: k * step / sqrt(12) at each end, where step is the larger of
      its unit and of the energy between two of its updates.
    * ``fit``: the posterior of the fit for a known sensor: noise, sampling, holes and edges, and
      what the readings near edges show beyond it. A counter's interior is exact, and only the parts
      of its means at the edges are fitted.
    * ``sensor``: the spread over the lags, windows and shapes that explain the readings as well.
    """
    if result.energy_j is None:
        return Uncertainty(total_j=None, parts_j={}, reason=result.reason)
    fitted_windows: Sequence[Window] = windows
    quantisation_j: float | None = None
    if isinstance(facts.sensor, Counter):
        fitted_windows = _at_edges(windows, means)
        powers_w = np.interp(
            [moment for window in windows for moment in window],
            fitted.edge_ns[:-1],
            fitted.watts,
        )
        steps_j = np.maximum(facts.sensor.quantum_j, facts.sensor.update_period_s * powers_w)
        quantisation_j = COVERAGE_FACTOR * float(np.linalg.norm(steps_j)) / math.sqrt(12)
    elif facts.resolution_w is not None:
        rounding_w = _rounding_w(facts.resolution_w, fitted.noise_w)
        quantisation_j = COVERAGE_FACTOR * rounding_w * result.seconds
    parts_j = {
        "gain": None
        if facts.accuracy_percent is None
        else abs(result.energy_j) * facts.accuracy_percent / 100,
        "quantisation": quantisation_j,
        "fit": COVERAGE_FACTOR
        * math.hypot(math.sqrt(fitted.fit_variance_j2(fitted_windows)), fitted.misfit_j(windows)),
        "sensor": COVERAGE_FACTOR * math.sqrt(fitted.sensor_variance_j2(windows)),
    }
    known_j = {name: part for name, part in parts_j.items() if part is not None}
    unknown = [name for name in parts_j if name not in known_j]
    if unknown:
        reason = f"the {' and '.join(unknown)} uncertainty of {facts.name} is unknown"
        return Uncertainty(total_j=None, parts_j=known_j, reason=reason)
    return Uncertainty(total_j=math.hypot(*known_j.values()), parts_j=known_j, reason=None)


def _rounding_w(step_w: float, noise_w: float) -> float:
    """Return the standard uncertainty in watts of a mean of readings rounded to ``step_w``.

    Without noise, all readings of one power have the same error: step / sqrt(12). Gaussian noise
    before the rounding leaves a sum of harmonics k of the power, of amplitude
    step / (pi k) * exp(-2 pi^2 k^2 (noise / step)^2) (Widrow and Kollar, Quantization Noise, 2008,
    chapter 19).
    """
    if not step_w:
        return 0.0
    before_w2 = max(noise_w**2 - step_w**2 / 12, 0.0)
    harmonic = np.arange(1, 100)
    fall = np.exp(-((2 * math.pi * harmonic / step_w) ** 2) * before_w2)
    return step_w / math.pi * math.sqrt(float((fall / harmonic**2).sum()) / 2)


def _at_edges(windows: Sequence[Window], means: Profile | None) -> list[Window]:
    """Return the parts of windows in means that reach beyond an edge."""
    found: list[Window] = []
    if means is None:
        return found
    for start_ns, end_ns in windows:
        for edge_ns in (start_ns, end_ns):
            for at in range(*means.touching(edge_ns, edge_ns).indices(means.start_ns.size)):
                part = max(start_ns, int(means.start_ns[at])), min(end_ns, int(means.end_ns[at]))
                if part[0] < part[1]:
                    found.append(part)
    return found


def tail_end(
    trace: Trace, sensor: Sensor, *, idle_w: float, after_ns: int, period_s: float
) -> int | None:
    """Return when power was back at idle after ``after_ns``, in ns; ``None`` if it was not.

    This is the first time from which the mean over 2 s is at most 5 % above ``idle_w``. Power below
    idle qualifies too. An interval with a hole does not.
    """
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
