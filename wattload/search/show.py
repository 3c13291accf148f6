"""What a search prints: a line per run as it goes, and the table with its sentence at the end."""

from __future__ import annotations

from pathlib import Path

from wattload.core.units import format_rate
from wattload.reports.quantity import MISSING
from wattload.search.measurement import Measurement, Pooled
from wattload.search.result import SearchResult, percent

COLUMNS = ("N", "runs", "AU", "nominal", "samples/s", "throughput", "drive W", "")


def run_line(run: Measurement, threshold: float, *, reused: bool) -> str:
    """Return the line on one run: what it measured, and whether it held."""
    rate = "unknown" if run.read_bytes_per_s is None else format_rate(run.read_bytes_per_s)
    return (
        f"{run.accelerators} accelerators, run {run.repetition + 1}: AU {percent(run.au_dlio)} "
        f"(nominal {percent(run.au_nominal)}), {rate}: "
        f"{'holds' if run.holds(threshold) else 'does not hold'} {threshold:.0%}"
        f"{'; done before, not run again' if reused else ''}"
    )


def print_result(result: SearchResult, path: Path) -> None:
    """Print the table, the sentence and what must be known with it to standard output."""
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
