"""Readings that no meter of a drive, GPU or node can have: refused, never integrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from wattload.core.power import Channel, SourceFacts
from wattload.power.energy.trace import Times, Trace

MOST_W = 1e6
"""No node draws a megawatt."""
MOST_J = 1e15
"""A megawatt for thirty years: more than any counter of joules can have."""

_MOST: Mapping[Channel, float] = {
    Channel.POWER_W: MOST_W,
    Channel.LOWER_W: MOST_W,
    Channel.UPPER_W: MOST_W,
    Channel.ENERGY_J: MOST_J,
}


def refusal(value: float, channel: Channel, facts: SourceFacts) -> str:
    """Return why a reading is refused, as a clause; empty for a plausible one."""
    unit = "J" if channel is Channel.ENERGY_J else "W"
    if not np.isfinite(value) or abs(value) > _MOST[channel]:
        return f"{facts.name} reported {value:g} {unit}, which is impossible"
    if value < 0 and not facts.may_be_negative:
        return f"{facts.name} reported {value:g} {unit}, and its readings can't be negative"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused:
    """The refused readings of a trace: when, and why the first one was."""

    time_ns: Times
    reason: str

    def in_window(self, start_ns: int, end_ns: int) -> bool:
        """Return whether one of them lies in a window, both ends included."""
        return bool(((self.time_ns >= start_ns) & (self.time_ns <= end_ns)).any())


def plausible(trace: Trace, facts: SourceFacts) -> tuple[Trace, Refused | None]:
    """Return the trace with a gap for each refused reading, and these; ``None`` without any."""
    known = ~np.isnan(trace.value)
    least = -np.inf if facts.may_be_negative else 0.0
    with np.errstate(invalid="ignore"):
        is_bad = known & ((np.abs(trace.value) > _MOST[trace.key.channel]) | (trace.value < least))
    if not is_bad.any():
        return trace, None
    reason = refusal(float(trace.value[is_bad][0]), trace.key.channel, facts)
    cleaned = replace(trace, value=np.where(is_bad, np.nan, trace.value))
    return cleaned, Refused(time_ns=trace.time_ns[is_bad], reason=reason)


def refused_energy(energy_j: float | None, seconds: float, *, may_be_negative: bool = False) -> str:
    """Return why an energy is refused; empty if it is plausible or missing."""
    if energy_j is None or seconds <= 0:
        return ""
    most_j = MOST_W * seconds
    if (-most_j if may_be_negative else 0.0) <= energy_j <= most_j:
        return ""
    return f"an energy of {energy_j:g} J in {seconds:.3f} s is impossible"
