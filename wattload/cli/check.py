"""``wattload check``: the checks of runs as a table, and whether their figures still close."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from wattload.core.record.check import Check
    from wattload.reports.load import Run

CHECK_FAILED = 3
_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
_ORDER = ("fail", "warn", "not_checked", "pass")
_STYLES = {"fail": "bold red", "warn": "yellow", "not_checked": "cyan", "pass": "green"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's folder or its record.json; a folder of run folders stands for all of them",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(arguments: argparse.Namespace) -> int:
    """Print each run's checks; returns 3 if any failed or any figure does not close, else 0.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
    """
    from wattload.reports.closure import close
    from wattload.reports.load import load_runs

    judged = [(run, close(run)) for run in load_runs(arguments.runs)]
    if arguments.json:
        print(json.dumps([_document(run, closures) for run, closures in judged], indent=1))
    else:
        _show(judged)
    verdicts = [c.verdict for run, closures in judged for c in (*run.record.checks, *closures)]
    return CHECK_FAILED if "fail" in verdicts else 0


def _document(run: Run, closures: Sequence[Check]) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "status": run.record.status,
        "checks": [check.model_dump(mode="json") for check in run.record.checks],
        "closure": [check.model_dump(mode="json") for check in closures],
    }


def _show(judged: Sequence[tuple[Run, Sequence[Check]]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for run, closures in judged:
        broken = [check for check in closures if check.verdict == "fail"]
        console.print(_table(run, [*run.record.checks, *broken]))
        console.print(f"{len(closures) - len(broken)} of {len(closures)} closure checks pass")
        _say(console, run)


def _say(console: Console, run: Run) -> None:
    from rich.text import Text

    if run.record.status != "complete":
        reason = f"{run.record.status}: {run.record.status_reason}"
        console.print(Text(_printable(reason), style="bold red"))
    for note in run.traces.notes:
        console.print(Text(_printable(note), style="cyan"))
    console.print()


def _table(run: Run, checks: Sequence[Check]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_printable(run.id)), title_justify="left", expand=False)
    for title in ("verdict", "check", "what was found"):
        table.add_column(title, no_wrap=title == "verdict")
    for check in sorted(checks, key=lambda check: _ORDER.index(check.verdict)):
        table.add_row(
            Text(check.verdict.replace("_", " "), style=_STYLES[check.verdict]),
            Text(_printable(check.name)),
            Text(_printable(check.sentence)),
        )
    return table


def _printable(text: str) -> str:
    """Return text without what a terminal would obey: a record may come from anybody."""
    return "".join(letter if letter.isprintable() else _UNPRINTABLE for letter in text)
