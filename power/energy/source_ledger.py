"""The energy of one source of one device, for any windows of a run.

The sensor is inferred from all samples of the source. Every figure comes from the power over time
that results. A phase that was entered several times counts over its active intervals only: between
two epochs or two checkpoints a run does other work, such as evicting caches or reading back what it
wrote, and that energy does not belong to the phase's bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.power import (
    MEASURING,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    SourceFacts,
    weakest,
)
from wattload.core.record.energy import (
    EnergyRecord,
    Freshness,
    Moment,
    PowerStateShare,
    SensorRecord,
)
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import Activity
from wattload.power.energy.integration import (
    Uncertainty,
    Window,
    WindowResult,
    fitted_profile,
    integrate_profile,
    uncertainty,
)
from wattload.power.energy.model import FittedPower, fit_power
from wattload.power.energy.observations import (
    Clock,
    declared_response,
    is_new_at_each_read,
    observe,
    observe_means,
)
from wattload.power.energy.power_states import ENERGIES, DivisibleEnergy, shares
from wattload.power.energy.profile import GAP_PERIODS, Profile, max_gap_ns, profile_of
from wattload.power.energy.staleness import IndependentTraces, Staleness, staleness
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

_WORST_FIRST: tuple[Freshness, ...] = ("stale", "fresh", "unjudged", "")
"""Order of verdicts of several intervals: one too short to judge does not outweigh the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """An idle time before or after the run, polled or quiet."""

    moment: Moment
    polled: bool
    window: Window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One trace of a source as power over time; stale and impossible readings are holes.

    ``fitted`` is ``None`` for limits, data sheets and too few readings; ``means`` are a counter's.
    """

    trace: Trace
    profile: Profile
    staleness: Staleness | None
    refused: Refused | None
    fitted: FittedPower | None = None
    means: Profile | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceLedger:
    """One source of one device: its power, its bounds, and the device's observed power states.

    ``parts`` maps a field of the record (``energy_j``, ``lower_j``, ``upper_j``) to its trace.
    ``readings`` are those of a sensor. ``peaks`` are peaks over 100 µs that a meter found itself.
    """

    facts: SourceFacts
    parts: Mapping[str, _Part]
    states: Trace | None
    changes: Trace | None
    readings: Readings | None
    peaks: Trace | None

    @classmethod
    def build(
        cls,
        by_key: Mapping[TraceKey, Trace],
        stated: SourceFacts,
        *,
        activity: Sequence[Activity],
        resets_ns: Sequence[int],
    ) -> SourceLedger:
        """Return the ledger of one source, with the sensor's updates inferred from the samples."""
        facts = stated
        channels = {
            "energy_j": facts.figure_channel,
            "lower_j": Channel.LOWER_W,
            "upper_j": Channel.UPPER_W,
        }
        parts, readings = {}, None
        for name, channel in channels.items():
            trace = by_key.get(TraceKey(facts.name, facts.device, channel))
            if trace is None:
                continue
            trace, refused = plausible(trace, facts)
            found = staleness(trace, facts, by_key)
            fresh = trace if found is None else found.without_stale(trace)
            # A meter outside the drive keeps counting while the drive restarts.
            own_resets_ns = resets_ns if facts.asks_drive else ()
            if name == "energy_j" and facts.measures:
                profile, fitted, means, clock = _fit(
                    fresh, facts, activity, own_resets_ns, IndependentTraces.of(by_key, facts).moved
                )
                facts = _with_updates(facts, clock, fresh)
                readings = _readings(fresh, facts, fitted, means)
            else:
                fitted, means = None, None
                profile = profile_of(fresh, facts.sensor, period_s=facts.period_s)
            parts[name] = _Part(
                trace=trace,
                profile=profile,
                staleness=found,
                refused=refused,
                fitted=fitted,
                means=means,
            )
        return cls(
            facts=facts,
            parts=parts,
            states=_fullest(facts.device, Channel.POWER_STATE, by_key),
            changes=_fullest(facts.device, Channel.POWER_STATE_CHANGES, by_key),
            readings=readings,
            peaks=by_key.get(TraceKey(facts.name, facts.device, Channel.PEAK_100US_W)),
        )

    @property
    def sensor(self) -> SensorRecord | None:
        """The sensor as found in the readings, ``None`` without a fit."""
        part = self.parts.get("energy_j")
        return None if part is None or part.fitted is None else part.fitted.sensor

    def span(self) -> Window | None:
        """Return the times of the first and the last reading of power, ``None`` without any."""
        part = self.parts.get("energy_j")
        if part is None or not part.trace.time_ns.size:
            return None
        return int(part.trace.time_ns[0]), int(part.trace.time_ns[-1])

    def idle_w(self, baseline: Window | None) -> ValueOrReason:
        part = self.parts.get("energy_j")
        if part is None or self.facts.evidence not in MEASURING:
            return None, f"{self.facts.name} has no power sensor"
        if baseline is None:
            return None, "no idle baseline was taken"
        if part.refused is not None and part.refused.in_window(*baseline):
            return None, f"in the idle baseline, {part.refused.reason}"
        result = integrate_profile(part.trace, part.profile, self.facts.sensor, [baseline])
        return result.mean_w, f"in the idle baseline, {result.reason}"

    def record(
        self,
        phase: str,
        windows: Sequence[Window],
        *,
        host: str,
        idle: ValueOrReason,
        traffic: ByteSeries | None = None,
    ) -> EnergyRecord:
        """Return the record of the windows of a phase, with a reason for each missing figure."""
        seconds = sum(end_ns - start_ns for start_ns, end_ns in windows) / NS_PER_S
        results = {
            name: integrate_profile(part.trace, part.profile, self.facts.sensor, windows)
            for name, part in self.parts.items()
        }
        energies = {name: self._energy(name, results, windows) for name in ENERGIES}
        energy_j, why_no_energy = energies["energy_j"]
        stated = self._uncertainty(results, windows, energies["energy_j"])
        # Evidence and coverage are those of the energy, else of the bounds.
        decisive = [results["energy_j"]] if "energy_j" in results else list(results.values())
        part = self.parts.get("energy_j")
        stale_s, freshness, why = self._freshness(windows)
        figures: dict[str, tuple[Any, str]] = {
            **energies,
            "mean_w": (None if energy_j is None else energy_j / seconds, why_no_energy),
            "coverage": (
                min((result.coverage for result in decisive), default=None),
                "there are no samples",
            ),
            "idle_w": idle,
            "net_j": (
                None if energy_j is None or idle[0] is None else energy_j - idle[0] * seconds,
                why_no_energy if energy_j is None else idle[1],
            ),
            "uncertainty_j": (stated.total_j, stated.reason or ""),
            "change_count": (
                None
                if part is None
                else sum(part.trace.change_count(*window) for window in windows),
                f"{self.facts.name} does not read power",
            ),
            "max_interval_w": (None, "only a drive's own measurement of the run (25h) has it"),
        }
        statistics = None
        if energy_j is not None and self.readings is not None:
            statistics = power_statistics(self.readings, self.facts, self.peaks, windows)
        why_none = why_no_energy or f"{self.facts.name} has no power sensor"
        figures["statistics"] = statistics, why_none
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
            sample_count=max((result.sample_count for result in decisive), default=0),
            states=self._shares(windows, results, energies, traffic),
            stale_s=stale_s,
            freshness=freshness,
            freshness_reason=why,
            **fields_of(figures),
        )

    def _freshness(self, windows: Sequence[Window]) -> tuple[float, Freshness, str]:
        part = self.parts.get("energy_j")
        if part is None or part.staleness is None or not self.facts.measures:
            return 0.0, "", ""
        judge = part.staleness
        verdicts = [judge.freshness(*window) for window in windows]
        worst = min(verdicts, key=lambda each: _WORST_FIRST.index(each[0]))
        return math.fsum(judge.stale_s(*window) for window in windows), *worst

    def _energy(
        self, name: str, results: Mapping[str, WindowResult], windows: Sequence[Window]
    ) -> ValueOrReason:
        for part in self.parts.values():
            refused = part.refused
            if refused is not None and any(refused.in_window(*window) for window in windows):
                return None, refused.reason
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

    def _uncertainty(
        self,
        results: Mapping[str, WindowResult],
        windows: Sequence[Window],
        energy: ValueOrReason,
    ) -> Uncertainty:
        if "energy_j" in results and energy[0] is None:
            return Uncertainty(total_j=None, parts_j={}, reason=energy[1])
        part = self.parts.get("energy_j")
        if part is None or part.fitted is None:
            reason = f"{self.facts.name} has no power sensor"
            return Uncertainty(total_j=None, parts_j={}, reason=reason)
        return uncertainty(results["energy_j"], part.fitted, self.facts, windows, part.means)

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
        energy = self.record("idle", [time.window], host=host, idle=self.idle_w(None))
        figures = {
            "mean_w": (energy.mean_w, energy.missing.get("mean_w", "")),
            "coverage": (energy.coverage, energy.missing.get("coverage", "")),
        }
        return figures, energy.sample_count, energy.evidence

    def _first_reading(self, after_ns: int) -> ValueOrReason:
        """Return the first reading after a quiet time: a mean over its last part, in watts.

        If that read failed, there is none: the next one measures a drive that is being polled.
        """
        name, part = self.facts.name, self.parts.get("energy_j")
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


def _fit(
    trace: Trace,
    facts: SourceFacts,
    activity: Sequence[Activity],
    resets_ns: Sequence[int],
    moved: Sequence[Trace],
) -> tuple[Profile, FittedPower | None, Profile | None, Clock | None]:
    """Return a trace's fitted power, the fit, a counter's means, and the clock of its updates."""
    means, clock = None, None
    if isinstance(facts.sensor, Counter):
        means = profile_of(trace, facts.sensor, period_s=facts.period_s, resets_ns=resets_ns)
        observed = observe_means(means, facts.sensor.quantum_j)
    else:
        observed, clock = observe(trace, facts)
    declared = declared_response(facts)
    fitted = fit_power(observed, declared, activity, moved)
    if fitted is None:
        nothing = np.empty(0)
        none_ns = nothing.astype(np.int64)
        empty = Profile(
            start_ns=none_ns, end_ns=none_ns, start_w=nothing, end_w=nothing, observed=nothing
        )
        return means or empty, None, means, clock
    profile = fitted_profile(fitted, observed, declared, means, gap_ns=_gap_ns(facts, clock))
    return profile, fitted, means, clock


def _readings(
    trace: Trace, facts: SourceFacts, fitted: FittedPower | None, means: Profile | None
) -> Readings:
    """Return the readings of a trace, timed by the sensor that was found."""
    found = None if fitted is None else fitted.sensor
    if means is not None:
        return Readings.of_counter(means, facts, found)
    return Readings.of_watts(trace, facts, found)


def _gap_ns(facts: SourceFacts, clock: Clock | None) -> int:
    """Return the longest time between two observations that is not a hole, in ns."""
    window_s = facts.sensor.window_s if isinstance(facts.sensor, Boxcar) else 0.0
    update_s = 0.0 if clock is None else clock.period_ns / NS_PER_S
    return max_gap_ns(max(facts.period_s, window_s / GAP_PERIODS, update_s))


def _with_updates(facts: SourceFacts, clock: Clock | None, trace: Trace) -> SourceFacts:
    """Return the facts with a sensor's updates as the readings show them."""
    sensor = facts.sensor
    if clock is not None and isinstance(sensor, Boxcar):
        updates = {
            "update_period_s": clock.period_ns / NS_PER_S,
            "phase_s": clock.phase_ns / NS_PER_S,
            "unseen_s": clock.slack_s,
        }
        return facts.model_copy(update={"sensor": sensor.model_copy(update=updates)})
    if clock is not None and isinstance(sensor, Instant):
        held = sensor.model_copy(update={"update_period_s": clock.period_ns / NS_PER_S})
        return facts.model_copy(update={"sensor": held})
    if isinstance(sensor, Boxcar) and sensor.update_period_s is None and is_new_at_each_read(trace):
        read_s = trace.usual_period_s() or 0.0
        unseen = {"update_period_s": 0.0, "unseen_s": min(read_s, sensor.window_s)}
        return facts.model_copy(update={"sensor": sensor.model_copy(update=unseen)})
    return facts


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
