"""Power at the end of a run: samples to energy per phase, and the record's section on power."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from wattload.core.power import Evidence, Sample, Scope, SourceFacts
from wattload.core.record.energy import EnergyRecord, PowerSection, PowerSourceRecord
from wattload.core.record.phase import PhaseWindow
from wattload.life.phases import BIN_NS, TrafficRow
from wattload.life.powering import IDLE_PHASE, TAIL_PHASE, PowerReport
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
    """Return the samples of every host, by host."""
    return {
        report.host: list(read_samples(folder / report.finished.samples_file))
        for report in reports
        if report.finished is not None and report.finished.samples_file is not None
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
    energy = [
        record
        for report in reports
        for record in _energy(config, report, windows, samples.get(report.host, ()), traffic)
    ]
    last = reports[0]
    choice = last.opened.choice if last.lost is None else f"the sampler was lost: {last.lost}"
    states = [
        state
        for report in reports
        for state in (report.finished.states if report.finished else report.opened.states)
    ]
    return PowerSection(
        requested=config.source,
        choice=choice,
        idle_s=last.idle_s,
        tail_s=last.tail_s,
        sources=tuple(
            source
            for report in reports
            for source in _resolved(report.opened.sources, samples.get(report.host, ()))
        ),
        states=tuple(states),
        energy=tuple(energy),
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
    if not sources or not samples:
        return ()
    own = [window for window in windows if window.host == report.host]
    idle = next(((w.start_ns, w.end_ns) for w in own if w.name == IDLE_PHASE), None)
    counted = [
        window.model_copy(update={"timed": True}) if window.name == TAIL_PHASE else window
        for window in own
    ]
    return build_energy_records(
        samples,
        sources,
        counted,
        idle_window=idle,
        host=report.host,
        traffic=_byte_series(sources, own, traffic) if len(report.devices) == 1 else {},
        requested=config.source,
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
            yield source.model_copy(update={"facts": facts})


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
            start_ns=window.start_ns,
            end_ns=window.end_ns,
        )
        for window in windows
        for drive in drives
        if window.timed
    }
