"""``wattload report``: a page, data or text from run records, or the index of a folder of them."""

from __future__ import annotations

import argparse
from pathlib import Path

INDEX = "index.html"
STANDARD_OUTPUT = Path("-")
ENDS = {"html": ".html", "json": ".json", "csv": ".csv", "markdown": ".md"}
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
        metavar="FILE",
        help="where it goes, - for standard output (default: report.html, or the form's own end)",
    )
    parser.add_argument(
        "--format",
        choices=tuple(ENDS),
        default="html",
        help="a page, its figures as data, a row per run and figure, or text for an issue "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--index",
        action="store_true",
        help="a table of all runs in one folder, to sort and filter, in place of a report",
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
        help="mask host names, serials, addresses and paths everywhere, embedded records included",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report or the index; returns the exit status 0.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
        ConfigError: an option does not go with these runs or with another option.
        TargetError: the report can't be written, or would replace what it is made from.
    """
    from wattload.reports.output import refuse_input, report_text, write_out, write_whole
    from wattload.reports.plain import file_name

    default = INDEX if arguments.index else f"report{ENDS[arguments.format]}"
    output = arguments.output or Path(default)
    refuse_input(output, arguments.runs)
    if arguments.index:
        text = _index(arguments, output)
    else:
        text = report_text(
            arguments.runs,
            form=arguments.format,
            by=arguments.by,
            redact=arguments.redact,
            forced=arguments.force,
        )
    if output == STANDARD_OUTPUT:
        write_out(text)
    else:
        print(file_name(str(write_whole(text, output))))
    return 0


def _index(arguments: argparse.Namespace, output: Path) -> str:
    """Return the index of the one folder that was named, its links as seen from ``output``."""
    from wattload.core.errors import ConfigError
    from wattload.reports.index.page import render_index

    if len(arguments.runs) != 1:
        raise ConfigError(f"--index takes one folder of runs, got {len(arguments.runs)}")
    if arguments.format != "html" or arguments.force or arguments.by != "label":
        raise ConfigError("--index compares nothing: it goes with -o and --redact only")
    return render_index(arguments.runs[0], output=output, redact=arguments.redact)
