"""``wattload report``: one page from run records, single runs or one arm against another."""

from __future__ import annotations

import argparse
from pathlib import Path

BY = ("label", "target", "power_state", "loader", "firmware")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's folder or its record.json; a folder of run folders stands for all of them",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="where the page goes (default: %(default)s)",
    )
    parser.add_argument(
        "--by",
        default="label",
        metavar="WHAT",
        help=f"what tells the arms of a comparison apart: {', '.join(BY)}, or any key of the "
        "configuration such as workload.workers (default: %(default)s)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="compare what is barred from it too: other work, failed checks; the page says so",
    )
    parser.add_argument(
        "--redact",
        action="store_true",
        help="mask host names, serials and paths everywhere, the embedded records included",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the page; returns the exit status 0.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
        ConfigError: ``--by`` is nothing that the runs can be told apart by.
        TargetError: the page can't be written.
    """
    from wattload.reports.output import write_report

    page = write_report(
        arguments.runs,
        arguments.output,
        by=arguments.by,
        redact=arguments.redact,
        forced=arguments.force,
    )
    print(page)
    return 0
