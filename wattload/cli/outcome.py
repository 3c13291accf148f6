"""What ``wattload run`` prints: each run's outcome, and the result of an accelerator search."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.power import Scope
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.core.record.results import Verdict
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit, format_rate
from wattload.reports.quantity import MISSING, bounded_quantity, label, quantity
from wattload.session.search_result import Measurement, Pooled, SearchResult, percent

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from wattload.core.workload import Progress

STYLES: dict[Verdict, str] = {"fail": "bold red", "warn": "yellow", "not_checked": "cyan"}
PLURALS: dict[Verdict, str] = {
    "pass": "passed",
    "warn": "warned",
    "fail": "failed",
    "not_checked": "not checked",
}


COLUMNS = ("N", "runs", "AU", "nominal", "samples/s", "throughput", "drive W", "")


class Printer:
    """Prints what a session reports; rich is loaded when there is something to print.

    Results go to standard output, with ``as_json`` as one JSON document each; notes and progress
    go to standard error.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json

    def note(self, text: str) -> None:
        """Print lines on what happens."""
        print(text, file=sys.stderr)

    def progress(self) -> Progress:
        """Return a bar on a terminal, else lines."""
        from wattload.cli.progress import terminal_progress

        return terminal_progress()

    def run_finished(self, folder: Path) -> None:
        """Print the figures and checks of a run, or its record's path as JSON."""
        if self._as_json:
            print(json.dumps({"record": str(folder / RECORD_FILE)}))
        else:
            print_outcome(read_record(folder), folder)

    def run_reused(self, folder: Path, journal: Path) -> None:
        """Print that a run is already done."""
        self.note(
            f"finished and valid, not repeated: {folder} (listed in {journal}; delete that file to "
            "start over)"
        )

    def trial_finished(self, run: Measurement, threshold: float, *, reused: bool) -> None:
        """Print the line on one run of a search."""
        self.note(run_line(run, threshold, reused=reused))

    def search_finished(self, result: SearchResult, path: Path) -> None:
        """Print the result of a search, or its JSON."""
        if self._as_json:
            print(result.model_dump_json())
        else:
            print_result(result, path)


def print_outcome(record: RunRecord, folder: Path) -> None:
    """Print a run's headline figures and checks to standard output."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(_figures(record))
    for line in _judgements(record):
        console.print(line)
    console.print(f"record: {folder / 'record.json'}")
    console.print(f"next:   wattload report {folder}")


def _figures(record: RunRecord) -> Table:
    from rich.table import Table

    title = f"{record.workload.name}, {record.workload.loader}, {record.workload.scale}"
    table = Table(
        title=f"{title}, label {record.label}",
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2, 0, 0),
    )
    for metric in record.metrics:
        if metric.headline:
            table.add_row(
                label(metric.name, metric.unit), quantity(metric.value, metric.unit), metric.meaning
            )
    for energy in record.power.energy:
        if energy.chosen and energy.scope is Scope.DRIVE:
            source = f"{energy.evidence} by {energy.source}"
            joules = bounded_quantity(energy.energy_j, energy.lower_j, energy.upper_j, Unit.JOULES)
            table.add_row(f"energy, {energy.phase}", joules, source)
    return table


def _judgements(record: RunRecord) -> Iterator[Text]:
    from rich.text import Text

    counts = Counter(check.verdict for check in record.checks)
    yield Text(
        "checks: "
        + ", ".join(
            f"{counts[verdict]} {name}" for verdict, name in PLURALS.items() if counts[verdict]
        )
    )
    for check in record.checks:
        if check.verdict in STYLES:
            shown = f"  {PLURALS[check.verdict]}: {check.name}: {check.sentence}"
            yield Text(shown, style=STYLES[check.verdict])


def run_line(run: Measurement, threshold: float, *, reused: bool) -> str:
    """Return the line for one run of a search: its utilisation, its rate, and whether it held."""
    rate = "unknown" if run.read_bytes_per_s is None else format_rate(run.read_bytes_per_s)
    return (
        f"{run.accelerators} accelerators, run {run.repetition + 1}: AU {percent(run.au_dlio)} "
        f"(nominal {percent(run.au_nominal)}), {rate}: "
        f"{'holds' if run.holds(threshold) else 'does not hold'} {threshold:.0%}"
        f"{'; finished earlier, not repeated' if reused else ''}"
    )


def print_result(result: SearchResult, path: Path) -> None:
    """Print the result of a search to standard output: the table, the sentence and the notes."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="accelerators (N) against AU", title_justify="left", box=None)
    for number, column in enumerate(COLUMNS):
        is_last = number == len(COLUMNS) - 1
        table.add_column(column, justify="left" if is_last else "right", no_wrap=True)
    for count in result.counts:
        table.add_row(*_cells(count))
    console.print(table)
    console.print(Text(result.sentence, style="bold"))
    for note in result.notes:
        console.print(Text(f"  {note}", style="yellow"))
    console.print(f"result: {path}")
    runs = " ".join(str(path.parent.parent / run.run_id) for run in result.runs)
    console.print(f"next:   wattload report {runs}")


def _cells(count: Pooled) -> tuple[str, ...]:
    return (
        str(count.accelerators),
        str(count.runs),
        percent(count.au_dlio),
        percent(count.au_nominal),
        "unknown" if count.samples_per_s is None else f"{count.samples_per_s:.1f}",
        "unknown" if count.read_bytes_per_s is None else format_rate(count.read_bytes_per_s),
        MISSING if count.drive_w is None else f"{count.drive_w:.1f}",
        "holds" if count.held else "does not hold",
    )
