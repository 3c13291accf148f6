"""Every number of a report as one JSON document: runs with their figures, rows, calls, inputs.

Values are in SI base units. A figure that nobody has is ``null``; what is known of it stands by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from wattload.reports.compare import Row, compare
from wattload.reports.conditions import differences
from wattload.reports.figures import Figure, Quantity, quantities
from wattload.reports.inputs import inputs_digest
from wattload.reports.load import Run
from wattload.reports.statistics import Effect, Spread
from wattload.reports.subject import LETTERS, Group, Subject

FORMAT, VERSION = "wattload-report", 1
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def json_report(subject: Subject) -> str:
    """Return the report as JSON, indented."""
    return json.dumps(document(subject), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def json_data(subject: Subject) -> str:
    """Return the report as JSON that may stand inside a ``<script>``: no markup is in it."""
    text = json.dumps(document(subject), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.translate(_ESCAPES)


def document(subject: Subject) -> dict[str, Any]:
    """Return all that a report's figures are made of, as plain data."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "wattload": sorted({run.record.software.wattload for run in subject.runs}),
        "by": subject.by,
        "forced": subject.forced,
        "arms": [
            {"letter": LETTERS[index] if index < len(LETTERS) else None, "name": arm}
            for index, arm in enumerate(subject.arms)
        ],
        "inputs_sha256": inputs_digest(subject.runs),
        "quantities": _quantities(subject),
        "runs": [_run(subject, run) for run in subject.runs],
        "comparisons": [_comparison(subject, group) for group in subject.groups],
    }


def _run(subject: Subject, run: Run) -> dict[str, Any]:
    record = run.record
    checks = [*record.checks, *subject.closures[run.id]]
    faults = subject.faults(run)
    return {
        "run_id": run.id,
        "record_sha256": run.sha256 or None,
        "seal": run.seal,
        "workload": record.workload.name,
        "arm": subject.arm(run),
        "label": record.label,
        "status": record.status,
        "started_utc": record.started_utc,
        "command": list(record.command),
        "valid": not faults,
        "faults": list(faults),
        "energy_faults": list(subject.energy_faults(run)),
        "checks_passed": sum(check.verdict == "pass" for check in checks),
        "checks_open": [
            {"name": check.name, "verdict": check.verdict, "sentence": check.sentence}
            for check in checks
            if check.verdict != "pass"
        ],
        "figures": {key: _figure(figure) for key, (_, figure) in quantities(record).items()},
    }


def _quantities(subject: Subject) -> dict[str, Any]:
    """Return what the keys of figures stand for, and in which unit their values are."""
    known: dict[str, Quantity] = {}
    for run in subject.runs:
        known.update({key: quantity for key, (quantity, _) in quantities(run.record).items()})
    return {key: _quantity(quantity) for key, quantity in sorted(known.items())}


def _quantity(quantity: Quantity) -> dict[str, Any]:
    return {
        "label": quantity.label,
        "unit": quantity.unit.value,
        "better": quantity.better,
        "headline": quantity.headline,
        "phase": quantity.phase,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    """Return a figure of one run: its value, and what else is known."""
    found: dict[str, Any] = {"value": finite(figure.value)}
    if figure.upper is not None:
        found |= {"lower": finite(figure.lower), "upper": finite(figure.upper)}
    if figure.evidence:
        found["evidence"] = figure.evidence
    if not figure.ranks:
        found["ranks"] = False
    if figure.note and figure.note != figure.evidence:
        found["note"] = figure.note
    return found


def _comparison(subject: Subject, group: Group) -> dict[str, Any]:
    return {
        "workload": group.workload,
        "arms": {arm: [run.id for run in runs] for arm, runs in group.arms.items()},
        "differences": [
            {"condition": each.name, "values": dict(each.values), "sets_the_work": each.is_work}
            for each in differences(group)
        ],
        "rows": [_row(row) for row in compare(subject, group)],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "quantity": row.quantity.key,
        "axis": row.axis,
        "at": row.at,
        "arms": {arm: _arm(row.figures[arm], row.spreads.get(arm)) for arm in row.figures},
        "effect": _effect(row.effect) if row.effect else None,
        "call": row.call,
        "words": row.words,
        "reason": row.reason,
        "forced": row.forced,
    }


def _arm(figures: tuple[Figure, ...], spread: Spread | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "values": [finite(figure.value) for figure in figures],
        "valid": [figure.valid for figure in figures],
    }
    if any(figure.upper is not None for figure in figures):
        found["lower"] = [finite(figure.lower) for figure in figures]
        found["upper"] = [finite(figure.upper) for figure in figures]
    if spread is None:
        return found | {"n": 0, "median": None}
    return found | {
        "n": spread.count,
        "median": finite(spread.median),
        "minimum": finite(spread.minimum),
        "maximum": finite(spread.maximum),
        "cv": finite(spread.cv),
    }


def _effect(effect: Effect) -> Mapping[str, Any]:
    """Return B against A: the ratio, its 95 % interval, and what it was made of."""
    return {
        "ratio": finite(effect.ratio),
        "lower": finite(effect.lower),
        "upper": finite(effect.upper),
        "ratio_of_medians": finite(effect.medians),
        "n_a": effect.count_a,
        "n_b": effect.count_b,
        "pairs": effect.pairs,
        "p_value": finite(effect.p_value),
        "floor": finite(effect.floor),
    }


def finite(value: float | None) -> float | None:
    """Return a number that JSON has; what overflowed is missing and not a number."""
    return value if value is not None and math.isfinite(value) else None
