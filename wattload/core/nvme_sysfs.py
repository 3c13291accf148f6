"""An NVMe controller as sysfs shows it; what only the admin queue knows is left open for others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wattload.core.blockstack import controller_serial, controllers_in
from wattload.core.drive_difference import difference
from wattload.core.pci import PciFunction
from wattload.core.record.controller import ControllerFacts, ControllerState, SmartState
from wattload.core.stack import SystemDrives, system_drives
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Observation,
    Roots,
    read_int,
    read_text,
    with_values,
)
from wattload.core.target import Target

__all__ = [
    "NEEDS_ADMIN_QUEUE",
    "controller_facts",
    "controller_state",
    "controllers_under",
    "difference",
    "link_warning",
    "list_controllers",
    "merge_controller_facts",
    "merge_controller_state",
]

NEEDS_ADMIN_QUEUE = "needs the admin queue"

_NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+")
_ZERO_CELSIUS_MILLIKELVIN = 273_150


def list_controllers(roots: Roots = LIVE) -> tuple[str, ...]:
    """Return the kernel names of all NVMe controllers, in the order of their numbers."""
    names = [entry.name for entry in (roots.sys / "class/nvme").glob("nvme*")]
    return tuple(sorted(names, key=lambda name: (len(name), name)))


def controllers_under(target: Target) -> tuple[str, ...]:
    """Return the kernel names of the NVMe controllers under a target, each once."""
    return tuple(node.name for node in controllers_in(target.facts.stack))


def controller_facts(
    name: str, *, host: str, roots: Roots = LIVE, system: SystemDrives | None = None
) -> ControllerFacts:
    """Return what sysfs shows of a controller that no run changes.

    Args:
        name: the kernel's name, such as ``nvme0``.
        host: the host's name in the record.
        roots: where sysfs is.
        system: the controllers that root and swap need, where they are known already.
    """
    folder = _folder(name, roots)
    pci = PciFunction(folder / "device")
    observation = Observation()
    observation.read("model", lambda: read_text(folder / "model") or None)
    observation.read("transport", lambda: read_text(folder / "transport"))
    observation.read("address", lambda: read_text(folder / "address"))
    observation.read("numa_node", lambda: _numa_node(folder), "the platform names no node")
    observation.read("vendor_id", pci.vendor_id)
    observation.read("link_speed_max_gt_per_s", lambda: pci.link_speed_gt_per_s("max"))
    observation.read("link_width_max", lambda: pci.link_width("max"))
    observation.lack(NEEDS_ADMIN_QUEUE, "nvme_version", "power_states", "power")
    drives = system_drives(roots) if system is None else system
    observation.put("holds_system", drives.holds(name), drives.unknown or "")
    return observation.build(
        ControllerFacts, host=host, name=name, serial=controller_serial(folder)
    )


def _folder(name: str, roots: Roots) -> Path:
    return (roots.sys / "class/nvme" / name).resolve()


def _numa_node(folder: Path) -> int | None:
    node = read_int(folder / "numa_node")
    return node if node >= 0 else None


def controller_state(name: str, roots: Roots = LIVE) -> ControllerState:
    """Return what sysfs shows of a controller now; the rest ``NEEDS_ADMIN_QUEUE``."""
    folder = _folder(name, roots)
    pci = PciFunction(folder / "device")
    observation = Observation()
    observation.lack(NEEDS_ADMIN_QUEUE, *_ADMIN_FIELDS)
    observation.read("firmware", lambda: read_text(folder / "firmware_rev") or None)
    _read_namespaces(folder, observation)
    latency = folder / "power/pm_qos_latency_tolerance_us"
    observation.read("pm_qos_latency_us", lambda: read_text(latency))
    observation.read("aspm", pci.aspm)
    observation.read("link_speed_gt_per_s", lambda: pci.link_speed_gt_per_s("current"))
    observation.read("link_width", lambda: pci.link_width("current"))
    observation.read("max_payload_bytes", pci.max_payload_bytes)
    observation.read("max_read_request_bytes", pci.max_read_request_bytes)
    observation.read("aer_counts", pci.error_counts)
    observation.put("smart", _smart_by_hwmon(folder), NEEDS_ADMIN_QUEUE)
    return observation.build(ControllerState)


_ADMIN_FIELDS = (
    "firmware_slot",
    "capacity_bytes",
    "unallocated_bytes",
    "volatile_write_cache",
    "power_state",
    "power_state_default",
    "power_state_saved",
    "apst_enabled",
    "apst_table",
    "media_written_bytes",
    "thermal_light_k",
    "thermal_heavy_k",
    "background_power",
)


def _read_namespaces(folder: Path, observation: Observation) -> None:
    namespaces = [path for path in sorted(folder.glob("nvme*")) if _NAMESPACE.fullmatch(path.name)]
    names = ("lba_bytes", "namespace_size_bytes", "namespace_used_bytes")
    if not namespaces:
        observation.lack("the controller shows no namespace", *names)
        return
    observation.read(
        "lba_bytes", lambda: _common_lba(namespaces), "its namespaces have different block sizes"
    )
    observation.read("namespace_size_bytes", lambda: sum(map(_size_bytes, namespaces)))
    observation.read("namespace_used_bytes", lambda: sum(map(_used_bytes, namespaces)))


def _lba_bytes(namespace: Path) -> int:
    return read_int(namespace / "queue/logical_block_size")


def _common_lba(namespaces: list[Path]) -> int | None:
    sizes = {_lba_bytes(path) for path in namespaces}
    return sizes.pop() if len(sizes) == 1 else None


def _size_bytes(namespace: Path) -> int:
    return read_int(namespace / "size") * SECTOR_BYTES


def _used_bytes(namespace: Path) -> int:
    return read_int(namespace / "nuse") * _lba_bytes(namespace)  # in sysfs since Linux 6.8


def _smart_by_hwmon(folder: Path) -> SmartState | None:
    """Return a SMART state of the temperature alone: the kernel shows it to every user."""
    sensors = [*folder.glob("hwmon*/temp1_input"), *folder.glob("hwmon/hwmon*/temp1_input")]
    if not sensors:
        return None
    observation = Observation()
    others = set(SmartState.model_fields) - {"missing", "temperature_k"}
    observation.lack(NEEDS_ADMIN_QUEUE, *others)
    observation.read("temperature_k", lambda: _kelvin(sensors[0]), "the drive reports 0 K")
    return observation.build(SmartState)


def _kelvin(sensor: Path) -> int | None:
    # drivers/nvme/host/hwmon.c: the drive's whole kelvins less 273.150, in millidegrees.
    return (read_int(sensor) + _ZERO_CELSIUS_MILLIKELVIN) // 1000 or None


def merge_controller_state(
    state: ControllerState, values: Mapping[str, Any], reasons: Mapping[str, str]
) -> ControllerState:
    """Return a state from sysfs with what the admin queue answered, and why it did not answer more.

    A value of the admin queue wins over sysfs; a reason never replaces a value.
    """
    return with_values(state, values, reasons)


def merge_controller_facts(
    facts: ControllerFacts, values: Mapping[str, Any], reasons: Mapping[str, str]
) -> ControllerFacts:
    """Return a controller's facts with what Identify Controller adds to them."""
    return with_values(facts, values, reasons)


def link_warning(facts: ControllerFacts, state: ControllerState) -> str | None:
    """Return one sentence if the link runs below what the drive can do, else ``None``."""
    parts = list(_link_shortfalls(facts, state))
    if not parts:
        return None
    return f"{facts.name} ({facts.model}) runs below its link: {', '.join(parts)}"


def _link_shortfalls(facts: ControllerFacts, state: ControllerState) -> Iterator[str]:
    speed, most_speed = state.link_speed_gt_per_s, facts.link_speed_max_gt_per_s
    if speed is not None and most_speed is not None and speed < most_speed:
        yield f"{speed:g} of {most_speed:g} GT/s"
    width, most_width = state.link_width, facts.link_width_max
    if width is not None and most_width is not None and width < most_width:
        yield f"{width} of {most_width} lanes"
