"""The results of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.results.checkpoint.checks import CHECKS, OBSERVED
from wattload.results.checkpoint.facts import READ_PHASE, WRITE_PHASE, CheckpointFacts, Run
from wattload.results.checkpoint.figures import FIGURES
from wattload.results.checkpoint.outcome import outcome
from wattload.results.checkpoint.published import PUBLISHED
from wattload.results.checkpoint.submission import SUBMISSION
from wattload.results.registry import Results
from wattload.results.view import View

NAME = "checkpoint"


def _work(run: Run, phases: Sequence[str]) -> tuple[str, float] | None:
    """Return checkpoints as the unit of work of writing and reading."""
    if not phases or not {WRITE_PHASE, READ_PHASE}.issuperset(phases):
        return None
    return NAME, float(run.facts.settings.checkpoint_count)


RESULTS = Results(
    name=NAME,
    facts=CheckpointFacts,
    figures=FIGURES,
    checks=CHECKS,
    observed=OBSERVED,
    submission=SUBMISSION,
    view=View(work=_work, outcome=outcome, published=PUBLISHED),
)
