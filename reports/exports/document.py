"""The figures of a report as one JSON document: runs, ratios, calls, noise, claims, inputs.

Values are in SI base units. A figure that nobody has is ``null``; what is known of it stands by.
What else a page tells of a run is in the run's record, and what it draws over time in its traces.
"""

from __future__ import annotations

import json
from typing import Any

from wattload.reports.energy import Energy, phase_energies, whole
from wattload.reports.exports.published import published_data
from wattload.reports.exports.ratios import comparison_data, finite, noise_data
from wattload.reports.figures import Figure, Quantity, quantities
from wattload.reports.inputs import inputs_digest
from wattload.reports.load import Run
from wattload.reports.plain import exact
from wattload.reports.subject import LETTERS, Subject

FORMAT, VERSION = "wattload-report", 1


def json_report(subject: Subject) -> str:
    """Return the report as JSON, indented; characters that nobody sees are escaped."""
    text = json.dumps(document(subject), indent=1, ensure_ascii=False, allow_nan=False)
    return exact(text) + "\n"


def json_data(subject: Subject) -> str:
    """Return the report as JSON that may stand inside a ``<script>``: no markup is in it."""
    text = json.dumps(document(subject), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = exact(text)
    for sign in "<>&":  # by translate() it takes ten times as long
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


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
        "comparisons": [comparison_data(subject, group) for group in subject.groups],
        "noise": noise_data(subject),
        "published": published_data(subject),
    }


def _run(subject: Subject, run: Run) -> dict[str, Any]:
    record = run.record
    checks = [*record.checks, *subject.closures[run.id]]
    faults = subject.faults(run)
    energies = [*phase_energies(record), *([total] if (total := whole(record)) else [])]
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
        "energies": [_energy(energy) for energy in energies],
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


def _energy(energy: Energy) -> dict[str, Any]:
    """Return what an energy was integrated over, and how exactly it is known."""
    share = None
    if energy.uncertainty_j is not None and energy.energy_j:
        share = energy.uncertainty_j / energy.energy_j
    return {
        "phase": energy.phase,
        "seconds": finite(energy.seconds),
        "moved_bytes": energy.moved_bytes,
        "evidence": energy.evidence.value,
        "sources": list(energy.keys),
        "net_j": finite(energy.net_j),
        "uncertainty_j": finite(energy.uncertainty_j),
        "uncertainty": finite(share),
    }
