"""A controller's state and power states as the record keeps them, from the admin queue.

Only the half that needs NVMe commands; link, ASPM and error counts are in sysfs, which
``wattload.core.nvme_sysfs`` reads. Each field comes back either with its value or with the reason
why it has none, never with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wattload.core.errors import PowerError
from wattload.core.record.base import Observed
from wattload.core.record.controller import PowerCapabilities, PowerStateFacts, SmartState
from wattload.power.nvme.admin import AdminDevice, NvmeAdmin, OpenDevice
from wattload.power.nvme.endurance import read_media_written_bytes
from wattload.power.nvme.features import (
    POWER_MANAGEMENT,
    Select,
    read_background_power,
    read_capabilities,
    read_power_management,
    read_power_state,
    read_transitions,
    read_write_cache,
)
from wattload.power.nvme.firmware import read_firmware_slot
from wattload.power.nvme.identify import (
    Controller,
    PowerStateDescriptor,
    identify_controller,
)
from wattload.power.nvme.namespace import Namespace, active_namespaces, identify_namespace
from wattload.power.nvme.ocp import read_ocp_smart
from wattload.power.nvme.smart import SmartLog, read_smart
from wattload.power.nvme.thermal import read_thermal_management
from wattload.power.nvme.uuids import read_ocp_uuid_index

ObservedT = TypeVar("ObservedT", bound=Observed)
Fields = dict[str, Any]
Reasons = dict[str, str]

_NAMESPACE_FIELDS = ("lba_bytes", "namespace_size_bytes", "namespace_used_bytes")
_THROTTLE_FIELDS = ("throttle_events", "throttle_status")
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
    "thermal_light_k",
    "thermal_heavy_k",
    "background_power",
    *_THROTTLE_FIELDS,
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
    _gather_namespaces(device, controller, gathered)
    _gather_features(device, controller, gathered)
    _gather_thermal(device, controller, gathered)
    _gather_throttling(device, controller, gathered)
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


def _gather_namespaces(device: AdminDevice, controller: Controller, gathered: _Gathered) -> None:
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
    gathered.add(
        "media_written_bytes",
        lambda: read_media_written_bytes(
            device, group, ocp_uuid_index=read_ocp_uuid_index(device, controller)
        ),
    )


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


def _gather_thermal(device: AdminDevice, controller: Controller, gathered: _Gathered) -> None:
    """Take the drive's own thresholds of throttling, and what it may draw asleep."""
    if controller.permissive_mode:
        gathered.add("background_power", lambda: read_background_power(device))
    else:
        gathered.missing["background_power"] = "the drive has no permissive mode"
    names = ("thermal_light_k", "thermal_heavy_k")
    if not controller.thermal_management:
        gathered.missing.update(dict.fromkeys(names, "the drive lets no host manage its heat"))
        return
    try:
        thermal = read_thermal_management(device)
    except PowerError as error:
        gathered.missing.update(dict.fromkeys(names, str(error)))
        return
    gathered.add("thermal_light_k", lambda: thermal.light_k, "the threshold is off")
    gathered.add("thermal_heavy_k", lambda: thermal.heavy_k, "the threshold is off")


def _gather_throttling(device: AdminDevice, controller: Controller, gathered: _Gathered) -> None:
    """Take OCP's own account of throttling, which also knows what no host threshold set off."""
    try:
        log = read_ocp_smart(device, uuid_index=read_ocp_uuid_index(device, controller))
    except PowerError as error:
        gathered.missing.update(dict.fromkeys(_THROTTLE_FIELDS, str(error)))
        return
    gathered.add("throttle_events", lambda: log.throttle_events)
    gathered.add("throttle_status", lambda: log.throttle_status)


def _selected_state(device: AdminDevice, controller: Controller, select: Select) -> int | None:
    if not controller.selects_features:
        return None
    if select is Select.SAVED and not read_capabilities(device, POWER_MANAGEMENT).saveable:
        return None
    return read_power_management(device, select).state


def smart_state(log: SmartLog) -> SmartState:
    """Return a SMART log as the record keeps it."""
    return _observed(SmartState, log, {"temperature_k": "the drive reports 0 K"}, "not reported")


def power_state_facts(descriptor: PowerStateDescriptor) -> PowerStateFacts:
    """Return a power state descriptor as the record keeps it."""
    return _observed(PowerStateFacts, descriptor, {}, "the drive reports 0")


def power_capabilities(controller: Controller) -> PowerCapabilities:
    """Return what Identify Controller says of power and heat as the record keeps it."""
    renamed = {"autonomous_transitions": controller.apst_supported}
    return _observed(PowerCapabilities, controller, {}, "the drive reports 0", renamed)


def _observed(
    model: type[ObservedT],
    source: object,
    reasons: Mapping[str, str],
    otherwise: str,
    renamed: Mapping[str, Any] | None = None,
) -> ObservedT:
    """Return a record's model of the fields of the same names; ``None`` gets its reason."""
    known = renamed or {}
    fields = {
        name: known[name] if name in known else getattr(source, name)
        for name in model.model_fields
        if name != "missing"
    }
    missing = {
        name: reasons.get(name, otherwise) for name, value in fields.items() if value is None
    }
    return model(**fields, missing=missing)
