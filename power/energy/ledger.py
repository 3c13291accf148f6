"""The ledger of a host's energy: all power figures of a record, from the samples of one run.

Samples are indexed once. Each source of a device then becomes one ``SourceLedger``: its power over
time, with the sensor inferred from all of its samples. All figures come from these ledgers: the
energy of each phase, of the whole run and of idle time, the cost of polling, and throttling. If a
device has several sources, the best one is marked for each phase.

A phase that was entered several times counts over its active intervals only. Between two epochs or
two checkpoints a run does other work: it evicts caches or reads back what it wrote. That energy
does not belong to the phase's bytes.

The energy of the whole run is reported by every source that measures. A drive that integrates its
own power (NVMe feature 25h) reports one mean from start to stop, which is never split into phases.
Idle power is measured twice, polled and quiet, because a drive that is read ten times a second may
never sleep. The difference is the cost of polling.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.power import (
    EVIDENCE_RANK,
    MEASURING,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    Integral,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
    weakest,
)
from wattload.core.record.energy import (
    WHOLE_RUN,
    EnergyRecord,
    Freshness,
    IdleRecord,
    Moment,
    PollingCost,
    PowerStateShare,
    SensorRecord,
    ThrottlingRecord,
)
from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import Activity
from wattload.power.energy.integration import (
    COVERAGE_FACTOR,
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
from wattload.power.energy.power_states import ENERGIES, DivisibleEnergy, shares, throttling_records
from wattload.power.energy.profile import GAP_PERIODS, Profile, fall_count, max_gap_ns, profile_of
from wattload.power.energy.staleness import Staleness, staleness
from wattload.power.energy.statistics import Readings, ValueOrReason, power_statistics
from wattload.power.energy.trace import (
    ByteSeries,
    Refused,
    Trace,
    TraceKey,
    Values,
    plausible,
    refused_energy,
    traces,
)
from wattload.power.registry import AUTO

_WORST_FIRST: tuple[Freshness, ...] = ("stale", "fresh", "unjudged", "")
"""Order of verdicts of several intervals: one too short to judge does not outweigh the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """An idle time before or after the run, polled or quiet."""

    moment: Moment
    polled: bool
    window: Window


class EnergyLedger:
    """The energy of one host's run, by device and source."""

    def __init__(
        self,
        samples: Iterable[Sample],
        sources: Sequence[SourceFacts],
        *,
        host: str,
        activity: Sequence[Activity] = (),
        baseline: Window | None = None,
        resets_ns: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Index the samples and fit the power over time of each source.

        ``activity`` is all known work on the host, timed or not: power may jump where it begins or
        ends.
        ``baseline`` is the start and end of the idle baseline in ns, ``None`` if none was taken.
        ``resets_ns`` maps a device to its known restarts in ns. Sources without evidence have no
        figures. An energy that a device integrates itself is reported for the whole run only.
        """
        self._host = host
        self._sources = sources
        self._baseline = baseline
        self._by_key = traces(samples)
        resets = resets_ns or {}
        self._ledgers = {
            (facts.name, facts.device): SourceLedger.build(
                self._by_key,
                facts,
                activity=activity,
                resets_ns=resets.get(facts.device, ()),
            )
            for facts in sources
            if facts.evidence is not Evidence.NONE and not isinstance(facts.sensor, Integral)
        }

    def resolve(self, facts: SourceFacts) -> SourceFacts:
        """Return the facts of a source, with an averaging sensor's updates as inferred."""
        ledger = self._ledgers.get((facts.name, facts.device))
        return facts if ledger is None else ledger.facts

    def sensor(self, facts: SourceFacts) -> SensorRecord | None:
        """Return what the readings of a source show of its sensor, ``None`` without a fit."""
        ledger = self._ledgers.get((facts.name, facts.device))
        part = None if ledger is None else ledger.parts.get("energy_j")
        if part is None or part.fitted is None:
            return None
        return _sensor_record(part.fitted)

    def fall_count(self, facts: SourceFacts) -> int:
        """Return how often the counter of a source decreased without having wrapped."""
        trace = self._by_key.get(TraceKey(facts.name, facts.device, Channel.ENERGY_J))
        if trace is None or not isinstance(facts.sensor, Counter):
            return 0
        return fall_count(trace, facts.sensor)

    def phase_records(
        self,
        windows: Iterable[PhaseWindow],
        *,
        traffic: Mapping[tuple[str, str], ByteSeries] | None = None,
        requested: str = AUTO,
    ) -> tuple[EnergyRecord, ...]:
        """Return the energy of each timed phase of the host, by device and source.

        The best record of each phase, device and scope is marked as ``chosen``. ``traffic`` maps
        (phase, device) to bytes over time; without it, shares have no bytes. ``requested`` is the
        source that the user selected: a data sheet is chosen only on request.
        """
        series = traffic or {}
        idle_w = {key: ledger.idle_w(self._baseline) for key, ledger in self._ledgers.items()}
        records = []
        for window in windows:
            if not window.timed or window.host != self._host:
                continue
            for key, ledger in self._ledgers.items():
                record = ledger.record(
                    window.name,
                    window.active_intervals,
                    host=self._host,
                    idle=idle_w[key],
                    traffic=series.get((window.name, ledger.facts.device)),
                )
                records.append(record)
        found = {key: self.sensor(ledger.facts) for key, ledger in self._ledgers.items()}
        return _mark_chosen(records, found, takes_declared=requested != AUTO)

    def whole_run_records(
        self, own: Iterable[WindowEnergy | EnergyRecord] = (), *, polled: Window | None = None
    ) -> tuple[EnergyRecord, ...]:
        """Return the energy of the whole run by each source that measures.

        ``own`` are the energies that devices integrated themselves, or their records: no samples
        enter them. The samples of such a device
        are integrated over the same window. Others are integrated from the first sample to the
        last within ``polled``, the time in which drives were polled (``None``: always).
        """
        scopes = {facts.device: facts.scope for facts in reversed(self._sources)}
        integrated: defaultdict[str, list[Window]] = defaultdict(list)
        records = []
        for energy in own:
            if isinstance(energy, EnergyRecord):
                records.append(energy)
            else:
                scope = scopes.get(energy.device, Scope.DRIVE)
                records.append(_own_record(energy, scope, host=self._host))
            integrated[energy.device].append((energy.start_ns, energy.end_ns))
        for ledger in self._ledgers.values():
            span = ledger.span()
            if span is None or not ledger.facts.measures:
                continue
            if polled is not None:
                span = max(span[0], polled[0]), min(span[1], polled[1])
            idle = ledger.idle_w(None)
            records += [
                ledger.record(WHOLE_RUN, [window], host=self._host, idle=idle)
                for window in dict.fromkeys(integrated[ledger.facts.device] or [span])
            ]
        return tuple(records)

    def idle_records(self, times: Sequence[IdleTime]) -> tuple[IdleRecord, ...]:
        """Return the idle power of each drive, by each source that measures it, for each time."""
        return tuple(
            self._idle_record(ledger, time)
            for ledger in self._ledgers.values()
            if ledger.facts.scope is Scope.DRIVE and ledger.facts.measures
            for time in times
        )

    def _idle_record(self, ledger: SourceLedger, time: IdleTime) -> IdleRecord:
        facts, (start_ns, end_ns) = ledger.facts, time.window
        temperatures = (
            trace
            for key, trace in self._by_key.items()
            if key.device == facts.device and key.channel is Channel.TEMPERATURE_K
        )
        power, sample_count, evidence = ledger.idle_power(time, host=self._host)
        figures = {
            **power,
            "power_state": _constant(ledger.states, time.window),
            "temperature_k": _mean(next(temperatures, None), time.window),
        }
        return IdleRecord(
            host=self._host,
            device=facts.device,
            source=facts.name,
            evidence=evidence,
            moment=time.moment,
            polled=time.polled,
            start_ns=start_ns,
            end_ns=end_ns,
            seconds=(end_ns - start_ns) / NS_PER_S,
            sample_count=sample_count,
            missing={name: reason for name, (value, reason) in figures.items() if value is None},
            **{name: value for name, (value, _) in figures.items()},
        )

    def throttling_records(self, windows: Sequence[PhaseWindow]) -> tuple[ThrottlingRecord, ...]:
        """Return the growth of each drive's thermal counters in each timed phase of the host."""
        return throttling_records(self._by_key, windows, host=self._host)


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
                profile, fitted, means, clock = _fit(fresh, facts, activity, own_resets_ns)
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

    def span(self) -> Window | None:
        """Return the times of the first and the last reading of power, ``None`` without any."""
        part = self.parts.get("energy_j")
        if part is None or not part.trace.time_ns.size:
            return None
        return int(part.trace.time_ns[0]), int(part.trace.time_ns[-1])

    def idle_w(self, baseline: Window | None) -> ValueOrReason:
        """Return the mean power in the idle baseline."""
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
        figures: dict[str, ValueOrReason] = {
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
        statistics, why_none = None, why_no_energy or f"{self.facts.name} has no power sensor"
        if energy_j is not None and self.readings is not None:
            statistics = power_statistics(self.readings, self.facts, self.peaks, windows)
        missing = {name: why for name, (value, why) in figures.items() if value is None}
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
            statistics=statistics,
            missing=missing | ({} if statistics else {"statistics": why_none}),
            **{name: value for name, (value, _) in figures.items()},
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
    trace: Trace, facts: SourceFacts, activity: Sequence[Activity], resets_ns: Sequence[int]
) -> tuple[Profile, FittedPower | None, Profile | None, Clock | None]:
    """Return a trace's fitted power, the fit, a counter's means, and the clock of its updates."""
    means, clock = None, None
    if isinstance(facts.sensor, Counter):
        means = profile_of(trace, facts.sensor, period_s=facts.period_s, resets_ns=resets_ns)
        observed = observe_means(means, facts.sensor.quantum_j)
    else:
        observed, clock = observe(trace, facts)
    declared = declared_response(facts)
    fitted = fit_power(observed, declared, activity)
    if fitted is None:
        nothing = np.empty(0)
        none_ns = nothing.astype(np.int64)
        empty = Profile(
            start_ns=none_ns, end_ns=none_ns, start_w=nothing, end_w=nothing, observed=nothing
        )
        return means or empty, None, means, clock
    profile = fitted_profile(fitted, observed, declared, means, gap_ns=_gap_ns(facts, clock))
    return profile, fitted, means, clock


def _sensor_record(fitted: FittedPower) -> SensorRecord:
    found = fitted.sensor
    return SensorRecord(
        shape=found.response.shape,
        window_s=found.response.window_s,
        window_uncertainty_s=found.window_u_s,
        lag_s=found.response.lag_s,
        lag_uncertainty_s=found.lag_u_s,
        is_declared=found.is_declared,
        is_known=found.is_known,
        is_explained=found.is_explained,
        edge_residual_w=found.edge_residual_w,
        residual_w=found.residual_w,
    )


def _readings(
    trace: Trace, facts: SourceFacts, fitted: FittedPower | None, means: Profile | None
) -> Readings:
    """Return the readings of a trace, timed by the sensor that was found."""
    found = None if fitted is None else _sensor_record(fitted)
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


def _values(trace: Trace, window: Window) -> Values:
    """Return the successful readings in a window, in time order."""
    inside = (trace.time_ns >= window[0]) & (trace.time_ns <= window[1]) & ~np.isnan(trace.value)
    return trace.value[inside]


def _constant(trace: Trace | None, window: Window) -> tuple[int | None, str]:
    values = np.unique(_values(trace, window)) if trace is not None else np.empty(0)
    if values.size == 1:
        return int(values[0]), ""
    return None, "it changed during the window" if values.size else "no power state was read"


def _mean(trace: Trace | None, window: Window) -> tuple[float | None, str]:
    values = _values(trace, window) if trace is not None else np.empty(0)
    return (float(values.mean()), "") if values.size else (None, "no temperature was read")


def polling_costs(records: Iterable[IdleRecord]) -> tuple[PollingCost, ...]:
    """Return polled minus quiet idle power, for each source and moment that has both."""
    pairs: defaultdict[tuple[str, str, str, Moment], dict[bool, IdleRecord]] = defaultdict(dict)
    for record in records:
        pairs[record.host, record.device, record.source, record.moment][record.polled] = record
    return tuple(
        _cost(pair[True], pair[False]) for pair in pairs.values() if True in pair and False in pair
    )


def _cost(polled: IdleRecord, quiet: IdleRecord) -> PollingCost:
    reasons = [record.missing["mean_w"] for record in (polled, quiet) if record.mean_w is None]
    known = polled.mean_w is not None and quiet.mean_w is not None
    figures = {
        "polled_w": polled.mean_w,
        "quiet_w": quiet.mean_w,
        "difference_w": (polled.mean_w or 0.0) - (quiet.mean_w or 0.0) if known else None,
    }
    return PollingCost(
        host=polled.host,
        device=polled.device,
        source=polled.source,
        moment=polled.moment,
        missing={name: reasons[0] for name, watts in figures.items() if watts is None},
        **figures,
    )


def _mark_chosen(
    records: Sequence[EnergyRecord],
    sensors: Mapping[tuple[str, str], SensorRecord | None],
    *,
    takes_declared: bool,
) -> tuple[EnergyRecord, ...]:
    """Return the records, with the best of each window, device and scope marked.

    ``sensors`` are those found, by name and device of the source. Energies of a sensor as declared
    come first, then those of one found other than declared, then of readings that no sensor
    explains; bounds and data sheets are last. Among equals, ``choose_record`` decides.
    """
    groups: defaultdict[tuple[str, int, str, Scope], list[EnergyRecord]] = defaultdict(list)
    for record in records:
        groups[record.phase, record.start_ns, record.device, record.scope].append(record)
    best = []
    for group in groups.values():
        ranked: defaultdict[int, list[EnergyRecord]] = defaultdict(list)
        for each in group:
            ranked[_doubt(each, sensors.get((each.source, each.device)))].append(each)
        choices = (
            choose_record(ranked[rank], takes_declared=takes_declared) for rank in sorted(ranked)
        )
        best.append(next(filter(None, choices), None))
    chosen = {id(record) for record in best if record is not None}
    return tuple(
        record.model_copy(update={"chosen": True}) if id(record) in chosen else record
        for record in records
    )


def _doubt(record: EnergyRecord, sensor: SensorRecord | None) -> int:
    """Return how little a figure's sensor is trusted, from 0; 3 for what is not measured."""
    if record.energy_j is None or record.evidence not in MEASURING:
        return 3
    if sensor is None or sensor.is_explained:
        return int(sensor is not None and not sensor.is_as_declared)
    return 2


def choose_record(
    candidates: Iterable[EnergyRecord], *, takes_declared: bool
) -> EnergyRecord | None:
    """Return the best of one device's records of one window, ``None`` if none has a figure.

    Preferred is an energy with a total uncertainty, the smallest first; then an energy without one,
    by its evidence and the known parts of its uncertainty; then an interval; then an upper bound.
    A data sheet is taken only on request (``takes_declared``).
    """
    allowed = [
        record
        for record in candidates
        if (record.energy_j is not None or record.upper_j is not None)
        and (takes_declared or record.evidence is not Evidence.DECLARED)
    ]
    return min(allowed, key=_order, default=None)


def _order(record: EnergyRecord) -> tuple[int, int, float]:
    strength = EVIDENCE_RANK[record.evidence]
    if record.uncertainty_j is not None:
        return 0, 0, record.uncertainty_j
    if record.energy_j is not None:
        return 1, strength, math.hypot(*record.uncertainty_parts_j.values())
    if record.lower_j is not None and record.upper_j is not None:
        return 2, strength, record.upper_j - record.lower_j
    return 3, strength, record.upper_j or 0.0


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _join_shares(state: str, shares: Sequence[PowerStateShare]) -> PowerStateShare:
    names = ("moved_bytes", *ENERGIES)
    values = {name: _sum([getattr(share, name) for share in shares]) for name in names}
    reasons = {name: why for share in reversed(shares) for name, why in share.missing.items()}
    return PowerStateShare(
        state=state,
        seconds=sum(share.seconds for share in shares),
        missing={name: reasons[name] for name, value in values.items() if value is None},
        **values,
    )


def _own_record(energy: WindowEnergy, scope: Scope, *, host: str) -> EnergyRecord:
    """Return the record of an energy that a device integrated itself."""
    seconds = (energy.end_ns - energy.start_ns) / NS_PER_S
    refused = refused_energy(energy.energy_j, seconds)
    energy_j = energy.energy_j if seconds > 0 and not refused else None
    reason = (
        refused
        or energy.reason
        or ("the device reported no energy" if seconds > 0 else "the window is empty")
    )
    stated = _own_uncertainty(energy, seconds)
    uncovered_s = energy.uncovered_s if seconds > 0 else None
    figures: dict[str, ValueOrReason] = {
        "energy_j": (energy_j, reason),
        "mean_w": (None if energy_j is None else energy_j / seconds, reason),
        "uncertainty_j": (stated.total_j, stated.reason or ""),
        "coverage": (
            None if uncovered_s is None else max(0.0, 1 - uncovered_s / seconds),
            "the device does not report how much of the time its mean covers",
        ),
        **dict.fromkeys(("lower_j", "upper_j"), (None, "it is an energy, not a bound")),
        "change_count": (None, "it is a single reading"),
        **dict.fromkeys(
            ("idle_w", "net_j"), (None, "idle power is not subtracted from a whole run")
        ),
        "max_interval_w": (
            None if refused or energy.reason else energy.max_w,
            refused or energy.reason or "the device does not report it",
        ),
    }
    missing = {name: why for name, (value, why) in figures.items() if value is None}
    return EnergyRecord(
        host=host,
        device=energy.device,
        source=energy.source,
        scope=scope,
        evidence=energy.evidence,
        phase=WHOLE_RUN,
        start_ns=energy.start_ns,
        end_ns=energy.end_ns,
        seconds=seconds,
        uncertainty_parts_j=stated.parts_j,
        sample_count=1,
        histogram=energy.histogram,
        missing=missing | {"statistics": "the device reports one mean only"},
        **{name: value for name, (value, _) in figures.items()},
    )


def _own_uncertainty(energy: WindowEnergy, seconds: float) -> Uncertainty:
    """Return gain, quantisation and gap at k = 2, as for a sampled energy.

    The gap is the possible energy of the seconds that the mean leaves out: their power was between
    0 and the maximum that the device measured.
    """
    refused = refused_energy(energy.energy_j, seconds)
    if energy.energy_j is None or seconds <= 0 or refused:
        reason = refused or energy.reason or "there is no energy"
        return Uncertainty(total_j=None, parts_j={}, reason=reason)
    parts_j: dict[str, float] = {}
    if energy.accuracy_percent is not None:
        parts_j["gain"] = abs(energy.energy_j) * energy.accuracy_percent / 100
    if energy.resolution_w is not None:
        parts_j["quantisation"] = COVERAGE_FACTOR * energy.resolution_w / math.sqrt(12) * seconds
    mean_w = energy.energy_j / seconds
    if energy.uncovered_s == 0:
        parts_j["gap"] = 0.0
    elif energy.uncovered_s is not None and energy.max_w is not None:
        parts_j["gap"] = max(mean_w, energy.max_w - mean_w) * energy.uncovered_s
    unknown = [name for name in ("gain", "quantisation", "gap") if name not in parts_j]
    if unknown:
        reason = f"the {' and '.join(unknown)} uncertainty of {energy.source} is unknown"
        return Uncertainty(total_j=None, parts_j=parts_j, reason=reason)
    return Uncertainty(total_j=math.hypot(*parts_j.values()), parts_j=parts_j, reason=None)
