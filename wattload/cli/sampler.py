"""``wattload sampler``: the only process that needs privileges, apart from the runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wattload.power.sampler.service import add_options, serve

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="power.KEY=VALUE",
        help="settings that runs may not choose, e.g. power.quarch.module=NAME",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve runs until a signal; returns 0."""
    from wattload.power.sampler.host import SamplerHost

    host = SamplerHost(
        is_service=True,
        devices=None if arguments.device is None else frozenset(arguments.device),
        allows_system_drive=arguments.allow_system_drive,
        settings=_settings(arguments.overrides) if arguments.overrides else None,
    )
    return serve(arguments, host)


def _settings(overrides: list[str]) -> PowerConfig:
    from wattload.core.errors import ConfigError
    from wattload.run.compose import compose

    foreign = [each for each in overrides if not each.startswith(("power=", "power.", "power/"))]
    if foreign:
        raise ConfigError(
            f"a sampler takes settings of power only (power.KEY=VALUE), got {foreign[0]!r}"
        )
    config: PowerConfig = compose(["target.path=/", *overrides])[0].power
    return config
