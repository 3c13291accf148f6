"""The figures of a report as one JSON document: runs, ratios, verdicts, noise, claims, inputs.

Values are in SI base units. A missing figure is ``null``, next to what is known about it.
Everything else about a run is in its record, and the data of charts over time is in its traces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from wattload.reports.claims.comparison import (
    ComparedClaims,
    Measured,
    compare_claims,
    unmeasured_claims,
)
from wattload.reports.claims.papers import Claim, Paper
from wattload.reports.runs.energy import Energy, phase_energies, whole_energy
from wattload.reports.runs.gpu_reads import gpu_paths, path_words
from wattload.reports.runs.load import Run, inputs_digest
from wattload.reports.runs.random_reads import asked_words
from wattload.reports.sanitize import escape_unseen
from wattload.reports.sections.ratios import by_quantity, method
from wattload.reports.stats.comparison import (
    Row,
    compare,
    excluding_conditions,
    noise_floors,
    unused_sessions,
)
from wattload.reports.stats.conditions import compared_group, differences
from wattload.reports.stats.effects import Effect
from wattload.reports.stats.figures import Quantity, RunFigure, quantities
from wattload.reports.stats.intervals import Interval, sign_flip_p_value
from wattload.reports.stats.loads import LoadedPoint, loaded_points, ratio_of_a
from wattload.reports.stats.subject import LETTERS, Group, Subject
from wattload.reports.stats.summary import (
    Answer,
    Bars,
    FirstScreen,
    drive_limits,
    first_screen,
)

FORMAT, VERSION = "wattload-report", 1


def json_report(subject: Subject, *, claims: bool = False) -> str:
    """Return the report as JSON, indented; invisible characters are escaped."""
    found = document(subject, claims=claims)
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
        "first_screen": _first_screen(first_screen(subject)),
        "inputs_sha256": inputs_digest(subject.runs),
        "quantities": _quantities(subject),
        "runs": [_run(subject, run) for run in subject.runs],
        "left_out": [{"name": each.name, "reason": each.reason} for each in subject.left_out],
        "comparisons": [comparison_data(subject, group) for group in subject.groups],
        "noise": noise_data(subject),
        "published": published_data(subject) if claims else None,
    }


def _first_screen(screen: FirstScreen) -> dict[str, Any]:
    """Return the answers of each workload; a winner is an arm, or null without one."""
    return {
        "banner": screen.banner or None,
        "warm_ups": screen.warm_up_count,
        "excluded": list(screen.excluded),
        "excluded_energies": list(screen.excluded_energies),
        "warnings": list(screen.warnings),
        "workloads": [
            {
                "workload": row.group.workload,
                "phase": row.phase,
                "energy_phase": row.energy_phase,
                "point": row.at or None,
                "speed": _answer(row.speed),
                "energy": _answer(row.energy),
                "bars": [_bars(bars) for bars in row.bars],
                "ranking": list(row.ranking),
                "limits": dict(row.limits),
                "confidence": {"grade": row.grade.word or None, "reason": row.grade.reason},
                "scatter": row.scatter.text if row.scatter else None,
                "scatter_run": row.scatter.run if row.scatter else None,
                "sensor": row.sensor or None,
            }
            for row in screen.rows
        ],
    }


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    """Return the answer on speed or energy: the ratio is in favour of ``leader``, at least 1.

    Outcome and winner are null if the drives are simulated.
    """
    if answer is None:
        return None
    return {
        "outcome": answer.outcome,
        "winner": answer.winner,
        "leader": answer.leader,
        "part": answer.part or None,
        "ratio": finite(answer.ratio),
        "lower": finite(answer.lower),
        "upper": finite(answer.upper),
        "words": answer.words,
        "reason": answer.reason,
        "note": answer.note,
        "parts": [_part_of_job(each) for each in answer.parts],
    }


def _part_of_job(answer: Answer) -> dict[str, Any]:
    """Return the ratio of a part of a job, in favour of its own leader."""
    return {
        "part": answer.part,
        "leader": answer.leader,
        "ratio": finite(answer.ratio),
        "lower": finite(answer.lower),
        "upper": finite(answer.upper),
    }


def _bars(bars: Bars) -> dict[str, Any]:
    """Return the bars of a quantity in its printed unit."""
    return {
        "title": bars.title,
        "missing": bars.missing or None,
        "arms": {
            bar.arm: {
                "value": finite(bar.value),
                "lower": finite(bar.lower),
                "upper": finite(bar.upper),
                "n": bar.run_count,
                "n_in_mean": bar.mean_count,
                "runs": [finite(mark.value) for mark in bar.marks],
            }
            for bar in bars.bars
        },
    }


def _run(subject: Subject, run: Run) -> dict[str, Any]:
    record = run.record
    checks = [*record.checks, *subject.file_checks[run.id]]
    faults = subject.faults(run)
    energies = [*phase_energies(record), *([total] if (total := whole_energy(record)) else [])]
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
        "gpu_paths": [
            {
                "effective": path.path_effective,
                "words": asked_words(record) or path_words(path, record.workload.loader),
                "counts": path.counts.model_dump() if path.counts else None,
            }
            for path in gpu_paths(record)
        ],
        "facts": dict(record.workload.facts),
        "loads": [load.model_dump(mode="json") for load in record.loads],
    }


def _quantities(subject: Subject) -> dict[str, Any]:
    """Return the meaning and unit of each key of figures."""
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
        "same_question_as": quantity.asked_by or None,
    }


def _figure(figure: RunFigure) -> dict[str, Any]:
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
    """Return the window of an energy, and its evidence and uncertainty."""
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


def comparison_data(subject: Subject, group: Group) -> dict[str, Any]:
    """Return a workload's arms, their differences, and a row per quantity and point."""
    rows, barred = compare(subject, group), excluding_conditions(subject, group)
    return {
        "workload": group.workload,
        "arms": {arm: [run.id for run in runs] for arm, runs in group.arms.items()},
        "differences": [
            {
                "condition": each.name,
                "values": dict(each.values),
                "sets_the_work": each.name in barred,
            }
            for each in differences(compared_group(subject, group), subject.by)
        ],
        "rows": [_row(row) for row in rows],
        "sweeps": list(_sweeps(rows)),
        "path_by_load": [_loaded(each) for each in loaded_points(subject, group)],
        "drive_limits": [
            {"arm": each.arm, "axis": each.axis, "from": each.first, "sentence": each.sentence}
            for each in drive_limits(subject, group)
        ],
    }


def _loaded(point: LoadedPoint) -> dict[str, Any]:
    """Return A ÷ B idle and under a load, and the ratio of the two ratios."""
    return {
        "at": point.name,
        "load": point.load,
        "idle": _ratio_of_a(point.idle),
        "busy": _ratio_of_a(point.busy),
        "change": _ratio(
            (point.change.ratio, point.change.lower, point.change.upper) if point.change else None
        ),
        "call": point.call or None,
        "words": point.words,
        "reason": point.reason,
    }


def _ratio_of_a(row: Row) -> dict[str, Any] | None:
    return _ratio(ratio_of_a(row))


def _ratio(ends: tuple[float, float | None, float | None] | None) -> dict[str, Any] | None:
    return ends and {
        name: finite(end) for name, end in zip(("ratio", "lower", "upper"), ends, strict=True)
    }


def noise_data(subject: Subject) -> dict[str, Any]:
    """Return the noise of A/A sessions, and the sessions that set no floor."""
    return {
        "floors": [
            {
                "workload": noise.workload,
                "session": noise.session_id,
                "quantity": noise.quantity.key,
                "share": finite(noise.share),
                "effect": _effect(noise.effect, flips=False),
            }
            for noise in noise_floors(subject)
        ],
        "unused": [
            {"workload": session.workload, "session": session.session_id, "reason": reason}
            for session, reason in unused_sessions(subject)
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    headline = row.quantity.headline
    return {
        "quantity": row.quantity.key,
        "axis": row.axis,
        "at": row.at,
        "arms": {arm: _arm(row, arm) for arm in row.figures},
        "in_favour": _in_favour(row, row.effect) if row.effect else None,
        "effect": _effect(row.effect, flips=headline) if row.effect else None,
        "call": row.call,
        "words": row.words,
        "reason": row.reason,
        "forced": row.forced,
    }


def _in_favour(row: Row, effect: Effect) -> dict[str, Any]:
    """Return the ratio as the page prints it: at least 1, in favour of the arm with that letter."""
    ends = sorted(row.in_favour(end) for end in (effect.lower, effect.upper) if end)
    return {
        "letter": row.leader,
        "ratio": finite(row.in_favour(effect.ratio)),
        "lower": finite(ends[0]) if ends else None,
        "upper": finite(ends[-1]) if ends else None,
        "ratio_of_medians": finite(row.in_favour(effect.medians)),
    }


def _sweeps(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield the summary of a quantity over the points of a sweep, never of one point alone."""
    for of_quantity in by_quantity(rows):
        ratios = [row.effect.ratio for row in of_quantity if row.effect]
        if len(ratios) > 1:
            yield {
                "quantity": of_quantity[0].quantity.key,
                "axis": of_quantity[0].axis,
                "points": len(ratios),
                "median": finite(median(ratios)),
                "minimum": finite(min(ratios)),
                "maximum": finite(max(ratios)),
            }


def _arm(row: Row, arm: str) -> dict[str, Any]:
    figures, spread = row.figures[arm], row.spreads.get(arm)
    found: dict[str, Any] = {
        "values": [finite(figure.value) for figure in figures],
        "valid": [figure.valid for figure in figures],
    }
    if any(figure.upper is not None for figure in figures):
        found["lower"] = [finite(figure.lower) for figure in figures]
        found["upper"] = [finite(figure.upper) for figure in figures]
    if spread is None:
        return found | {"n": 0, "n_in_mean": 0, "geometric_mean": None, "median": None}
    return found | {
        "n": spread.count,
        "n_in_mean": sum(figure.in_mean for figure in figures),
        "geometric_mean": finite(row.centres.get(arm)),
        "median": finite(spread.median),
        "minimum": finite(spread.minimum),
        "maximum": finite(spread.maximum),
        "cv": finite(spread.cv),
        "gate": spread.gate,
    }


def _effect(effect: Effect, *, flips: bool) -> dict[str, Any]:
    """Return B against A: ratio, the 95 % interval that is shown, and their basis.

    ``flips`` is whether to enumerate sign flips, which is only done for headline figures.
    """
    counted = sign_flip_p_value(effect.estimate) if flips and effect.estimate else None
    return {
        "ratio": finite(effect.ratio),
        "lower": finite(effect.lower),
        "upper": finite(effect.upper),
        "ratio_of_medians": finite(effect.medians),
        "n_a": effect.count_a,
        "n_b": effect.count_b,
        "pairs": effect.pairs,
        "pairs_parted": effect.parted,
        "pairs_undated": effect.undated,
        "method": method(effect),
        "t": _ends(effect.t),
        "bootstrap": _ends(effect.bootstrap),
        "p_value": finite(effect.p_value),
        "p_value_sign_flips": finite(counted),
        "p_value_without_spread": finite(effect.least_p_value),
        "holm": _holm(effect),
        "floor": finite(effect.floor),
        "drift": finite(effect.drift),
        "drift_between_arms": finite(effect.between.share),
        "between_arms": effect.between.words,
        "noise": finite(effect.noise),
        "accuracy": finite(effect.accuracy),
    }


def _holm(effect: Effect) -> dict[str, Any] | None:
    """Return what one of a workload's comparisons has to reach; ``None`` without a comparison."""
    if effect.demand is None:
        return None
    return {
        "family": effect.demand.family,
        "confidence": effect.demand.confidence,
        "p_value": finite(effect.demand.p_value),
        "intervals": [_ends(each) for each in effect.demanded],
    }


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [finite(interval.lower), finite(interval.upper)]


def finite(value: float | None) -> float | None:
    """Return a number that JSON can represent; an overflow becomes ``None``."""
    return value if value is not None and math.isfinite(value) else None


def published_data(subject: Subject) -> dict[str, Any]:
    """Return each claim on a page with its measurements, and the papers' arithmetic."""
    found = compare_claims(subject)
    shown = list({part.paper.id: part.paper for part in found}.values())
    rest = unmeasured_claims(found) if found else ()
    papers = {paper.id: paper for paper in [*shown, *(paper for paper, _ in rest)]}
    return {
        "beside": [_part(part) for part in found],
        "arithmetic": [each for paper in papers.values() for each in _arithmetic(paper)],
        "not_measured": [
            {"paper": paper.id, **_claim(each)} for paper, own in rest for each in own
        ],
    }


def _part(part: ComparedClaims) -> dict[str, Any]:
    first, second = part.group.arms
    a, b = (first, second) if part.straight else (second, first)
    return {
        "paper": part.paper.id,
        "workload": part.group.workload,
        "a": a,
        "b": b,
        "claims": [
            {**_claim(claim), "measured": [_measured(each) for each in measured]}
            for claim, measured in part.claims
        ],
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "claim": claim.id,
        "printed": claim.printed.value,
        "read": claim.printed.read,
        "up_to": claim.printed.up_to,
        "point": dict(claim.point) or None,
        "formula": claim.formula,
        "words": claim.printed.words,
    }


def _measured(measured: Measured) -> dict[str, Any]:
    return {
        "at": measured.at,
        "ratio": finite(measured.ratio),
        "lower": finite(measured.lower),
        "upper": finite(measured.upper),
        "ratio_of_medians": finite(measured.medians),
        "n": measured.counts,
        "verdict": measured.verdict,
        "reason": measured.reason,
    }


def _arithmetic(paper: Paper) -> list[dict[str, Any]]:
    return [
        {
            "paper": paper.id,
            "closure": closure.id,
            "sides": [finite(side) for side in paper.computed(closure)],
            "closes": paper.closes(closure),
        }
        for closure in paper.closures
    ]
