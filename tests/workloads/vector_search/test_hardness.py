"""The default vectors at scale=demo are neither easy nor hopeless to search."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.loaders.mmap.config import Config as Mmap
from wattload.loaders.vectors import build, files
from wattload.loaders.vectors.layout import NodeLayout
from wattload.loaders.vectors.search import Queries, SearchPlan
from wattload.workloads.vector_search.config import Config
from wattload.workloads.vector_search.mixture import QUERIES, mixture
from wattload.workloads.vector_search.truth import (
    code_order,
    hits,
    intrinsic_dimension,
    nearest,
)

SEED, COUNT, ASKED = 42, 20_000, 1000
DEFAULTS = Config()


class Drawn:
    """Vectors, queries and their truth, and codes."""

    def __init__(self) -> None:
        self.vectors = np.concatenate([*mixture(DEFAULTS, SEED, COUNT)])
        self.queries = np.concatenate([*mixture(DEFAULTS, SEED, ASKED, QUERIES)])
        self.distances = nearest(self.queries, [self.vectors], 100)
        self.quantizer = build.train_codes(
            self.vectors[:5000], DEFAULTS.pq_bytes, seed=SEED, threads=2
        )
        self.codes = build.encode(self.vectors, self.quantizer, threads=2)

    def recall(self, answers: NDArray[np.uint32]) -> float:
        """Return the share of the true ten nearest among any number of answers."""
        kth = self.distances[: len(answers), 9]
        found = hits(answers, self.vectors.__getitem__, self.queries[: len(answers)], kth)
        return float(found.mean() / 10)

    def by_codes(self, codes: NDArray[np.uint8], among: int) -> float:
        return self.recall(code_order(self.queries[:200], self.quantizer, codes, among, 2))


drawn = cache(Drawn)


@pytest.mark.slow
def test_codes_alone_neither_find_nor_lose_the_nearest() -> None:
    made = drawn()
    dimension = intrinsic_dimension(made.distances)
    assert dimension is not None
    assert 10 <= dimension <= 25
    assert 0.3 <= made.by_codes(made.codes, 10) <= 0.80
    assert made.by_codes(made.codes, 128) >= 0.95
    random = np.random.default_rng(1).integers(0, 256, made.codes.shape, dtype=np.uint8)
    assert made.by_codes(random, 128) < 0.05


@pytest.mark.thorough
def test_a_longer_list_finds_more_and_not_all(tmp_path: Path) -> None:
    made, prefix = drawn(), tmp_path / "index"
    medoid = build.medoid_of(made.vectors)
    graph = build.build_graph(
        made.vectors, degree=64, build_list=128, start=medoid, seed=SEED, threads=2
    )
    layout = NodeLayout(count=COUNT, dim=DEFAULTS.dim, vector_type=DEFAULTS.dtype, degree=64)
    path = Path(f"{prefix}{files.NODES}")
    with path.open("wb") as file:
        files.write_nodes(
            file.fileno(), path, layout, medoid, vectors=made.vectors, graph=graph, moved=int
        )
    for suffix, content in (
        (files.PIVOTS, files.pivot_bytes(*made.quantizer)),
        (files.CODES, files.array_bytes(made.codes)),
    ):
        Path(f"{prefix}{suffix}").write_bytes(content.tobytes())
    index = files.load_index(prefix)

    def searched(search_list: int) -> float:
        plan = SearchPlan(search_list=search_list, beam=4, k=10, threads=2, inflight_per_thread=1)
        searcher = Mmap().searcher(index, plan)
        try:
            return made.recall(searcher.search(Queries(vectors=made.queries, most=ASKED)).answers)
        finally:
            searcher.close()

    assert searched(10) <= 0.90
    assert 0.95 <= searched(128) < 1
