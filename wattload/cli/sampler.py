"""``wattload sampler``: the part that needs privilege, apart from the runs that need none."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wattload.power.sampler.options import add_options, serve

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_options(parser)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="power.KEY=VALUE",
        help="settings that no run may choose for a sampler with more rights than its own",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; returns 0."""
    from wattload.power.sampler.host import SamplerHost

    host = SamplerHost(
        runs=arguments.runs.absolute(),
        is_service=True,
        devices=None if arguments.device is None else frozenset(arguments.device),
        allows_system_drive=arguments.allow_system_drive,
        settings=_settings(arguments.overrides) if arguments.overrides else None,
    )
    return serve(arguments, host)


def _settings(overrides: list[str]) -> PowerConfig:
    from wattload.compose import compose
    from wattload.core.errors import ConfigError

    foreign = [each for each in overrides if not each.startswith(("power=", "power.", "power/"))]
    if foreign:
        raise ConfigError(f"a sampler has settings of power alone, got {foreign[0]!r}")
    config: PowerConfig = compose(["target.path=/", *overrides])[0].power
    return config
