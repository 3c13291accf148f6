"""A run over time: rates and power on one time axis, phases as strips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel, Evidence, Scope, weakest
from wattload.core.record.clocks import TimesNs
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.energy import evidence_text, is_simulated
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock, depth, parents, phases_of
from wattload.reports.runs.traces import PowerTrace, Signal, ThroughputTrace

BIN_NS = NS_PER_S // 10
"""The bin width of the throughput trace."""

_GAP_PERIODS = 3
"""Samples further apart than this many median periods leave a gap in the line."""

_STRIP_LIMIT = 200

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series: seconds since the first phase and values in SI base units, both (points,).

    NaN is a gap. ``role`` defines its colour. ``evidence`` describes the evidence for power.
    """

    name: str
    role: str
    time_s: Array
    value: Array
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Bounds on power over time; ``lower`` is ``None`` if only a maximum is known."""

    name: str
    time_s: Array
    lower: Array | None
    upper: Array
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One active interval of a phase; ``lane`` 0 is the outermost."""

    name: str
    timed: bool
    start_s: float
    end_s: float
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All series of one run over time."""

    strips: tuple[Strip, ...]
    rates: tuple[Line, ...]
    watts: tuple[Line, ...]
    bands: tuple[Band, ...]
    start_s: float
    end_s: float


def make_timeline(run: Run) -> Timeline:
    """Return the series of a run; those without a trace are empty."""
    clock = CommonClock(run.record)
    strips = tuple(_strips(run.record))
    rates: list[Line] = []
    watts: list[Line] = []
    bands: list[Band] = []
    if run.traces.throughput is not None:
        timed = [strip for strip in strips if strip.timed] or strips
        start_s = min((strip.start_s for strip in timed), default=0.0)
        end_s = max((strip.end_s for strip in timed), default=0.0)
        rates.extend(_rates(run, run.traces.throughput, clock, start_s, end_s))
    if run.traces.power is not None:
        rates.extend(_device_rates(run, run.traces.power, clock))
        watts.extend(_watts(run, run.traces.power, clock))
        bands.extend(_bands(run, run.traces.power, clock))
    ends = [float(line.time_s[-1]) for line in (*rates, *watts) if line.time_s.size]
    starts = [float(line.time_s[0]) for line in (*rates, *watts) if line.time_s.size]
    return Timeline(
        strips=strips,
        rates=tuple(rates),
        watts=tuple(watts),
        bands=tuple(bands),
        start_s=min([strip.start_s for strip in strips] + starts, default=0.0),
        end_s=max([strip.end_s for strip in strips] + ends, default=1.0),
    )


def _strips(record: RunRecord) -> Iterator[Strip]:
    """Yield each phase's intervals; if there are very many, only first start to last end."""
    above = parents(record)
    for phase in phases_of(record):
        intervals = phase.intervals_s
        if len(intervals) > _STRIP_LIMIT:
            intervals = ((phase.start_s, phase.start_s + phase.seconds),)
        for start_s, end_s in intervals:
            yield Strip(
                name=phase.name,
                timed=phase.timed,
                start_s=start_s,
                end_s=end_s,
                lane=depth(phase.name, above),
            )


def _rates(
    run: Run, trace: ThroughputTrace, clock: CommonClock, start_s: float, end_s: float
) -> Iterator[Line]:
    """Yield the read and write rates of the application, all hosts and ranks together.

    Bins are counted from the timed start. One of the trace that begins just before counts there.
    Bytes are counted when an operation or a batch is complete, so they are spread back over the
    bins since the count before, or since the start of their phase: otherwise a slow drive would
    seem to stall between its completions.
    """
    if trace.time_ns.size == 0:
        return
    since_ns = clock.rows_ns(trace.host, trace.time_ns) - round(start_s * NS_PER_S)
    slot = np.where((since_ns < 0) & (since_ns > -BIN_NS), 0, since_ns // BIN_NS)
    # Bins that are missing from the trace moved no bytes, nor did those before and after.
    first = int(slot.min()) - 1
    last = max(int(slot.max()) + 1, math.ceil((end_s - start_s) * NS_PER_S / BIN_NS))
    time_s = start_s + np.arange(first, last + 1, dtype=np.float64) * (BIN_NS / NS_PER_S)
    parts = {phase.name for phase in phases_of(run.record) if phase.is_part}
    starts = {
        phase.name: np.array([(start - start_s) * NS_PER_S // BIN_NS for start, _ in own])
        for phase in phases_of(run.record)
        if (own := phase.intervals_s)
    }
    for name, counts in (("read", trace.read_bytes), ("write", trace.written_bytes)):
        if not counts.any():
            continue
        value = np.zeros(time_s.size)
        for number, phase in enumerate(trace.phase.words):
            if phase in parts:  # its parent's bytes include its own
                continue
            own = trace.phase.numbers == number
            per_bin = np.bincount(slot[own] - first, counts[own], minlength=time_s.size)
            value += _spread(per_bin.astype(np.float64), starts.get(phase, np.zeros(0)) - first)
        yield Line(name=name, role=name, time_s=time_s, value=value * (NS_PER_S / BIN_NS))


def _spread(per_bin: Array, starts: Array) -> Array:
    """Return the bytes of each bin, spread evenly over it and the empty bins before it.

    Args:
        per_bin: bytes counted, shape (bins,).
        starts: bins in which the phase starts, in order; nothing is spread beyond these.
    """
    counted = np.flatnonzero(per_bin)
    if not counted.size:
        return per_bin
    begins = np.concatenate(([counted[0]], counted[:-1] + 1))
    at = np.searchsorted(starts, counted, side="right") - 1
    entered = np.clip(starts, 0, None).astype(np.int64)
    if entered.size:
        # The first count has only the start of its phase before it.
        begins[0] = entered[at[0]] if at[0] >= 0 else counted[0]
        begins = np.where(at >= 0, np.maximum(begins, entered[at]), begins)
    widths = counted - begins + 1
    spread = np.zeros_like(per_bin)
    ends = np.cumsum(widths)
    bins = np.arange(ends[-1]) + np.repeat(counted + 1 - ends, widths)
    spread[bins] = np.repeat(per_bin[counted] / widths, widths)
    return spread


def _device_rates(run: Run, trace: PowerTrace, clock: CommonClock) -> Iterator[Line]:
    """Yield the rate of each block device, reads and writes together."""
    reads = {signal.device: signal for signal in trace.of(Channel.READ_BYTES)}
    for signal in trace.of(Channel.WRITTEN_BYTES):
        other = reads.get(signal.device)
        if other is None or signal.time_ns.size < 2:  # noqa: PLR2004 - a rate needs two readings
            continue
        if not np.array_equal(other.time_ns, signal.time_ns):
            continue
        total = signal.value + other.value
        seconds = np.diff(signal.time_ns) / NS_PER_S
        rate = np.diff(total) / np.maximum(seconds, 1e-9)
        if not np.nan_to_num(rate).any():
            continue
        time_s = _since_ns(run.record, signal, clock)[:-1] / NS_PER_S
        yield Line(name=f"device {signal.device}", role="device", time_s=time_s, value=rate)


def _since_ns(record: RunRecord, signal: Signal, clock: CommonClock) -> TimesNs:
    """Return a signal's times on the common clock; its host is the first one if unknown."""
    hosts = [each.host for each in record.power.sources if each.device == signal.device]
    hosts += [each.facts.host for each in record.targets if signal.device in each.facts.devices]
    return clock.since_ns(hosts[0] if hosts else "", signal.time_ns)


def _drawn_sources(record: RunRecord) -> frozenset[tuple[str, str]]:
    """Return (source, device) of a run's energy; all drive sources if it has none."""
    chosen = {(e.source, e.device) for e in record.power.energy if e.chosen}
    scopes = {
        (source.name, source.device): source.facts.scope
        for source in record.power.sources
        if source.used and source.facts is not None
    }
    drives = {key for key, scope in scopes.items() if scope is Scope.DRIVE}
    return frozenset(chosen & drives or drives)


def _watts(run: Run, trace: PowerTrace, clock: CommonClock) -> Iterator[Line]:
    evidence_by_key = _evidence(run.record)
    for signal in trace.of(Channel.POWER_W):
        key = (signal.source, signal.device)
        if key in evidence_by_key:
            evidence, words = evidence_by_key[key]
            role = "declared" if evidence is Evidence.DECLARED else "power"
            time_s = _since_ns(run.record, signal, clock) / NS_PER_S
            yield _with_gaps(_line(signal, role, words, time_s, signal.value))
    for signal in trace.of(Channel.ENERGY_J):
        key = (signal.source, signal.device)
        if key in evidence_by_key:
            since_ns = _since_ns(run.record, signal, clock)
            yield from _from_counter(signal, evidence_by_key[key][1], since_ns)


def _evidence(record: RunRecord) -> Mapping[tuple[str, str], tuple[Evidence, str]]:
    """Return the drawn sources by (source, device): the weakest evidence, and its text."""
    found = {}
    facts = {(source.name, source.device): source.facts for source in record.power.sources}
    for key in _drawn_sources(record):
        own = [e.evidence for e in record.power.energy if (e.source, e.device) == key]
        known = facts.get(key)
        stated = known.evidence if known is not None else Evidence.NONE
        evidence = weakest(own or [stated])
        words = evidence_text(
            evidence,
            recorded=known is not None and known.is_recorded,
            replayed=known is not None and known.is_of_another_run,
            simulated=is_simulated(record),
        )
        found[key] = (evidence, words)
    return found


def _line(signal: Signal, role: str, evidence: str, time_s: Array, value: Array) -> Line:
    name = f"{signal.device} by {signal.source}"
    return Line(name=name, role=role, time_s=time_s, value=value, evidence=evidence)


def _from_counter(signal: Signal, evidence: str, since_ns: TimesNs) -> Iterator[Line]:
    """Yield mean watts between the steps of an energy counter; a wrap leaves a gap."""
    changes = np.flatnonzero(np.diff(signal.value, prepend=np.nan) != 0)
    if changes.size < 2:  # noqa: PLR2004 - power needs two steps
        return
    time_s = since_ns[changes] / NS_PER_S
    watts = np.diff(signal.value[changes]) / np.diff(time_s)
    watts[watts < 0] = np.nan
    yield _line(signal, "power", evidence, time_s[:-1], watts)


def _with_gaps(line: Line) -> Line:
    steps = np.diff(line.time_s)
    if steps.size < 2:  # noqa: PLR2004 - a median period needs two
        return line
    gaps = np.flatnonzero(steps > _GAP_PERIODS * np.median(steps)) + 1
    return replace(
        line,
        value=np.insert(line.value, gaps, np.nan),
        time_s=np.insert(line.time_s, gaps, line.time_s[gaps - 1]),
    )


def _bands(run: Run, trace: PowerTrace, clock: CommonClock) -> Iterator[Band]:
    evidence_by_key = _evidence(run.record)
    lower = {(s.source, s.device): s for s in trace.of(Channel.LOWER_W)}
    for signal in trace.of(Channel.UPPER_W):
        key = (signal.source, signal.device)
        if key not in evidence_by_key:
            continue
        floor = lower.get(key)
        same = floor is not None and np.array_equal(floor.time_ns, signal.time_ns)
        yield Band(
            name=f"{signal.device} by {signal.source}",
            time_s=_since_ns(run.record, signal, clock) / NS_PER_S,
            lower=floor.value if floor is not None and same else None,
            upper=signal.value,
            evidence=evidence_by_key[key][1],
        )
