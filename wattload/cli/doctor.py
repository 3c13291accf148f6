"""``wattload doctor``: what this host can and can't measure, and the command that mends each."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from wattload.cli.finding import Finding

_COLOURS = {"yes": "green", "partly": "yellow", "no": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path(),
        help="where O_DIRECT is tried; the current directory if not given",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; returns 0, whatever it is."""
    findings = list(_findings(arguments.directory))
    if arguments.json:
        document = [finding.document() for finding in findings]
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    from rich.console import Console

    show(findings, Console(highlight=False))
    return 0


def _findings(directory: Path) -> Iterable[Finding]:
    from wattload.cli.io_findings import io_findings
    from wattload.cli.power_findings import power_findings
    from wattload.cli.software_findings import software_findings
    from wattload.cli.storage_findings import storage_findings

    yield from storage_findings(directory)
    yield from io_findings()
    yield from power_findings()
    yield from software_findings()


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print one row per finding: verdict, what was seen, what it adds, what mends it."""
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        lines = [f"[bold]{escape(finding.name)}[/bold]: {escape(finding.says)}"]
        if finding.verdict != "yes":
            lines.append(f"[dim]for {escape(finding.adds)}[/dim]")
        if finding.mend:
            lines.append(f"$ {escape(finding.mend)}")
        colour = _COLOURS[finding.verdict]
        table.add_row(f"[{colour}]{finding.verdict}[/{colour}]", "\n".join(lines))
    console.print(table)
