"""The results of a cache of keys and values on a drive."""

from __future__ import annotations

from wattload.core.units import MILLI
from wattload.results.knee import Knee
from wattload.results.kv_cache.checks import CHECKS, OBSERVED
from wattload.results.kv_cache.facts import KvFacts
from wattload.results.kv_cache.figures import FIGURES, holds_target
from wattload.results.kv_cache.view import VIEW
from wattload.results.registry import Results

RESULTS = Results(
    name="kv_cache",
    facts=KvFacts,
    figures=FIGURES,
    checks=CHECKS,
    observed=OBSERVED,
    knee=Knee(
        setting="request_rate",
        unit="requests/s",
        goal=lambda config: (
            None if config.target_p99_ms is None else f"p99 <= {config.target_p99_ms:g} ms"
        ),
        goal_setting="workload.target_p99_ms",
        holds=holds_target,
        figure="response_p99_s",
        shown=lambda seconds: f"p99 {seconds / MILLI:.4g} ms",
    ),
    view=VIEW,
)
