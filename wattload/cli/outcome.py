"""What ``wattload run`` prints: each run's outcome, a session's comparison, a search's result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.cli.terminal import command, place
from wattload.core.errors import RunError, host_fault
from wattload.core.host_paths import on_host
from wattload.core.record.file import RECORD_FILE
from wattload.core.units import format_percent, format_rate, format_seconds
from wattload.results.quantity import MISSING, counted
from wattload.session.search_result import (
    Measurement,
    Pooled,
    SearchOutcome,
    SearchResult,
    percent,
)

if TYPE_CHECKING:
    from wattload.run.progress import Board
    from wattload.session.schedule import SessionPosition

SEARCH_COLUMNS = ("N", "runs", "AU", "nominal", "samples/s", "throughput", "drive W", "")


class Printer:
    """Prints what a session reports; rich is loaded when there is something to print.

    Results go to standard output, with ``as_json`` as one JSON document each; notes and progress
    go to standard error.
    """

    def __init__(self, *, as_json: bool = False, verbose: bool = False) -> None:
        self._as_json = as_json
        self._verbose = verbose
        self._is_session = False

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def live(self, board: Board) -> AbstractContextManager[None]:
        """Show the progress of a run: one live line on a terminal, else lines."""
        from wattload.cli.progress import live_progress

        return live_progress(board)

    def session_resumed(self, finished: int, planned: int, journal: Path) -> None:
        self.note(
            f"{finished} of {counted(planned, 'run')} are finished and valid and are not repeated "
            f"(listed in {journal}; delete that file to start over)"
        )

    def run_begins(self, position: SessionPosition) -> None:
        """Print the number of a session's run, and the time left."""
        self._is_session = True
        self.note(position_line(position))

    def run_finished(self, folder: Path) -> None:
        """Print the figures and checks of a run, or its record's path as JSON."""
        if self._as_json:
            print(json.dumps({"record": str(on_host(folder / RECORD_FILE))}), flush=True)
            return
        try:
            from wattload.cli.summary import print_line, print_summary
            from wattload.results.reading import read_judged

            record = read_judged(folder).record
            if self._is_session and not self._verbose:
                print_line(record)
            else:
                print_summary(record, folder, verbose=self._verbose)
        except Exception as error:
            fault = host_fault(error)
            if fault is None:
                raise
            raise RunError(
                f"the run is complete, its record is {folder / RECORD_FILE}, but its summary can't "
                f"be printed: {fault}"
            ) from error

    def session_finished(self, runs: Sequence[Path], journal: Path) -> None:
        if not self._as_json:
            from wattload.cli.summary import print_comparison
            from wattload.reports.runs.load import load_runs

            print_comparison(load_runs(runs), journal)

    def trial_finished(self, run: Measurement, threshold: float, *, reused: bool) -> None:
        self.note(run_line(run, threshold, reused=reused))

    def search_finished(self, result: SearchOutcome, path: Path, journal: Path, host: str) -> None:
        if self._as_json:
            print(json.dumps(result.model_dump(mode="json")))
        else:
            print_result(result, path, journal, host)


def position_line(position: SessionPosition) -> str:
    """Return the line before a session's run: ``run 7 of 16, about 9 min left: B``."""
    of = f" of {position.count}" if position.count is not None else ""
    left = f", about {rough_time(position.left_s)} left" if position.left_s is not None else ""
    name = f": {position.name}" if position.name else ""
    return f"run {position.number}{of}{left}{name}"


def rough_time(seconds: float) -> str:
    """Return an estimated time in steps that do not pretend to be exact: ``40 s``, ``9 min``."""
    if seconds < 55:  # noqa: PLR2004 - seconds, in steps of ten
        return f"{max(10, round(seconds, -1)):.0f} s"
    if seconds < 3570:  # noqa: PLR2004 - minutes up to an hour
        return f"{max(1, round(seconds / 60))} min"
    return format_seconds(seconds)


def run_line(run: Measurement, threshold: float, *, reused: bool) -> str:
    """Return the line for one run of a search: its utilisation, its rate, and whether it held."""
    rate = "unknown" if run.read_bytes_per_s is None else format_rate(run.read_bytes_per_s)
    return (
        f"{counted(run.accelerators, 'accelerator')}, run {run.repetition + 1}: "
        f"AU {percent(run.au_dlio)} (nominal {percent(run.au_nominal)}), {rate}: "
        f"{'holds' if run.holds(threshold) else 'does not hold'} {format_percent(threshold)}"
        f"{'; finished earlier, not repeated' if reused else ''}"
    )


def print_result(result: SearchOutcome, path: Path, journal: Path, host: str) -> None:
    """Print the result of a search to standard output: the sentence and the notes.

    A table is of accelerators only. ``host`` has the files, in a search over several hosts.
    """
    from rich.table import Table
    from rich.text import Text

    from wattload.cli.console import Console

    console = Console(soft_wrap=True)
    table = Table(title="accelerators (N) against AU", title_justify="left", box=None)
    for number, column in enumerate(SEARCH_COLUMNS):
        is_last = number == len(SEARCH_COLUMNS) - 1
        table.add_column(column, justify="left" if is_last else "right", no_wrap=True)
    if isinstance(result, SearchResult):
        for count in result.counts:
            table.add_row(*_cells(count))
        console.print(table)
    console.print(Text(result.sentence, style="bold"))
    for note in result.notes:
        console.print(Text(f"  {note}", style="yellow"))
    console.print(Text(f"result  {place(path, host)}"))
    console.print(Text(f"report  {command('report', [journal], host)}"))


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
