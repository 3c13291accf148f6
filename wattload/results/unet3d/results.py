"""The results of training on whole records."""

from __future__ import annotations

from wattload.results.registry import Results
from wattload.results.unet3d.checks import CHECKS, OBSERVED
from wattload.results.unet3d.facts import TrainingFacts
from wattload.results.unet3d.figures import FIGURES
from wattload.results.unet3d.view import VIEW

RESULTS = Results(
    name="unet3d",
    facts=TrainingFacts,
    figures=FIGURES,
    checks=CHECKS,
    observed=OBSERVED,
    view=VIEW,
)
