"""A report as comma-separated values: one row per run and figure, for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from wattload.reports.exports.document import finite
from wattload.reports.figures import quantities
from wattload.reports.subject import Subject

COLUMNS = (
    "run_id",
    "workload",
    "arm",
    "label",
    "started_utc",
    "status",
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
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_report(subject: Subject) -> str:
    """Return every figure of every run, in SI base units; a field is empty where there is none.

    ``valid`` is whether the figure may be compared: the run by its checks, energy by its own, and
    by evidence that ranks. Text that a spreadsheet would run as a formula begins with an
    apostrophe.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(subject))
    return file.getvalue()


def _rows(subject: Subject) -> Iterator[dict[str, object]]:
    for run in subject.runs:
        record, faults = run.record, subject.faults(run)
        energy_faults = subject.energy_faults(run)
        of_run = {
            "run_id": _text(run.id),
            "workload": _text(record.workload.name),
            "arm": _text(subject.arm(run)),
            "label": _text(record.label),
            "started_utc": _text(record.started_utc),
            "status": record.status,
        }
        for quantity, figure in quantities(record).values():
            why_not = [*faults, *(energy_faults if quantity.is_energy else ())]
            why_not += [] if figure.ranks else ["its evidence ranks nothing"]
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
            }


def _flag(*, is_so: bool) -> str:
    return "true" if is_so else "false"


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
