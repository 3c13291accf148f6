"""The results of a cache of keys and values on a drive."""

from __future__ import annotations

from wattload.results.kv_cache.checks import CHECKS, OBSERVED
from wattload.results.kv_cache.facts import KvFacts
from wattload.results.kv_cache.figures import FIGURES
from wattload.results.kv_cache.view import VIEW
from wattload.results.registry import Results

RESULTS = Results(
    name="kv_cache",
    facts=KvFacts,
    figures=FIGURES,
    checks=CHECKS,
    observed=OBSERVED,
    view=VIEW,
)
