"""The account of a run: one energy record per timed window, device and source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from wattload.core.power import Channel, Counter, Evidence, Integral, Sample, Scope, SourceFacts
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.choice import choose
from wattload.power.config import AUTO
from wattload.power.intervals import active_intervals, joined
from wattload.power.meter import Meter, Window, resolved
from wattload.power.sensors import fall_count
from wattload.power.trace import TraceKey, traces
from wattload.power.traffic import ByteSeries


def build_energy_records(
    samples: Iterable[Sample],
    sources: Sequence[SourceFacts],
    windows: Sequence[PhaseWindow],
    *,
    idle_window: Window | None,
    host: str,
    traffic: Mapping[tuple[str, str], ByteSeries],
    requested: str = AUTO,
    resets_ns: Mapping[str, Sequence[int]] | None = None,
) -> tuple[EnergyRecord, ...]:
    """Return the energy of each timed phase of ``host``, by device and source, the best marked.

    A phase that was entered several times counts over its active intervals only.

    ``idle_window`` is the idle baseline's start and end in ns, ``None`` where none was taken.
    ``traffic`` maps (phase, device) to bytes over time; without it shares have no bytes.
    ``requested`` is the source that the user named: a data sheet is chosen only on request.
    ``resets_ns`` maps a device to its known restarts. Sources without any evidence are left out,
    and what a device integrates by itself: it is of the whole run.
    """
    by_key = traces(samples)
    resets = resets_ns or {}
    meters = [
        Meter.build(by_key, facts, idle=idle_window, resets_ns=resets.get(facts.device, ()))
        for facts in sources
        if facts.evidence is not Evidence.NONE and not isinstance(facts.sensor, Integral)
    ]
    records = [
        _of_phase(meter, window, host, traffic.get((window.name, meter.facts.device)))
        for window in windows
        if window.timed and window.host == host
        for meter in meters
    ]
    return _mark_chosen(records, takes_declared=requested != AUTO)


def _of_phase(
    meter: Meter, window: PhaseWindow, host: str, traffic: ByteSeries | None
) -> EnergyRecord:
    """Return the energy of one phase by one source, over its active intervals."""
    intervals = active_intervals(window)
    parts = [meter.record(window.name, each, host=host, traffic=traffic) for each in intervals]
    return joined(parts, meter.facts.sensor)


def resolved_facts(
    samples: Iterable[Sample], sources: Sequence[SourceFacts]
) -> tuple[SourceFacts, ...]:
    """Return the facts with what the samples show of each averaging sensor's updates."""
    by_key = traces(samples)
    return tuple(resolved(facts, by_key) for facts in sources)


def falls(samples: Iterable[Sample], facts: SourceFacts) -> int:
    """Return how often the count of a source fell without having wrapped."""
    trace = traces(samples).get(TraceKey(facts.name, facts.device, Channel.ENERGY_J))
    if trace is None or not isinstance(facts.sensor, Counter):
        return 0
    return fall_count(trace, facts.sensor)


def _mark_chosen(
    records: Sequence[EnergyRecord], *, takes_declared: bool
) -> tuple[EnergyRecord, ...]:
    """Return the records, the best of each window, device and scope marked."""
    groups: defaultdict[tuple[str, int, str, Scope], list[EnergyRecord]] = defaultdict(list)
    for record in records:
        groups[record.phase, record.start_ns, record.device, record.scope].append(record)
    best = [choose(group, takes_declared=takes_declared) for group in groups.values()]
    chosen = {id(record) for record in best if record is not None}
    return tuple(
        record.model_copy(update={"chosen": True}) if id(record) in chosen else record
        for record in records
    )
