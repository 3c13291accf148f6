"""What else is known of a drive while its power is read: bytes, and power by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattload.core.power import Channel, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.trace import Times, Trace, TraceKey, Values

BIN_S = 2.0
"""Accounts are compared in bins of this length: longer than a sensor of drives averages."""

_BYTES = (Channel.READ_BYTES, Channel.WRITTEN_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accounts:
    """Traces of one drive that its sensor has no part in: block counters, powers."""

    moved: tuple[Trace, ...]
    powers: tuple[Trace, ...]

    @classmethod
    def of(cls, by_key: Mapping[TraceKey, Trace], facts: SourceFacts) -> Accounts:
        """Return what there is beside a source: block devices are known by the drive's name."""
        own = (facts.device_name, f"{facts.device_name}n")
        return cls(
            moved=tuple(
                trace
                for key, trace in by_key.items()
                if key.channel in _BYTES and (key.device == own[0] or key.device.startswith(own[1]))
            ),
            powers=tuple(
                trace
                for key, trace in by_key.items()
                if key.channel is Channel.POWER_W
                and key.device == facts.device
                and key.source != facts.name
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """A drive's accounts in bins of ``BIN_S``: bin i runs from ``edge_ns[i]`` to the next edge.

    ``rate`` is bytes per second (n,), ``None`` where nobody counted; ``powers_w`` what each other
    sensor told on average, NaN in a bin that it was not read in.
    """

    edge_ns: Times
    rate: Values | None
    powers_w: tuple[Values, ...]

    @classmethod
    def of(cls, trace: Trace, accounts: Accounts) -> Bins:
        """Return the bins of the time that the trace and the block counters cover."""
        starts = [int(each.time_ns[0]) for each in (trace, *accounts.moved)]
        ends = [int(each.time_ns[-1]) for each in (trace, *accounts.moved)]
        edge_ns = np.arange(max(starts), max(min(ends), *starts) + 1, round(BIN_S * NS_PER_S))
        return cls(
            edge_ns=edge_ns,
            rate=_rate(accounts.moved, edge_ns) if accounts.moved else None,
            powers_w=tuple(means(each, edge_ns) for each in accounts.powers),
        )

    def within(self, start_ns: int, end_ns: int) -> slice:
        """Return the bins that lie whole in an interval."""
        first = int(np.searchsorted(self.edge_ns, start_ns, "left"))
        last = int(np.searchsorted(self.edge_ns, end_ns, "right")) - 1
        return slice(first, max(first, last))


def _rate(moved: Sequence[Trace], edge_ns: Times) -> Values:
    total = np.zeros(edge_ns.size)
    for trace in moved:
        known = ~np.isnan(trace.value)
        if known.any():
            at_s = (trace.time_ns[known] - edge_ns[0]) / NS_PER_S
            total += np.interp((edge_ns - edge_ns[0]) / NS_PER_S, at_s, trace.value[known])
    rate: Values = np.maximum(np.diff(total), 0.0) / BIN_S
    return rate


def means(trace: Trace, edge_ns: Times) -> Values:
    """Return the mean of what was read in each bin, NaN where nothing was."""
    known = ~np.isnan(trace.value)
    index = np.searchsorted(edge_ns, trace.time_ns[known], "right") - 1
    inside = (index >= 0) & (index < edge_ns.size - 1)
    size = max(edge_ns.size - 1, 0)
    count = np.bincount(index[inside], minlength=size)
    total = np.bincount(index[inside], trace.value[known][inside], minlength=size)
    found: Values = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return found
