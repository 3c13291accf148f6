"""The result of a session: its arms side by side, their ratio and the verdict, as on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.cli.summary import NOT_MEASURED
from wattload.cli.terminal import Line, print_lines, report_command
from wattload.core.units import Unit
from wattload.reports.runs.load import Run
from wattload.reports.sanitize import sanitize
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import Group, Subject, make_subject
from wattload.reports.stats.summary import answer
from wattload.reports.stats.sweeps import Point, points
from wattload.results.quantity import bounded_quantity, counted, number, quantity

if TYPE_CHECKING:
    from rich.table import Table


def print_comparison(runs: Sequence[Run], journal: Path) -> None:
    """Print a session's arms, ratios and verdicts to standard output, and its report's command."""
    from rich.console import Console

    subject = make_subject(runs)
    console = Console(highlight=False)
    for group in subject.groups:
        print()
        print_lines(_title(group), [])
        console.print(_table(subject, group))
        print_lines("", list(_results(subject, group)))
    print_lines("", [Line("report", report_command([journal]), wraps=False)])


def _table(subject: Subject, group: Group) -> Table:
    """Return the arms, at each point of a sweep, with the geometric means that ratios divide."""
    from rich.table import Table

    parts = points(group)
    shown = _shown(compare(subject, group))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    table.add_column("")
    if parts[0].axis:
        table.add_column(parts[0].axis)
    table.add_column("arm", overflow="fold")
    table.add_column("runs", justify="right")
    for key in shown:
        table.add_column(key, justify="right")
    for part in parts:
        rows = {row.quantity.key: row for row in compare(subject, part.group)}
        for arm, of_arm in part.group.arms.items():
            cells = [
                _figure(rows[key], arm) if key in rows else NOT_MEASURED for key in shown.values()
            ]
            at = [part.value] if parts[0].axis else []
            table.add_row("", *at, sanitize(arm), str(len(of_arm)), *cells)
    return table


def _title(group: Group) -> str:
    workload = group.runs[0].record.workload
    runs = counted(len(group.runs), "run")
    return f"{workload.name}, scale {workload.scale}: {runs}; geometric means of valid runs"


def _shown(rows: Sequence[Row]) -> dict[str, str]:
    """Return the titles of the first headline rate and of its energy, with their keys."""
    headlines = [row for row in rows if row.quantity.headline and row.quantity.better != "neither"]
    speeds = [row for row in headlines if not row.quantity.is_energy]
    rates = [row for row in speeds if row.quantity.unit is Unit.BYTES_PER_SECOND]
    costs = [row for row in headlines if row.quantity.is_energy]
    energies = [row for row in costs if row.quantity.unit is Unit.JOULES] or costs
    asking = [row for row in energies if not row.quantity.asked_by]
    chosen = [*(rates or speeds)[:1], *asking[:1]]
    found = {row.quantity.label: row.quantity.key for row in chosen}
    return found if energies else {**found, "energy": ""}


def _figure(row: Row, arm: str) -> str:
    """Return an arm's geometric mean, or its median if not all figures are positive.

    Without a valid run these are its figures, without a figure its bounds.
    """
    unit, spread, centre = row.quantity.unit, row.spreads.get(arm), row.centres.get(arm)
    if spread is not None:
        cv = "" if spread.cv is None else f" (CV {number(spread.cv * 100, 2)} %)"
        return quantity(spread.median if centre is None else centre, unit) + cv
    figures = row.figures.get(arm, ())
    values = [quantity(each.value, unit) for each in figures if each.value is not None]
    if values:
        return f"{', '.join(values)} (not valid)"
    uppers = [each.upper for each in figures if each.upper is not None]
    lowers = [each.lower for each in figures if each.lower is not None]
    return bounded_quantity(None, min(lowers, default=None), max(uppers, default=None), unit)


def _results(subject: Subject, group: Group) -> Iterator[Line]:
    """Yield the ratio and the verdict of each shown quantity, at each point of a sweep."""
    if len(group.arms) < 2:  # noqa: PLR2004 - nothing to compare
        return
    keys = set(_shown(compare(subject, group)).values())
    for part in points(group):
        for row in compare(subject, part.group):
            if row.quantity.key in keys:
                yield from _result(row, part, group)


def _result(row: Row, part: Point, group: Group) -> Iterator[Line]:
    """Yield the ratio and the verdict; at a point of a sweep in one line."""
    name = row.quantity.label
    if not group.is_pair:
        yield Line("verdict", sanitize(f"{name}: {row.words} ({row.reason})"))
        return
    found = answer("energy" if row.quantity.is_energy else "speed", row, tuple(group.arms))
    interval = f" ({found.interval_text})" if found.interval_text else ""
    ratio = f"{found.leader}: {found.ratio_text}{interval}" if found.ratio_text else ""
    style = "bold green" if found.winner else "bold"
    verdict = f"{found.winner} wins" if found.winner else found.words
    if part.axis:
        at = f"{name} at {part.axis} = {part.value}"
        parts = "; ".join(text for text in (verdict, ratio) if text)
        yield Line("verdict", sanitize(f"{at}: {parts}"), style)
        return
    if ratio:
        note = f"; {found.note}" if found.note else ""
        yield Line("ratio", sanitize(f"{name}: {ratio}{note}"))
    yield Line("verdict", sanitize(f"{name}: {verdict}"), style)
