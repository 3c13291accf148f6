"""Idle power before and after a run, polled and quiet: the difference is the cost of polling.

A drive that is read ten times a second may never sleep.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.power import Boxcar
from wattload.core.record.energy import IdleRecord, Moment, PollingCost
from wattload.power.energy.integration import Window, seconds_of
from wattload.power.energy.profile import max_gap_ns
from wattload.power.energy.source_ledger import SourceLedger
from wattload.power.energy.trace import Trace, ValueOrReason, fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """An idle time before or after the run, polled or quiet."""

    moment: Moment
    polled: bool
    window: Window


def idle_record(
    ledger: SourceLedger, time: IdleTime, temperature: Trace | None, *, host: str
) -> IdleRecord:
    """Return the idle power of a drive by one source that measures it."""
    facts, window = ledger.facts, time.window
    energy = ledger.record("idle", [window], host=host)
    sample_count, evidence = energy.sample_count, energy.evidence
    figures: dict[str, tuple[Any, str]] = {
        name: (getattr(energy, name), energy.missing.get(name, ""))
        for name in ("mean_w", "coverage")
    }
    if facts.asks_drive and not time.polled:
        watts, reason = _first_reading(ledger, window[1])
        figures["mean_w"] = watts, reason
        figures["coverage"] = None, "it is a single reading at the end of the quiet time"
        sample_count, evidence = int(watts is not None), facts.evidence
    states = np.empty(0) if ledger.states is None else np.unique(ledger.states.values(*window))
    kelvins = np.empty(0) if temperature is None else temperature.values(*window)
    figures["power_state"] = (
        int(states[0]) if states.size == 1 else None,
        "it changed during the window" if states.size else "no power state was read",
    )
    figures["temperature_k"] = (
        float(kelvins.mean()) if kelvins.size else None,
        "no temperature was read",
    )
    return IdleRecord(
        host=host,
        device=facts.device,
        source=facts.name,
        evidence=evidence,
        moment=time.moment,
        polled=time.polled,
        start_ns=window[0],
        end_ns=window[1],
        seconds=seconds_of([window]),
        sample_count=sample_count,
        **fields_of(figures),
    )


def _first_reading(ledger: SourceLedger, after_ns: int) -> ValueOrReason:
    """Return the first reading after a quiet time: a mean over its last part, in watts.

    If that read failed, there is none: the next one measures a drive that is being polled.
    """
    facts, part = ledger.facts, ledger.measured
    if not isinstance(facts.sensor, Boxcar):
        return None, f"a reading of {facts.name} is not the mean of the time before it"
    read: list[float] = []
    if part is not None:
        until_ns = after_ns + max_gap_ns(facts.period_s)
        first, last = np.searchsorted(part.trace.time_ns, (after_ns, until_ns + 1))
        read = part.trace.value[first:last][:1].tolist()
    if not read:
        return None, "there was no read after the quiet time"
    if math.isnan(read[0]):
        return None, "the read after the quiet time failed; later ones measure a polled drive"
    return read[0], ""


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
