"""Idle power before and after a run, polled and quiet.

A drive that is read ten times a second may never sleep: the difference is the cost of polling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.base_models import ValueOrReason, fields_of
from wattload.core.power import Boxcar
from wattload.core.record.energy import IdleRecord, Moment
from wattload.power.energy.integration import Window, seconds_of
from wattload.power.energy.profile import max_gap_ns
from wattload.power.energy.source_ledger import SourceLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """An idle time before or after the run, polled or quiet."""

    moment: Moment
    polled: bool
    window: Window


def idle_record(ledger: SourceLedger, time: IdleTime, *, host: str) -> IdleRecord:
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
    states, kelvins = (
        np.empty(0) if trace is None else trace.values(*window)
        for trace in (ledger.states, ledger.temperature)
    )
    changed = "it changed during the window" if states.size else "no power state was read"
    is_one = np.unique(states).size == 1
    figures["power_state"] = int(states[0]) if is_one else None, changed
    mean_k = float(kelvins.mean()) if kelvins.size else None
    figures["temperature_k"] = mean_k, "no temperature was read"
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
