"""The results of vector search on a drive."""

from __future__ import annotations

from wattload.results.registry import Results
from wattload.results.vector_search.facts import VectorFacts

RESULTS = Results(name="vector_search", facts=VectorFacts)
