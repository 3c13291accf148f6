"""The energy record of one source of one device, for any windows of a run.

A phase that was entered several times counts over its active intervals only: between two epochs or
two checkpoints a run does other work, such as evicting caches or reading back what it wrote, and
that energy does not belong to the phase's bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wattload.core.power import (
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Scope,
    SourceFacts,
    weakest,
)
from wattload.core.record.energy import (
    CalibrationRecord,
    EnergyRecord,
    Moment,
    PowerStateShare,
    PowerStatistics,
    SensorRecord,
)
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import RunTimes, Tail
from wattload.power.energy.faults import pinned, saturated
from wattload.power.energy.integration import (
    COVERAGE_FACTOR,
    COVERAGE_MIN,
    Window,
    WindowResult,
    integrate_profile,
)
from wattload.power.energy.measured import Idle, MeasuredPower
from wattload.power.energy.power_states import ENERGIES, DivisibleEnergy, shares
from wattload.power.energy.profile import Profile, max_gap_ns, profile_of
from wattload.power.energy.statistics import Readings, power_statistics
from wattload.power.energy.trace import (
    ByteSeries,
    Refused,
    Trace,
    TraceKey,
    ValueOrReason,
    fields_of,
    plausible,
    refused_energy,
)
from wattload.power.energy.uncertainty import Uncertainty

IDLE_DRIFT = 0.1
"""Idle times before and after the run whose power differs by more than this share are remarked. So
much is the uncertainty (k = 2) of the only one."""
AT_IDLE = 0.05
"""Power at the end of a rest is at idle if it is at most this share above."""
HOLE_S = 0.5
"""Holes that are longer are remarked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """An idle time before or after the run, polled or quiet."""

    moment: Moment
    polled: bool
    window: Window


class _Limits(NamedTuple):
    """One trace of bounds, or of a data sheet's power, as power over time."""

    trace: Trace
    profile: Profile


class _Work(NamedTuple):
    """The energy of a tail, and the uncertainties of it and of that for the work, k = 2."""

    tail: ValueOrReason
    tail_uncertainty: ValueOrReason
    work_uncertainty: ValueOrReason
    is_at_least: bool = False
    parts_j: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceLedger:
    """One source of one device: its power, its bounds, and the device's observed power states.

    ``measured`` is ``None`` for limits and data sheets. ``limits`` maps a field of the record
    (``energy_j``, ``lower_j``, ``upper_j``) to what is not measured.
    """

    facts: SourceFacts
    times: RunTimes
    measured: MeasuredPower | None
    limits: Mapping[str, _Limits]
    refused: Sequence[Refused]
    states: Trace | None
    changes: Trace | None
    before: Idle | None
    after: Idle | None

    @classmethod
    def build(
        cls,
        by_key: Mapping[TraceKey, Trace],
        facts: SourceFacts,
        *,
        times: RunTimes,
        calibrations: Sequence[CalibrationRecord],
        resets_ns: Sequence[int],
    ) -> SourceLedger:
        """Return the ledger of one source from the traces of all."""
        channels = {
            "energy_j": facts.figure_channel,
            "lower_j": Channel.LOWER_W,
            "upper_j": Channel.UPPER_W,
        }
        measured, limits = None, {}
        all_refused: list[Refused | None] = []
        for name, channel in channels.items():
            trace = by_key.get(TraceKey(facts.name, facts.device, channel))
            if trace is None:
                continue
            trace, refused = plausible(trace, facts)
            all_refused.append(refused)
            if name == "energy_j" and facts.measures:
                # A meter outside the drive keeps counting while the drive restarts.
                own_ns = resets_ns if facts.asks_drive else ()
                profile = profile_of(trace, facts.sensor, period_s=facts.period_s, resets_ns=own_ns)
                if profile.start_ns.size:
                    measured = MeasuredPower.of(trace, profile, facts, times, calibrations)
                    if not isinstance(facts.sensor, Counter):
                        all_refused.append(pinned(trace, facts, measured.sensor))
                    continue
            else:
                profile = profile_of(trace, facts.sensor, period_s=facts.period_s)
            limits[name] = _Limits(trace, profile)
        peaks = by_key.get(TraceKey(facts.name, facts.device, Channel.MAX_W))
        all_refused.append(saturated(peaks, facts))
        return cls(
            facts=facts,
            times=times,
            measured=measured,
            limits=limits,
            refused=[each for each in all_refused if each is not None],
            states=_fullest(facts.device, Channel.POWER_STATE, by_key),
            changes=_fullest(facts.device, Channel.POWER_STATE_CHANGES, by_key),
            before=None if measured is None else measured.idle(times.before),
            after=None if measured is None else measured.idle(times.after),
        )

    @property
    def sensor(self) -> SensorRecord | None:
        """The sensor as its energies use it, ``None`` without readings."""
        return None if self.measured is None else self.measured.sensor

    def span(self) -> Window | None:
        """Return the times of the first and the last reading of power, ``None`` without any."""
        if self.measured is None or not self.measured.trace.time_ns.size:
            return None
        time_ns = self.measured.trace.time_ns
        return int(time_ns[0]), int(time_ns[-1])

    def idle_w(self) -> ValueOrReason:
        """Return idle power: the mean of both idle times, or the only one."""
        known = [idle.watts for idle in (self.before, self.after) if idle is not None]
        if self.measured is None:
            return None, f"{self.facts.name} has no power sensor"
        window = self.times.before
        if window is not None and self._refusal([window]):
            return None, f"in the idle baseline, {self._refusal([window])}"
        if known:
            return sum(known) / len(known), ""
        if window is None:
            return None, "no idle baseline was taken"
        return None, f"in the idle baseline, {self.measured.result([window]).reason}"

    def record(
        self,
        phase: str,
        windows: Sequence[Window],
        *,
        host: str,
        idle: ValueOrReason,
        traffic: ByteSeries | None = None,
        tail: Tail | None = None,
        others: Sequence[str] = (),
    ) -> EnergyRecord:
        """Return the record of the windows of a phase, with a reason for each missing figure.

        ``tail`` are the rests behind it, and ``others`` the phases that ran at the same time.
        """
        seconds = _seconds(windows)
        results = self._results(windows)
        energies = {name: self._energy(name, results, windows) for name in ENERGIES}
        energy_j, why_no_energy = energies["energy_j"]
        stated = self._uncertainty(energies["energy_j"], windows)
        # Evidence and coverage are those of the energy, else of the bounds.
        decisive = [results["energy_j"]] if "energy_j" in results else list(results.values())
        if tail is None:
            tail = Tail(reason="only timed phases have a tail")
        work = self._work(energies["energy_j"], windows, tail)
        why_no_net = why_no_energy if energy_j is None else idle[1]
        if self.facts.scope is not Scope.DRIVE:
            idle_w, why_no_net = None, "idle power is subtracted for drives only: the host is busy"
        else:
            idle_w = idle[0]
        figures: dict[str, tuple[Any, str]] = {
            **energies,
            "mean_w": (None if energy_j is None else energy_j / seconds, why_no_energy),
            "coverage": (
                min((result.coverage for result in decisive), default=None),
                "there are no samples",
            ),
            "idle_w": idle,
            "net_j": (
                None if energy_j is None or idle_w is None else energy_j - idle_w * seconds,
                why_no_net,
            ),
            "uncertainty_j": (stated.total_j, stated.reason or ""),
            "tail_j": work.tail,
            "tail_uncertainty_j": work.tail_uncertainty,
            "work_uncertainty_j": work.work_uncertainty,
            "change_count": self._change_count(windows),
            "max_interval_w": (None, "only a drive's own measurement of the run (25h) has it"),
            "statistics": self._statistics(energies["energy_j"], windows),
        }
        return EnergyRecord(
            host=host,
            device=self.facts.device,
            source=self.facts.name,
            scope=self.facts.scope,
            phase=phase,
            start_ns=windows[0][0],
            end_ns=windows[-1][1],
            evidence=weakest([self.facts.evidence, *(result.evidence for result in decisive)])
            if decisive
            else Evidence.NONE,
            seconds=seconds,
            uncertainty_parts_j=stated.parts_j,
            work_uncertainty_parts_j=work.parts_j or {},
            rest_s=_seconds(tail.windows),
            is_at_least=work.is_at_least,
            remarks=tuple(self._remarks(windows, tail, others)) if energy_j is not None else (),
            sample_count=max((result.sample_count for result in decisive), default=0),
            states=self._shares(windows, results, energies, traffic),
            **fields_of(figures),
        )

    def _results(self, windows: Sequence[Window]) -> dict[str, WindowResult]:
        found = {}
        if self.measured is not None:
            found["energy_j"] = self.measured.result(windows)
        for name, (trace, profile) in self.limits.items():
            found[name] = integrate_profile(trace, profile, self.facts.sensor, windows)
        return found

    def _refusal(self, windows: Sequence[Window]) -> str:
        """Return why windows have no energy for a reading in them; empty if there is none."""
        for refused in self.refused:
            if any(refused.in_window(*window) for window in windows):
                return refused.reason
        return ""

    def _energy(
        self, name: str, results: Mapping[str, WindowResult], windows: Sequence[Window]
    ) -> ValueOrReason:
        refused = self._refusal(windows)
        if refused:
            return None, refused
        if name in results:
            energy_j, reason = results[name].energy_j, results[name].reason or ""
            seconds = results[name].seconds
            why = refused_energy(energy_j, seconds, may_be_negative=self.facts.may_be_negative)
            return (None, f"{self.facts.name}: {why}") if why else (energy_j, reason)
        if not results:
            return None, f"{self.facts.name} has no samples"
        if name == "energy_j":
            return None, f"{self.facts.name} reports bounds only"
        return None, f"{self.facts.name} reports no {name.removesuffix('_j')} bound"

    def _uncertainty(self, energy: ValueOrReason, windows: Sequence[Window]) -> Uncertainty:
        if self.measured is None:
            reason = f"{self.facts.name} has no power sensor"
            return Uncertainty(total_j=None, parts_j={}, reason=reason)
        if energy[0] is None:
            return Uncertainty(total_j=None, parts_j={}, reason=energy[1])
        return self.measured.uncertainty(energy[0], windows)

    def _work(self, energy: ValueOrReason, windows: Sequence[Window], tail: Tail) -> _Work:
        """Return the net tail, with power above idle in the rests behind the windows."""
        why = tail.reason
        base, measured = self.after or self.before, self.measured
        if self.facts.scope is not Scope.DRIVE:
            why = "only drives have a tail"
        elif measured is None or energy[0] is None:
            why = energy[1]
        elif base is None:
            why = "no idle power was measured"
        elif not why:
            why = self._refusal(tail.windows) or self._uncovered(tail.windows)
        if why or measured is None or base is None or energy[0] is None:
            return _Work(*(((None, why),) * 3))
        rest_s, rests = _seconds(tail.windows), tail.windows
        gross_j = math.fsum(measured.edges.between_j(*rest) for rest in rests)
        tail_j = gross_j - base.watts * rest_s
        idle_w = math.hypot(base.uncertainty_w, self._drift_w(base))
        of_tail = measured.uncertainty(tail_j, (), rests, idle_w * rest_s)
        of_work = measured.uncertainty(energy[0] + tail_j, windows, rests, idle_w * rest_s)
        is_at_least = any(
            end.watts - base.watts
            > max(
                AT_IDLE * abs(base.watts), COVERAGE_FACTOR * math.hypot(end.uncertainty_w, idle_w)
            )
            for end in map(measured.idle_at_end, rests)
            if end is not None
        )
        return _Work(
            (tail_j, ""),
            (of_tail.total_j, of_tail.reason or ""),
            (of_work.total_j, of_work.reason or ""),
            is_at_least=is_at_least,
            parts_j=of_work.parts_j,
        )

    def _uncovered(self, rests: Sequence[Window]) -> str:
        """Return why there is no energy in the rests, empty if their readings are there."""
        assert self.measured is not None
        covered = self.measured.result(rests).coverage
        if covered >= COVERAGE_MIN:
            return ""
        return f"readings cover {covered:.0%} of the rest; at least {COVERAGE_MIN:.0%} are required"

    def _drift_w(self, base: Idle) -> float:
        """Return the standard uncertainty of idle power in a rest by its drift over the run.

        It may be as before the run or as after it, of which only one is subtracted.
        """
        if self.before is None or self.after is None:
            return IDLE_DRIFT / COVERAGE_FACTOR * abs(base.watts)
        return abs(self.after.watts - self.before.watts) / math.sqrt(3)

    def _remarks(self, windows: Sequence[Window], tail: Tail, others: Sequence[str]) -> list[str]:
        """Return a sentence on each thing that widened an uncertainty of the phase."""
        measured = self.measured
        if measured is None:
            return []
        name, before, after = self.facts.name, self.before, self.after
        edges_j = measured.disagreement_j([*windows, *tail.windows])
        missed_s = _seconds(windows) * (1 - measured.result(windows).coverage)
        states = self._state(self.times.before), self._state(next(reversed(tail.windows), None))
        remarks = {
            f"at an edge, energies by the readings before and after it differ by {edges_j:.3g} J": (
                edges_j > 0
            ),
            f"{name} failed its calibration: its mean of a fast load is wrong": (
                measured.sensor.is_aliasing
            ),
            f"no reading covers {missed_s:.2g} s of it": missed_s > HOLE_S,
            "idle power after the job was not measured, so that before it is subtracted": (
                bool(tail.windows) and after is None
            ),
            f"it includes the energy of {' and '.join(others)}, which ran at the same time": (
                bool(others)
            ),
        }
        found = [*measured.remarks, *(text for text, applies in remarks.items() if applies)]
        if before is not None and after is not None:
            drift_w = abs(after.watts - before.watts)
            if drift_w > IDLE_DRIFT * abs(before.watts):
                found.append(
                    f"idle power was {before.watts:.3g} W before the job and "
                    f"{after.watts:.3g} W after"
                )
        if None not in states and states[0] != states[1]:
            found.append(
                f"the drive idled in power state {states[0]:g} before the job and in "
                f"{states[1]:g} at the end of its rest"
            )
        return found

    def _state(self, window: Window | None) -> float | None:
        """Return the last power state read in a time, ``None`` without any."""
        values = np.empty(0)
        if window is not None and self.states is not None:
            values = self.states.values(*window)
            values = values[~np.isnan(values)]
        return float(values[-1]) if values.size else None

    def _change_count(self, windows: Sequence[Window]) -> tuple[int | None, str]:
        part = self.measured or self.limits.get("energy_j")
        if part is None:
            return None, f"{self.facts.name} does not read power"
        return sum(part.trace.change_count(*window) for window in windows), ""

    def _statistics(
        self, energy: ValueOrReason, windows: Sequence[Window]
    ) -> tuple[PowerStatistics | None, str]:
        measured = self.measured
        if energy[0] is None or measured is None or measured.sensor is None:
            return None, energy[1] or f"{self.facts.name} has no power sensor"
        if isinstance(self.facts.sensor, Counter):
            readings = Readings.of_counter(measured.profile, self.facts, measured.sensor)
        else:
            readings = Readings.of_watts(measured.trace, self.facts, measured.sensor)
        return power_statistics(readings, self.facts, windows), ""

    def _shares(
        self,
        windows: Sequence[Window],
        results: Mapping[str, WindowResult],
        energies: Mapping[str, ValueOrReason],
        traffic: ByteSeries | None,
    ) -> tuple[PowerStateShare, ...]:
        states: defaultdict[str, list[PowerStateShare]] = defaultdict(list)
        for index, window in enumerate(windows):
            if self.states is None or window[0] >= window[1]:
                continue
            own = shares(
                self.states,
                {
                    name: DivisibleEnergy(
                        curve=None if value is None else results[name].curves[index],
                        reason=reason,
                    )
                    for name, (value, reason) in energies.items()
                },
                *window,
                period_s=self.states.usual_period_s() or self.facts.period_s,
                traffic=traffic,
                changes=self.changes,
            )
            for share in own:
                states[share.state].append(share)
        return tuple(_join_shares(state, own) for state, own in sorted(states.items()))

    def idle_power(self, time: IdleTime, *, host: str) -> tuple[dict[str, Any], int, Evidence]:
        """Return mean power and coverage, the number of samples, and their evidence."""
        if self.facts.asks_drive and not time.polled:
            watts, reason = self._first_reading(time.window[1])
            single = (None, "it is a single reading at the end of the quiet time")
            figures: dict[str, Any] = {"mean_w": (watts, reason), "coverage": single}
            return figures, int(watts is not None), self.facts.evidence
        energy = self.record("idle", [time.window], host=host, idle=(None, "it is idle power"))
        figures = {
            "mean_w": (energy.mean_w, energy.missing.get("mean_w", "")),
            "coverage": (energy.coverage, energy.missing.get("coverage", "")),
        }
        return figures, energy.sample_count, energy.evidence

    def _first_reading(self, after_ns: int) -> ValueOrReason:
        """Return the first reading after a quiet time: a mean over its last part, in watts.

        If that read failed, there is none: the next one measures a drive that is being polled.
        """
        name, part = self.facts.name, self.measured
        if part is None or part.trace.key.channel is not Channel.POWER_W:
            return None, f"a single reading of {name} is not a power"
        if not isinstance(self.facts.sensor, Boxcar):
            return None, f"{name} reads the power of the moment, not of the time before"
        trace, until_ns = part.trace, after_ns + max_gap_ns(self.facts.period_s)
        first = int(np.searchsorted(trace.time_ns, after_ns))
        if first == trace.time_ns.size or trace.time_ns[first] > until_ns:
            return None, "there was no read after the quiet time"
        watts = float(trace.value[first])
        if math.isnan(watts):
            return (
                None,
                "the read after the quiet time failed; later ones measure a polled drive",
            )
        return watts, ""


def _fullest(device: str, channel: Channel, by_key: Mapping[TraceKey, Trace]) -> Trace | None:
    """Return the device's trace on a channel, by the source with the most successful reads."""
    found = [
        trace for key, trace in by_key.items() if key.device == device and key.channel is channel
    ]
    return max(found, key=lambda trace: int(np.count_nonzero(~np.isnan(trace.value))), default=None)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _join_shares(state: str, shares: Sequence[PowerStateShare]) -> PowerStateShare:
    reasons = {name: why for share in reversed(shares) for name, why in share.missing.items()}
    sums = {
        name: (_sum([getattr(share, name) for share in shares]), reasons.get(name, ""))
        for name in ("moved_bytes", *ENERGIES)
    }
    seconds = sum(share.seconds for share in shares)
    return PowerStateShare(state=state, seconds=seconds, **fields_of(sums))


def _seconds(windows: Sequence[Window]) -> float:
    return sum(end_ns - start_ns for start_ns, end_ns in windows) / NS_PER_S
