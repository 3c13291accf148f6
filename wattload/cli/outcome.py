"""What a finished run prints: its headline figures, what its checks say, and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattload.core.power import Scope
from wattload.core.record.check import Verdict
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.quantity import label, quantity

STYLES: dict[Verdict, str] = {"fail": "bold red", "warn": "yellow", "not_checked": "cyan"}
PLURALS: dict[Verdict, str] = {
    "pass": "passed",
    "warn": "warned",
    "fail": "failed",
    "not_checked": "not checked",
}


def print_outcome(record: RunRecord, folder: Path) -> None:
    """Print to standard output; the record holds more, the report shows it."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(_figures(record))
    for line in _judgements(record):
        console.print(line)
    console.print(f"record: {folder / 'record.json'}")
    console.print(f"next:   wattload report {folder}")


def _figures(record: RunRecord) -> Table:
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
            table.add_row(f"energy, {energy.phase}", _joules(energy), source)
    return table


def _joules(energy: EnergyRecord) -> str:
    if energy.energy_j is not None:
        return quantity(energy.energy_j, Unit.JOULES)
    upper = quantity(energy.upper_j, Unit.JOULES)
    if energy.lower_j is None:
        return f"≤ {upper}" if energy.upper_j is not None else upper
    return f"{quantity(energy.lower_j, Unit.JOULES)} to {upper}"


def _judgements(record: RunRecord) -> Iterator[Text]:
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
