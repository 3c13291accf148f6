"""A controller's state and power states for the record, read through the admin queue.

Only the part that needs NVMe commands: ``core.storage.controllers`` reads link, ASPM and error
counts from sysfs. Each field has either a value or the reason why it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from wattload.core.errors import PowerError
from wattload.core.record.target import (
    ADMIN_QUEUE_FIELDS,
    SmartState,
)
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import (
    POWER_MANAGEMENT,
    Select,
    is_saveable,
    read_background_power,
    read_power_state,
    read_thermal_thresholds_k,
    read_transitions,
    read_write_cache,
)
from wattload.power.nvme.identify import (
    Controller,
    Namespace,
    active_namespaces,
    identify_controller,
    identify_namespace,
    read_ocp_uuid_index,
)
from wattload.power.nvme.logs import (
    media_counter,
    read_firmware_slot,
    read_ocp_smart,
    read_smart,
)

Fields = dict[str, Any]
Reasons = dict[str, str]

_NAMESPACE_FIELDS = (
    "lba_bytes",
    "preferred_write_bytes",
    "namespace_size_bytes",
    "namespace_used_bytes",
)
_THROTTLE_FIELDS = ("throttle_events", "throttle_status")
_FIELDS = (
    "firmware",
    *_NAMESPACE_FIELDS,
    *ADMIN_QUEUE_FIELDS,
    "smart",
)


def read_state(device: AdminDevice) -> tuple[Fields, Reasons]:
    """Return the fields of ``ControllerState`` from NVMe commands, and reasons for missing ones.

    Every such field is in exactly one of the two mappings. Takes some 15 admin commands.
    """
    try:
        controller = identify_controller(device)
    except PowerError as error:
        return unreadable_state(str(error))
    gathered = Gathered()
    gathered.add("firmware", lambda: controller.firmware or None, "the drive reports none")
    gathered.add("firmware_slot", lambda: read_firmware_slot(device), "the drive reports no slot")
    no_capacity = "the drive reports no total capacity"
    gathered.add("capacity_bytes", lambda: controller.capacity_bytes, no_capacity)
    gathered.add("unallocated_bytes", lambda: controller.unallocated_bytes, no_capacity)
    _gather_namespaces(device, controller, gathered)
    _gather_features(device, controller, gathered)
    gathered.add_all(_THROTTLE_FIELDS, lambda: _throttling(device, controller))
    gathered.add("smart", lambda: _smart_state(device))
    return gathered.fields, gathered.missing


def unreadable_state(reason: str) -> tuple[Fields, Reasons]:
    """Return the same for a controller that can't be read."""
    return {}, dict.fromkeys(_FIELDS, reason)


@dataclass(slots=True)
class Gathered:
    """Fields with values, and reasons for missing ones."""

    fields: Fields = field(default_factory=dict)
    missing: Reasons = field(default_factory=dict)

    def add(
        self, name: str, read: Callable[[], object], absent: str = "the drive reports none"
    ) -> None:
        """Add what ``read`` returns; for ``None`` or a refusal add a reason."""
        self.add_all((name,), lambda: (read(),), absent)

    def add_all(
        self, names: Sequence[str], read: Callable[[], Sequence[object]], absent: str = ""
    ) -> None:
        """Add the values that ``read`` returns for these names, as ``add`` does for one."""
        try:
            values = read()
        except PowerError as error:
            self.missing.update(dict.fromkeys(names, str(error)))
            return
        for name, value in zip(names, values, strict=True):
            if value is None:
                self.missing[name] = absent
            else:
                self.fields[name] = value


def _gather_namespaces(device: AdminDevice, controller: Controller, gathered: Gathered) -> None:
    namespaces, reason = _namespaces(device)
    if not namespaces:
        gathered.missing.update(dict.fromkeys((*_NAMESPACE_FIELDS, "media_written_bytes"), reason))
        return
    blocks = {namespace.lba_bytes for namespace in namespaces}
    gathered.add(
        "lba_bytes",
        lambda: blocks.pop() if len(blocks) == 1 else None,
        "its namespaces have different block sizes",
    )
    preferred = {namespace.preferred_write_bytes for namespace in namespaces}
    gathered.add(
        "preferred_write_bytes",
        lambda: preferred.pop() if len(preferred) == 1 else None,
        "its namespaces report none, or different ones",
    )
    gathered.add("namespace_size_bytes", lambda: sum(each.size_bytes for each in namespaces))
    gathered.add("namespace_used_bytes", lambda: sum(each.used_bytes for each in namespaces))
    gathered.add("media_written_bytes", lambda: _media_written_bytes(device, controller))


def _media_written_bytes(device: AdminDevice, controller: Controller) -> int:
    _, read_count = media_counter(device, controller)
    return read_count()


def _namespaces(device: AdminDevice) -> tuple[list[Namespace], str]:
    """Return the active namespaces, and the reason if there are none."""
    try:
        namespaces = [identify_namespace(device, each) for each in active_namespaces(device)]
    except PowerError as error:
        return [], str(error)
    return namespaces, "the controller has no active namespace"


def _gather_features(device: AdminDevice, controller: Controller, gathered: Gathered) -> None:
    gathered.add(
        "volatile_write_cache",
        lambda: read_write_cache(device) if controller.volatile_write_cache else False,
    )
    gathered.add("power_state", lambda: read_power_state(device))
    gathered.add(
        "power_state_default",
        lambda: _selected_state(device, controller, Select.DEFAULT),
        "the drive reports only the current value",
    )
    gathered.add(
        "power_state_saved",
        lambda: _selected_state(device, controller, Select.SAVED),
        "the drive can't save a power state",
    )
    gathered.add_all(
        ("apst_enabled", "apst_table"),
        lambda: _transitions(device, controller),
        "the drive has no autonomous transitions",
    )
    gathered.add(
        "background_power",
        lambda: read_background_power(device) if controller.capabilities.permissive_mode else None,
        "the drive has no permissive mode",
    )
    gathered.add_all(
        ("thermal_light_k", "thermal_heavy_k"),
        lambda: _thermal_thresholds_k(device, controller),
        "the threshold is disabled",
    )


def _transitions(
    device: AdminDevice, controller: Controller
) -> tuple[bool, tuple[str, ...] | None]:
    """Return whether autonomous transitions are enabled, and their rules."""
    if not controller.capabilities.autonomous_transitions:
        return False, None
    apst = read_transitions(device)
    return apst.enabled, tuple(
        f"from PS{rule.state} to PS{rule.target} after {rule.idle_s:g} s idle"
        for rule in apst.transitions
    )


def _thermal_thresholds_k(
    device: AdminDevice, controller: Controller
) -> tuple[int | None, int | None]:
    if not controller.capabilities.thermal_management:
        raise PowerError("the drive has no host controlled thermal management")
    return read_thermal_thresholds_k(device)


def _throttling(device: AdminDevice, controller: Controller) -> tuple[int, int]:
    """Return OCP's throttling counters, which include throttling without a host threshold."""
    log = read_ocp_smart(device, uuid_index=read_ocp_uuid_index(device, controller))
    return log.throttle_events, log.throttle_status


def _selected_state(device: AdminDevice, controller: Controller, select: Select) -> int | None:
    if not controller.selects_features:
        return None
    if select is Select.SAVED and not is_saveable(device, POWER_MANAGEMENT):
        return None
    return read_power_state(device, select)


def _smart_state(device: AdminDevice) -> SmartState:
    values = asdict(read_smart(device))
    missing = {name: "the drive reports 0" for name, value in values.items() if value is None}
    return SmartState(**values, missing=missing)
