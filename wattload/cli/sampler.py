"""``wattload sampler``: the only process that needs privileges, apart from the runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

DEFAULT_SOCKET = Path("/run/wattload/sampler.sock")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket",
        type=Path,
        default=DEFAULT_SOCKET,
        help=f"the Unix socket to listen on; default: {DEFAULT_SOCKET}",
    )
    parser.add_argument(
        "--group",
        help="the group whose members may connect, by name or number; default: only this user",
    )
    parser.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="a controller to serve, e.g. nvme0; repeatable; default: all",
    )
    parser.add_argument(
        "--allow-system-drive",
        action="store_true",
        help="let runs set the power state of a drive that holds root or swap",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="power.KEY=VALUE",
        help="settings that runs may not choose, e.g. power.quarch.module=NAME",
    )


def run(arguments: argparse.Namespace) -> int:
    from wattload.power.sampler.host import SamplerHost
    from wattload.power.sampler.service import serve

    host = SamplerHost(
        is_service=True,
        devices=None if arguments.device is None else frozenset(arguments.device),
        allows_system_drive=arguments.allow_system_drive,
        settings=_settings(arguments.overrides) if arguments.overrides else None,
    )
    serve(arguments.socket, arguments.group, host)
    return 0


def _settings(overrides: list[str]) -> PowerConfig:
    from wattload.core.errors import ConfigError
    from wattload.run.compose import compose

    foreign = [each for each in overrides if not each.startswith(("power=", "power.", "power/"))]
    if foreign:
        raise ConfigError(
            f"a sampler takes settings of power only (power.KEY=VALUE), got {foreign[0]!r}"
        )
    # Runs name the meters to read; a meter with settings that nobody reads would be refused.
    named = any(each.startswith(("power=", "power.beside=")) for each in overrides)
    source = [] if named else ["power=none"]
    config: PowerConfig = compose(["target.path=/", *source, *overrides])[0].power
    return config
