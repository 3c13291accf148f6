"""``wattload run``: one run, or a sweep over lists of values with ``-m``."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="Hydra overrides, e.g. workload=checkpoint scale=quick power.state=1",
    )
    parser.add_argument(
        "-m",
        "--multirun",
        action="store_true",
        help="sweep: a,b,c in a value runs it once with each; "
        "repeat=8 interleave=abba compares two",
    )
    parser.add_argument(
        "--cfg", action="store_true", help="print the composed configuration and stop"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="also print what each figure and check means"
    )
    parser.add_argument("--json", action="store_true", help="print the record's path as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Make the runs and return 0, or 3 if a check failed.

    Raises:
        ConfigError: no workload is given; the message lists them.
    """
    from wattload.cli.settings import require_workload

    require_workload(arguments.overrides, "run")
    if arguments.cfg:
        return _print_configuration(arguments.overrides)
    from wattload.cli.outcome import Printer
    from wattload.session.loop import run_all

    reporter = Printer(as_json=arguments.json, verbose=arguments.verbose)
    return run_all(arguments.overrides, multirun=arguments.multirun, reporter=reporter)


def _print_configuration(overrides: list[str]) -> int:
    from omegaconf import OmegaConf

    from wattload.run.compose import compose

    sys.stdout.write(OmegaConf.to_yaml(OmegaConf.create(compose(overrides)[1])))
    return 0
