"""Published figures beside the measured ones, as plain data."""

from __future__ import annotations

from typing import Any

from wattload.reports.claims.beside import Beside, Measured, beside, unanswered
from wattload.reports.claims.model import Claim, Paper
from wattload.reports.exports.ratios import finite
from wattload.reports.subject import Subject


def published_data(subject: Subject) -> dict[str, Any]:
    """Return each claim that a page shows with what was measured of it, and papers' arithmetic."""
    found = beside(subject)
    shown = list({part.paper.id: part.paper for part in found}.values())
    rest = unanswered(found) if found else ()
    papers = {paper.id: paper for paper in [*shown, *(paper for paper, _ in rest)]}
    return {
        "beside": [_part(part) for part in found],
        "arithmetic": [each for paper in papers.values() for each in _arithmetic(paper)],
        "not_measured": [
            {"paper": paper.id, **_claim(each)} for paper, own in rest for each in own
        ],
    }


def _part(part: Beside) -> dict[str, Any]:
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
