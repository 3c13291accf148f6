"""The results of training on whole records."""

from __future__ import annotations

from wattload.results.registry import Results
from wattload.results.training.checks import CHECKS, OBSERVED
from wattload.results.training.facts import TrainingFacts
from wattload.results.training.figures import FIGURES
from wattload.results.training.submission import SUBMISSION
from wattload.results.training.view import training_view


def training_results(name: str, title: str) -> Results[TrainingFacts]:
    """Return the results of the training workload of that name, shown under a title."""
    return Results(
        name=name,
        facts=TrainingFacts,
        figures=FIGURES,
        checks=CHECKS,
        observed=OBSERVED,
        submission=SUBMISSION,
        view=training_view(title),
    )
