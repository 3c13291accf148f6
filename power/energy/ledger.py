"""The ledger of a host's energy: all power figures of a record, from the samples of one run.

Samples are indexed once. Each source of a device then has one ``SourceLedger``. From these come the
energy of each phase, of the whole run and of idle time, and the cost of polling. If a device has
several sources, the best one is marked for each phase (``mark_chosen``).

The energy of the whole run is reported by every source that measures. A drive that integrates its
own power (NVMe feature 25h) reports one mean from start to stop, which is never split into phases.
Idle power is measured twice, polled and quiet, because a drive that is read ten times a second may
never sleep. The difference is the cost of polling.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wattload.core.power import (
    EVIDENCE_RANK,
    MEASURING,
    Channel,
    Counter,
    Evidence,
    Integral,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
)
from wattload.core.record.energy import (
    WHOLE_RUN,
    CalibrationRecord,
    EnergyRecord,
    IdleRecord,
    Moment,
    PollingCost,
    SensorRecord,
)
from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import Activity, RunTimes, overlapping, tails
from wattload.power.energy.integration import COVERAGE_FACTOR, Window
from wattload.power.energy.profile import fall_count
from wattload.power.energy.source_ledger import IdleTime, SourceLedger
from wattload.power.energy.trace import (
    ByteSeries,
    Trace,
    TraceKey,
    ValueOrReason,
    Values,
    fields_of,
    refused_energy,
    traces,
)
from wattload.power.energy.uncertainty import Uncertainty
from wattload.power.registry import AUTO


class EnergyLedger:
    """The energy of one host's run, by device and source."""

    def __init__(
        self,
        samples: Iterable[Sample] | Mapping[TraceKey, Trace],
        sources: Sequence[SourceFacts],
        *,
        host: str,
        activity: Sequence[Activity] = (),
        baseline: Window | None = None,
        baseline_after: Window | None = None,
        rests: Sequence[Window] = (),
        calibrations: Sequence[CalibrationRecord] = (),
        resets_ns: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Index the samples and prepare the power over time of each source.

        ``samples`` may be indexed already, as ``traces`` does it.
        ``activity`` is all known work on the host, timed or not: power may jump where it begins or
        ends.
        ``baseline`` and ``baseline_after`` are start and end of the idle times before and after the
        job in ns, ``None`` if there was none, and ``rests`` those of the rests directly behind it.
        ``calibrations`` are those of this host's sources, the latest last.
        ``resets_ns`` maps a device to its known restarts in ns. Sources without evidence have no
        figures. An energy that a device integrates itself is reported for the whole run only.
        """
        self._host = host
        self._sources = sources
        self._times = RunTimes(
            activity=activity, before=baseline, after=baseline_after, rests=rests
        )
        self._by_key = samples if isinstance(samples, Mapping) else traces(samples)
        resets = resets_ns or {}
        self._ledgers = {
            (facts.name, facts.device): SourceLedger.build(
                self._by_key,
                facts,
                times=self._times,
                calibrations=calibrations,
                resets_ns=resets.get(facts.device, ()),
            )
            for facts in sources
            if facts.evidence is not Evidence.NONE and not isinstance(facts.sensor, Integral)
        }

    def sensor(self, facts: SourceFacts) -> SensorRecord | None:
        """Return the sensor of a source as its energies use it, ``None`` without readings."""
        ledger = self._ledgers.get((facts.name, facts.device))
        return None if ledger is None else ledger.sensor

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
        own = [each for each in windows if each.timed and each.host == self._host]
        records = [
            ledger.record(
                window.name,
                window.intervals,
                host=self._host,
                idle=ledger.idle_w(),
                traffic=series.get((window.name, ledger.facts.device)),
                tail=tail,
                others=overlapping(window, own),
            )
            for window, tail in zip(own, tails(own, self._times), strict=True)
            for ledger in self._ledgers.values()
        ]
        found = {key: ledger.sensor for key, ledger in self._ledgers.items()}
        return mark_chosen(records, found, takes_declared=requested != AUTO)

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
            none = (None, "idle power is not subtracted from a whole run")
            records += [
                ledger.record(WHOLE_RUN, [window], host=self._host, idle=none)
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
            **fields_of(figures),
        )


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
    reason = next(iter(reasons), "")
    difference_w = None
    if polled.mean_w is not None and quiet.mean_w is not None:
        difference_w = polled.mean_w - quiet.mean_w
    figures: dict[str, ValueOrReason] = {
        "polled_w": (polled.mean_w, reason),
        "quiet_w": (quiet.mean_w, reason),
        "difference_w": (difference_w, reason),
    }
    return PollingCost(
        host=polled.host,
        device=polled.device,
        source=polled.source,
        moment=polled.moment,
        **fields_of(figures),
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
        **dict.fromkeys(
            ("tail_j", "tail_uncertainty_j", "work_uncertainty_j"),
            (None, "only timed phases have a tail"),
        ),
        "max_interval_w": (
            None if refused or energy.reason else energy.max_w,
            refused or energy.reason or "the device does not report it",
        ),
        "statistics": (None, "the device reports one mean only"),
    }
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
        **fields_of(figures),
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


def mark_chosen(
    records: Sequence[EnergyRecord],
    sensors: Mapping[tuple[str, str], SensorRecord | None],
    *,
    takes_declared: bool,
) -> tuple[EnergyRecord, ...]:
    """Return the records, with the best of each window, device and scope marked.

    ``sensors`` are those used, by name and device of the source. Measured energies come first, but
    those of a sensor that did not respond to its calibration after the others; bounds and data
    sheets are last. Within each of these, an energy with a total
    uncertainty is preferred, the smallest first; then an energy without one, by its evidence and
    the known parts of its uncertainty; then an interval; then an upper bound. A record without a
    figure is never chosen, a data sheet only on request (``takes_declared``).
    """
    groups: defaultdict[tuple[str, int, str, Scope], list[EnergyRecord]] = defaultdict(list)
    for record in records:
        if record.energy_j is None and record.upper_j is None:
            continue
        if takes_declared or record.evidence is not Evidence.DECLARED:
            groups[record.phase, record.start_ns, record.device, record.scope].append(record)
    chosen = {
        id(min(group, key=lambda each: _order(each, sensors.get((each.source, each.device)))))
        for group in groups.values()
    }
    return tuple(
        record.model_copy(update={"chosen": True}) if id(record) in chosen else record
        for record in records
    )


def _order(record: EnergyRecord, sensor: SensorRecord | None) -> tuple[int, int, int, float]:
    """Return the rank of a record: first by its sensor, then by its kind of figure."""
    doubt, strength = _doubt(record, sensor), EVIDENCE_RANK[record.evidence]
    if record.uncertainty_j is not None:
        return doubt, 0, 0, record.uncertainty_j
    if record.energy_j is not None:
        return doubt, 1, strength, math.hypot(*record.uncertainty_parts_j.values())
    if record.lower_j is not None and record.upper_j is not None:
        return doubt, 2, strength, record.upper_j - record.lower_j
    return doubt, 3, strength, record.upper_j or 0.0


def _doubt(record: EnergyRecord, sensor: SensorRecord | None) -> int:
    """Return how little a figure's sensor is trusted, from 0; 2 for what is not measured."""
    if record.energy_j is None or record.evidence not in MEASURING:
        return 2
    return int(sensor is not None and sensor.responds is False)
