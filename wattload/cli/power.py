"""``wattload power``: watch a device's power, show its power states, set one, put it back."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from wattload.core.errors import ConfigError, PowerError

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig
    from wattload.power.control import Change
    from wattload.power.host import PowerHost
    from wattload.power.leftovers import Leftover

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
    change = actions.add_parser(
        "set", help="set a power state, OCP watts or a power limit, verified, until it is restored"
    )
    change.add_argument("device", help="a controller, e.g. nvme0")
    change.add_argument("state", nargs="?", type=int, help="the power state, 0 to 31")
    change.add_argument(
        "--watts", type=int, metavar="W", help="instead: OCP's power state in whole watts (C7h)"
    )
    change.add_argument(
        "--limit", type=float, metavar="W", help="instead: the power limit (feature 23h)"
    )
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
    if arguments.action == "states":
        from wattload.cli.power_states import states

        return states(arguments, here, _names(here, arguments.device))
    return (_set if arguments.action == "set" else _restore)(arguments, here)


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


def _set(arguments: argparse.Namespace, host: PowerHost) -> int:
    from wattload.power.control import PowerStateControl
    from wattload.power.leftovers import undo_leftovers

    config = _asked(arguments)
    (name,) = _names(host, arguments.device)
    # Else what a killed run has left would be taken for the drive's own, and gone back to.
    for leftover in undo_leftovers(host, serial=host.serial_of(name)):
        sys.stderr.write(f"{leftover.sentence}\n")
    device = host.open_device(name)
    with ExitStack() as stack:
        stack.callback(device.close)
        control = PowerStateControl(device, host.journal, run_id=RUN_ID, owner="user")
        stack.callback(control.close)
        control.hold(needed=True)
        control.apply(config, holds_system=host.holds_system)
    (change,) = control.changes
    _tell_change(name, control.controller.serial, change, as_json=arguments.json)
    return 0


def _asked(arguments: argparse.Namespace) -> PowerConfig:
    """Return the one change that is asked for; raises ``ConfigError`` for none and for several."""
    from wattload.power.config import PowerConfig

    config = PowerConfig(
        state=arguments.state,
        dssd_watts=arguments.watts,
        limit_w=arguments.limit,
        allow_system_drive=arguments.allow_system_drive,
    )
    config.check()
    if config.knob is None:
        raise ConfigError(
            "`wattload power set` needs one of STATE, --watts W and --limit W; "
            "`wattload power states` lists the states"
        )
    return config


def _tell_change(name: str, serial: str, change: Change, *, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "device": name,
                "serial": serial,
                "option": change.option,
                "unit": change.feature.unit,
                "before": change.before,
                "requested": change.requested,
                "verified": change.verified,
            }
        )
        return
    feature = change.feature
    _print(
        f"{name} ({serial}): {feature.name} {feature.text(change.before)} -> "
        f"{feature.text(change.verified)}, read back; `wattload power restore {name}` undoes it, "
        "and so does a reset of the drive"
    )


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
        "feature": leftover.feature,
        "restored": leftover.restored,
        "closed": leftover.closed,
        "sentence": leftover.sentence,
    }


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
