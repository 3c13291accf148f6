"""``wattload report``: a page, data or text from run records, or an index of a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.host_paths import is_lost, mounted

if TYPE_CHECKING:
    from wattload.reports.runs.load import LeftOut

INDEX = "index.html"
STANDARD_OUTPUT = Path("-")
ENDS = {
    "html": ".html",
    "json": ".json",
    "csv": ".csv",
    "markdown": ".md",
    "svg": ".svg",
    "png": ".png",
    "fio": ".fio",
}
BY = ("label", "target", "power_state", "loader", "firmware", "system")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's folder, its record.json, or a session's journal; a folder of run folders "
        "means all of them, and of the published sets in it",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the output file, - for standard output (default: report and the format's suffix; "
        "in a container, in the folder of the runs)",
    )
    parser.add_argument(
        "--format",
        choices=tuple(ENDS),
        help="an HTML page, its figures as JSON, one CSV row per run, phase and figure (the ratios "
        "of two arms go to FILE-ratios.csv), the summary as Markdown, a card of 1200 x 630 pixels "
        "as SVG or PNG, or a job for fio with the requests of one run (default: that of FILE's "
        "suffix, or html)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="with --format markdown, also a table of every headline figure; with json, also the "
        "record of each run",
    )
    parser.add_argument(
        "--index",
        action="store_true",
        help="instead of a report, a table of all runs in one folder, to sort and filter",
    )
    parser.add_argument(
        "--by",
        default="label",
        metavar="WHAT",
        help=f"what distinguishes the arms of a comparison: {', '.join(BY)}, or any key of the "
        "configuration such as workload.workers (default: %(default)s)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also compare excluded runs (other work, failed checks); the page says so",
    )
    parser.add_argument(
        "--claims",
        action="store_true",
        help="also have published figures next to the measured ones, on the page and in JSON",
    )
    parser.add_argument(
        "--redact",
        action="store_true",
        help="mask host names, serials, addresses and paths everywhere on the page",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report or the index; returns the exit status 0.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
        ConfigError: an option does not go with these runs or with another option, or nothing here
            can draw a PNG.
        TargetError: the report can't be written, or would replace one of its inputs.
        ForeignFileError: without ``-o``, a link or somebody else's file has the report's name.
    """
    from wattload.core.errors import ConfigError, TargetError
    from wattload.power.sampler.aborted_record import finish_abandoned, recorded_texts
    from wattload.reports.render.card import png_of
    from wattload.reports.render.output import (
        make_report,
        refuse_input,
        write_out,
        write_own,
        write_whole,
    )
    from wattload.reports.sanitize import file_name

    arguments.format = _format(arguments)
    default = INDEX if arguments.index else f"report{ENDS[arguments.format]}"
    output = arguments.output or _default_folder(arguments.runs) / default
    if output != STANDARD_OUTPUT and is_lost(output.parent):
        raise TargetError(
            f"{output} is in the container and is deleted with it; write it to the folder of the "
            f"runs with -o runs/{output.name}"
        )
    if arguments.full and arguments.format not in ("markdown", "json"):
        raise ConfigError(
            f"--full goes with --format markdown or json, got --format {arguments.format}"
        )
    ratios = output.with_name(f"{output.stem}-ratios{output.suffix}")
    refuse_input(output, arguments.runs)
    if arguments.format == "csv":
        refuse_input(ratios, arguments.runs)
    for line in recorded_texts(finish_abandoned(arguments.runs)):
        print(line, file=sys.stderr)
    text: str | bytes
    second = ""
    if arguments.index:
        text = _index(arguments, output)
    else:
        report = make_report(
            arguments.runs,
            form="svg" if arguments.format == "png" else arguments.format,
            by=arguments.by,
            redact=arguments.redact,
            forced=arguments.force,
            full=arguments.full,
            claims=arguments.claims,
            output=None if output == STANDARD_OUTPUT else output,
        )
        text, second = report.text, report.ratios
        if arguments.format == "png":
            text = png_of(report.text)
        _warn_of_left_out(report.left_out)
    if output == STANDARD_OUTPUT:
        write_out(text)
    else:
        write = write_whole if arguments.output else write_own
        print(file_name(str(write(text, output))))
        if second:
            print(file_name(str(write(second, ratios))))
    return 0


def _format(arguments: argparse.Namespace) -> str:
    """Return the format that was requested, or that of the output's suffix."""
    from wattload.core.errors import ConfigError

    suffix = arguments.output.suffix.lower() if arguments.output else ""
    if suffix == ".pdf":
        raise ConfigError(
            f"can't write {arguments.output}: a report is {', '.join(ENDS.values())}; write the "
            "page as .html and print it from a browser"
        )
    own = next((form for form, end in ENDS.items() if end == suffix), "")
    if arguments.format and own and own != arguments.format:
        raise ConfigError(
            f"--format {arguments.format} does not go with -o {arguments.output}; omit --format, "
            f"or name a file that ends in {ENDS[arguments.format]}"
        )
    return arguments.format or own or "html"


def _default_folder(runs: Sequence[Path]) -> Path:
    """Return where a report goes: here; in a container, the mounted folder that holds the runs.

    What is written elsewhere in a container is lost with it.
    """
    mounts = [path.absolute() for path in mounted()]
    holding = (mount for mount in mounts if runs[0].absolute().is_relative_to(mount))
    return next(holding, Path())


def _warn_of_left_out(left_out: Sequence[LeftOut]) -> None:
    if not left_out:
        return
    first = left_out[0]
    others = f", and {len(left_out) - 1} more: the report lists them" if left_out[1:] else ""
    print(f"wattload: warning: left out {first.name}: {first.reason}{others}", file=sys.stderr)


def _index(arguments: argparse.Namespace, output: Path) -> str:
    """Return the index of the one folder given, with links relative to ``output``."""
    from wattload.core.errors import ConfigError
    from wattload.reports.render.index import render_index

    if len(arguments.runs) != 1:
        raise ConfigError(f"--index takes one folder of runs, got {len(arguments.runs)}")
    if arguments.format != "html" or arguments.force or arguments.by != "label":
        raise ConfigError(
            "--index does not compare runs; only -o and --redact can be combined with it"
        )
    return render_index(arguments.runs[0], output=output, redact=arguments.redact)
