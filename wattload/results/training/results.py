"""The results of training on whole records."""

from __future__ import annotations

from wattload.results.registry import Results
from wattload.results.training.checks import CHECKS, OBSERVED
from wattload.results.training.facts import TrainingFacts
from wattload.results.training.figures import FIGURES
from wattload.results.training.view import VIEW


def training_results(name: str) -> Results[TrainingFacts]:
    """Return the results of the training workload of that name."""
    return Results(
        name=name,
        facts=TrainingFacts,
        figures=FIGURES,
        checks=CHECKS,
        observed=OBSERVED,
        view=VIEW,
    )
