"""What a drive may draw while its power state reads k: limits that hold until the next read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattload.core.power import Bounds
from wattload.power.nvme.identify import PowerStateDescriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBounds:
    """Watts by power state, and the sensor that says how they change.

    A state without a limit has ``None``; a mapping is empty where no state has one.
    """

    lower_w: Mapping[int, float | None]
    upper_w: Mapping[int, float | None]
    sensor: Bounds


def state_bounds(states: Sequence[PowerStateDescriptor], *, is_autonomous: bool) -> StateBounds:
    """Return the limits that hold from one read of a state to the next that says the same.

    Between two reads a drive may have been elsewhere by itself (NVMe Base, "Non-Operational Power
    States", "Autonomous Power State Transitions"): I/O takes it from a non-operational state to an
    operational one, and with ``is_autonomous`` (APST is on, or nobody knows) idle time takes it
    from any state to a non-operational one. The limits are those of all states it may have been in.

    Upper is the sustained maximum MP, which holds for means over 1 s and more; lower the typical
    idle power IDLP, 0 W for a state that does not report it where others do.
    """
    uppers = {state.index: _upper_w(state, states) for state in states}
    lowers = {state.index: _lower_w(state, states, is_autonomous) for state in states}
    latencies_s = [(state.exit_latency_s or 0.0, state.entry_latency_s or 0.0) for state in states]
    has_lower = any(state.idle_w is not None for state in states)
    has_upper = any(state.max_w is not None for state in states)
    return StateBounds(
        lower_w=lowers if has_lower else {},
        upper_w=uppers if has_upper else {},
        sensor=Bounds(
            settle_s=max(out for out, _ in latencies_s) + max(into for _, into in latencies_s),
            lowest_w=min(lowers.values()) if has_lower else None,
            highest_w=_greatest(list(uppers.values())),
        ),
    )


def _upper_w(state: PowerStateDescriptor, states: Sequence[PowerStateDescriptor]) -> float | None:
    if state.operational:
        return state.max_w
    return _greatest([state.max_w, *(other.max_w for other in states if other.operational)])


def _lower_w(
    state: PowerStateDescriptor, states: Sequence[PowerStateDescriptor], is_autonomous: bool
) -> float:
    reachable = [other for other in states if is_autonomous and not other.operational]
    return min(other.idle_w or 0.0 for other in (state, *reachable))


def _greatest(watts: Sequence[float | None]) -> float | None:
    """Return the greatest, ``None`` where one is not known: it may be greater."""
    known = [value for value in watts if value is not None]
    return max(known) if known and len(known) == len(watts) else None
