"""``wattload power``: watch a device's power, show its power states, set one, put it back."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from wattload.core.errors import PowerError

if TYPE_CHECKING:
    from wattload.power.host import PowerHost
    from wattload.power.leftovers import Leftover
    from wattload.power.nvme.identify import Controller, PowerStateDescriptor

RUN_ID = "power-set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    watch = actions.add_parser("watch", help="live power, power state and temperature")
    watch.add_argument("device", nargs="?", help="a controller, e.g. nvme0; all if left out")
    watch.add_argument(
        "--period", type=float, default=1.0, metavar="S", help="seconds between two reads"
    )
    watch.add_argument("--count", type=int, metavar="N", help="end after N reads")
    states = actions.add_parser("states", help="the table of power states")
    states.add_argument("device", nargs="?", help="a controller, e.g. nvme0; all if left out")
    change = actions.add_parser("set", help="set a power state, verified, until it is restored")
    change.add_argument("device", help="a controller, e.g. nvme0")
    change.add_argument("state", type=int, help="the power state, 0 to 31")
    change.add_argument(
        "--allow-system-drive",
        action="store_true",
        help="even if root or swap lies on the drive",
    )
    restore = actions.add_parser("restore", help="put back what was set, or a killed run has left")
    restore.add_argument("device", nargs="?", help="a controller, e.g. nvme0; all if left out")
    for action in (watch, states, change, restore):
        action.add_argument("--json", action="store_true", help="print JSON, an object per line")


def run(arguments: argparse.Namespace, host: PowerHost | None = None) -> int:
    """Do what was asked on this host; returns the exit status."""
    from wattload.power.host import PowerHost

    here = host or PowerHost()
    if arguments.action == "watch":
        from wattload.cli.power_watch import watch

        return watch(arguments, here, _names(here, arguments.device))
    actions = {"states": _states, "set": _set, "restore": _restore}
    return actions[str(arguments.action)](arguments, here)


def _names(host: PowerHost, device: str | None) -> Sequence[str]:
    """Return the controller that was named, or all there are."""
    if device is not None:
        return (device.removeprefix("/dev/"),)
    names = host.list_names()
    if not names:
        raise PowerError(
            "this host shows no NVMe controller (/sys/class/nvme is empty); in a container hand "
            "over the node: devices: [/dev/nvme0], cap_add: [SYS_ADMIN]"
        )
    return names


def _states(arguments: argparse.Namespace, host: PowerHost) -> int:
    from wattload.power.nvme.features import read_power_state
    from wattload.power.nvme.identify import identify_controller

    for name in _names(host, arguments.device):
        device = host.open_device(name)
        with ExitStack() as stack:
            stack.callback(device.close)
            controller = identify_controller(device)
            try:
                current, unknown = read_power_state(device), ""
            except PowerError as error:
                current, unknown = None, str(error)
        if arguments.json:
            _print_json(_document(name, controller, current, unknown))
        else:
            _print("\n".join(_table(name, controller, current, unknown)))
    return 0


def _document(
    name: str, controller: Controller, current: int | None, unknown: str
) -> dict[str, Any]:
    from wattload.power.nvme.state import power_state_facts

    return {
        "device": name,
        "serial": controller.serial,
        "model": controller.model,
        "power_state": current,
        "missing": {"power_state": unknown} if unknown else {},
        "power_states": [
            power_state_facts(state).model_dump() for state in controller.power_states
        ],
    }


def _table(name: str, controller: Controller, current: int | None, unknown: str) -> list[str]:
    lines = [f"{name}  {controller.model}  {controller.serial}"]
    lines.append("  state   maximum      idle    active      enter      leave")
    lines += [_row(state, is_current=state.index == current) for state in controller.power_states]
    if unknown:
        lines.append(f"  current state unknown: {unknown}")
    return lines


def _row(state: PowerStateDescriptor, *, is_current: bool) -> str:
    watts = "".join(
        f"{'-' if each is None else f'{each:.4g} W':>10}"
        for each in (state.max_w, state.idle_w, state.active_w)
    )
    latencies = "".join(
        f"{'-' if each is None else f'{each * 1e6:.0f} us':>11}"
        for each in (state.entry_latency_s, state.exit_latency_s)
    )
    mark = " <- now" if is_current else ""
    sleeps = "" if state.operational else "  no I/O"
    return f"  PS{state.index:<4}{watts}{latencies}{sleeps}{mark}"


def _set(arguments: argparse.Namespace, host: PowerHost) -> int:
    from wattload.power.control import PowerStateControl

    (name,) = _names(host, arguments.device)
    device = host.open_device(name)
    with ExitStack() as stack:
        stack.callback(device.close)
        control = PowerStateControl(device, host.journal, run_id=RUN_ID, owner="user")
        stack.callback(control.close)
        control.hold(exclusive=True)
        change = control.set(
            arguments.state,
            holds_system=host.holds_system,
            allow_system_drive=arguments.allow_system_drive,
        )
    if arguments.json:
        _print_json(
            {
                "device": name,
                "serial": change.serial,
                "before": change.before,
                "requested": change.requested,
                "verified": change.verified,
            }
        )
    else:
        _print(
            f"{name} ({change.serial}): power state {change.before} -> {change.verified}, read "
            f"back; `wattload power restore {name}` undoes it, and so does a reset of the drive"
        )
    return 0


def _restore(arguments: argparse.Namespace, host: PowerHost) -> int:
    from wattload.power.leftovers import undo_leftovers

    serial = None
    if arguments.device is not None:
        (name,) = _names(host, arguments.device)
        serial = host.serial_of(name)
    undone = [
        *undo_leftovers(host, owner="run", serial=serial),
        *undo_leftovers(host, owner="user", serial=serial),
    ]
    if arguments.json:
        for leftover in undone:
            _print_json(_leftover(leftover))
    else:
        _print("\n".join(each.sentence for each in undone) or "Nothing was set that is not undone.")
    return 0 if all(leftover.closed for leftover in undone) else PowerError.exit_code


def _leftover(leftover: Leftover) -> dict[str, Any]:
    return {
        "serial": leftover.serial,
        "restored": leftover.restored,
        "closed": leftover.closed,
        "sentence": leftover.sentence,
    }


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
