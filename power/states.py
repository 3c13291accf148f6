"""Seconds, bytes and joules per observed power state; over a window they sum to its totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.energy import PowerStateShare
from wattload.core.units import NS_PER_S
from wattload.power.energy import WindowCurve
from wattload.power.sensors import max_gap_ns
from wattload.power.trace import Times, Trace, Values
from wattload.power.traffic import ByteSeries

TRANSITION = -1
UNKNOWN = -2
_NAMES = {TRANSITION: "transition", UNKNOWN: "unknown"}

ENERGIES = ("energy_j", "lower_j", "upper_j")


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """One energy of a window that is to be divided among the states.

    ``curve`` is ``None`` where the window has no such energy, for the ``reason`` given.
    """

    curve: WindowCurve | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stretches:
    """The window cut where a state was read: ``edge_ns`` (n + 1,), what lay between them (n,)."""

    edge_ns: Times
    label: NDArray[np.int64]


def shares(
    states: Trace,
    energies: Mapping[str, Divided],
    start_ns: int,
    end_ns: int,
    *,
    period_s: float,
    traffic: ByteSeries | None,
    changes: Trace | None = None,
) -> tuple[PowerStateShare, ...]:
    """Return the window's shares by state: numbered states first, then transition, unknown.

    ``energies`` has the three keys of ``ENERGIES``. A stretch between two reads of the state is in
    state k only if both read k; if they differ it is ``transition``; where a read failed or was
    more than a gap away (``period_s`` is the time between reads that was asked for) it is
    ``unknown``. Where the drive counts its changes of state (``changes``) and has counted more than
    the reads saw, what lay between two reads of that count is ``transition`` too.
    """
    stretches = _stretches(states, changes, start_ns, end_ns, max_gap_ns(period_s))
    columns: dict[str, Values | None] = {
        name: None if part.curve is None else part.curve.energy_j(stretches.edge_ns)
        for name, part in energies.items()
    }
    reasons = {name: part.reason for name, part in energies.items() if part.curve is None}
    columns["seconds"] = (stretches.edge_ns - start_ns) / NS_PER_S
    columns["moved_bytes"] = None
    if traffic is not None and traffic.covers(start_ns, end_ns):
        columns["moved_bytes"] = traffic.at(stretches.edge_ns)
    else:
        reasons["moved_bytes"] = "the bytes of this device were not counted over time"
    labels = sorted(set(stretches.label.tolist()), key=lambda label: (label < 0, abs(label)))
    return tuple(_share(stretches, label, columns, reasons) for label in labels)


def _share(
    stretches: _Stretches,
    label: int,
    columns: Mapping[str, Values | None],
    reasons: Mapping[str, str],
) -> PowerStateShare:
    """Return what the stretches of one state have of each quantity, given at the edges."""
    parts = {name: _sum(stretches, label, column) for name, column in columns.items()}
    moved = parts["moved_bytes"]
    return PowerStateShare(
        state=_NAMES.get(label, str(label)),
        seconds=parts["seconds"] or 0.0,
        moved_bytes=None if moved is None else round(moved),
        **{name: parts[name] for name in ENERGIES},
        missing=reasons,
    )


def _stretches(
    states: Trace, changes: Trace | None, start_ns: int, end_ns: int, gap_ns: int
) -> _Stretches:
    inside = (states.time_ns > start_ns) & (states.time_ns < end_ns)
    edge_ns = np.unique(np.concatenate(([start_ns], states.time_ns[inside], [end_ns])))
    if states.time_ns.size < 2:  # noqa: PLR2004 - a stretch has two ends
        return _Stretches(edge_ns=edge_ns, label=np.full(edge_ns.size - 1, UNKNOWN))
    before, after = states.value[:-1], states.value[1:]
    is_known = ~np.isnan(before + after) & (np.diff(states.time_ns) <= gap_ns)
    state = np.where(before == after, np.nan_to_num(before), TRANSITION).astype(np.int64)
    between = np.where(is_known, state, UNKNOWN)
    if changes is not None:
        between[_is_unexplained(between, states.time_ns, changes) & (between >= 0)] = TRANSITION
    # Index 0 and the last stand for the time before the first and after the last read.
    padded = np.concatenate(([UNKNOWN], between, [UNKNOWN]))
    return _Stretches(
        edge_ns=edge_ns,
        label=padded[np.searchsorted(states.time_ns, edge_ns[:-1], "right")],
    )


def _is_unexplained(
    between: NDArray[np.int64], read_ns: Times, changes: Trace
) -> NDArray[np.bool_]:
    """Return which stretches between reads of the state lie where more changes were counted.

    A count belongs to the read of the state that is nearest to it: both come in one round. A count
    that fell was reset, and explains nothing.
    """
    known = ~np.isnan(changes.value)
    counted_ns, count = changes.time_ns[known], changes.value[known]
    right = np.clip(np.searchsorted(read_ns, counted_ns), 1, read_ns.size - 1)
    is_left = counted_ns - read_ns[right - 1] < read_ns[right] - counted_ns
    at = right - is_left
    seen = np.concatenate(([0], np.cumsum(between == TRANSITION)))
    step = np.diff(count)
    unexplained = (step < 0) | (step > np.diff(seen[at]))
    marked = np.zeros(between.size, np.bool_)
    for first, last in zip(at[:-1][unexplained], at[1:][unexplained], strict=True):
        marked[first:last] = True
    return marked


def _sum(stretches: _Stretches, label: int, at_edges: Values | None) -> float | None:
    """Return how much a growing quantity, given at the edges, grew in the stretches of a state."""
    if at_edges is None:
        return None
    return float(np.diff(at_edges)[stretches.label == label].sum())
