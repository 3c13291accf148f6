"""The checks of a run with the figures that decided them, and those made before drawing."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check
from wattload.reports.blocks import Block, Cell, Fold, Notice, Section, Table, columns, row
from wattload.reports.load import Run
from wattload.reports.quantity import counted, number
from wattload.reports.sections.wording import VERDICT_TONES, VERDICT_WORDS, anchor
from wattload.reports.subject import Subject

_ORDER = ("fail", "warn", "not_checked", "pass")


def checks_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's checks, worst first, and its closure checks."""
    blocks: list[Block] = []
    if faults := subject.faults(run):
        blocks.append(
            Notice("Not compared as valid", [f"{_first(fault)}." for fault in faults], "bad")
        )
    if run.record.checks:
        blocks.append(check_table(run.record.checks, "Checks of the run"))
    else:
        blocks.append(Notice("No check was made", ["The run ended before its checks."], "open"))
    closures = subject.closures[run.id]
    failed = [check for check in closures if check.verdict == "fail"]
    if failed:
        blocks.append(check_table(failed, "Figures that do not follow from each other"))
    passed = len(closures) - len(failed)
    summary = f"{counted(passed, 'closure check')} of {len(closures)} passed before this was drawn"
    blocks.append(Fold(summary, [check_table(closures, "Closure checks")]))
    return Section(anchor=anchor(run.id, "checks"), title="Checks", blocks=blocks)


def _first(sentence: str) -> str:
    return (sentence[:1].upper() + sentence[1:]).rstrip(".")


def check_table(checks: Sequence[Check], caption: str) -> Table:
    """Return checks with verdict, sentence and figures, worst first."""
    ordered = sorted(checks, key=lambda check: _ORDER.index(check.verdict))
    rows = [
        row(
            Cell("", badge=VERDICT_WORDS[check.verdict], tone=VERDICT_TONES[check.verdict]),
            Cell(check.name.replace("_", " "), remark="mandatory" if check.mandatory else ""),
            Cell(check.sentence, remark=figures_text(check)),
        )
        for check in ordered
    ]
    return Table(columns=columns("verdict", "check", "what was found"), rows=rows, caption=caption)


def figures_text(check: Check) -> str:
    """Return the figures that decided a check, by name."""
    parts = []
    for name, value in check.figures.items():
        text = number(value, 6) if isinstance(value, float) else str(value)
        parts.append(f"{name} = {'missing' if value is None else text}")
    return ", ".join(parts)
