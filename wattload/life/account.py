"""Power at the end of a run: samples to energy per phase, and the record's section on power."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattload.core.power import Counter, Evidence, Sample, Scope, SourceFacts, WindowEnergy
from wattload.core.record.energy import (
    EnergyRecord,
    HostPower,
    IdleRecord,
    Moment,
    PollingCost,
    PowerSection,
    PowerSourceRecord,
)
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.sampler import SamplerRecord
from wattload.life.phases import BIN_NS, TrafficRow
from wattload.life.powering import (
    IDLE_AFTER_PHASE,
    IDLE_PHASE,
    QUIET_AFTER_PHASE,
    QUIET_PHASE,
    TAIL_PHASE,
    PowerReport,
)
from wattload.life.resets import resets_ns
from wattload.power.config import PowerConfig
from wattload.power.samples import read_samples
from wattload.power.traffic import ByteSeries

NO_SAMPLER = "the run ended before its power was accounted for"


def pending_section(config: PowerConfig) -> PowerSection:
    """Return the section of a run that has not finished."""
    return PowerSection(
        requested=config.source, choice=NO_SAMPLER, idle_s=config.idle_s or 0.0, tail_s=None
    )


def read_all(folder: Path, reports: Iterable[PowerReport]) -> dict[str, list[Sample]]:
    """Return the samples of every host, by host; of a lost sampler those that it has written."""
    return {
        report.host: list(read_samples(folder / report.samples_file))
        for report in reports
        if report.samples_file is not None
    }


def power_section(
    config: PowerConfig,
    reports: Sequence[PowerReport],
    windows: Sequence[PhaseWindow],
    samples: Mapping[str, Sequence[Sample]],
    traffic: Sequence[TrafficRow],
) -> PowerSection:
    """Return what the run knows of power, with the energy of each timed phase and of the tail."""
    if not reports:
        return pending_section(config)
    of_hosts = [
        _of_host(config, report, windows, samples.get(report.host, ()), traffic)
        for report in reports
    ]
    parts = {name: tuple(item for one in of_hosts for item in one[name]) for name in of_hosts[0]}
    tails = [host.tail_s for host in parts["hosts"]]
    return PowerSection(
        requested=config.source,
        choice=_choice(parts["hosts"]),
        idle_s=min(host.idle_s for host in parts["hosts"]),
        tail_s=None if None in tails else max(tails),
        **parts,
    )


def _of_host(
    config: PowerConfig,
    report: PowerReport,
    windows: Sequence[PhaseWindow],
    samples: Sequence[Sample],
    traffic: Sequence[TrafficRow],
) -> Mapping[str, Sequence[Any]]:
    """Return what one host adds to each part of the section, by the part's name."""
    from wattload.power.throttling import throttling_records

    idle = _idle(report, windows, samples)
    return {
        "hosts": [_host_power(report)],
        "sources": list(_resolved(report.opened.sources, samples)),
        "states": (report.finished or report.opened).states,
        "energy": _energy(config, report, windows, samples, traffic),
        "whole_run": _whole_run(report, windows, samples),
        "idle": idle,
        "polling": _polling(idle),
        "samplers": _cost(report),
        "throttling": throttling_records(samples, windows, host=report.host),
    }


def _cost(report: PowerReport) -> Sequence[SamplerRecord]:
    cost = report.finished.cost if report.finished is not None else None
    return () if cost is None else (cost,)


def _host_power(report: PowerReport) -> HostPower:
    lost = report.lost or ""
    return HostPower(
        host=report.host,
        choice=report.opened.choice,
        idle_s=report.times.idle_s,
        tail_s=report.tail_s,
        idle_after_s=report.times.idle_after_s,
        quiet_s=report.times.quiet_s,
        lost=lost,
        data_lost=report.finished.data_lost if report.finished is not None else (),
    )


def _choice(hosts: Sequence[HostPower]) -> str:
    """Return what every host says of its choice, each once; a lost sampler comes first."""
    told = [
        f"the sampler was lost: {host.lost}; {host.choice}" if host.lost else host.choice
        for host in hosts
    ]
    if len(set(told)) == 1:
        return told[0]
    return " ".join(f"{host.host}: {text}" for host, text in zip(hosts, told, strict=True))


def _spans(report: PowerReport, windows: Sequence[PhaseWindow]) -> Mapping[str, tuple[int, int]]:
    """Return start and end of each phase on the report's host."""
    own = [window for window in windows if window.host == report.host]
    return {window.name: (window.start_ns, window.end_ns) for window in own}


def _idle(
    report: PowerReport, windows: Sequence[PhaseWindow], samples: Sequence[Sample]
) -> Sequence[IdleRecord]:
    from wattload.power.idle import IdleTime, idle_records

    spans = _spans(report, windows)
    asked: tuple[tuple[str, Moment, bool], ...] = (
        (QUIET_PHASE, "before", False),
        (IDLE_PHASE, "before", True),
        (IDLE_AFTER_PHASE, "after", True),
        (QUIET_AFTER_PHASE, "after", False),
    )
    times = [
        IdleTime(moment=moment, polled=polled, window=spans[name])
        for name, moment, polled in asked
        if name in spans
    ]
    sources = used_sources(report.opened.sources)
    if not samples:
        return ()
    restarts = resets_ns(report, samples)
    return idle_records(samples, sources, times, host=report.host, resets_ns=restarts)


def _polling(idle: Sequence[IdleRecord]) -> tuple[PollingCost, ...]:
    from wattload.power.idle import polling_costs

    return polling_costs(idle)


def _whole_run(
    report: PowerReport, windows: Sequence[PhaseWindow], samples: Sequence[Sample]
) -> Sequence[EnergyRecord]:
    from wattload.power.wholerun import whole_run_records

    own = report.finished.own_energies if report.finished is not None else ()
    spans = _spans(report, windows)
    last_ns = max((sample.time_ns for sample in samples), default=0)
    return whole_run_records(
        samples,
        used_sources(report.opened.sources),
        [WindowEnergy(**dict(energy)) for energy in own],
        host=report.host,
        polled=(
            spans[QUIET_PHASE][1] if QUIET_PHASE in spans else 0,
            spans[QUIET_AFTER_PHASE][0] if QUIET_AFTER_PHASE in spans else last_ns,
        ),
        resets_ns=resets_ns(report, samples),
    )


def _energy(
    config: PowerConfig,
    report: PowerReport,
    windows: Sequence[PhaseWindow],
    samples: Sequence[Sample],
    traffic: Sequence[TrafficRow],
) -> Sequence[EnergyRecord]:
    from wattload.power.account import build_energy_records

    sources = used_sources(report.opened.sources)
    if not sources:
        return ()
    own = [window for window in windows if window.host == report.host]
    idle = next(((w.start_ns, w.end_ns) for w in own if w.name == IDLE_PHASE), None)
    counted = [_tail(window, own) if window.name == TAIL_PHASE else window for window in own]
    return build_energy_records(
        samples,
        sources,
        counted,
        idle_window=idle,
        host=report.host,
        traffic=_byte_series(sources, own, traffic) if len(report.devices) == 1 else {},
        requested=config.source,
        resets_ns=resets_ns(report, samples),
    )


def _tail(tail: PhaseWindow, own: Sequence[PhaseWindow]) -> PhaseWindow:
    """Return the tail as a window to be counted, from where the last rank's last phase ended."""
    last_ns = max((window.end_ns for window in own if window.timed), default=tail.start_ns)
    start_ns = min(max(tail.start_ns, last_ns), tail.end_ns)
    return tail.model_copy(
        update={"timed": True, "start_ns": start_ns, "intervals": ((start_ns, tail.end_ns),)}
    )


def _resolved(
    sources: Sequence[PowerSourceRecord], samples: Sequence[Sample]
) -> Iterator[PowerSourceRecord]:
    """Yield the sources with what their own samples show of an averaging sensor's updates."""
    from wattload.power.account import resolved_facts

    for source in sources:
        if source.facts is None or not source.used:
            yield source
        else:
            (facts,) = resolved_facts(samples, [source.facts])
            sentence = f"{source.sentence}{_falls(source.facts, samples)}"
            yield source.model_copy(update={"facts": facts, "sentence": sentence})


def _falls(facts: SourceFacts, samples: Sequence[Sample]) -> str:
    """Return what must be told of a counter that went back; nothing of one that did not."""
    from wattload.power.account import falls

    count = falls(samples, facts) if isinstance(facts.sensor, Counter) else 0
    return f" Its counter went back {count} times; what lay between is not covered." * bool(count)


def used_sources(sources: Iterable[PowerSourceRecord]) -> tuple[SourceFacts, ...]:
    """Return the facts of the sources that were sampled and say something."""
    return tuple(
        source.facts
        for source in sources
        if source.used and source.facts is not None and source.facts.evidence is not Evidence.NONE
    )


def _byte_series(
    sources: Sequence[SourceFacts],
    windows: Sequence[PhaseWindow],
    traffic: Sequence[TrafficRow],
) -> Mapping[tuple[str, str], ByteSeries]:
    """Return the application's bytes over time per phase, all of them on the one drive there is.

    With several drives they can't be told apart; the caller then gives none.
    """
    drives = {source.device for source in sources if source.scope is Scope.DRIVE}
    bins: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for time_ns, host, _rank, phase, read_bytes, written_bytes in traffic:
        bins[host, phase][time_ns] += read_bytes + written_bytes
    return {
        (window.name, drive): ByteSeries.from_bins(
            bins[window.host, window.name],
            bin_ns=BIN_NS,
            intervals=window.intervals or ((window.start_ns, window.end_ns),),
        )
        for window in windows
        for drive in drives
        if window.timed
    }
