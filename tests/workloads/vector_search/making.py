"""Makes small runs of the vector_search workload on real files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.context import Context, RecordedPhase, context_at
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.vectors.search import VectorSearchConfig
from wattload.results.vector_search.facts import VectorFacts
from wattload.workloads.vector_search import workload as module
from wattload.workloads.vector_search.config import Config
from wattload.workloads.vector_search.workload import VectorSearch

SETTINGS: dict[str, Any] = {
    "vectors": 2000,
    "dim": 32,
    "degree": 16,
    "build_list": 32,
    "pq_bytes": 16,
    "search_list": 20,
    "query_count": 100,
    "duration_s": 0.2,
    "threads": 2,
    "inflight_per_thread": "2",
}
"""An index of 2,000 nodes of 196 bytes: 20 share a sector."""


def config(**settings: Any) -> Config:
    return Config(**{**SETTINGS, **settings})


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is measured beside the phases take no time."""
    monkeypatch.setattr(module, "CEILING_S", 0.05)
    monkeypatch.setattr(module, "TRIED_S", 0.05)


@dataclass
class Made:
    """A run that has ended, and what it reported."""

    workload: VectorSearch
    context: Context
    outcome: Outcome
    checks: Sequence[Check]

    @property
    def facts(self) -> VectorFacts:
        assert isinstance(self.outcome.facts, VectorFacts)
        return self.outcome.facts

    @property
    def recall(self) -> float:
        answers = self.facts.answers
        assert answers is not None
        found = sum(number * count for number, count in enumerate(answers.hits))
        return found / (sum(answers.hits) * (len(answers.hits) - 1))

    def phase(self, name: str) -> RecordedPhase:
        [phase] = [phase for phase in self.context.phases if phase.name == name]
        return phase

    def check(self, name: str) -> Check:
        [check] = [check for check in self.checks if check.name == name]
        return check


def planned(
    context: Context, settings: Config, loader: VectorSearchConfig | None = None
) -> VectorSearch:
    settings.check(context.scale)
    workload = VectorSearch(settings, loader or DirectConfig(), Accelerator())
    workload.plan(context)
    return workload


def made(
    path: Path,
    settings: Config,
    loader: VectorSearchConfig | None = None,
    *,
    between: Callable[[Path], object] = lambda folder: None,
    before_verify: Callable[[Path], object] = lambda folder: None,
) -> Made:
    """Run from the plan to the end; ``between`` preparation and search acts on the target."""
    context = context_at(path)
    workload = planned(context, settings, loader)
    workload.prepare(context)
    between(path)
    outcome = workload.run(context)
    before_verify(path)
    checks = workload.verify(context)
    return Made(workload, context, outcome, [*outcome.checks, *checks])


def nodes_file(target: Path) -> Path:
    [path] = target.rglob("index_disk.index")
    return path


def write_fvecs(path: Path, vectors: NDArray[np.float32]) -> str:
    dims = np.full((len(vectors), 1), vectors.shape[1], "<i4")
    np.hstack([dims, vectors.view("<i4")]).tofile(path)
    return str(path)
