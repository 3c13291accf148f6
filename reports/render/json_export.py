"""The figures of a report as one JSON document: what the page prints, as the page's own rows.

The rows are dataclasses: their fields and properties are the keys. A field that has its default is
left out, so that a missing figure is ``null`` and a missing key says nothing. Values are in SI base
units. Everything else about a run is in its record, and the data of charts over time in its traces.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping, Set
from functools import cache
from typing import Any

from wattload.core.base_models import Frozen
from wattload.core.mlperf.formulas import Value
from wattload.core.mlperf.notes import Pair
from wattload.core.record.results import Check
from wattload.reports.claims.comparison import compare_claims, unmeasured_claims
from wattload.reports.claims.papers import Paper
from wattload.reports.runs.energy import Energy, every_energy
from wattload.reports.runs.hosts import shares_of
from wattload.reports.runs.load import LeftOut, Run, inputs_digest
from wattload.reports.sanitize import escape_unseen
from wattload.reports.sections.published import (
    PublishedRow,
    Recomputed,
    published_rows,
    published_texts,
    recomputed_runs,
)
from wattload.reports.stats.answers import Answer
from wattload.reports.stats.comparison import (
    Row,
    compare,
    excluding_conditions,
    noise_floors,
    unused_sessions,
)
from wattload.reports.stats.conditions import compared_group, differences
from wattload.reports.stats.effects import Effect
from wattload.reports.stats.figures import Quantity, quantities
from wattload.reports.stats.loads import LoadedPoint, loaded_points
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import LETTERS, Group, Subject
from wattload.reports.stats.summary import VerdictRow, drive_limits, first_screen

FORMAT, VERSION = "wattload-report", 1

_LEFT_OUT: Mapping[type, Collection[str]] = {
    Answer: ("row",),
    VerdictRow: ("every_bar", "rates", "energies", "efficiencies", "devices", "names"),
    Row: ("figures", "verdict"),
    Effect: ("estimate", "interval"),
    LoadedPoint: ("idle_point", "busy_point"),
    Energy: ("illustrates",),
    Check: ("bars_verdict", "bars_energy", "fails_run", "is_of_power"),
    LeftOut: ("path",),
    PublishedRow: ("facts",),
}
"""Keys whose values stand elsewhere in the document, or are no facts for a reader."""


_NAMES: Mapping[type, str] = {Run: "id", Paper: "id", Group: "workload", Quantity: "key"}
"""What stands for an object that is described elsewhere."""


def json_report(subject: Subject, *, claims: bool = False, full: bool = False) -> str:
    """Return the report as JSON, indented; ``full`` adds records; invisible characters are escaped.

    A record is masked where the report is, and has no seal.
    """
    found = document(subject, claims=claims)
    if full:
        found["records"] = [plain(run.record.model_dump(mode="json")) for run in subject.runs]
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    return escape_unseen(text) + "\n"


def json_data(subject: Subject, *, claims: bool = False) -> str:
    """Return the report as JSON that is safe inside a ``<script>``: it has no markup."""
    found = document(subject, claims=claims)
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = escape_unseen(text)
    for sign in "<>&":  # translate() takes ten times as long
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def document(subject: Subject, *, claims: bool = False) -> dict[str, Any]:
    """Return all figures of a report as plain data; published figures only with ``claims``."""
    every = [each for run in subject.runs for each, _ in quantities(run.record).values()]
    found: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "version": VERSION,
            "wattload": sorted({run.record.software.wattload for run in subject.runs}),
            "by": subject.by,
            "forced": subject.forced,
            "arms": [
                {"letter": LETTERS[index] if index < len(LETTERS) else None, "name": arm}
                for index, arm in enumerate(subject.arms)
            ],
            "finding": finding(subject),
            "first_screen": first_screen(subject),
            "inputs_sha256": inputs_digest(subject.runs),
            "quantities": {each.key: dataclasses.asdict(each) for each in every},
            "runs": [_run(subject, run) for run in subject.runs],
            "left_out": subject.left_out,
            "comparisons": [_comparison(subject, group) for group in subject.groups],
            "noise": noise_floors(subject),
            "unused_sessions": [
                {"workload": session.workload, "session": session.session_id, "reason": reason}
                for session, reason in unused_sessions(subject)
            ],
            "published": _published(subject) if claims else None,
            "published_results": {
                "texts": published_texts(subject),
                "rows": [row for rows in published_rows(subject).values() for row in rows],
                "runs": recomputed_runs(subject),
            }
            if subject.published
            else None,
        }
    )
    return found


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as data of JSON; a number that JSON lacks becomes ``None``."""
    value = value._asdict() if isinstance(value, Value | Recomputed | Pair) else value
    match value:
        case float():
            return value if math.isfinite(value) else None
        case None | str() | int():
            return value
        case Mapping():
            return {str(name): plain(part) for name, part in value.items()}
        case Collection():
            parts = [plain(part) for part in value]
            return sorted(parts) if isinstance(value, Set) else parts
    if name := _NAMES.get(type(value)):
        return getattr(value, name)
    kind: Any = type(value)
    return {
        name: plain(part)
        for name, default in _keys(kind).items()
        if (part := getattr(value, name)) is not default and part != default
    }


@cache
def _keys(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    """Return the fields and properties of a dataclass or a model, with each field's default."""
    fields = kind.model_fields if issubclass(kind, Frozen) else kind.__dataclass_fields__
    keys: dict[str, Any] = {name: field.default for name, field in fields.items()}
    keys |= {
        name: dataclasses.MISSING for name, of in vars(kind).items() if isinstance(of, property)
    }
    return {name: of for name, of in keys.items() if name not in _LEFT_OUT.get(kind, ())}


def _run(subject: Subject, run: Run) -> dict[str, Any]:
    record = run.record
    checks = subject.checks(run)
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
        "command": record.command,
        "valid": not faults,
        "faults": faults,
        "energy_faults": subject.energy_faults(run),
        "checks_passed": sum(check.verdict == "pass" for check in checks),
        "checks_open": [check for check in checks if check.verdict != "pass"],
        "figures": {key: figure for key, (_, figure) in quantities(record).items()},
        "energies": every_energy(record),
        "hosts": shares_of(record),
        "paths": record.workload.paths,
        "loads": record.loads,
    }


def _comparison(subject: Subject, group: Group) -> dict[str, Any]:
    """Return a workload's arms, their differences, and a row per quantity and point."""
    barred = excluding_conditions(subject, group)
    return {
        "workload": group.workload,
        "arms": group.arms,
        "differences": differences(compared_group(subject, group), subject.by),
        "excluding": sorted(barred),
        "rows": [plain(row) | _in_favour(row) for row in compare(subject, group)],
        "path_by_load": loaded_points(subject, group),
        "drive_limits": drive_limits(subject, group),
    }


def _in_favour(row: Row) -> dict[str, Any]:
    """Return the ratio as the page prints it: at least 1, in favour of the row's leader.

    Of a share it is the difference, at least 0; every ratio of its effect is e to the power of one.
    """
    if row.effect is None:
        return {}
    ends = sorted(row.in_favour(end) for end in (row.effect.lower, row.effect.upper) if end)
    if row.quantity.is_share:
        return {
            "difference": math.log(row.in_favour(row.effect.ratio)),
            "difference_of_medians": math.log(row.in_favour(row.effect.medians)),
            "interval": [math.log(end) for end in ends],
        }
    return {
        "ratio": row.in_favour(row.effect.ratio),
        "ratio_of_medians": row.in_favour(row.effect.medians),
        "interval": ends,
    }


def _published(subject: Subject) -> dict[str, Any]:
    """Return each claim on a page with its measurements, and the papers' arithmetic."""
    found = compare_claims(subject)
    rest = unmeasured_claims(found) if found else ()
    papers = {each.id: each for each in (*(part.paper for part in found), *(p for p, _ in rest))}
    return {
        "beside": found,
        "arithmetic": [
            {
                "paper": paper,
                "closure": closure.id,
                "sides": paper.computed(closure),
                "closes": paper.closes(closure),
            }
            for paper in papers.values()
            for closure in paper.closures
        ],
        "not_measured": rest,
    }
