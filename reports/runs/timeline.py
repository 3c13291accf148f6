"""A run over time: rates and power on one time axis, phases as strips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.checks.verdicts import meter_of
from wattload.core.power import Channel, Evidence, Scope, weakest
from wattload.core.record.clocks import TimesNs
from wattload.core.record.results import Meter
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.energy import evidence_text, is_simulated
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock, Phase, depth, parents, phases_of
from wattload.reports.runs.traces import PowerTrace, Signal, ThroughputTrace

BIN_NS = NS_PER_S // 10
"""The bin width of the throughput trace."""

_BIN_S = BIN_NS / NS_PER_S

_GAP_PERIODS = 3
"""Samples further apart than this many median periods leave a gap in the line."""

_STRIP_LIMIT = 200

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series: seconds since the first phase and values in SI base units, both (points,).

    NaN is a gap. ``role`` defines its colour. Of power, ``drive`` is the host and the drive, and
    ``evidence`` describes the evidence for it.
    """

    name: str
    role: str
    time_s: Array
    value: Array
    drive: tuple[str, str] = ("", "")
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
        rates.extend(_rates(run, run.traces.throughput, clock, *_timed_part(strips)))
    if run.traces.power is not None:
        rates.extend(_device_rates(run.traces.power, clock))
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


def host_rates(run: Run) -> list[Line]:
    """Return the rate of each host's ranks, reads and writes together; empty without a trace."""
    trace = run.traces.throughput
    if trace is None:
        return []
    clock, part = CommonClock(run.record), _timed_part([*_strips(run.record)])
    found = []
    for host in run.record.hosts:
        name = host.facts.name
        rates = list(_rates(run, trace.rows(trace.host.are(name)), clock, *part))
        if rates:
            value = np.sum([rate.value for rate in rates], axis=0)
            found.append(Line(name=name, role="read", time_s=rates[0].time_s, value=value))
    return found


def _timed_part(strips: Sequence[Strip]) -> tuple[float, float]:
    """Return the start of the first timed phase and the end of the last one, in seconds."""
    timed = [strip for strip in strips if strip.timed] or strips
    start_s = min((strip.start_s for strip in timed), default=0.0)
    return start_s, max((strip.end_s for strip in timed), default=0.0)


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
    """Yield the read and write rates of the application, all hosts and ranks of a trace together.

    Bins are counted from the timed start. One of the trace that begins just before counts there.
    Bytes are counted when an operation or a batch is complete, so they are spread back over the
    bins since the count before, or since the start of their phase: otherwise a slow drive would
    seem to stall between its completions.
    """
    if trace.time_ns.size == 0:
        return
    since_ns = clock.rows_ns(trace.host, trace.time_ns) - round(start_s * NS_PER_S)
    slot = np.where((since_ns < 0) & (since_ns > -BIN_NS), 0, since_ns // BIN_NS)
    begins = [
        math.floor((phase.start_s - start_s) * NS_PER_S / BIN_NS)
        for phase in phases_of(run.record)
        if phase.name in trace.phase.words
    ]
    # Bins that are missing from the trace moved no bytes, nor did those before and after.
    first = min([int(slot.min()), *begins]) - 1
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


def _device_rates(trace: PowerTrace, clock: CommonClock) -> Iterator[Line]:
    """Yield the rate of the block devices, reads and writes together; of several the sum.

    It is from counts at the times of readings, or of several devices at even steps of the period
    of the first, while all of them were read.
    """
    reads = {(each.host, each.device): each for each in trace.of(Channel.READ_BYTES)}
    found: list[tuple[str, Array, Array]] = []
    for signal in trace.of(Channel.WRITTEN_BYTES):
        other = reads.get((signal.host, signal.device))
        if other is None or signal.time_ns.size < 2:  # noqa: PLR2004 - a rate needs two readings
            continue
        if not np.array_equal(other.time_ns, signal.time_ns):
            continue
        total = signal.value + other.value
        if np.nan_to_num(np.diff(total)).any():
            time_s = clock.since_ns(signal.host, signal.time_ns) / NS_PER_S
            found.append((signal.device, time_s, total))
    if not found:
        return
    device, time_s, total = found[0]
    name = f"device {device}"
    if len(found) > 1:
        name = f"{len(found)} devices"
        start_s, end_s = max(each[0] for _, each, _ in found), min(each[-1] for _, each, _ in found)
        time_s = np.arange(start_s, end_s, float(np.median(np.diff(time_s))))
        total = np.sum(
            [np.interp(time_s, at[~np.isnan(own)], own[~np.isnan(own)]) for _, at, own in found],
            axis=0,
        )
    rate = np.diff(total) / np.maximum(np.diff(time_s), 1e-9)
    yield Line(name=name, role="device", time_s=time_s[:-1], value=rate)


def _drawn_sources(record: RunRecord) -> frozenset[Meter]:
    """Return the meters of a run's energy; all of drives if it has none."""
    phases = {energy.phase for energy in record.power.energy}
    counted = {meter_of(each) for phase in phases for each in record.drive_energies(phase)}
    scopes = {
        (source.host, source.name, source.device): source.facts.scope
        for source in record.power.sources
        if source.used and source.facts is not None
    }
    drives = {key for key, scope in scopes.items() if scope is Scope.DRIVE}
    return frozenset(counted & drives or drives)


def _watts(run: Run, trace: PowerTrace, clock: CommonClock) -> Iterator[Line]:
    evidence_by_key = _evidence(run.record)
    for signal in trace.of(Channel.POWER_W):
        if signal.meter in evidence_by_key:
            evidence, words = evidence_by_key[signal.meter]
            role = "declared" if evidence is Evidence.DECLARED else "power"
            time_s = clock.since_ns(signal.host, signal.time_ns) / NS_PER_S
            line = _line(run.record, signal, time_s, signal.value, evidence=words, role=role)
            yield _with_gaps(line)
    for signal in trace.of(Channel.ENERGY_J):
        if signal.meter in evidence_by_key:
            since_ns = clock.since_ns(signal.host, signal.time_ns)
            yield from _from_counter(run.record, signal, evidence_by_key[signal.meter][1], since_ns)


def _evidence(record: RunRecord) -> Mapping[Meter, tuple[Evidence, str]]:
    """Return the drawn sources by meter: the weakest evidence, and its text."""
    found = {}
    facts = {
        (source.host, source.name, source.device): source.facts for source in record.power.sources
    }
    for key in _drawn_sources(record):
        own = [each.evidence for each in record.power.energy if meter_of(each) == key]
        known = facts.get(key)
        stated = known.evidence if known is not None else Evidence.NONE
        evidence = weakest(own or [stated])
        words = evidence_text(
            evidence,
            recorded=known is not None and known.is_recorded,
            replayed=known is not None and known.is_of_another_run,
            simulated=is_simulated(record),
            has_declared_readings=known is not None and known.has_declared_readings,
        )
        found[key] = (evidence, words)
    return found


def _name(record: RunRecord, signal: Signal) -> str:
    of_host = f"{signal.host}: " if len(record.hosts) > 1 else ""
    return f"{of_host}{signal.device} by {signal.source}"


def _line(
    record: RunRecord,
    signal: Signal,
    time_s: Array,
    value: Array,
    *,
    evidence: str,
    role: str = "power",
) -> Line:
    return Line(
        name=_name(record, signal),
        role=role,
        time_s=time_s,
        value=value,
        drive=(signal.host, signal.device),
        evidence=evidence,
    )


def _from_counter(
    record: RunRecord, signal: Signal, evidence: str, since_ns: TimesNs
) -> Iterator[Line]:
    """Yield mean watts between the steps of an energy counter; a wrap leaves a gap."""
    changes = np.flatnonzero(np.diff(signal.value, prepend=np.nan) != 0)
    if changes.size < 2:  # noqa: PLR2004 - power needs two steps
        return
    time_s = since_ns[changes] / NS_PER_S
    watts = np.diff(signal.value[changes]) / np.diff(time_s)
    watts[watts < 0] = np.nan
    yield _line(record, signal, time_s[:-1], watts, evidence=evidence)


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
    lower = {each.meter: each for each in trace.of(Channel.LOWER_W)}
    for signal in trace.of(Channel.UPPER_W):
        if signal.meter not in evidence_by_key:
            continue
        floor = lower.get(signal.meter)
        same = floor is not None and np.array_equal(floor.time_ns, signal.time_ns)
        yield Band(
            name=_name(run.record, signal),
            time_s=clock.since_ns(signal.host, signal.time_ns) / NS_PER_S,
            lower=floor.value if floor is not None and same else None,
            upper=signal.value,
            evidence=evidence_by_key[signal.meter][1],
        )


Spans = Sequence[tuple[Phase, Sequence[tuple[float, float]]]]
"""Phases with some of their intervals, in seconds on the common clock."""


def units_of(phases: Sequence[Phase], count: float) -> list[Spans]:
    """Return the intervals of each unit of work, in order.

    All is one unit where the phases were not entered as many times in each unit.
    """
    each = [len(phase.intervals_s) / count if count >= 1 else 0.0 for phase in phases]
    if not all(own >= 1 and own.is_integer() for own in each):
        return [[(phase, phase.intervals_s) for phase in phases]]
    sizes = [int(own) for own in each]
    return [
        [
            (phase, phase.intervals_s[index * size : (index + 1) * size])
            for phase, size in zip(phases, sizes, strict=True)
        ]
        for index in range(int(count))
    ]


def ends_of_spans(spans: Spans) -> tuple[float, float]:
    """Return the start of the first interval and the end of the last."""
    intervals = [span for _, own in spans for span in own]
    return min(start_s for start_s, _ in intervals), max(end_s for _, end_s in intervals)


def rates_within(run: Run, spans: Spans, bins_max: int) -> tuple[Array, Array] | None:
    """Return the rate of the application in a unit of work, reads and writes together.

    Bytes are counted when an operation or a batch is complete, so they are spread back over the
    time since the count before, or since the start of their interval. The sum over the unit is
    exact but for bins of the trace that two intervals share, which count where most of them is.

    Args:
        run: the run.
        spans: the intervals of the unit.
        bins_max: the most bins, none shorter than those of the trace.

    Returns:
        Edges in seconds on the common clock, shape (bins + 1,), and bytes per second, (bins,);
        ``None`` without a trace of these phases.
    """
    trace = run.traces.throughput
    if trace is None:
        return None
    since_s = CommonClock(run.record).rows_ns(trace.host, trace.time_ns) / NS_PER_S
    counts = (trace.read_bytes + trace.written_bytes).astype(np.float64)
    start_s, end_s = ends_of_spans(spans)
    bins = int(np.clip((end_s - start_s) / _BIN_S + 1e-6, 1, bins_max))
    edges = np.linspace(start_s, end_s, bins + 1)
    total = np.zeros_like(edges)
    for phase, own in spans:
        mine = trace.phase.are(phase.name)
        for span in own:
            total += _moved_by(edges, since_s[mine], counts[mine], span, phase)
    if total[-1] <= 0 or end_s <= start_s:
        return None
    return edges, np.diff(total) / np.diff(edges)


def _moved_by(
    edges: Array, begin_s: Array, counts: Array, span: tuple[float, float], phase: Phase
) -> Array:
    """Return the bytes that an interval of a phase had moved at each edge, shape (edges,)."""
    at = phase.intervals_s.index(span)
    near = phase.intervals_s[max(at - 1, 0) : at + 2]
    shared_s = [
        np.minimum(begin_s + _BIN_S, end_s) - np.maximum(begin_s, start_s)
        for start_s, end_s in near
    ]
    inside = shared_s[near.index(span)] >= np.maximum.reduce([*shared_s, np.zeros_like(begin_s)])
    done_s, place = np.unique(np.minimum(begin_s[inside] + _BIN_S, span[1]), return_inverse=True)
    moved = np.cumsum(np.bincount(place, counts[inside], minlength=done_s.size))
    times, moved = np.concatenate(([span[0]], done_s)), np.concatenate(([0.0], moved))
    return np.interp(edges, times, moved)
