"""A controller's state and power states as the record keeps them, from the admin queue.

Only the half that needs NVMe commands; link, ASPM and error counts are in sysfs, which
``wattload.core.nvme_sysfs`` reads. Each field comes back either with its value or with the reason
why it has none, never with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wattload.core.errors import PowerError
from wattload.core.record.controller import PowerStateFacts, SmartState
from wattload.power.nvme.admin import AdminDevice, NvmeAdmin, OpenDevice
from wattload.power.nvme.endurance import read_media_written_bytes
from wattload.power.nvme.features import (
    POWER_MANAGEMENT,
    Select,
    read_capabilities,
    read_power_management,
    read_power_state,
    read_transitions,
    read_write_cache,
)
from wattload.power.nvme.firmware import read_firmware_slot
from wattload.power.nvme.identify import (
    Controller,
    Namespace,
    PowerStateDescriptor,
    active_namespaces,
    identify_controller,
    identify_namespace,
)
from wattload.power.nvme.smart import SmartLog, read_smart

Fields = dict[str, Any]
Reasons = dict[str, str]

_NAMESPACE_FIELDS = ("lba_bytes", "namespace_size_bytes", "namespace_used_bytes")
_FIELDS = (
    "firmware",
    "firmware_slot",
    *_NAMESPACE_FIELDS,
    "capacity_bytes",
    "unallocated_bytes",
    "volatile_write_cache",
    "power_state",
    "power_state_default",
    "power_state_saved",
    "apst_enabled",
    "apst_table",
    "media_written_bytes",
    "smart",
)


def read_controller_state(
    device_name: str, open_device: OpenDevice = NvmeAdmin
) -> tuple[Fields, Reasons]:
    """Return the fields of ``ControllerState`` that NVMe commands answer, and why others are None.

    Every field of the admin half is in exactly one of the two mappings. Some 15 admin commands.
    """
    try:
        device = open_device(device_name)
    except PowerError as error:
        return unreadable_state(str(error))
    try:
        return read_state(device)
    finally:
        device.close()


def read_state(device: AdminDevice) -> tuple[Fields, Reasons]:
    """Return the same as ``read_controller_state`` from a controller that is open."""
    try:
        controller = identify_controller(device)
    except PowerError as error:
        return unreadable_state(str(error))
    gathered = _Gathered()
    gathered.add("firmware", lambda: controller.firmware or None, "the drive names none")
    gathered.add("firmware_slot", lambda: read_firmware_slot(device), "the drive names no slot")
    no_capacity = "the drive reports no total capacity"
    gathered.add("capacity_bytes", lambda: controller.capacity_bytes, no_capacity)
    gathered.add("unallocated_bytes", lambda: controller.unallocated_bytes, no_capacity)
    _gather_namespaces(device, gathered)
    _gather_features(device, controller, gathered)
    gathered.add("smart", lambda: smart_state(read_smart(device)))
    return gathered.fields, gathered.missing


def unreadable_state(reason: str) -> tuple[Fields, Reasons]:
    """Return the same of a controller that can't be read at all."""
    return {}, dict.fromkeys(_FIELDS, reason)


class _Gathered:
    """Fields with values, and reasons for those without."""

    def __init__(self) -> None:
        self.fields: Fields = {}
        self.missing: Reasons = {}

    def add(
        self, name: str, read: Callable[[], object], absent: str = "the drive reports none"
    ) -> None:
        """Take what ``read`` returns; ``None`` or a refusal becomes a reason."""
        try:
            value = read()
        except PowerError as error:
            self.missing[name] = str(error)
            return
        if value is None:
            self.missing[name] = absent
        else:
            self.fields[name] = value


def _gather_namespaces(device: AdminDevice, gathered: _Gathered) -> None:
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
    gathered.add("namespace_size_bytes", lambda: sum(each.size_bytes for each in namespaces))
    gathered.add("namespace_used_bytes", lambda: sum(each.used_bytes for each in namespaces))
    group = namespaces[0].endurance_group
    gathered.add("media_written_bytes", lambda: read_media_written_bytes(device, group))


def _namespaces(device: AdminDevice) -> tuple[list[Namespace], str]:
    """Return the active namespaces, and why there are none."""
    try:
        namespaces = [identify_namespace(device, each) for each in active_namespaces(device)]
    except PowerError as error:
        return [], str(error)
    return namespaces, "the controller has no active namespace"


def _gather_features(device: AdminDevice, controller: Controller, gathered: _Gathered) -> None:
    gathered.add(
        "volatile_write_cache",
        lambda: read_write_cache(device) if controller.volatile_write_cache else False,
    )
    gathered.add("power_state", lambda: read_power_state(device))
    gathered.add(
        "power_state_default",
        lambda: _selected_state(device, controller, Select.DEFAULT),
        "the drive answers for the current value only",
    )
    gathered.add(
        "power_state_saved",
        lambda: _selected_state(device, controller, Select.SAVED),
        "the drive can't save a power state",
    )
    if not controller.apst_supported:
        gathered.fields["apst_enabled"] = False
        gathered.missing["apst_table"] = "the drive has no autonomous transitions"
        return
    try:
        apst = read_transitions(device)
    except PowerError as error:
        gathered.missing.update(apst_enabled=str(error), apst_table=str(error))
        return
    gathered.fields["apst_enabled"] = apst.enabled
    gathered.fields["apst_table"] = tuple(
        f"from PS{rule.state} to PS{rule.target} after {rule.idle_s:g} s idle"
        for rule in apst.transitions
    )


def _selected_state(device: AdminDevice, controller: Controller, select: Select) -> int | None:
    if not controller.selects_features:
        return None
    if select is Select.SAVED and not read_capabilities(device, POWER_MANAGEMENT).saveable:
        return None
    return read_power_management(device, select).state


def smart_state(log: SmartLog) -> SmartState:
    """Return a SMART log as the record keeps it."""
    fields = {name: getattr(log, name) for name in SmartState.model_fields if name != "missing"}
    reasons = {"temperature_k": "the drive reports 0 K", "lifetime_energy_wh": "not reported"}
    missing = {name: reasons[name] for name, value in fields.items() if value is None}
    return SmartState(**fields, missing=missing)


def power_state_facts(descriptor: PowerStateDescriptor) -> PowerStateFacts:
    """Return a power state descriptor as the record keeps it."""
    fields: Mapping[str, float | None] = {
        "max_w": descriptor.max_w,
        "entry_latency_s": descriptor.entry_latency_s,
        "exit_latency_s": descriptor.exit_latency_s,
        "idle_w": descriptor.idle_w,
        "active_w": descriptor.active_w,
    }
    missing = {name: "the drive reports 0" for name, value in fields.items() if value is None}
    return PowerStateFacts(
        index=descriptor.index, operational=descriptor.operational, **fields, missing=missing
    )
