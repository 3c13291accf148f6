"""``wattload check``: the checks of runs, closure of their figures, and MLPerf's rules."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload.core.errors import CHECK_FAILED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from wattload.core.mlperf.rules import Judgement
    from wattload.core.record.results import Check
    from wattload.reports.runs.load import Run

_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
_ORDER = ("fail", "warn", "not_checked", "pass")
_STANDINGS = {"invalid": "red", "open": "yellow", "not_checked": "cyan", "closed": "green"}
_STYLES = {"fail": "bold red", "warn": "yellow", "not_checked": "cyan", "pass": "green"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's folder or its record.json; a folder of run folders means all of them",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print each run's checks; returns 3 if a check failed or a figure does not close, else 0.

    The verdict of MLPerf Storage's rules is printed too, but does not affect the exit status: a run
    that is not a valid submission can still be a good run.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
    """
    from wattload.core.mlperf.rules import judge
    from wattload.reports.runs.closure import closure_checks
    from wattload.reports.runs.load import load_runs

    runs = load_runs(arguments.runs)
    records = [run.record for run in runs]
    judged = [Judged(run, closure_checks(run), judge(run.record, records)) for run in runs]
    if arguments.json:
        print(json.dumps([_document(each) for each in judged], indent=1))
    else:
        _show(judged)
    verdicts = [c.verdict for each in judged for c in (*each.run.record.checks, *each.closures)]
    return CHECK_FAILED if "fail" in verdicts else 0


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, its closure checks, and the judgement of MLPerf's rules if they apply."""

    run: Run
    closures: Sequence[Check]
    mlperf: Judgement | None


def _document(judged: Judged) -> dict[str, Any]:
    run, closures, mlperf = judged.run, judged.closures, judged.mlperf
    return {
        "run_id": run.id,
        "status": run.record.status,
        "checks": [check.model_dump(mode="json") for check in run.record.checks],
        "closure": [check.model_dump(mode="json") for check in closures],
        "mlperf": None if mlperf is None else mlperf.model_dump(mode="json"),
    }


def _show(judged: Sequence[Judged]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for each in judged:
        broken = [check for check in each.closures if check.verdict == "fail"]
        console.print(_table(each.run, [*each.run.record.checks, *broken]))
        total = len(each.closures)
        console.print(f"{total - len(broken)} of {total} closure checks pass")
        if each.mlperf is not None:
            console.print(_rules(each.mlperf))
        _print_notes(console, each.run)


def _rules(judgement: Judgement) -> Table:
    from rich.table import Table
    from rich.text import Text

    standing = judgement.standing.replace("_", " ")
    title = f"MLPerf Storage's rules for this workload: {standing}"
    table = Table(title=title, title_justify="left", expand=False)
    for name in ("standing", "rule", "finding"):
        table.add_column(name, no_wrap=name == "standing")
    for finding in judgement.findings:
        table.add_row(
            Text(finding.standing.replace("_", " "), style=_STANDINGS[finding.standing]),
            Text(finding.rule),
            Text(_printable(finding.sentence)),
        )
    return table


def _print_notes(console: Console, run: Run) -> None:
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
    for title in ("verdict", "check", "finding"):
        table.add_column(title, no_wrap=title == "verdict")
    for check in sorted(checks, key=lambda check: _ORDER.index(check.verdict)):
        table.add_row(
            Text(check.verdict.replace("_", " "), style=_STYLES[check.verdict]),
            Text(_printable(check.name)),
            Text(_printable(check.sentence)),
        )
    return table


def _printable(text: str) -> str:
    """Replace unprintable characters, which could control the terminal: records are untrusted."""
    return "".join(letter if letter.isprintable() else _UNPRINTABLE for letter in text)
