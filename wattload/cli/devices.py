"""``wattload devices``: targets, NVMe controllers and power meters, and what is unknown and why."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from wattload.cli import console as safe
from wattload.core.errors import PowerError, TargetError
from wattload.core.power import Counter, PowerSource
from wattload.core.record.target import ControllerFacts, ControllerState
from wattload.core.storage.block_stack import SystemDrives, system_drives
from wattload.core.storage.controllers import (
    controller_facts,
    controller_state,
    controllers_under,
    link_warning,
    list_controllers,
)
from wattload.core.storage.file_system import Mount, find_mount, read_mounts
from wattload.core.storage.targets import Target, resolve_targets
from wattload.core.sysfs import LIVE, Roots, with_values
from wattload.core.units import format_bytes
from wattload.power.config import HwmonConfig
from wattload.power.nvme.admin import AdminDevice, NvmeAdmin, OpenDevice
from wattload.power.nvme.identify import Controller, identify_controller, read_ocp_uuid_index
from wattload.power.nvme.logs import SmartLog, read_ocp_smart, read_smart
from wattload.power.nvme.state import read_state
from wattload.power.nvme.vendor import find_vendor_page
from wattload.power.sources.hwmon import find_channels
from wattload.power.sources.ipmi import DEVICE, IpmiDevice, IpmiSource, OpenLink
from wattload.power.sources.rapl import find_zones

if TYPE_CHECKING:
    from wattload.core.record.target import BlockNode, PowerStateFacts

_PERIOD_S = 1.0

PIPED_COLUMNS = 1000
"""Lines are wrapped on a terminal only."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="DIRECTORY",
        help="directories to inspect and try O_DIRECT in; without any, all mounted disks",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    targets = find_targets(arguments.paths)
    named = [name for target in targets for name in controllers_under(target)]
    views = view_controllers(tuple(dict.fromkeys(named)) if arguments.paths else None)
    meters = view_meters()
    if arguments.json:
        document = {
            "targets": [target.facts.model_dump(mode="json") for target in targets],
            "controllers": [view.document() for view in views],
            "meters": [asdict(meter) for meter in meters],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    console = safe.Console()
    if not console.is_terminal:
        console.width = PIPED_COLUMNS
    show(targets, views, console, meters)
    return 0


def show(
    targets: Sequence[Target],
    views: Sequence[ControllerView],
    console: Console,
    meters: Sequence[MeterView] = (),
) -> None:
    """Print a tree for each target and each controller, and one for the other power meters."""
    for target in targets:
        console.print(_target_tree(target))
    for view in views:
        console.print(_controller_tree(view))
    if not views:
        console.print(
            "There is no NVMe controller here, so there are no power states to set and no drive "
            "reports its power. Run wattload doctor to see what can be measured."
        )
    if meters:
        of_node = "not of a drive, unless power.hwmon.rails=[NAME:DRIVE] assigns one"
        tree = _tree("meters", of_node)
        for meter in meters:
            _add(tree, f"{meter.name}  {meter.source}, {meter.scope}, {meter.reading}")
        console.print(tree)


def _tree(name: str, text: str) -> Tree:
    return Tree(Text.assemble((name, "bold"), f"  {text}"))


def _add(tree: Tree, *lines: str, style: str = "") -> None:
    for line in lines:
        tree.add(Text(line, style=style))


def _target_tree(target: Target) -> Tree:
    facts = target.facts
    tree = _tree(str(target.path), ", ".join(_file_system(target)))
    if facts.stack is not None:
        _add_node(tree, facts.stack)
    _add(tree, *facts.warnings, style="yellow")
    reasons = {name: reason for name, reason in facts.missing.items() if "direct_io" not in name}
    _add(tree, *_gaps(reasons), style="dim")
    return tree


def _file_system(target: Target) -> Iterator[str]:
    system = target.facts.file_system
    if system is not None:
        yield system.type
        if system.total_bytes:
            yield format_bytes(system.total_bytes)
    if target.direct_io is not None:
        yield f"O_DIRECT in multiples of {target.direct_io.offset_align_bytes} B"
    else:
        yield f"O_DIRECT: {target.direct_io_missing}"


def _add_node(tree: Tree, node: BlockNode) -> None:
    branch = tree.add(Text(f"{node.name}  {', '.join(_node(node))}"))
    for child in node.children:
        _add_node(branch, child)


def _node(node: BlockNode) -> Iterator[str]:
    yield node.kind.replace("_", " ")
    if node.model and node.kind != "virtio":
        yield node.model
    if node.serial:
        yield f"serial {node.serial}"
    if node.size_bytes:
        yield format_bytes(node.size_bytes)
    if node.redundancy is not None and node.redundancy != 1:
        yield f"writes {node.redundancy:g} bytes per byte"
    if node.queue is not None and node.queue.scheduler and node.queue.nr_requests:
        yield f"scheduler {node.queue.scheduler}, {node.queue.nr_requests} requests"


def _controller_tree(view: ControllerView) -> Tree:
    tree = _tree(view.facts.name, ", ".join(_identity(view)))
    _add(tree, f"link: {_link(view)}")
    if view.facts.power_states:
        current = view.state.power_state
        now = "an unknown state" if current is None else f"PS{current}"
        branch = tree.add(f"power states, now in {now}")
        _add(branch, *(", ".join(_power_state(state)) for state in view.facts.power_states))
    if view.telemetry:
        _add(tree, f"offers: {', '.join(view.telemetry)}")
    _add(tree, *view.warnings, *filter(None, [view.refusal]), style="yellow")
    missing = {**view.facts.missing, **view.state.missing}
    missing.pop("holds_system", None)  # it is one of the warnings
    _add(tree, *_gaps(missing), style="dim")
    return tree


def _identity(view: ControllerView) -> Iterator[str]:
    yield view.facts.model or "model unknown"
    yield f"serial {view.facts.serial}"
    yield f"firmware {view.state.firmware or 'unknown'}"
    if view.facts.address:
        yield f"{view.facts.transport or ''} {view.facts.address}".strip()


def _link(view: ControllerView) -> str:
    speed, width = view.state.link_speed_gt_per_s, view.state.link_width
    if speed is None or width is None:
        return view.state.missing.get("link_speed_gt_per_s", "unknown")
    most = view.facts.link_speed_max_gt_per_s, view.facts.link_width_max
    best = "unknown" if None in most else f"{most[0]:g} GT/s x{most[1]}"
    return f"{speed:g} GT/s x{width}, at most {best}"


def _power_state(state: PowerStateFacts) -> Iterator[str]:
    yield f"PS{state.index}"
    yield "no maximum stated" if state.max_w is None else f"at most {state.max_w:g} W"
    if state.idle_w is not None:
        yield f"idle {state.idle_w:g} W"
    if not state.operational:
        yield "non-operational"


def _gaps(missing: dict[str, str]) -> Iterator[str]:
    """Yield one line per reason, with all fields that it explains."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"unknown: {', '.join(names)} ({reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """The current state of one controller.

    ``telemetry`` lists the power figures that the drive itself offers, and ``warnings`` has
    sentences. ``refusal`` is the reason why the admin queue could not be used, else empty.
    """

    facts: ControllerFacts
    state: ControllerState
    telemetry: tuple[str, ...]
    warnings: tuple[str, ...]
    refusal: str

    def document(self) -> dict[str, Any]:
        read = {name: getattr(self, name).model_dump(mode="json") for name in ("facts", "state")}
        return {
            **read,
            "telemetry": self.telemetry,
            "warnings": self.warnings,
            "refusal": self.refusal,
        }


def find_targets(paths: Sequence[str], roots: Roots = LIVE) -> tuple[Target, ...]:
    """Return the named directories as targets, or every mounted disk if none is named.

    O_DIRECT is tried in named directories only, because that creates a file.

    Raises:
        TargetError: a named path is not a directory.
    """
    host = socket.gethostname()
    if paths:
        return resolve_targets(paths, host=host, roots=roots)
    found: list[Target] = []
    for mount in _disks(read_mounts(roots)):
        # This user may not be allowed to access a mount that was not named: leave it out.
        with suppress(TargetError):
            found += resolve_targets(
                [mount.mount_point], host=host, roots=roots, try_direct_io=False
            )
    return tuple(
        replace(target, index=index, facts=target.facts.model_copy(update={"index": index}))
        for index, target in enumerate(found)
    )


def _disks(mounts: Sequence[Mount]) -> Iterator[Mount]:
    """Yield local and network mounts that are visible, each file system once."""
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
    """Return the named controllers, or all of this host, including data from their admin queues."""
    system = system_drives(roots)
    selected = list_controllers(roots) if names is None else names
    return tuple(view_controller(name, system, roots, open_device) for name in selected)


def view_controller(
    name: str, system: SystemDrives, roots: Roots, open_device: OpenDevice
) -> ControllerView:
    """Return one controller; if its admin queue is closed, with data from sysfs only."""
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
            state = with_values(state, values, reasons)
            controller = identify_controller(device)
            facts = with_values(
                facts,
                {
                    "nvme_version": controller.version,
                    "power_states": controller.power_states,
                    "power": controller.capabilities,
                },
            )
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


def _telemetry(device: AdminDevice, controller: Controller, smart: SmartLog) -> Iterator[str]:
    yield "power state"
    if any(state.max_w is not None for state in controller.power_states):
        yield "declared bounds"
    if smart.interval_power_w is not None:
        yield "interval power (SMART)"
    if smart.lifetime_energy_wh is not None:
        yield "lifetime energy (SMART)"
    if controller.capabilities.power_measurement:
        yield "power measurement (log 25h)"
    if controller.capabilities.power_limit:
        yield "power limit (feature 23h)"
    if _has_ocp_power(device, controller):
        yield "average power in whole watts (OCP log C0h)"
    page = find_vendor_page(device, controller)
    if page is not None:
        yield f"power ({page.vendor} log {page.page:02X}h)"


def _has_ocp_power(device: AdminDevice, controller: Controller) -> bool:
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
        yield f"{facts.name} holds root or swap: its power state is not changed unless allowed"
    elif facts.holds_system is None:
        yield f"{facts.name} may hold root or swap: {facts.missing['holds_system']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterView:
    """A channel that a run could read.

    ``reading`` is its current value, or why there is none; ``detail`` describes the sensor.
    """

    source: str
    name: str
    scope: str
    evidence: str
    reading: str
    detail: str


def view_meters(
    roots: Roots = LIVE, *, ipmi: Path = DEVICE, open_link: OpenLink = IpmiDevice
) -> tuple[MeterView, ...]:
    """Return the meters of this host other than drives and GPUs, each read once."""
    return tuple(_meter(source) for source in _sources(roots, ipmi, open_link))


def _sources(roots: Roots, ipmi: Path, open_link: OpenLink) -> Iterator[PowerSource]:
    with suppress(PowerError):
        yield from find_channels(roots, (), HwmonConfig(), period_s=_PERIOD_S)
    with suppress(PowerError):
        yield from find_zones(roots, period_s=_PERIOD_S)
    if ipmi.exists():
        yield IpmiSource(period_s=_PERIOD_S, open_link=open_link)


def _meter(source: PowerSource) -> MeterView:
    reading = _reading(source)
    facts = source.facts()
    return MeterView(
        source=facts.name,
        name=facts.device,
        scope=str(facts.scope),
        evidence=str(facts.evidence),
        reading=reading,
        detail=facts.detail,
    )


def _reading(source: PowerSource) -> str:
    try:
        source.open()
        (sample,) = source.read()
    except PowerError as error:
        return str(error)
    finally:
        source.close()
    if sample.value is None:
        return "no reading at the moment"
    unit = "J counted" if isinstance(source.facts().sensor, Counter) else "W"
    return f"{sample.value:.2f} {unit}"
