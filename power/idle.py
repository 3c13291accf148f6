"""Idle before and after a run, under the sampler's reads and without: what polling costs a drive.

A drive that is asked ten times a second how it fares may never sleep. So idle is measured twice:
polled, and quiet, when nothing is sent to the drive until one read at the end of that time. A meter
of its own goes on in the quiet; the drive's own mean is what that one read finds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.power import Boxcar, Channel, Evidence, Sample, Scope, SourceFacts
from wattload.core.record.energy import IdleRecord, Moment, PollingCost
from wattload.core.units import NS_PER_S
from wattload.power.meter import Meter, Window
from wattload.power.sensors import max_gap_ns
from wattload.power.trace import Trace, TraceKey, Values, traces


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """A time in which nothing ran: before or after the run, polled or quiet."""

    moment: Moment
    polled: bool
    window: Window


def idle_records(
    samples: Iterable[Sample],
    sources: Sequence[SourceFacts],
    times: Sequence[IdleTime],
    *,
    host: str,
    resets_ns: Mapping[str, Sequence[int]] | None = None,
) -> tuple[IdleRecord, ...]:
    """Return the idle power of each drive by each source that measures it, for each time.

    ``resets_ns`` maps a device to its known restarts.
    """
    by_key, resets = traces(samples), resets_ns or {}
    meters = [
        Meter.build(by_key, facts, idle=None, resets_ns=resets.get(facts.device, ()))
        for facts in sources
        if facts.scope is Scope.DRIVE
    ]
    return tuple(
        _record(meter, by_key, time, host) for meter in meters if meter.measures for time in times
    )


def polling_costs(records: Iterable[IdleRecord]) -> tuple[PollingCost, ...]:
    """Return polled minus quiet idle power, per source and moment at which both were taken."""
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


def _record(
    meter: Meter, by_key: Mapping[TraceKey, Trace], time: IdleTime, host: str
) -> IdleRecord:
    facts, (start_ns, end_ns) = meter.facts, time.window
    power, sample_count, evidence = _power(meter, time, host)
    figures = {
        **power,
        "power_state": _constant(meter.states, time.window),
        "temperature_k": _mean(_temperatures(facts.device, by_key), time.window),
    }
    return IdleRecord(
        host=host,
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


def _power(meter: Meter, time: IdleTime, host: str) -> tuple[dict[str, Any], int, Evidence]:
    """Return mean power and coverage, of how many samples, and how they are known."""
    if meter.facts.asks_drive and not time.polled:
        watts, reason = _first_reading(meter, time.window[1])
        one = (None, "it is one reading, taken at the end of the quiet")
        figures: dict[str, Any] = {"mean_w": (watts, reason), "coverage": one}
        return figures, int(watts is not None), meter.facts.evidence
    energy = meter.record("idle", time.window, host=host)
    figures = {
        "mean_w": (energy.mean_w, energy.missing.get("mean_w", "")),
        "coverage": (energy.coverage, energy.missing.get("coverage", "")),
    }
    return figures, energy.sample_count, energy.evidence


def _first_reading(meter: Meter, after_ns: int) -> tuple[float | None, str]:
    """Return what the first read after the quiet tells: it is of the quiet, by its sensor.

    Where that read failed, the next one tells of a drive that was asked already.
    """
    part = meter.parts.get("energy_j")
    if part is None or part.trace.key.channel is not Channel.POWER_W:
        return None, f"one read of {meter.facts.name} tells no power"
    if not isinstance(meter.facts.sensor, Boxcar):
        return None, f"{meter.facts.name} tells the power while it is read, not that before"
    trace, until_ns = part.trace, after_ns + max_gap_ns(meter.facts.period_s)
    first = int(np.searchsorted(trace.time_ns, after_ns))
    if first == trace.time_ns.size or trace.time_ns[first] > until_ns:
        return None, "no read followed the quiet"
    watts = float(trace.value[first])
    if math.isnan(watts):
        return None, "the read after the quiet failed, and the next ones are of a polled drive"
    return watts, ""


def _temperatures(device: str, by_key: Mapping[TraceKey, Trace]) -> Trace | None:
    return next(
        (
            trace
            for key, trace in by_key.items()
            if key.device == device and key.channel is Channel.TEMPERATURE_K
        ),
        None,
    )


def _values(trace: Trace, window: Window) -> Values:
    """Return the successful readings in a window, in order of time."""
    inside = (trace.time_ns >= window[0]) & (trace.time_ns <= window[1]) & ~np.isnan(trace.value)
    return trace.value[inside]


def _constant(trace: Trace | None, window: Window) -> tuple[int | None, str]:
    values = np.unique(_values(trace, window)) if trace is not None else np.empty(0)
    if values.size == 1:
        return int(values[0]), ""
    return None, "it changed" if values.size else "no power state was read"


def _mean(trace: Trace | None, window: Window) -> tuple[float | None, str]:
    values = _values(trace, window) if trace is not None else np.empty(0)
    return (float(values.mean()), "") if values.size else (None, "no temperature was read")
