"""The results of vector search on a drive."""

from __future__ import annotations

from wattload.results.registry import Results
from wattload.results.vector_search.checks import CHECKS, OBSERVED
from wattload.results.vector_search.facts import VectorFacts
from wattload.results.vector_search.figures import FIGURES
from wattload.results.vector_search.view import VIEW

RESULTS = Results(name="vector_search", facts=VectorFacts, figures=FIGURES, checks=CHECKS,
                  observed=OBSERVED, view=VIEW)  # fmt: skip
