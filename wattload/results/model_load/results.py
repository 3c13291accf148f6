"""The results of loading a model."""

from __future__ import annotations

from wattload.results.model_load.checks import CHECKS, OBSERVED
from wattload.results.model_load.facts import LoadFacts
from wattload.results.model_load.figures import FIGURES
from wattload.results.model_load.view import VIEW
from wattload.results.registry import Results

RESULTS = Results(name="model_load", facts=LoadFacts, figures=FIGURES, checks=CHECKS,
                  observed=OBSERVED, view=VIEW)  # fmt: skip
