"""The energy of a finished run: its samples in a ledger, and the record's power section."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wattload.core.errors import RecordError
from wattload.core.power import Evidence, Integral, Scope, SourceFacts
from wattload.core.record.energy import (
    ENERGY_MODEL,
    CalibrationRecord,
    EnergyRecord,
    HostPower,
    Moment,
    PowerSection,
    PowerSourceRecord,
    PowerStateRecord,
    SamplerRecord,
)
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerState
from wattload.power.config import PowerConfig
from wattload.power.drive_counts import throttling_records, written_records
from wattload.power.energy.activity import Activity, RunTimes
from wattload.power.energy.drive_integrals import own_record
from wattload.power.energy.idle import IdleTime
from wattload.power.energy.integration import Course
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.energy.sensor import NOT_CALIBRATED
from wattload.power.energy.trace import Trace, TraceKey
from wattload.power.sampler.protocol import ControllerReading
from wattload.run.phases import REST_PHASE, PhaseTraffic, bytes_over_time
from wattload.run.power_session import (
    CALIBRATION_PHASE,
    IDLE_AFTER_PHASE,
    IDLE_PHASE,
    QUIET_AFTER_PHASE,
    QUIET_PHASE,
    PowerReport,
)
from wattload.run.traces import read_power, read_throughput

OfHost = TypeVar("OfHost", PhaseWindow, PhaseTraffic)

NO_SAMPLER = "the run ended before its energy was computed"

_IDLE_TIMES: tuple[tuple[str, Moment, bool], ...] = (
    (QUIET_PHASE, "before", False),
    (IDLE_PHASE, "before", True),
    (IDLE_AFTER_PHASE, "after", True),
    (QUIET_AFTER_PHASE, "after", False),
)
"""Each idle phase, whether it is before or after the run, and whether the drive is polled."""
_NOT_OF_THE_JOB = (REST_PHASE, CALIBRATION_PHASE, *(name for name, _, _ in _IDLE_TIMES))


def pending_section(config: PowerConfig) -> PowerSection:
    """Return the section of a run that has not finished."""
    return PowerSection(requested=config.source, choice=NO_SAMPLER, idle_s=config.idle_s or 0.0)


def with_samples_found(report: PowerReport, folder: Path) -> PowerReport:
    """Return the report without its samples file if that is gone, and then with the reason."""
    if report.samples_file is None or (folder / report.samples_file).exists():
        return report
    lost = f"{folder / report.samples_file} has disappeared during the run"
    return replace(report, samples_file=None, lost=report.lost or lost)


HostTraces = Mapping[TraceKey, Trace]
"""The samples of one host, as traces."""


HostEnergy = Mapping[str, Sequence[Any]]
"""One host's entries for each part of the power section, by the part's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one host's energies are computed from, besides samples, phases and bytes.

    ``own`` are the energies that devices integrated themselves. ``restarted`` are the serials of
    drives that were off at least once during the run, ``drive_count`` the number of drives under
    the targets.
    """

    power: HostPower
    sources: tuple[PowerSourceRecord, ...]
    states: tuple[PowerStateRecord, ...]
    own: tuple[EnergyRecord, ...]
    calibrations: tuple[CalibrationRecord, ...]
    samplers: tuple[SamplerRecord, ...]
    restarted: frozenset[str]
    drive_count: int

    @property
    def host(self) -> str:
        return self.power.host

    @classmethod
    def of_report(cls, report: PowerReport) -> Measured:
        """Return what a host's leader reported at the end of the run."""
        opened, finished = report.opened, report.finished
        cost = None if finished is None else finished.cost
        scopes = {
            source.device: source.facts.scope
            for source in opened.sources
            if source.facts is not None
        }
        return cls(
            power=_host_power(report),
            sources=opened.sources,
            states=(finished or opened).states,
            own=tuple(
                own_record(energy, scopes.get(energy.device, Scope.DRIVE), host=report.host)
                for energy in (finished.own_energies if finished else ())
            ),
            calibrations=report.calibrations,
            samplers=() if cost is None else (cost,),
            restarted=_restarted(
                (each.serial, _power_cycles(each), _power_cycles(finished.controllers.get(name)))
                for name, each in opened.controllers.items()
            )
            if finished
            else frozenset(),
            drive_count=len(report.devices),
        )

    @classmethod
    def of_record(cls, record: RunRecord, power: HostPower) -> Measured:
        section, host = record.power, power.host
        sources = tuple(each for each in section.sources if each.host == host)
        integrals = {
            (each.name, each.device)
            for each in sources
            if each.facts is not None and isinstance(each.facts.sensor, Integral)
        }
        own = [each for each in record.controllers if each.facts.host == host]
        counted = {each.device for each in record.counters if each.host == host}
        return cls(
            power=power,
            sources=sources,
            states=tuple(each for each in section.states if each.host == host),
            own=tuple(
                each
                for each in section.whole_run
                if each.host == host and (each.source, each.device) in integrals
            ),
            calibrations=tuple(each for each in section.calibrations if each.host == host),
            samplers=tuple(each for each in section.samplers if each.host == host),
            restarted=_restarted(
                (each.facts.serial, _recorded_cycles(each.before), _recorded_cycles(each.after))
                for each in own
            ),
            drive_count=len(own) or len(counted),
        )


def energy_of_host(
    config: PowerConfig,
    report: PowerReport,
    windows: Sequence[PhaseWindow],
    samples: HostTraces,
    traffic: Sequence[PhaseTraffic],
) -> HostEnergy:
    """Return what a host adds to the power section; windows and traffic are its own."""
    return _of_host(config.source, Measured.of_report(report), windows, samples, traffic)


def power_section(config: PowerConfig, of_hosts: Sequence[HostEnergy]) -> PowerSection:
    """Return the power section, with the energy of each timed phase on each host."""
    return _section(config.source, of_hosts) if of_hosts else pending_section(config)


def recomputed_section(record: RunRecord, folder: Path) -> PowerSection:
    """Return the power section of a record recomputed from the traces in the run's folder.

    Raises:
        RecordError: the record has no energies, or a trace is missing, unreadable, or does not
            match the record.
    """
    section = record.power
    if record.status != "complete" or not section.hosts:
        raise RecordError(f"{record.run_id} has no energies to recompute: {section.choice}")
    samples = read_power(folder, record.traces, [power.host for power in section.hosts])
    windows, traffic = _by_host(record.windows), _by_host(read_throughput(folder, record.traces))
    of_hosts = [
        _of_host(
            section.requested,
            Measured.of_record(record, power),
            windows[power.host],
            samples[power.host],
            traffic[power.host],
        )
        for power in section.hosts
    ]
    return _section(section.requested, of_hosts)


def _by_host(items: Iterable[OfHost]) -> Mapping[str, Sequence[OfHost]]:
    found: defaultdict[str, list[OfHost]] = defaultdict(list)
    for item in items:
        found[item.host].append(item)
    return found


def _section(requested: str, of_hosts: Sequence[HostEnergy]) -> PowerSection:
    parts = {name: tuple(item for one in of_hosts for item in one[name]) for name in of_hosts[0]}
    return PowerSection(
        requested=requested,
        choice=_choice(parts["hosts"]),
        idle_s=min(host.idle_s for host in parts["hosts"]),
        rest_s=min(host.rest_s for host in parts["hosts"]),
        energy_model=ENERGY_MODEL,
        **parts,
    )


def _of_host(
    requested: str,
    measured: Measured,
    own: Sequence[PhaseWindow],
    samples: HostTraces,
    traffic: Sequence[PhaseTraffic],
) -> HostEnergy:
    spans = {window.name: (window.start_ns, window.end_ns) for window in own}
    sources = used_sources(measured.sources)
    of_rests = [window for window in own if window.name == REST_PHASE]
    pauses = {parent for window in of_rests for parent in window.parents}
    rests = [rest for window in of_rests for rest in window.intervals]
    ledger = EnergyLedger(
        samples,
        sources,
        host=measured.host,
        times=RunTimes(
            activity=[
                Activity(start_ns=start_ns, end_ns=end_ns, name=window.name)
                for window in own
                if window.name not in _NOT_OF_THE_JOB and not window.is_part
                for start_ns, end_ns in window.intervals
                if window.name not in pauses or not _has_a_rest(start_ns, end_ns, rests)
            ],
            loads=[
                interval
                for window in own
                if window.name == CALIBRATION_PHASE
                for interval in window.intervals
            ],
            before=spans.get(IDLE_PHASE),
            after=spans.get(IDLE_AFTER_PHASE),
            rests=rests,
        ),
        calibrations=measured.calibrations,
        resets_ns=_resets_ns(measured.restarted, samples),
    )
    last_ns = max((int(trace.time_ns[-1]) for trace in samples.values()), default=0)
    return {
        "hosts": [measured.power],
        "sources": [
            _resolve_source(source, ledger, measured.power.not_calibrated)
            for source in measured.sources
        ],
        "states": measured.states,
        "energy": ledger.phase_records(
            own,
            moved_bytes=_moved_bytes(sources, own, traffic) if measured.drive_count == 1 else {},
            requested=requested,
        ),
        "whole_run": ledger.whole_run_records(
            measured.own,
            polled=(
                spans[QUIET_PHASE][1] if QUIET_PHASE in spans else 0,
                spans[QUIET_AFTER_PHASE][0] if QUIET_AFTER_PHASE in spans else last_ns,
            ),
        ),
        "idle": ledger.idle_records(
            [
                IdleTime(moment=moment, polled=polled, window=spans[name])
                for name, moment, polled in _IDLE_TIMES
                if name in spans and samples
            ]
        ),
        "samplers": measured.samplers,
        "calibrations": measured.calibrations,
        "throttling": throttling_records(samples, own, host=measured.host),
        "written": written_records(samples, own, host=measured.host),
    }


def _has_a_rest(start_ns: int, end_ns: int, rests: Iterable[tuple[int, int]]) -> bool:
    """Return whether a pause has a rest in it, in which no drive was used."""
    return any(rest_ns < end_ns and start_ns < until_ns for rest_ns, until_ns in rests)


def _restarted(cycles: Iterable[tuple[str, int | None, int | None]]) -> frozenset[str]:
    """Return the serials of the drives that were off at least once during the run.

    ``cycles`` are the serial of each drive and its power cycles (SMART bytes 112 to 127) before and
    after the run.
    """
    return frozenset(
        serial
        for serial, before, after in cycles
        if before is not None and after is not None and after > before
    )


def _resets_ns(restarted: Container[str], samples: HostTraces) -> Mapping[str, list[int]]:
    """Return the times at which drives may have been reset, in ns, by serial.

    The reads of a drive fail while it is off, so the times are those of its failed reads.
    """
    failed: defaultdict[str, list[int]] = defaultdict(list)
    for key, trace in samples.items():
        if key.device in restarted:
            failed[key.device] += trace.time_ns[np.isnan(trace.value)].tolist()
    return {device: sorted(times) for device, times in failed.items() if times}


def _power_cycles(reading: ControllerReading | None) -> int | None:
    smart = None if reading is None else reading.fields.get("smart")
    cycles = smart.get("power_cycles") if isinstance(smart, Mapping) else None
    return cycles if isinstance(cycles, int) else None


def _recorded_cycles(state: ControllerState | None) -> int | None:
    return None if state is None or state.smart is None else state.smart.power_cycles


def _host_power(report: PowerReport) -> HostPower:
    lost = report.lost or ""
    return HostPower(
        host=report.host,
        choice=report.opened.choice,
        idle_s=report.times.idle_s,
        rest_s=report.times.rest_s,
        idle_after_s=report.times.idle_after_s,
        quiet_s=report.times.quiet_s,
        not_calibrated=report.not_calibrated,
        lost=lost,
        data_lost=report.finished.data_lost if report.finished is not None else (),
    )


def _choice(hosts: Sequence[HostPower]) -> str:
    """Return the hosts' sentences on their choice of sources; a lost sampler comes first."""
    sentences = [
        f"the sampler was lost: {host.lost}; {host.choice}" if host.lost else host.choice
        for host in hosts
    ]
    if len(set(sentences)) == 1:
        return sentences[0]
    return " ".join(f"{host.host}: {text}" for host, text in zip(hosts, sentences, strict=True))


def _resolve_source(
    source: PowerSourceRecord, ledger: EnergyLedger, not_calibrated: str
) -> PowerSourceRecord:
    """Return the source with its sensor as used, and the number of decreases of its counter.

    ``not_calibrated`` is why the run calibrated no meter of a drive, if it was to.
    """
    facts, sentence = source.facts, source.sentence
    if facts is None or not source.used:
        return source
    count = ledger.fall_count(facts)
    falls = f" Its counter decreased {count} times; that time is not covered."
    if count and not sentence.endswith(falls):
        sentence += falls
    sensor = ledger.sensor(facts)
    if not_calibrated and sensor is not None and sensor.reason == NOT_CALIBRATED:
        sensor = sensor.model_copy(update={"reason": not_calibrated})
    return source.model_copy(update={"sentence": sentence, "sensor": sensor})


def used_sources(sources: Iterable[PowerSourceRecord]) -> tuple[SourceFacts, ...]:
    """Return the facts of the sources that were sampled and have any evidence."""
    return tuple(
        source.facts
        for source in sources
        if source.used and source.facts is not None and source.facts.evidence is not Evidence.NONE
    )


def _moved_bytes(
    sources: Sequence[SourceFacts],
    windows: Sequence[PhaseWindow],
    traffic: Sequence[PhaseTraffic],
) -> Mapping[tuple[str, str], Course]:
    """Return the application's bytes over time by phase and drive, for a host with one drive.

    With several drives, the bytes of each are unknown, and the caller passes none.
    """
    return {
        (window.name, drive): bytes_over_time(
            [each for each in traffic if each.phase == window.name],
            window.intervals,
        )
        for window in windows
        if window.timed
        for drive in {source.device for source in sources if source.scope is Scope.DRIVE}
    }
