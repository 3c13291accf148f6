"""The measured power of one source: its energy in any windows, with the uncertainty of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from wattload.core.power import Counter, SourceFacts
from wattload.core.power_resolution import rounding_w
from wattload.core.record.energy import CalibrationRecord, SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import RunTimes
from wattload.power.energy.calibration import Readings, sensor_record
from wattload.power.energy.edges import Edges
from wattload.power.energy.faults import drops_too_fast
from wattload.power.energy.integration import (
    COVERAGE_FACTOR,
    Window,
    WindowResult,
    seconds_of,
    window_result,
)
from wattload.power.energy.profile import Profile, fill_holes, hole_ranges
from wattload.power.energy.trace import Times, Trace, Values
from wattload.power.energy.uncertainty import Noise, Uncertainty, stated_parts, total

AT_END_S = 2.0
"""Power at the end of a rest is the mean over this time, or over the response if that is longer."""
IDLE_COVERAGE = 0.5
"""Readings must cover this share of an idle time: its power hardly changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The mean power of an idle time in watts, with its standard uncertainty."""

    watts: float
    uncertainty_w: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredPower:
    """The readings of a source that measures, with its sensor.

    ``profile`` are the readings with holes, ``holes`` the range of power in these, and ``noise`` is
    ``None`` for a counter. ``range_w`` is the range of all readings, with those of its
    calibrations. ``remarks`` are sentences on what widened all uncertainties.
    """

    facts: SourceFacts
    trace: Trace
    profile: Profile
    holes: Profile
    sensor: SensorRecord
    edges: Edges
    noise: Noise | None
    range_w: float
    remarks: Sequence[str]

    @classmethod
    def of(
        cls,
        trace: Trace,
        profile: Profile,
        facts: SourceFacts,
        times: RunTimes,
        calibrations: Sequence[CalibrationRecord],
    ) -> Self:
        """Return the power that a profile with at least one piece shows."""
        sensor = sensor_record(facts, profile, times.idle(), calibrations)
        spread_s = float(np.quantile(trace.spread_ns, 0.95)) / NS_PER_S  # its level is k = 2
        if sensor.basis == "declared" and spread_s > sensor.tau_uncertainty_s:
            sensor = sensor.model_copy(update={"tau_uncertainty_s": spread_s})
        whole = fill_holes(profile)
        is_counter = isinstance(facts.sensor, Counter)
        remarks = []
        if not is_counter and drops_too_fast(whole, sensor, facts.sensor):
            remarks.append(
                f"readings of {facts.name} fall faster than those of its mean can, so their delay "
                "is uncertain"
            )
            sensor = sensor.model_copy(update={"tau_uncertainty_s": 2 * sensor.tau_s})
        edges = Edges(
            whole,
            sensor,
            quantum_j=facts.sensor.quantum_j if isinstance(facts.sensor, Counter) else None,
            work=times.work(),
        )
        pulses_w = [
            Readings.of(each, facts).profile.end_w
            for each in calibrations
            if (each.source, each.device) == (facts.name, facts.device)
        ]
        return cls(
            facts=facts,
            trace=trace,
            profile=profile,
            holes=hole_ranges(profile, facts.sensor),
            sensor=sensor,
            edges=edges,
            noise=None if is_counter else Noise(whole, sensor, edges),
            range_w=float(np.ptp(np.concatenate((whole.start_w[:1], whole.end_w, *pulses_w)))),
            remarks=remarks,
        )

    def result(self, windows: Sequence[Window]) -> WindowResult:
        """Return the energy of some windows, which do not overlap."""
        energy_j = self.gross_j(windows)
        return window_result(self.trace, self.profile, self.facts, windows, energy_j)

    def gross_j(self, windows: Sequence[Window]) -> float:
        """Return the energy of some windows, whether readings cover them or not."""
        return float(np.diff(self.edges.at(_array(windows)).energy_j).sum())

    def energy_j(self, windows: Sequence[Window], time_ns: Times) -> Values:
        """Return joules up to each time in some windows: only differences have a meaning.

        It is the course of the readings, moved to the energies at the edges of the windows.
        """
        read, late_ns = self.edges.profile, round(self.edges.response.tau_s * NS_PER_S)
        border_ns = _array(windows).ravel()
        moved_j = read.cumulative(border_ns + late_ns)[0] - self.edges.at(border_ns).energy_j
        joules: Values = read.cumulative(time_ns + late_ns)[0]
        joules -= np.interp(time_ns - border_ns[0], border_ns - border_ns[0], moved_j)
        return joules

    def idle(self, window: Window | None) -> Idle | None:
        """Return the power of an idle time without its beginning, in which readings settle."""
        if window is None:
            return None
        read = self.edges.profile
        settled_ns = min(window[0] + round(self.sensor.settle_s * NS_PER_S), window[1])
        inside = max(settled_ns, int(read.start_ns[0])), min(window[1], int(read.end_ns[-1]))
        seconds = (inside[1] - inside[0]) / NS_PER_S
        covered_s = float(np.diff(self.profile.cumulative(np.array(inside))[1])[0])
        if seconds <= 0 or covered_s < IDLE_COVERAGE * seconds:
            return None
        joules = read.cumulative(np.array(inside))[0]
        watts = float(joules[1] - joules[0]) / seconds
        noise_j = self.noise_j([inside]) + math.sqrt(2) * float(
            self.edges.counted_j(np.array(watts))
        )
        return Idle(watts=watts, uncertainty_w=noise_j / seconds)

    def idle_at_end(self, rest: Window) -> Idle | None:
        """Return the power at the end of a rest."""
        settle_s = self.sensor.settle_s
        start_ns = rest[1] - round((max(AT_END_S, settle_s) + settle_s) * NS_PER_S)
        return self.idle((max(rest[0], start_ns), rest[1]))

    def noise_j(self, windows: Sequence[Window]) -> float:
        """Return the standard uncertainty of an energy by noise, sampling and rounding."""
        if self.noise is None:
            return 0.0
        rounded_j = rounding_w(self.sensor.step_w, self.sensor.noise_w) * seconds_of(windows)
        # Of a short window, the readings that give its start may be those behind its end.
        read_ns = np.sort(self.edges.at(_array(windows)).read_ns)
        return math.hypot(math.sqrt(self.noise.variance_j2(read_ns)), rounded_j)

    def uncertainty(
        self,
        energy_j: float,
        windows: Sequence[Window],
        net: Sequence[Window] = (),
        idle_j: float = 0.0,
    ) -> Uncertainty:
        """Return the uncertainty of the energy of some windows.

        ``net`` are windows from which idle power, of standard uncertainty ``idle_j``, is
        subtracted: the offset of a meter is in both.
        """
        both = [*windows, *net]
        seconds = seconds_of(both)
        stated_j, reason = stated_parts(self.facts, energy_j, seconds_of(windows))
        parts_j = {
            **stated_j,
            "noise": COVERAGE_FACTOR * self.noise_j(both),
            "edges": COVERAGE_FACTOR * math.hypot(self._edges_j(both), self._falls_j(both)),
            "gap": self._gap_j(both),
        }
        if idle_j:
            parts_j["idle"] = COVERAGE_FACTOR * idle_j
        if self.sensor.is_aliasing:
            # Readings that keep step with the load may all show its least power.
            parts_j["aliasing"] = self.range_w * seconds
        return total(parts_j, reason)

    def _gap_j(self, windows: Sequence[Window]) -> float:
        """Return the uncertainty by holes, which may be filled at either end of their range."""
        range_j = np.diff(self.holes.cumulative(_array(windows))[0]).sum()
        return COVERAGE_FACTOR / math.sqrt(3) * float(range_j)

    def _edges_j(self, windows: Sequence[Window]) -> float:
        """Return the standard uncertainty by the edges.

        The response is common to all of them, so that its error adds up over equal edges. So may
        that of the way in which they are judged.
        """
        time_ns, at = np.unique(_array(windows), return_inverse=True)
        weight = np.bincount(at.ravel(), np.tile((-1.0, 1.0), len(windows)))
        edge, response = self.edges.at(time_ns), self.edges.response
        return math.hypot(
            *(weight * edge.own_j),
            float(np.abs(weight) @ edge.bias_j),
            response.tau_uncertainty_s * float(weight @ edge.tau_w),
            response.kappa_uncertainty_s * float(weight @ edge.kappa_w),
        )

    def _falls_j(self, windows: Sequence[Window]) -> float:
        """Return the standard uncertainty by falls that may show later than rises.

        Each fall of the readings in the windows, or by their end, adds its depth times the delay.
        Fast loads fall as much again between the reads. The calibration's train had such, and was
        on for half of its time: power above the least one may be off by as large a share.
        """
        late_s = abs(self.sensor.fall_later_s)
        if not late_s:
            return 0.0
        time_ns, watts = self.edges.profile.end_ns, self.edges.profile.end_w
        fallen_w = np.concatenate(([0.0], np.maximum(-np.diff(watts), 0.0).cumsum()))
        until_ns = round((self.sensor.settle_s + late_s) * NS_PER_S)
        at = np.searchsorted(time_ns, _array(windows) + np.array((0, until_ns))) - 1
        sum_w = float(np.diff(fallen_w[np.clip(at, 0, watts.size - 1)]).sum())
        sum_w += max(0.0, sum_w - float(np.ptp(watts)))
        above_j = self.gross_j(windows) - float(watts.min()) * seconds_of(windows)
        share = 2 * abs(self.sensor.train_share or 0.0)
        return max(late_s * sum_w, share * above_j) / math.sqrt(3)

    def disagreement_j(self, windows: Sequence[Window]) -> float:
        """Return the largest disagreement of the ways at an edge of some windows, 0 without any."""
        return float(self.edges.at(_array(windows)).disagreement_j.max(initial=0.0))


def _array(windows: Sequence[Window]) -> Times:
    """Return starts and ends of windows, shape (n, 2)."""
    return np.array(windows, dtype=np.int64).reshape(-1, 2)
