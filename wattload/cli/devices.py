"""``wattload devices``: targets and controllers, and what is missing of them and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wattload.core.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

    from wattload.cli.inventory import ControllerView
    from wattload.cli.meters import MeterView
    from wattload.core.record.controller import PowerStateFacts
    from wattload.core.record.target import BlockNode
    from wattload.core.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="DIRECTORY",
        help="directories to look at, tried for O_DIRECT; without any, all mounted disks",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print targets and controllers; returns 0."""
    from wattload.cli.inventory import find_targets, view_controllers
    from wattload.cli.meters import view_meters
    from wattload.core.nvme_sysfs import controllers_under

    targets = find_targets(arguments.paths)
    named = [name for target in targets for name in controllers_under(target)]
    views = view_controllers(tuple(dict.fromkeys(named)) if arguments.paths else None)
    meters = view_meters()
    if arguments.json:
        document = {
            "targets": [target.facts.model_dump(mode="json") for target in targets],
            "controllers": [view.document() for view in views],
            "meters": [meter.document() for meter in meters],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    from rich.console import Console

    show(targets, views, Console(highlight=False), meters)
    return 0


def show(
    targets: Sequence[Target],
    views: Sequence[ControllerView],
    console: Console,
    meters: Sequence[MeterView] = (),
) -> None:
    """Print a tree for each target, for each controller, and one for the meters beside them."""
    for target in targets:
        console.print(_target_tree(target))
    for view in views:
        console.print(_controller_tree(view))
    if not views:
        console.print(
            "No NVMe controller lies here: there are no power states to set, and no drive to ask "
            "for its power. wattload doctor says what can be measured."
        )
    if meters:
        console.print(_meter_tree(meters))


def _target_tree(target: Target) -> Tree:
    from rich.markup import escape
    from rich.tree import Tree

    path = escape(str(target.path))
    tree = Tree(f"[bold]{path}[/bold]  {escape(', '.join(_file_system(target)))}")
    facts = target.facts
    if facts.stack is not None:
        _add_node(tree, facts.stack)
    _add_sentences(tree, facts.warnings)
    reasons = {name: reason for name, reason in facts.missing.items() if "direct_io" not in name}
    for line in _gaps(reasons):
        tree.add(f"[dim]{escape(line)}[/dim]")
    return tree


def _meter_tree(meters: Sequence[MeterView]) -> Tree:
    from rich.markup import escape
    from rich.tree import Tree

    tree = Tree("[bold]meters[/bold]  no drive's, unless power.hwmon.rails=[NAME:DRIVE] says so")
    for meter in meters:
        tree.add(escape(f"{meter.name}  {meter.source}, {meter.scope}, {meter.says}"))
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
    from rich.markup import escape

    branch = tree.add(f"{escape(node.name)}  {escape(', '.join(_node(node)))}")
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
        yield f"writes {node.redundancy:g} bytes for each"
    if node.queue is not None and node.queue.scheduler and node.queue.nr_requests:
        yield f"scheduler {node.queue.scheduler}, {node.queue.nr_requests} requests"


def _controller_tree(view: ControllerView) -> Tree:
    from rich.markup import escape
    from rich.tree import Tree

    tree = Tree(f"[bold]{view.facts.name}[/bold]  {escape(', '.join(_identity(view)))}")
    tree.add(f"link: {escape(_link(view))}")
    states = view.facts.power_states
    if states:
        branch = tree.add(f"power states, now in {_now(view)}")
        for state in states:
            branch.add(escape(", ".join(_power_state(state))))
    if view.telemetry:
        tree.add(f"offers: {escape(', '.join(view.telemetry))}")
    _add_sentences(tree, view.warnings)
    if view.refusal:
        tree.add(f"[yellow]{escape(view.refusal)}[/yellow]")
    missing = {**view.facts.missing, **view.state.missing}
    missing.pop("holds_system", None)  # it is among the warnings
    for line in _gaps(missing):
        tree.add(f"[dim]{escape(line)}[/dim]")
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


def _now(view: ControllerView) -> str:
    state = view.state.power_state
    return "an unknown one" if state is None else f"PS{state}"


def _power_state(state: PowerStateFacts) -> Iterator[str]:
    yield f"PS{state.index}"
    yield "no maximum stated" if state.max_w is None else f"at most {state.max_w:g} W"
    if state.idle_w is not None:
        yield f"idle {state.idle_w:g} W"
    if not state.operational:
        yield "does no I/O"


def _add_sentences(tree: Tree, sentences: Sequence[str]) -> None:
    from rich.markup import escape

    for sentence in sentences:
        tree.add(f"[yellow]{escape(sentence)}[/yellow]")


def _gaps(missing: dict[str, str]) -> Iterator[str]:
    """Yield one line per reason, with all that it explains."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"not known: {', '.join(names)} ({reason})"
