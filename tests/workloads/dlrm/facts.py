"""The facts of a conversion."""

from __future__ import annotations

from wattload.core.workload import Outcome
from wattload.results.dlrm import DlrmFacts


def facts_of(outcome: Outcome) -> DlrmFacts:
    assert isinstance(outcome.facts, DlrmFacts)
    return outcome.facts


def peak_bytes(outcome: Outcome) -> int:
    return max(work.peak_bytes for work in facts_of(outcome).phases.values())
