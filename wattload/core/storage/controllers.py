"""An NVMe controller as sysfs shows it.

Identity, PCI Express link, state, and how a run changed it.

Fields that need the admin queue are left for the power sources to fill in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from wattload.core.record.target import (
    ADMIN_QUEUE_FIELDS,
    ControllerDifference,
    ControllerFacts,
    ControllerState,
    SmartState,
)
from wattload.core.storage.block_stack import (
    SystemDrives,
    controller_serial,
    controllers_in,
    system_drives,
)
from wattload.core.storage.targets import Target
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Observation,
    Roots,
    read_int,
    read_text,
)

_CAPABILITIES_POINTER = 0x34
_EXPRESS = 0x10
_FLAGS = 0x02
_DEVICE_CONTROL = 0x08
_LINK_CONTROL = 0x10
"""PCI Express Base 5.0, section 7.5.3: offsets in the PCI Express capability (id 10h)."""
_READABLE_BY_ALL_BYTES = 64
_SMALLEST_PAYLOAD_BYTES = 128
_WIDTH_UNKNOWN = (0, 255)
_INTEGRATED_ENDPOINT = 9
_NO_LINK = "the function has no PCI Express link"
_ASPM = ("off", "L0s", "L1", "L0s L1")
_AER_KINDS = ("correctable", "nonfatal", "fatal")

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
"""State that should not change in a run; ``changed`` names what did."""

_AER_TOTALS = ("correctable_total", "nonfatal_total", "fatal_total")

NEEDS_ADMIN_QUEUE = "needs the admin queue"

_NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+")
_ZERO_CELSIUS_MILLIKELVIN = 273_150


class PciFunction:
    """One PCI function by its sysfs folder. Each reader raises ``OSError`` or ``ValueError``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def vendor_id(self) -> str:
        """Return the vendor's id as the kernel writes it: ``0x144d``."""
        return read_text(self.folder / "vendor")

    def link_speed_gt_per_s(self, which: str) -> float:
        """Return the link's ``current`` or ``max`` speed in GT/s, e.g. 32.0 for PCIe 5."""
        text = read_text(self.folder / f"{which}_link_speed")
        speed, _, unit = text.partition(" ")
        if not unit.startswith("GT/s"):
            raise ValueError(_NO_LINK)
        return float(speed)

    def link_width(self, which: str) -> int:
        width = read_int(self.folder / f"{which}_link_width")
        if width in _WIDTH_UNKNOWN:
            raise ValueError(_NO_LINK)
        return width

    def max_payload_bytes(self) -> int:
        """Return the payload size in use (Device Control, bits 7:5)."""
        return _SMALLEST_PAYLOAD_BYTES << (self._express_u16(_DEVICE_CONTROL) >> 5 & 7)

    def max_read_request_bytes(self) -> int:
        """Return the largest read request (Device Control, bits 14:12)."""
        return _SMALLEST_PAYLOAD_BYTES << (self._express_u16(_DEVICE_CONTROL) >> 12 & 7)

    def aspm(self) -> str:
        """Return the enabled link power states: ``off``, ``L0s``, ``L1`` or ``L0s L1``.

        From Link Control bits 1:0, or for users other than root from the kernel's own switches.
        """
        try:
            if self._express_u16(_FLAGS) >> 4 & 15 == _INTEGRATED_ENDPOINT:
                return "off"
            return _ASPM[self._express_u16(_LINK_CONTROL) & 3]
        except ValueError:
            switches = [("L0s", "l0s_aspm"), ("L1", "l1_aspm")]
            shown = [(name, self.folder / "link" / file) for name, file in switches]
            if not any(path.exists() for _, path in shown):
                raise
            on = [name for name, path in shown if path.exists() and read_text(path) == "1"]
            return " ".join(on) or "off"

    def error_counts(self) -> Mapping[str, int]:
        """Return Advanced Error Reporting counts: all totals, and each error that has occurred."""
        return dict(self._error_counts())

    def _error_counts(self) -> Iterator[tuple[str, int]]:
        for kind in _AER_KINDS:
            for line in read_text(self.folder / f"aer_dev_{kind}").splitlines():
                name, _, count = line.rpartition(" ")
                if name.startswith("TOTAL"):
                    yield f"{kind}_total", int(count)
                elif int(count):
                    yield f"{kind}_{name}", int(count)

    def _express_u16(self, offset: int) -> int:
        space = (self.folder / "config").read_bytes()
        if len(space) <= _READABLE_BY_ALL_BYTES:
            raise ValueError("only root can read PCI configuration space beyond 64 bytes")
        at = space[_CAPABILITIES_POINTER]
        seen: set[int] = set()
        while at and at not in seen and at + 1 < len(space):
            if space[at] == _EXPRESS and at + offset + 1 < len(space):
                return int.from_bytes(space[at + offset : at + offset + 2], "little")
            seen.add(at)
            at = space[at + 1]
        raise ValueError("the function has no PCI Express capability")


def difference(before: ControllerState, after: ControllerState) -> ControllerDifference:
    """Return the growth of a controller's counters over a run, and the settings that changed.

    A counter that fell (the controller was reset or replaced) gives no figure. Write amplification
    is media bytes over host bytes written, both from the drive's own counters.
    """
    observation = Observation()
    old, new = _counters(before), _counters(after)
    for name, count in old.items():
        observation.put(name, *_grown(count, new[name]))
    host_bytes, media_bytes = (
        observation.values[name] for name in ("written_bytes", "media_written_bytes")
    )
    observation.put("write_amplification", *_amplification(host_bytes, media_bytes))
    changed = tuple(name for name in _SETTINGS if _differs(name, before, after))
    return observation.build(ControllerDifference, changed=changed)


def _differs(name: str, before: ControllerState, after: ControllerState) -> bool:
    one, two = getattr(before, name), getattr(after, name)
    return one is not None and two is not None and one != two


def _counters(state: ControllerState) -> Mapping[str, int | None]:
    """Return the counters of a state by the name of their growth in ``ControllerDifference``."""
    smart, errors = state.smart, state.aer_counts
    names = ("read_bytes", "written_bytes", "media_errors", "unsafe_shutdowns")
    return {
        **{name: None if smart is None else getattr(smart, name) for name in names},
        "thermal_transitions": _thermal(smart),
        "media_written_bytes": state.media_written_bytes,
        "aer_count": None if errors is None else sum(errors.get(name, 0) for name in _AER_TOTALS),
    }


def _thermal(smart: SmartState | None) -> int | None:
    if smart is None or smart.thermal_transitions_1 is None or smart.thermal_transitions_2 is None:
        return None
    return smart.thermal_transitions_1 + smart.thermal_transitions_2


def _grown(before: int | None, after: int | None) -> tuple[int | None, str]:
    if before is None or after is None:
        return None, f"it could not be read {'before' if before is None else 'after'} the run"
    if after < before:
        return None, f"the counter fell from {before} to {after}: the controller was reset"
    return after - before, ""


def _amplification(host_bytes: int | None, media_bytes: int | None) -> tuple[float | None, str]:
    if host_bytes is None or media_bytes is None:
        return None, "it needs the drive's host and media byte counters before and after the run"
    if host_bytes == 0:
        return None, "nothing was written"
    return media_bytes / host_bytes, ""


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
    """Return the properties that sysfs shows of a controller and that no run changes.

    Args:
        name: the kernel's name, such as ``nvme0``.
        host: the host's name in the record.
        roots: where sysfs is.
        system: the controllers that hold root and swap, if already known.
    """
    folder = _folder(name, roots)
    pci = PciFunction(folder / "device")
    observation = Observation()
    observation.read("model", lambda: read_text(folder / "model") or None)
    observation.read("transport", lambda: read_text(folder / "transport"))
    observation.read("address", lambda: read_text(folder / "address"))
    observation.read("numa_node", lambda: _numa_node(folder), "the platform reports no node")
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
    """Return the current state from sysfs; the reason for the rest is ``NEEDS_ADMIN_QUEUE``."""
    folder = _folder(name, roots)
    pci = PciFunction(folder / "device")
    observation = Observation()
    observation.lack(NEEDS_ADMIN_QUEUE, *ADMIN_QUEUE_FIELDS)
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
    """Return a SMART state with only the temperature, which the kernel shows to every user."""
    sensors = [*folder.glob("hwmon*/temp1_input"), *folder.glob("hwmon/hwmon*/temp1_input")]
    if not sensors:
        return None
    observation = Observation()
    others = set(SmartState.model_fields) - {"missing", "temperature_k"}
    observation.lack(NEEDS_ADMIN_QUEUE, *others)
    # drivers/nvme/host/hwmon.c: the drive's whole kelvins less 273.150, in millidegrees.
    observation.read(
        "temperature_k",
        lambda: (read_int(sensors[0]) + _ZERO_CELSIUS_MILLIKELVIN) // 1000 or None,
        "the drive reports 0 K",
    )
    return observation.build(SmartState)


def link_warning(facts: ControllerFacts, state: ControllerState) -> str | None:
    """Return one sentence if the link runs below the drive's maximum, else ``None``."""
    parts = list(_link_shortfalls(facts, state))
    if not parts:
        return None
    return f"{facts.name} ({facts.model}) runs below its maximum link: {', '.join(parts)}"


def _link_shortfalls(facts: ControllerFacts, state: ControllerState) -> Iterator[str]:
    speed, most_speed = state.link_speed_gt_per_s, facts.link_speed_max_gt_per_s
    if speed is not None and most_speed is not None and speed < most_speed:
        yield f"{speed:g} of {most_speed:g} GT/s"
    width, most_width = state.link_width, facts.link_width_max
    if width is not None and most_width is not None and width < most_width:
        yield f"{width} of {most_width} lanes"
