"""``wattload run``: one run, or a sweep over lists of values with ``-m``."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="Hydra overrides, e.g. workload=checkpoint scale=quick power.state=1; or "
        f"experiment=NAME: {', '.join(_experiments())}",
    )
    parser.add_argument(
        "-m",
        "--multirun",
        action="store_true",
        help="sweep: a,b,c, range(1,9), choice(a,b) or glob(d*) in a value runs it once with each; "
        "repeat=8 interleave=abba compares them in turns",
    )
    parser.add_argument(
        "--cfg",
        choices=("job", "hydra", "all"),
        help="print the composed configuration, of a sweep that of each run, and stop",
    )
    parser.add_argument("--package", metavar="KEY", help="print only this part of --cfg")
    parser.add_argument(
        "--resolve", action="store_true", help="print values instead of references in --cfg"
    )
    parser.add_argument(
        "--info",
        choices=("defaults", "searchpath"),
        help="print the composed files in order, or where they are looked for, and stop",
    )
    parser.add_argument(
        "--rerun", metavar="RUN", help="repeat the run of a folder; further settings change it"
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


def _experiments() -> list[str]:
    """Return the names of wattload's own sessions, without the time that importing Hydra takes."""
    folder = files("wattload.configs").joinpath("experiment")
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir())


def run(arguments: argparse.Namespace) -> int:
    """Make the runs and return 0, or 3 if a check failed.

    Raises:
        ConfigError: no workload is given; the message lists them. Or as for ``launch``.
    """
    from wattload.cli.settings import require_workload
    from wattload.core.errors import ConfigError

    if arguments.rerun is not None:
        from wattload.cli.rerun import rerun_overrides

        arguments.overrides = rerun_overrides(
            arguments.rerun, arguments.overrides, multirun=arguments.multirun
        )
    if arguments.info:
        from wattload.cli.composed import print_info

        return print_info(arguments.overrides, multirun=arguments.multirun, info=arguments.info)
    require_workload(arguments.overrides, "run")
    if (arguments.package or arguments.resolve) and not arguments.cfg:
        raise ConfigError("--package and --resolve apply to --cfg; add --cfg job, hydra or all")
    if arguments.cfg:
        from wattload.cli.composed import print_configuration

        return print_configuration(
            arguments.overrides,
            multirun=arguments.multirun,
            kind=arguments.cfg,
            package=arguments.package,
            resolve=arguments.resolve,
        )
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
