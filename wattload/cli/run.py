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
        "--cfg",
        action="store_true",
        help="print the composed configuration, of a sweep that of each run, and stop",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="also print what each figure and check means"
    )
    parser.add_argument("--json", action="store_true", help="print the record's path as JSON")
    parser.add_argument(
        "--hosts",
        metavar="HOST[:N],...",
        help="run N processes on each host (default 1), by mpirun; @FILE reads a hostfile",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only print what the runs will take and whether they suffice for a verdict; "
        "with --hosts the mpirun line",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the runs and return 0, or 3 if a check failed.

    Raises:
        ConfigError: no workload is given; the message lists them. Or as for ``launch``.
    """
    from wattload.cli.settings import require_workload

    require_workload(arguments.overrides, "run")
    if arguments.cfg:
        return _print_configuration(arguments.overrides, multirun=arguments.multirun)
    if arguments.hosts is not None:
        from wattload.cli.hosts import launch

        return launch(arguments.hosts, _words(arguments), only_prints=arguments.plan)
    if arguments.plan:
        from wattload.cli.session_plan import print_session

        return print_session(
            arguments.overrides, multirun=arguments.multirun, as_json=arguments.json
        )
    from wattload.cli.outcome import Printer
    from wattload.session.loop import run_all

    reporter = Printer(as_json=arguments.json, verbose=arguments.verbose)
    return run_all(arguments.overrides, multirun=arguments.multirun, reporter=reporter)


def _words(arguments: argparse.Namespace) -> list[str]:
    """Return the arguments of wattload in each process that mpirun starts."""
    flags = {
        "-m": arguments.multirun,
        "--verbose": arguments.verbose,
        "--json": arguments.json,
        "--debug": "--debug" in sys.argv,
    }
    return ["run", *(flag for flag, is_set in flags.items() if is_set), *arguments.overrides]


def _print_configuration(overrides: list[str], *, multirun: bool) -> int:
    """Print the configuration as YAML; of a sweep that of each different run, as one document."""
    from omegaconf import OmegaConf

    from wattload.run.compose import compose
    from wattload.session.loop import different_runs
    from wattload.session.schedule import names_of

    runs = different_runs(overrides, multirun=multirun)
    for run, name in names_of(runs).items():
        if name:
            sys.stdout.write(f"--- # {name}\n")
        sys.stdout.write(OmegaConf.to_yaml(OmegaConf.create(compose(run)[1])))
    return 0
