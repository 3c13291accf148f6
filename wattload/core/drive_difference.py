"""What a run did to a controller: the state after it, less the state before it."""

from __future__ import annotations

from wattload.core.record.controller import (
    ControllerDifference,
    ControllerState,
    SmartState,
)
from wattload.core.sysfs import Observation

_SETTINGS = (
    "firmware",
    "firmware_slot",
    "lba_bytes",
    "namespace_size_bytes",
    "volatile_write_cache",
    "power_state",
    "apst_enabled",
    "apst_table",
    "pm_qos_latency_us",
    "aspm",
    "link_speed_gt_per_s",
    "link_width",
    "max_payload_bytes",
    "max_read_request_bytes",
)
"""What should stand still in a run; whatever of it did not is named in ``changed``."""

_AER_TOTALS = ("correctable_total", "nonfatal_total", "fatal_total")


def difference(before: ControllerState, after: ControllerState) -> ControllerDifference:
    """Return the growth of a controller's counters over a run, and the settings that changed.

    A counter that fell (the controller was reset or replaced) gives no figure. Write amplification
    is media bytes over host bytes written, by the drive's own two counters.
    """
    observation = Observation()
    for name in ("read_bytes", "written_bytes", "media_errors", "unsafe_shutdowns"):
        observation.put(name, *_grown(*_smart_counters(name, before, after)))
    observation.put("thermal_transitions", *_grown(*_thermal_counters(before, after)))
    media = _grown(before.media_written_bytes, after.media_written_bytes)
    observation.put("media_written_bytes", *media)
    observation.put("aer_count", *_grown(_aer_total(before), _aer_total(after)))
    host_bytes: int | None = observation.values["written_bytes"]
    observation.put("write_amplification", *_amplification(host_bytes, media[0]))
    changed = tuple(name for name in _SETTINGS if _differs(name, before, after))
    return observation.build(ControllerDifference, changed=changed)


def _differs(name: str, before: ControllerState, after: ControllerState) -> bool:
    one, two = getattr(before, name), getattr(after, name)
    return one is not None and two is not None and one != two


def _smart_counters(
    name: str, before: ControllerState, after: ControllerState
) -> tuple[int | None, int | None]:
    return _smart_counter(name, before.smart), _smart_counter(name, after.smart)


def _smart_counter(name: str, smart: SmartState | None) -> int | None:
    value: int | None = None if smart is None else getattr(smart, name)
    return value


def _thermal_counters(
    before: ControllerState, after: ControllerState
) -> tuple[int | None, int | None]:
    return _thermal(before.smart), _thermal(after.smart)


def _thermal(smart: SmartState | None) -> int | None:
    if smart is None or smart.thermal_transitions_1 is None or smart.thermal_transitions_2 is None:
        return None
    return smart.thermal_transitions_1 + smart.thermal_transitions_2


def _aer_total(state: ControllerState) -> int | None:
    counts = state.aer_counts
    return None if counts is None else sum(counts.get(name, 0) for name in _AER_TOTALS)


def _grown(before: int | None, after: int | None) -> tuple[int | None, str]:
    if before is None or after is None:
        return None, f"it could not be read {'before' if before is None else 'after'} the run"
    if after < before:
        return None, f"the counter fell from {before} to {after}: the controller was reset"
    return after - before, ""


def _amplification(host_bytes: int | None, media_bytes: int | None) -> tuple[float | None, str]:
    if host_bytes is None or media_bytes is None:
        return None, "it needs the drive's host and media bytes, before and after"
    if host_bytes == 0:
        return None, "nothing was written"
    return media_bytes / host_bytes, ""
