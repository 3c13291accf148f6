"""The energy up to moments of a run, by the conservation of energy (see ``response``).

A sensor is late, so readings after an edge still show power before it. Each edge has the energy up
to it by one of three ways: *left*, if power was steady before it; *right*, if it is steady behind
it; by *kappa*, if it is steady on both sides. The one with the smallest uncertainty counts, which
is that of the side at idle as a rule: then the delay cancels between both edges of the work. Where
no side is steady, the uncertainty covers the assignment of the power between both edges to either.

An edge depends on nothing but its moment, so the energies of adjoining phases add up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import SLACK_NS
from wattload.power.energy.integration import Window
from wattload.power.energy.profile import FOREVER_NS, Profile
from wattload.power.energy.response import Response
from wattload.power.energy.sensor import usual_s
from wattload.power.energy.trace import Times, Values

STEADY_READS = 4
"""Power is judged by at least so many updates, and over the time in which a step settles."""
STEADY_SHARE = 0.01
"""Power that varies by at most this share of itself, beyond noise, is steady."""
SIGMAS = 3.0
"""Differences within so many standard deviations are noise."""
AGREE_SIGMAS = 2.0
"""Energies by two ways agree within so many standard deviations: within their U."""
DECLARED_S = 2.0
"""Means and held readings that were not calibrated settle after at least this time: few data sheets
mention filters, and few that a mean over a second is held for another one."""
SLOW_TIMES = 3.0
"""Those that follow the pulses of a calibration, but did not settle in them, take so many times the
declared time."""
SLIP = 0.1
"""Updates that keep step with the reads may slip by one read in the run, which is rare: the
standard uncertainty of their delay is at least this share of the time between reads."""
UNLIKE = 0.05
"""Held readings may count some moments of an update more than others: where no pulses showed how
far their delay scatters, its standard uncertainty is at least this share of an update."""
WORK_LATE_S = 0.1
"""Work begins and ends up to so long within its edges on a busy host. That is no disagreement
between the energies of both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The energies up to moments in joules, of which only differences have a meaning.

    ``read_ns`` is up to when readings are in it. ``tau_w`` and ``kappa_w`` are its derivatives with
    respect to the response, which is common to all edges. ``own_j`` is the standard uncertainty of
    this edge alone, ``bias_j`` one that may be alike in all edges, and ``disagreement_j`` by how
    much the ways differ beyond their uncertainty.
    """

    energy_j: Values
    read_ns: Times
    tau_w: Values
    kappa_w: Values
    own_j: Values
    bias_j: Values
    disagreement_j: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Power on one side of edges, by its trend if it is not steady, with its uncertainty (k = 1).

    A side whose power is not steady, or that has another edge within the settling time, has
    ``is_steady`` false, and one without readings ``is_known``.
    """

    watts: Values
    uncertainty_w: Values
    is_known: NDArray[np.bool_]
    is_steady: NDArray[np.bool_]


class Edges:
    """The edges of a source's readings."""

    def __init__(
        self,
        profile: Profile,
        sensor: SensorRecord,
        *,
        quantum_j: float | None,
        work: Sequence[Window],
    ) -> None:
        """Prepare the edges of a profile without holes.

        ``quantum_j`` is a counter's step, ``None`` for readings of power. ``work`` are the times of
        all known work: power may jump where it begins or ends.
        """
        self.profile = profile
        self.response = response = Response.of(sensor)
        self._noise_w = math.hypot(sensor.noise_w, sensor.step_w / math.sqrt(12))
        self._quantum_j, self._update_s = quantum_j, sensor.update_s
        self._time_ns = np.concatenate((profile.start_ns[:1], profile.end_ns))
        self._watts = watts = np.concatenate((profile.start_w[:1], profile.end_w))
        self._mean_w = float(watts.mean())
        self._sums_w = np.concatenate(([0.0], np.cumsum(watts - self._mean_w)))
        self._sums_w2 = np.concatenate(([0.0], np.cumsum((watts - self._mean_w) ** 2)))
        self._read_s = read_s = max(usual_s(self._time_ns), 1e-9)
        self.spacing_s = max(read_s, self._update_s)
        self.window_s = response.window_s(self._update_s, read_s)
        # How far a step's tau and kappa vary with the phase of the updates, k = 1: exactly so for
        # samples, and hardly less for means of the time between updates.
        missed_s = max(0.0, self.spacing_s - self.window_s) / math.sqrt(12)
        self._kappa_phase_s = self.spacing_s**2 / (6 * (self.spacing_s + self.window_s))
        self.phase_s = math.hypot(missed_s, sensor.jitter_s)
        if sensor.scatter_s is not None:
            self.phase_s = sensor.scatter_s
        elif quantum_j is not None:  # no power is missed between two counts
            self.phase_s = 0.0
        each_s = np.diff(self._time_ns) / NS_PER_S
        self.uneven_s = 2 * float(np.median(np.abs(each_s - read_s))) if each_s.size else 0.0
        if read_s < self._update_s:
            slip_s = UNLIKE * self._update_s if sensor.scatter_s is None else 0.0
            self.phase_s = math.hypot(self.phase_s, SLIP * read_s, slip_s)
        self.settle_s = response.settle_s
        if sensor.basis == "declared" and quantum_j is None and self.settle_s:
            slow_s = SLOW_TIMES * self.settle_s if sensor.responds else DECLARED_S
            self.settle_s = max(self.settle_s, slow_s)
        self._may_be_late = sensor.basis == "declared" and not self.settle_s
        # A counter's power is a mean since the count before, which must be settled too.
        self._counts_ns = 0 if quantum_j is None else _ns(self.spacing_s)
        self._span_ns = _ns(max(response.settle_s, STEADY_READS * self.spacing_s))
        self._starts_ns, self._ends_ns = np.sort(np.array(work, np.int64).reshape(-1, 2), axis=0).T
        self._moments_ns = np.unique(np.concatenate((self._starts_ns, self._ends_ns)))

    def at(self, time_ns: Times) -> Edge:
        """Return the edges at some moments."""
        least_ns, half_ns = _ns(self.response.settle_s), self._span_ns // 2
        at = np.searchsorted(self._moments_ns, time_ns - SLACK_NS) - 1
        last_ns = np.append(self._moments_ns, -FOREVER_NS)[at]
        at = np.searchsorted(self._moments_ns, time_ns + SLACK_NS, "right")
        next_ns = np.append(self._moments_ns, FOREVER_NS)[at]
        # A response that was not calibrated has longer to settle if no work comes before: power may
        # be another one by then.
        starts, ends = (
            np.searchsorted(each_ns, time_ns + SLACK_NS, "right")
            for each_ns in (self._starts_ns, self._ends_ns)
        )
        is_rest = starts == ends
        free_ns = np.minimum(next_ns, self._time_ns[-1]) - time_ns - self._counts_ns - self._span_ns
        settle_ns = np.where(is_rest, np.clip(free_ns, least_ns, _ns(self.settle_s)), least_ns)
        settled_ns = np.minimum(last_ns + _ns(self.settle_s) + self._counts_ns, time_ns - half_ns)
        start_ns = np.maximum(time_ns - self._span_ns, settled_ns)
        is_alone = last_ns <= time_ns - least_ns, next_ns >= time_ns + least_ns
        before = self._side(time_ns, start_ns, time_ns, is_alone[0])
        start_ns = time_ns + settle_ns + self._counts_ns
        end_ns = np.minimum(start_ns + self._span_ns, np.maximum(next_ns, start_ns + half_ns))
        after = self._side(time_ns, start_ns, end_ns, is_alone[1])
        # At the last read before: the next one may be of the power behind the edge.
        at = np.searchsorted(self._time_ns, time_ns, "right") - 1
        left = self._one_sided(time_ns, at, before)
        at = np.searchsorted(self._time_ns, time_ns + settle_ns)
        right = self._one_sided(time_ns, at, after)
        sides = before, after
        range_w = self._range_w(time_ns - self._span_ns, time_ns + settle_ns + self._span_ns)
        # Between edges that readings do not settle between, power is any of those around.
        bound_j = self.response.tau_s * np.where(is_alone[0] & is_alone[1], 0.0, range_w)
        best = self._best(left, right, sides, self._kappa(time_ns, *sides), bound_j)
        if not self._may_be_late:
            return best
        # Power that falls later is the drive's, or the meter is none of moments: it may be in both.
        start_ns = np.minimum(time_ns + _ns(DECLARED_S), next_ns - self._span_ns)
        late = self._side(time_ns, start_ns, start_ns + self._span_ns, start_ns > time_ns)
        at = np.searchsorted(self._time_ns, start_ns)
        other = self._one_sided(time_ns, at, late)
        differ_j = self._disagreement_j(best, other, np.abs(late.watts - before.watts))
        is_fall = is_rest & (start_ns > time_ns) & late.is_known & (late.watts < before.watts)
        differ_j = np.where(is_fall, differ_j, 0.0)
        return replace(
            best,
            bias_j=np.hypot(best.bias_j, differ_j / 2),
            disagreement_j=np.maximum(best.disagreement_j, differ_j),
        )

    def _best(
        self, left: Edge, right: Edge, sides: tuple[_Side, _Side], middle: Edge, bound_j: Values
    ) -> Edge:
        """Return the edges by the way with the smallest uncertainty of those that apply.

        Where none does, the energy may be anything within ``bound_j`` at least.
        """
        before, after = sides
        has_left = before.is_steady | ~after.is_known
        has_right = after.is_steady | ~before.is_known
        # Where power is steady on no side, either may be right.
        bound_j = np.maximum(np.abs(left.energy_j - right.energy_j), bound_j) / 2
        bound_j = np.where(has_left | has_right, 0.0, bound_j)
        middle = replace(middle, bias_j=bound_j / math.sqrt(3))
        ways = [left, right, middle]
        applies = np.array([has_left, has_right, has_left == has_right])
        response, jump_w = self.response, np.abs(after.watts - before.watts)
        # Work that begins late or ends early does not show, so the side at less power is safer.
        late_s = math.hypot(response.tau_uncertainty_s, WORK_LATE_S)
        base_w = np.minimum(before.watts, after.watts)
        unsure_j2 = [
            way.own_j**2
            + way.bias_j**2
            + (late_s * (way.tau_w - base_w)) ** 2
            + (response.kappa_uncertainty_s * way.kappa_w) ** 2
            for way in ways
        ]
        which = np.argmin(np.where(applies, unsure_j2, np.inf), axis=0)
        best = Edge(
            **{
                each.name: np.choose(which, [getattr(way, each.name) for way in ways])
                for each in fields(Edge)
            }
        )
        differ_j = np.array([self._disagreement_j(best, way, jump_w) for way in ways])
        worst_j = np.where(applies, differ_j, 0.0).max(axis=0)
        bias_j = np.hypot(best.bias_j, worst_j / 2)
        return replace(best, bias_j=bias_j, disagreement_j=worst_j)

    def _range_w(self, start_ns: Times, end_ns: Times) -> Values:
        """Return the range of the readings from each time to another in watts."""
        first = np.searchsorted(self._time_ns, start_ns)
        last = np.searchsorted(self._time_ns, end_ns, "right")
        parts = (self._watts[slice(*each)] for each in zip(first.flat, last.flat, strict=True))
        range_w = [np.ptp(part) if part.size else 0.0 for part in parts]
        return np.array(range_w).reshape(start_ns.shape)

    def _disagreement_j(self, best: Edge, other: Edge, jump_w: Values) -> Values:
        """Return by how much two ways differ, 0 within their uncertainty."""
        noise_j = self._noise_w * math.sqrt(self.spacing_s * (self.settle_s + self.spacing_s))
        allowed_j = AGREE_SIGMAS * np.sqrt(
            best.own_j**2
            + best.bias_j**2
            + other.own_j**2
            + other.bias_j**2
            + (self.response.tau_uncertainty_s * (best.tau_w - other.tau_w)) ** 2
            + (self.response.kappa_uncertainty_s * (best.kappa_w - other.kappa_w)) ** 2
            + ((self.phase_s + self._kappa_phase_s) * jump_w) ** 2
            + noise_j**2
        )
        differ_j = np.abs(best.energy_j - other.energy_j)
        return np.where(differ_j > allowed_j + WORK_LATE_S * jump_w, differ_j, 0.0)

    def _one_sided(self, time_ns: Times, read: NDArray[np.intp], side: _Side) -> Edge:
        """Return the edges by steady power from some reads to them, or from them to the reads."""
        read_ns = self._time_ns[np.clip(read, 0, self._time_ns.size - 1)]
        since_s = (time_ns - read_ns) / NS_PER_S + self.response.tau_s
        own_j = (self.settle_s + self._read_s / 2) * side.uncertainty_w
        return Edge(
            energy_j=self.profile.cumulative(read_ns)[0] + side.watts * since_s,
            read_ns=read_ns,
            tau_w=side.watts,
            kappa_w=np.zeros_like(side.watts),
            own_j=np.hypot(own_j, self.counted_j(side.watts)),
            bias_j=np.zeros_like(side.watts),
            disagreement_j=np.zeros_like(side.watts),
        )

    def _kappa(self, time_ns: Times, before: _Side, after: _Side) -> Edge:
        late_ns = time_ns + _ns(self.response.tau_s)
        jump_w = after.watts - before.watts
        joules = self.profile.cumulative(late_ns)[0]
        next_j = self.profile.cumulative(late_ns + _ns(self.spacing_s))[0]
        unsure_w = np.hypot(before.uncertainty_w, after.uncertainty_w)
        own_j = np.hypot(self.response.kappa_s * unsure_w, self._kappa_phase_s * jump_w)
        return Edge(
            energy_j=joules - self.response.kappa_s * jump_w,
            read_ns=late_ns,
            tau_w=(next_j - joules) / self.spacing_s,
            kappa_w=-jump_w,
            own_j=np.hypot(own_j, self.counted_j(np.maximum(before.watts, after.watts))),
            bias_j=np.zeros_like(jump_w),
            disagreement_j=np.zeros_like(jump_w),
        )

    def counted_j(self, watts: Values) -> Values:
        """Return the standard uncertainty of a count: of its step and of when it was updated."""
        if self._quantum_j is None:
            return np.zeros_like(watts)
        return np.hypot(self._quantum_j, self._update_s * watts) / math.sqrt(12)

    def _side(
        self, time_ns: Times, start_ns: Times, end_ns: Times, is_alone: NDArray[np.bool_]
    ) -> _Side:
        """Return power at edges by the readings from ``start_ns`` to ``end_ns`` on one side."""
        first = np.searchsorted(self._time_ns, start_ns)
        last = np.searchsorted(self._time_ns, end_ns, "right")
        count, middle = last - first, (first + last) // 2
        mean_w = self._mean(first, last)
        updates = np.maximum(1.0, count * self._read_s / self.spacing_s)
        noise_w = np.hypot(self._noise_w, self.counted_j(mean_w) * math.sqrt(2) / self._read_s)
        # Next to the edge, a jump may just begin to show.
        is_left = end_ns <= time_ns
        near = np.where(is_left, last - 2, first), np.where(is_left, last, first + 2)
        near_w = self._mean(*np.clip(near, first, last))
        change_w = np.abs(near_w - mean_w) - SIGMAS * noise_w
        rise_w = np.where(count > 1, self._mean(middle, last) - self._mean(first, middle), 0.0)
        trend_w = np.maximum(np.abs(rise_w) - SIGMAS * noise_w * np.sqrt(4 / updates), 0.0)
        square_w2 = (self._sums_w2[last] - self._sums_w2[first]) / np.maximum(count, 1)
        noise_w2 = noise_w**2 * (1 + SIGMAS * np.sqrt(2 / updates))
        spread_w2 = square_w2 - (mean_w - self._mean_w) ** 2 - noise_w2
        unsteady_w = np.sqrt(
            trend_w**2 + np.maximum(change_w, 0.0) ** 2 + np.maximum(spread_w2, 0.0)
        )
        is_flat = unsteady_w <= np.maximum(noise_w, STEADY_SHARE * np.abs(mean_w))
        ahead_s = (time_ns - (start_ns + end_ns) / 2) / NS_PER_S + self.response.tau_s
        slope_w = np.copysign(trend_w, rise_w) / (np.maximum(count / 2, 1.0) * self._read_s)
        return _Side(
            watts=np.where(is_flat, mean_w, mean_w + slope_w * ahead_s),
            uncertainty_w=np.hypot(noise_w / np.sqrt(updates), unsteady_w),
            is_known=count > 0,
            is_steady=(count > 0) & is_alone & is_flat,
        )

    def _mean(self, first: NDArray[np.intp], last: NDArray[np.intp]) -> Values:
        """Return the mean of the readings from one index up to before another, 0 W for none."""
        count, sums_w = last - first, self._sums_w[last] - self._sums_w[first]
        return np.where(count > 0, self._mean_w + sums_w / np.maximum(count, 1), 0.0)


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)
