"""What lies under targets and which NVMe controllers there are: what ``wattload devices`` shows."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from wattload.core.errors import PowerError, TargetError
from wattload.core.mounts import Mount, find_mount, read_mounts
from wattload.core.nvme_sysfs import (
    controller_facts,
    controller_state,
    link_warning,
    list_controllers,
    merge_controller_facts,
    merge_controller_state,
)
from wattload.core.record.controller import ControllerFacts, ControllerState
from wattload.core.resolve import resolve_targets
from wattload.core.stack import SystemDrives, system_drives
from wattload.core.sysfs import LIVE, Roots
from wattload.core.target import Target
from wattload.power.nvme.admin import AdminDevice, NvmeAdmin, OpenDevice
from wattload.power.nvme.identify import Controller, identify_controller
from wattload.power.nvme.ocp import read_ocp_smart
from wattload.power.nvme.smart import SmartLog, read_smart
from wattload.power.nvme.state import power_capabilities, power_state_facts, read_state
from wattload.power.nvme.uuids import read_ocp_uuid_index
from wattload.power.nvme.vendor import find_vendor_page


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """One controller as it stands now.

    ``telemetry`` names what the drive itself offers of power, in words; ``warnings`` are sentences;
    ``refusal`` is why the admin queue could not be asked, empty where it could.
    """

    facts: ControllerFacts
    state: ControllerState
    telemetry: tuple[str, ...]
    warnings: tuple[str, ...]
    refusal: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "facts": self.facts.model_dump(mode="json"),
            "state": self.state.model_dump(mode="json"),
            "telemetry": list(self.telemetry),
            "warnings": list(self.warnings),
            "refusal": self.refusal,
        }


def find_targets(paths: Sequence[str], roots: Roots = LIVE) -> tuple[Target, ...]:
    """Return the named directories as targets, or without names every mounted disk.

    Only directories that were named are tried for O_DIRECT, for that makes a file.

    Raises:
        TargetError: a named path is no directory.
    """
    host = socket.gethostname()
    if paths:
        return resolve_targets(paths, host=host, roots=roots)
    found: list[Target] = []
    for mount in _disks(read_mounts(roots)):
        # A mount may lie where this user can't look; nobody asked for it.
        with suppress(TargetError):
            found += resolve_targets(
                [mount.mount_point], host=host, roots=roots, try_direct_io=False
            )
    return tuple(_numbered(index, target) for index, target in enumerate(found))


def _numbered(index: int, target: Target) -> Target:
    return replace(target, index=index, facts=target.facts.model_copy(update={"index": index}))


def _disks(mounts: Sequence[Mount]) -> Iterator[Mount]:
    """Yield local and network mounts that can be seen, each file system once."""
    seen: set[tuple[str, str]] = set()
    for mount in sorted(mounts, key=lambda mount: len(mount.mount_point.parts)):
        key = (mount.major_minor, mount.source)
        if mount.category not in ("local", "network") or key in seen:
            continue
        if find_mount(mount.mount_point, mounts) is mount and mount.mount_point.is_dir():
            seen.add(key)
            yield mount


def view_controllers(
    names: Sequence[str] | None = None, roots: Roots = LIVE, open_device: OpenDevice = NvmeAdmin
) -> tuple[ControllerView, ...]:
    """Return the named controllers, or all of this host, with what their admin queues answer."""
    system = system_drives(roots)
    chosen = list_controllers(roots) if names is None else names
    return tuple(view_controller(name, system, roots, open_device) for name in chosen)


def view_controller(
    name: str, system: SystemDrives, roots: Roots, open_device: OpenDevice
) -> ControllerView:
    """Return one controller; where the admin queue is closed, what sysfs shows of it."""
    facts = controller_facts(name, host=socket.gethostname(), roots=roots, system=system)
    state = controller_state(name, roots)
    telemetry: tuple[str, ...] = ()
    refusal = ""
    try:
        device = open_device(name)
    except PowerError as error:
        refusal = str(error)
    else:
        try:
            values, reasons = read_state(device)
            state = merge_controller_state(state, values, reasons)
            controller = identify_controller(device)
            facts = merge_controller_facts(facts, _identity(controller), {})
            telemetry = tuple(_telemetry(device, controller, read_smart(device)))
        except PowerError as error:
            refusal = str(error)
        finally:
            device.close()
    return ControllerView(
        facts=facts,
        state=state,
        telemetry=telemetry,
        warnings=tuple(_warnings(facts, state)),
        refusal=refusal,
    )


def _identity(controller: Controller) -> dict[str, Any]:
    return {
        "nvme_version": controller.version,
        "power_states": tuple(map(power_state_facts, controller.power_states)),
        "power": power_capabilities(controller),
    }


def _telemetry(device: AdminDevice, controller: Controller, smart: SmartLog) -> Iterator[str]:
    yield "power state"
    if any(state.max_w is not None for state in controller.power_states):
        yield "declared bounds"
    if smart.interval_power_w is not None:
        yield "interval power (SMART)"
    if smart.lifetime_energy_wh is not None:
        yield "lifetime energy (SMART)"
    if controller.power_measurement:
        yield "power measurement (log 25h)"
    if controller.power_limit:
        yield "power limit (feature 23h)"
    if _tells_ocp_power(device, controller):
        yield "average power in whole watts (OCP log C0h)"
    page = find_vendor_page(device, controller)
    if page is not None:
        yield f"power ({page.vendor} log {page.page:02X}h)"


def _tells_ocp_power(device: AdminDevice, controller: Controller) -> bool:
    try:
        log = read_ocp_smart(device, uuid_index=read_ocp_uuid_index(device, controller))
    except PowerError:
        return False
    return log.average_power_w is not None


def _warnings(facts: ControllerFacts, state: ControllerState) -> Iterator[str]:
    link = link_warning(facts, state)
    if link is not None:
        yield link
    if facts.holds_system:
        yield f"{facts.name} holds root or swap: its power state is left alone unless allowed"
    elif facts.holds_system is None:
        yield f"{facts.name} may hold root or swap: {facts.missing['holds_system']}"
