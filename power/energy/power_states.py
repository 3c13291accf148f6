"""Seconds, bytes and joules per observed power state: the shares sum to a window's totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.energy import PowerStateShare
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Curve
from wattload.power.energy.profile import max_gap_ns
from wattload.power.energy.trace import ByteSeries, Times, Trace, Values

TRANSITION = -1
UNKNOWN = -2
_NAMES = {TRANSITION: "transition", UNKNOWN: "unknown"}

ENERGIES = ("energy_j", "lower_j", "upper_j")


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisibleEnergy:
    """One energy of a window to divide among the states.

    If the window has no such energy, ``curve`` is ``None`` and ``reason`` says why.
    """

    curve: Curve | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Intervals:
    """The window, divided at each read of the state: edges (n + 1,), the labels between (n,)."""

    edge_ns: Times
    label: NDArray[np.int64]


def shares(
    states: Trace,
    energies: Mapping[str, DivisibleEnergy],
    start_ns: int,
    end_ns: int,
    *,
    period_s: float,
    traffic: ByteSeries | None,
    changes: Trace | None = None,
) -> tuple[PowerStateShare, ...]:
    """Return the window's shares by state: numbered states first, then transition, unknown.

    ``energies`` has the three keys of ``ENERGIES``. The time between two reads of the state belongs
    to state k only if both read k. If they differ, it is ``transition``. If a read failed or was
    more than a gap away, it is ``unknown``; ``period_s`` is the configured time between reads.
    Some drives count their changes of state (``changes``). If the count grew by more than the
    changes seen, the time between two reads of the count is ``transition`` too.
    """
    intervals = _intervals(states, changes, start_ns, end_ns, max_gap_ns(period_s))
    columns: dict[str, Values | None] = {
        name: None if part.curve is None else part.curve.energy_j(intervals.edge_ns)
        for name, part in energies.items()
    }
    reasons = {name: part.reason for name, part in energies.items() if part.curve is None}
    columns["seconds"] = (intervals.edge_ns - start_ns) / NS_PER_S
    columns["moved_bytes"] = None
    if traffic is not None and traffic.covers(start_ns, end_ns):
        columns["moved_bytes"] = traffic.at(intervals.edge_ns)
    else:
        reasons["moved_bytes"] = "the bytes of this device were not counted over time"
    labels = sorted(set(intervals.label.tolist()), key=lambda label: (label < 0, abs(label)))
    return tuple(_share(intervals, label, columns, reasons) for label in labels)


def _share(
    intervals: _Intervals,
    label: int,
    columns: Mapping[str, Values | None],
    reasons: Mapping[str, str],
) -> PowerStateShare:
    """Return one state's share of each quantity; ``columns`` are its totals up to each edge."""
    parts = {name: _sum(intervals, label, column) for name, column in columns.items()}
    moved = parts["moved_bytes"]
    return PowerStateShare(
        state=_NAMES.get(label, str(label)),
        seconds=parts["seconds"] or 0.0,
        moved_bytes=None if moved is None else round(moved),
        **{name: parts[name] for name in ENERGIES},
        missing=reasons,
    )


def _intervals(
    states: Trace, changes: Trace | None, start_ns: int, end_ns: int, gap_ns: int
) -> _Intervals:
    inside = (states.time_ns > start_ns) & (states.time_ns < end_ns)
    edge_ns = np.unique(np.concatenate(([start_ns], states.time_ns[inside], [end_ns])))
    if states.time_ns.size < 2:  # noqa: PLR2004 - an interval has two ends
        return _Intervals(edge_ns=edge_ns, label=np.full(edge_ns.size - 1, UNKNOWN))
    before, after = states.value[:-1], states.value[1:]
    is_known = ~np.isnan(before + after) & (np.diff(states.time_ns) <= gap_ns)
    state = np.where(before == after, np.nan_to_num(before), TRANSITION).astype(np.int64)
    between = np.where(is_known, state, UNKNOWN)
    if changes is not None:
        between[_is_unexplained(between, states.time_ns, changes) & (between >= 0)] = TRANSITION
    # The first and the last entry are the time before the first and after the last read.
    padded = np.concatenate(([UNKNOWN], between, [UNKNOWN]))
    label = padded[np.searchsorted(states.time_ns, edge_ns[:-1], "right")]
    # Equal neighbours are one interval: in two days a state is read two million times.
    begins = np.concatenate(([True], label[1:] != label[:-1]))
    return _Intervals(
        edge_ns=np.concatenate((edge_ns[:-1][begins], edge_ns[-1:])), label=label[begins]
    )


def _is_unexplained(
    between: NDArray[np.int64], read_ns: Times, changes: Trace
) -> NDArray[np.bool_]:
    """Return which intervals between reads of the state have more counted changes than seen ones.

    A count belongs to the nearest read of the state, as both are read in one round. A count that
    decreased was reset, so its time is unexplained too.
    """
    known = ~np.isnan(changes.value)
    counted_ns, count = changes.time_ns[known], changes.value[known]
    right = np.clip(np.searchsorted(read_ns, counted_ns), 1, read_ns.size - 1)
    is_left = counted_ns - read_ns[right - 1] < read_ns[right] - counted_ns
    at = right - is_left
    seen = np.concatenate(([0], np.cumsum(between == TRANSITION)))
    step = np.diff(count)
    unexplained = (step < 0) | (step > np.diff(seen[at]))
    is_marked = np.zeros(between.size, np.bool_)
    for first, last in zip(at[:-1][unexplained], at[1:][unexplained], strict=True):
        is_marked[first:last] = True
    return is_marked


def _sum(intervals: _Intervals, label: int, at_edges: Values | None) -> float | None:
    """Return how much a total, given at the edges, grew in the intervals of a state."""
    if at_edges is None:
        return None
    return float(np.diff(at_edges)[intervals.label == label].sum())
