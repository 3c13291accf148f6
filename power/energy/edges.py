"""The energy up to a moment of a run, by the conservation of energy (see ``response``).

A sensor is late, so readings after an edge still show power before it. Each edge has the energy up
to it by one of three ways: *left*, if power was steady before it; *right*, if it is steady behind
it; by *kappa*, if it is steady on both sides. The one with the smallest uncertainty counts, which
is that of the side at idle as a rule: then the delay cancels between both edges of the work. Where
no side is steady, the uncertainty covers the assignment of the power between both edges to either.

An edge is worked out once, so the energies of adjoining phases add up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattload.core.power import Instant
from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.profile import Profile
from wattload.power.energy.response import Response, phase_uncertainty_s
from wattload.power.energy.sensor import updates, usual_s
from wattload.power.energy.trace import Values

STEADY_READS = 4
"""Power is judged by at least so many updates, and over the time in which a step settles."""
STEADY_SHARE = 0.01
"""Power that varies by at most this share of itself, beyond noise, is steady."""
SIGMAS = 3.0
"""Differences within so many standard deviations are noise."""
AGREE_SIGMAS = 2.0
"""Energies by two ways agree within so many standard deviations: within their U."""
SLOW_TIMES = 2, 3
"""Settling times after which readings may settle if the response was not calibrated."""
AGREE_SHARE = 0.3
"""A rise and a fall that show as late as each other, but for this share, show a slow sensor."""
RISES_MAX, RISE_SHARE = 16, 1.1
"""The most edges at which the delay of a rise is looked at, if power rises to so many times that
before."""
LATE_SHARE = 0.7
"""The standard uncertainty of a delay is at least this share of how late rises are beyond it."""
UNLIKE_LATE, UNLIKE_SHARE = 0.1, 0.05
"""A response whose delay differs by the first share of the settling time is another than declared.
Its updates may count some moments more than others, by the second share of an update."""
FALL_SIGMAS, FALL_SHARE = 20.0, 0.1
"""Power falls at an edge if it does by so many times the noise, and by this share of itself."""
FALL_S, FALL_MOST_S = 6.0, 2.0
"""How late a fall shows is judged within the first time, if power does not rise in it again: that
is the drive's work. So is what is later than the second."""
SLOW_SHARE = 0.25
"""Readings that settle later than a response that was not calibrated are the sensor's or the
drive's if this delays power by at most this share of its settling time; else they are the drive's.
"""
WORK_LATE_S = 0.1
"""Work begins and ends up to so long within its edges on a busy host. That is no disagreement
between the energies of both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Power on one side of an edge.

    ``uncertainty_w`` is the standard one of ``watts``, as the power of that time. ``edge_w`` is
    power at the edge itself, by its trend. ``change_w`` is by how much, beyond noise, the readings
    next to the edge differ from the others.
    """

    watts: float
    edge_w: float
    uncertainty_w: float
    change_w: float
    is_steady: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The energy up to a moment in joules, of which only differences have a meaning.

    ``read_ns`` is up to when readings are in it. ``tau_w`` and ``kappa_w`` are its derivatives with
    respect to the response, which is common to all edges. ``own_j`` is the standard uncertainty of
    this edge alone. ``jump_w`` is by how much power changes, ``disagreement_j`` by how much the
    ways differ beyond their uncertainty.
    """

    energy_j: float
    read_ns: int
    tau_w: float
    kappa_w: float
    own_j: float
    jump_w: float
    disagreement_j: float = 0.0


class Edges:
    """The edges of a source's readings."""

    def __init__(
        self,
        profile: Profile,
        sensor: SensorRecord,
        *,
        quantum_j: float | None,
        moments_ns: Sequence[int],
    ) -> None:
        """Prepare the edges of a profile without holes.

        ``quantum_j`` is a counter's step, ``None`` for readings of power. ``moments_ns`` are all
        known moments in which power may jump.
        """
        self.profile = profile
        self.response = response = Response.of(sensor)
        self._noise_w, self._step_w, self._quantum_j = sensor.noise_w, sensor.step_w, quantum_j
        self._update_s, self._is_calibrated = sensor.update_s, sensor.basis == "calibrated"
        self._time_ns = np.concatenate((profile.start_ns[:1], profile.end_ns))
        self._watts = np.concatenate((profile.start_w[:1], profile.end_w))
        self._read_s = read_s = usual_s(self._time_ns)
        self.spacing_s = max(read_s, self._update_s)
        self.window_s = response.window_s(self._update_s, read_s)
        self.phase_s, self._kappa_phase_s = phase_uncertainty_s(self.window_s, self.spacing_s)
        each_s = np.diff(self._time_ns) / NS_PER_S
        uneven_s = float(np.median(np.abs(each_s - read_s))) * 1.4826 if each_s.size else 0.0
        # The longer windows overlap, the less it matters that reads are unevenly spaced.
        self.uneven_s = uneven_s * min(1.0, self.spacing_s / max(self.window_s, 1e-9))
        if read_s < self._update_s:  # a change is seen up to a read late, or always as late
            held = Instant(update_period_s=self._update_s)
            _, variance_s2 = updates(held, self._time_ns, self._watts)
            late_s2 = read_s**2 / 12
            seen_s = math.sqrt(late_s2 if variance_s2 is None else min(variance_s2 / 2, late_s2))
            self.phase_s = math.hypot(self.phase_s, seen_s, sensor.jitter_s)
        if sensor.scatter_s is not None:
            self.phase_s = sensor.scatter_s
        if quantum_j is not None:  # no power is missed between two counts
            self.phase_s = 0.0
        # So long before a reading, power does not show in it.
        self._blind_ns = round(max(0.0, response.tau_s - 4 * response.kappa_s) * NS_PER_S)
        self._settle_ns = round(response.settle_s * NS_PER_S)
        # A counter's power is a mean since the count before, which must be settled too.
        counts_s = 0.0 if quantum_j is None else self.spacing_s
        self._clean_ns = self._settle_ns + round(counts_s * NS_PER_S)
        self._span_ns = max(self._settle_ns, round(STEADY_READS * self.spacing_s * NS_PER_S))
        self._moments_ns = np.unique(np.array(moments_ns, dtype=np.int64))
        self._known: dict[int, Edge] = {}
        late_s = self._rises_late_s()
        self._late_s = float(np.median(late_s)) if late_s else 0.0
        if late_s:
            unsure_s = max(response.tau_uncertainty_s, LATE_SHARE * abs(self._late_s))
            self.response = replace(response, tau_uncertainty_s=unsure_s)
        is_unlike = self._late_s > UNLIKE_LATE * response.settle_s
        if sensor.scatter_s is None and is_unlike and self._update_s > read_s:
            self.phase_s = math.hypot(self.phase_s, UNLIKE_SHARE * self._update_s)

    def at(self, time_ns: int) -> Edge:
        """Return the edge at a moment."""
        if time_ns not in self._known:
            self._known[time_ns] = self._edge(time_ns)
        return self._known[time_ns]

    def between_j(self, start_ns: int, end_ns: int) -> float:
        """Return the energy from one moment to another."""
        return self.at(end_ns).energy_j - self.at(start_ns).energy_j

    def _edge(self, time_ns: int) -> Edge:
        before, after = self._before(time_ns), self._after(time_ns)
        if before is None or after is None:
            nothing = Level(watts=0.0, edge_w=0.0, uncertainty_w=0.0, change_w=0.0, is_steady=False)
            if after is None:
                return self._left(time_ns, before or nothing)
            return self._right(time_ns, after)
        ways = [
            *([self._left(time_ns, before)] if before.is_steady else ()),
            *([self._right(time_ns, after)] if after.is_steady else ()),
        ]
        jump_w = after.watts - before.watts
        if not ways:
            sides = [replace(level, watts=level.edge_w) for level in (before, after)]
            left, right = self._left(time_ns, sides[0]), self._right(time_ns, sides[1])
            unsure_w = math.hypot(before.uncertainty_w, after.uncertainty_w)
            middle = self._kappa(time_ns, *sides)
            return _either(replace(middle, own_j=self.response.kappa_s * unsure_w), left, right)
        slow = self._slow(time_ns, before, after)
        if slow is not None and slow.tau_w < before.watts:
            late_s = _late_s(ways[0], slow)
            unlike_s = abs(late_s - self._late_s)
            if unlike_s < max(AGREE_SHARE * abs(late_s), 2 * self._kappa_phase_s):
                return replace(slow, jump_w=jump_w)
            if late_s < SLOW_SHARE * self.response.settle_s:
                return _either(_middle(ways[0], slow), ways[0], slow)
        middle = self._kappa(time_ns, before, after)
        if len(ways) > 1:
            ways.append(middle)
        base_w = min(before.watts, after.watts)
        best: Edge = min(ways, key=lambda way: self._total_j(way, base_w))
        worst_j = max(self._disagreement_j(best, way, abs(jump_w)) for way in ways)
        return replace(
            best,
            own_j=math.hypot(best.own_j, worst_j / 2),
            jump_w=jump_w,
            disagreement_j=worst_j,
        )

    def _slow(self, time_ns: int, before: Level, after: Level) -> Edge | None:
        """Return the edge if readings settle later than a response that was not calibrated."""
        if self._is_calibrated or after.is_steady or not before.is_steady:
            return None
        next_ns = self._next_ns(time_ns)
        for times in SLOW_TIMES:
            if next_ns < time_ns + times * self._clean_ns + self._span_ns:
                return None
            later = self._after(time_ns, times)
            if later is not None and later.is_steady:
                slow = self._right(time_ns, later, times)
                left_w = STEADY_SHARE * abs(later.watts - before.watts)
                own_j = math.hypot(slow.own_j, left_w * self.response.settle_s)
                return replace(slow, own_j=own_j)
        return None

    def _next_ns(self, time_ns: int) -> int:
        """Return the known moment after another, or else that of the last reading."""
        at = int(np.searchsorted(self._moments_ns, time_ns, "right"))
        return int(np.append(self._moments_ns[at : at + 1], self._time_ns[-1])[0])

    def _some_moments_ns(self) -> list[int]:
        """Return known moments, spread over the run, at which the delay is looked at."""
        every = max(1, self._moments_ns.size // RISES_MAX)
        moments_ns: list[int] = self._moments_ns[::every].tolist()
        return moments_ns

    def _rises_late_s(self) -> list[float]:
        """Return by how much later than ``tau_s`` rises from a steady power show.

        A slow sensor is late; so is a host that begins its work late. There are none if the
        response was calibrated, or is immediate.
        """
        late_s: list[float] = []
        if self._is_calibrated or not self._settle_ns:
            return late_s
        for time_ns in self._some_moments_ns():
            before, after = self._before(time_ns), self._after(time_ns)
            if before is None or after is None or not before.is_steady:
                continue
            if self._next_ns(time_ns) < time_ns + self._clean_ns + self._span_ns // 2:
                continue  # the rise may be of the next moment
            right = self._slow(time_ns, before, after)
            if after.is_steady:
                right = self._right(time_ns, after)
            if right is not None and right.tau_w > RISE_SHARE * before.watts:
                late_s.append(_late_s(self._left(time_ns, before), right))
        return late_s

    def fall_later_s(self) -> float:
        """Return how much later falls show than rises do, for a meter that was not calibrated.

        The drive may end late, or the meter may fall slowly. It is 0 within the uncertainties.
        """
        if self._is_calibrated or self._quantum_j is not None:
            return 0.0
        late_s: list[float] = []
        for time_ns in self._some_moments_ns():
            until_ns = min(self._next_ns(time_ns), time_ns + round(FALL_S * NS_PER_S))
            until_ns = min(until_ns, int(self._time_ns[-1]))
            if until_ns < time_ns + self._clean_ns + round(FALL_MOST_S * NS_PER_S):
                continue
            before = self._level(time_ns - self._span_ns // 2, time_ns, is_near_last=True)
            after = self._level(until_ns - self._span_ns, until_ns, is_near_last=False)
            if before is None or after is None:
                continue
            fall_w, noise_w = before.watts - after.watts, FALL_SIGMAS * self._noise_w
            first, last = np.searchsorted(self._time_ns, (time_ns + self._settle_ns, until_ns))
            fallen = self._watts[first:last]
            rise_w = float((fallen - np.minimum.accumulate(fallen)).max(initial=0.0))
            if fall_w <= max(noise_w, FALL_SHARE * before.watts) or rise_w > noise_w:
                continue
            joules = self.profile.cumulative(np.array([time_ns, until_ns]))[0]
            above_j = float(joules[1] - joules[0]) - after.watts * (until_ns - time_ns) / NS_PER_S
            late_s.append(above_j / fall_w - self.response.tau_s)
        found_s = float(np.median(late_s)) - abs(self._late_s) if late_s else 0.0
        unsure_s = 2 * math.hypot(self.phase_s, self._read_s) + WORK_LATE_S
        return min(found_s, FALL_MOST_S) if found_s > unsure_s else 0.0

    def _total_j(self, way: Edge, base_w: float) -> float:
        # Work that begins late or ends early does not show, so the side at less power is safer.
        late_s = math.hypot(self.response.tau_uncertainty_s, WORK_LATE_S)
        return math.hypot(
            way.own_j,
            late_s * (way.tau_w - base_w),
            self.response.kappa_uncertainty_s * way.kappa_w,
        )

    def _disagreement_j(self, best: Edge, other: Edge, jump_w: float) -> float:
        """Return by how much two ways differ, 0 within their uncertainty."""
        difference_j = abs(best.energy_j - other.energy_j)
        allowed_j = AGREE_SIGMAS * math.hypot(
            best.own_j,
            other.own_j,
            self.response.tau_uncertainty_s * (best.tau_w - other.tau_w),
            self.response.kappa_uncertainty_s * (best.kappa_w - other.kappa_w),
            (self.phase_s + self._kappa_phase_s) * jump_w,
            self._noise_w * math.sqrt(self.spacing_s * (self.response.settle_s + self.spacing_s)),
        )
        return difference_j if difference_j > allowed_j + WORK_LATE_S * jump_w else 0.0

    def _left(self, time_ns: int, before: Level) -> Edge:
        # At the last read before: the next one may be of the power behind the edge.
        at = max(int(np.searchsorted(self._time_ns, time_ns, "right")) - 1, 0)
        read_ns = int(self._time_ns[at])
        since_s = (time_ns - read_ns) / NS_PER_S + self.response.tau_s
        return self._one_sided(before, read_ns, since_s)

    def _right(self, time_ns: int, after: Level, times: int = 1) -> Edge:
        at = int(np.searchsorted(self._time_ns, time_ns + times * self._settle_ns))
        read_ns = int(self._time_ns[min(at, self._time_ns.size - 1)])
        since_s = (time_ns - read_ns) / NS_PER_S + self.response.tau_s
        return self._one_sided(after, read_ns, since_s)

    def _one_sided(self, level: Level, read_ns: int, since_s: float) -> Edge:
        # Alike for all phases of the reads, so that the choice of a way does not depend on it.
        own_j = math.hypot(
            (abs(self.response.tau_s) + self._read_s / 2) * level.uncertainty_w,
            self.response.settle_s * level.change_w,
            self.counted_j(level.watts),
        )
        return Edge(
            energy_j=float(self.profile.cumulative(np.array([read_ns]))[0][0])
            + level.watts * since_s,
            read_ns=read_ns,
            tau_w=level.watts,
            kappa_w=0.0,
            own_j=own_j,
            jump_w=0.0,
        )

    def counted_j(self, watts: float) -> float:
        """Return the standard uncertainty of a count: of its step and of when it was updated."""
        if self._quantum_j is None:
            return 0.0
        return math.hypot(self._quantum_j, self._update_s * watts) / math.sqrt(12)

    def _kappa(self, time_ns: int, before: Level, after: Level) -> Edge:
        late_ns = time_ns + round(self.response.tau_s * NS_PER_S)
        jump_w = after.watts - before.watts
        at = np.array([late_ns, late_ns + round(self.spacing_s * NS_PER_S)])
        joules = self.profile.cumulative(at)[0]
        change_w = math.hypot(before.change_w, after.change_w)
        own_j = math.hypot(
            self.response.kappa_s * before.uncertainty_w,
            self.response.kappa_s * after.uncertainty_w,
            self.response.settle_s / 2 * change_w,
            self._kappa_phase_s * jump_w,
            self.counted_j(max(before.watts, after.watts)),
        )
        return Edge(
            energy_j=float(joules[0]) - self.response.kappa_s * jump_w,
            read_ns=late_ns,
            tau_w=float(joules[1] - joules[0]) / self.spacing_s,
            kappa_w=-jump_w,
            own_j=own_j,
            jump_w=jump_w,
        )

    def _before(self, time_ns: int) -> Level | None:
        """Return power before a moment, by readings that no earlier edge reaches, if there are."""
        at = int(np.searchsorted(self._moments_ns, time_ns)) - 1
        clean_ns = time_ns - self._span_ns
        if at >= 0:
            settled_ns = int(self._moments_ns[at]) + self._clean_ns
            clean_ns = max(clean_ns, min(settled_ns, time_ns - self._span_ns // 2))
        level = self._level(clean_ns, time_ns, is_near_last=True)
        if level is not None and at >= 0 and self._moments_ns[at] > time_ns - self._blind_ns:
            return replace(level, is_steady=False)  # a jump there would not show yet
        return level

    def _after(self, time_ns: int, times: int = 1) -> Level | None:
        """Return power behind a moment, by settled readings that no later edge reaches.

        They are ``times`` settling times behind it.
        """
        start_ns = time_ns + times * self._clean_ns
        at = int(np.searchsorted(self._moments_ns, time_ns, "right"))
        end_ns = start_ns + self._span_ns
        if at < self._moments_ns.size:
            end_ns = min(end_ns, max(int(self._moments_ns[at]), start_ns + self._span_ns // 2))
        return self._level(start_ns, end_ns, is_near_last=False)

    def _level(self, start_ns: int, end_ns: int, *, is_near_last: bool) -> Level | None:
        first = int(np.searchsorted(self._time_ns, start_ns))
        last = int(np.searchsorted(self._time_ns, end_ns, "right"))
        watts = self._watts[first:last]
        if not watts.size:
            return None
        if is_near_last:
            ahead_s = self.response.tau_s + (end_ns - start_ns) / 2 / NS_PER_S
            return self._judged(watts, float(watts[-2:].mean()), ahead_s)
        ahead_s = self.response.tau_s - (self._clean_ns + (end_ns - start_ns) / 2) / NS_PER_S
        return self._judged(watts, float(watts[:2].mean()), ahead_s)

    def _judged(self, watts: Values, near_w: float, ahead_s: float) -> Level:
        """Return the level of some readings, whose mean next to the edge is ``near_w``.

        Power at the edge shows ``ahead_s`` after the middle of the readings.
        """
        mean_w = float(watts.mean())
        updates = max(1.0, watts.size * self._read_s / self.spacing_s)
        half = watts.size // 2
        rise_w = float(watts[half:].mean()) - float(watts[:half].mean()) if half else 0.0
        noise_w = math.hypot(self._noise_w, self._step_w / math.sqrt(12))
        if self._quantum_j is not None:  # the mean power between two counts
            noise_w = math.hypot(noise_w, self.counted_j(mean_w) * math.sqrt(2) / self._read_s)
        trend_w = max(0.0, abs(rise_w) - SIGMAS * noise_w * math.sqrt(4 / updates))
        apart_s = max(watts.size * self._read_s / 2, self._read_s, 1e-9)
        spread_w2 = float(watts.var()) - noise_w**2 * (1 + SIGMAS * math.sqrt(2 / updates))
        unsteady_w = math.hypot(trend_w, math.sqrt(max(spread_w2, 0.0)))
        change_w = max(0.0, abs(near_w - mean_w) - SIGMAS * noise_w)
        return Level(
            watts=mean_w,
            edge_w=mean_w + math.copysign(trend_w, rise_w) * ahead_s / apart_s,
            uncertainty_w=math.hypot(noise_w / math.sqrt(updates), unsteady_w),
            change_w=change_w,
            is_steady=math.hypot(unsteady_w, change_w) <= max(noise_w, STEADY_SHARE * abs(mean_w)),
        )


def _middle(one: Edge, other: Edge) -> Edge:
    return replace(
        one,
        energy_j=(one.energy_j + other.energy_j) / 2,
        tau_w=(one.tau_w + other.tau_w) / 2,
        jump_w=other.tau_w - one.tau_w,
    )


def _either(best: Edge, left: Edge, right: Edge) -> Edge:
    """Return an edge whose uncertainty covers two others, which may both be right."""
    bound_j = abs(left.energy_j - right.energy_j) / 2
    return replace(best, own_j=math.hypot(best.own_j, bound_j / math.sqrt(3)))


def _late_s(left: Edge, slow: Edge) -> float:
    """Return the delay beyond ``tau_s`` by which the power of both sides would agree."""
    return (slow.energy_j - left.energy_j) / (left.tau_w - slow.tau_w)
