"""A report as comma-separated values: one row per run and figure, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping

from wattload.reports.compare import Row, compare
from wattload.reports.exports.ratios import finite
from wattload.reports.figures import quantities
from wattload.reports.load import Run
from wattload.reports.plain import exact
from wattload.reports.points import points
from wattload.reports.subject import Subject

COLUMNS = (
    "run_id",
    "workload",
    "arm",
    "label",
    "started_utc",
    "status",
    "seal",
    "figure",
    "phase",
    "unit",
    "better",
    "headline",
    "value",
    "lower",
    "upper",
    "evidence",
    "valid",
    "why_not",
    "forced",
    "call",
    "why_called",
)
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How a text begins that a spreadsheet may run: it passes over blanks, and some read wide signs."""

Compared = Mapping[tuple[str, str], Row]
"""By run and figure, what compares it with the other arm's."""


def csv_report(subject: Subject) -> str:
    """Return every figure of every run, in SI base units; a field is empty where there is none.

    ``valid`` is whether the figure may be compared: the run by its checks, energy by its own, and
    by evidence that ranks. ``forced`` is what bars its comparison and was forced. ``call`` is what
    is said of the arms at its point, in words, and ``why_called`` the reason. Text that a
    spreadsheet would run as a formula begins with an apostrophe.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    compared = _compared(subject)
    for run in subject.runs:
        writer.writerows(_rows(subject, run, compared))
    return file.getvalue()


def _compared(subject: Subject) -> Compared:
    """Return the comparison that each figure of two arms is part of."""
    return {
        (run.id, row.quantity.key): row
        for group in subject.groups
        if group.is_pair
        for point in points(group)
        for row in compare(subject, point.group)
        for run in point.group.runs
    }


def _rows(subject: Subject, run: Run, compared: Compared) -> Iterator[dict[str, object]]:
    record, faults = run.record, subject.faults(run)
    energy_faults = subject.energy_faults(run)
    of_run = {
        "run_id": _text(run.id),
        "workload": _text(record.workload.name),
        "arm": _text(subject.arm(run)),
        "label": _text(record.label),
        "started_utc": _text(record.started_utc),
        "status": record.status,
        "seal": run.seal,
    }
    for quantity, figure in quantities(record).values():
        why_not = [*faults, *(energy_faults if quantity.is_energy else ())]
        why_not += [] if figure.ranks else ["its evidence ranks nothing"]
        row = compared.get((run.id, quantity.key))
        yield of_run | {
            "figure": _text(quantity.key),
            "phase": _text(quantity.phase),
            "unit": quantity.unit.value,
            "better": quantity.better,
            "headline": _flag(is_so=quantity.headline),
            "value": finite(figure.value),
            "lower": finite(figure.lower),
            "upper": finite(figure.upper),
            "evidence": _text(figure.evidence),
            "valid": _flag(is_so=not why_not and figure.value is not None),
            "why_not": _text("; ".join([*why_not, *([figure.note] if figure.note else [])])),
            "forced": _text(row.forced if row else ""),
            "call": _text(row.words if row else ""),
            "why_called": _text(row.reason if row else ""),
        }


def _flag(*, is_so: bool) -> str:
    return "true" if is_so else "false"


def _text(text: str) -> str:
    """Return text of records as a cell: what nobody sees is escaped, and nothing is a formula."""
    shown = exact(text)
    return f"'{shown}" if _FORMULA.match(shown) else shown
