"""The results of training on a graph."""

from __future__ import annotations

from wattload.results.gnn.checks import CHECKS, OBSERVED
from wattload.results.gnn.facts import REQUESTS, STEPS, GraphFacts
from wattload.results.gnn.figures import FIGURES
from wattload.results.gnn.view import VIEW
from wattload.results.registry import Results

RESULTS = Results(
    name="gnn",
    facts=GraphFacts,
    figures=FIGURES,
    checks=CHECKS,
    observed=OBSERVED,
    tables=(STEPS, REQUESTS),
    view=VIEW,
)
