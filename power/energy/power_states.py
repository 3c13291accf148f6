"""Seconds, bytes and joules per observed power state: the shares sum to a phase's totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wattload.core.base_models import fields_of
from wattload.core.record.energy import PowerStateShare
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Course, Window
from wattload.power.energy.profile import max_gap_ns
from wattload.power.energy.trace import Times, Trace

TRANSITION = -1
UNKNOWN = -2
_PAUSE = -3
_NAMES = {TRANSITION: "transition", UNKNOWN: "unknown"}


def shares(
    states: Trace,
    totals: Mapping[str, tuple[Course | None, str]],
    windows: Sequence[Window],
    *,
    period_s: float,
    changes: Trace | None = None,
) -> tuple[PowerStateShare, ...]:
    """Return the shares of a phase by state: numbered states first, then transition, unknown.

    ``totals`` has what is divided by the name of its field: its course, or the reason why there is
    none. ``windows`` ascend and do not overlap. The time between two reads of the state belongs to
    state k only if both read k. If they differ, it is ``transition``. If a read failed or was more
    than a gap away, it is ``unknown``; ``period_s`` is the configured time between reads. Some
    drives count their changes of state (``changes``). If the count grew by more than the changes
    seen, the time between two reads of the count is ``transition`` too.
    """
    edge_ns, label = _intervals(states, changes, windows, max_gap_ns(period_s))
    grown = {
        name: (None if course is None else np.diff(course(edge_ns)), reason)
        for name, (course, reason) in totals.items()
    }
    found = []
    for state in sorted({*label.tolist()} - {_PAUSE}, key=lambda state: (state < 0, abs(state))):
        is_own = label == state
        figures = {
            name: (None if parts is None else float(parts[is_own].sum()), reason)
            for name, (parts, reason) in grown.items()
        }
        seconds = float(np.diff(edge_ns)[is_own].sum()) / NS_PER_S
        name = _NAMES.get(state, str(state))
        found.append(PowerStateShare(state=name, seconds=seconds, **fields_of(figures)))
    return tuple(found)


def _intervals(
    states: Trace, changes: Trace | None, windows: Sequence[Window], gap_ns: int
) -> tuple[Times, NDArray[np.int64]]:
    """Return edges (n + 1,) and the states between them (n,)."""
    border_ns, read_ns = np.array(windows, dtype=np.int64).reshape(-1), states.time_ns
    inside = (read_ns > border_ns[0]) & (read_ns < border_ns[-1])
    edge_ns = np.unique(np.concatenate((border_ns, read_ns[inside])))
    before, after = states.value[:-1], states.value[1:]
    is_known = ~np.isnan(before + after) & (np.diff(read_ns) <= gap_ns)
    state = np.where(before == after, np.nan_to_num(before), TRANSITION).astype(np.int64)
    between = np.where(is_known, state, UNKNOWN)
    if changes is not None and between.size and not np.isnan(changes.value).all():
        between[_is_unexplained(between, read_ns, changes) & (between >= 0)] = TRANSITION
    # The first and the last entry are the time before the first and after the last read.
    padded = np.concatenate(([UNKNOWN], between, [UNKNOWN]))
    label = padded[np.searchsorted(read_ns, edge_ns[:-1], "right")]
    label[np.searchsorted(border_ns, edge_ns[:-1], "right") % 2 == 0] = _PAUSE
    # Equal neighbours are one interval: in two days a state is read two million times.
    begins = np.diff(label, prepend=_PAUSE - 1) != 0
    return np.append(edge_ns[:-1][begins], edge_ns[-1:]), label[begins]


def _is_unexplained(
    between: NDArray[np.int64], read_ns: Times, changes: Trace
) -> NDArray[np.bool_]:
    """Return which intervals between reads of the state have more counted changes than seen ones.

    A count belongs to the nearest read of the state, as both are read in one round. A count that
    decreased was reset, so its time is unexplained too.
    """
    counted_ns, count = changes.known()
    right = np.clip(np.searchsorted(read_ns, counted_ns), 1, read_ns.size - 1)
    is_left = counted_ns - read_ns[right - 1] < read_ns[right] - counted_ns
    at = right - is_left
    seen = np.concatenate(([0], np.cumsum(between == TRANSITION)))
    step = np.diff(count)
    unexplained = (step < 0) | (step > np.diff(seen[at]))
    is_marked = np.zeros(between.size, np.bool_)
    is_marked[at[0] : at[-1]] = np.repeat(unexplained, np.diff(at))
    return is_marked
