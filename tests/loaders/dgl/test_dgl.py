"""DGL's sampler behind our lists, and features by mapped files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.feature_rows import FeatureRowsContract, write_rows
from tests.loaders.graph.sampling import SEED, SMALL, edges_of, homogeneous, reference, synthetic
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders.dgl.config import Config
from wattload.loaders.feature_rows import FeatureMemory
from wattload.loaders.graph.sampler import BatchSampler, SamplingLoaderConfig

needs_dgl = pytest.mark.skipif(
    find_spec("dgl") is None, reason="DGL is not installed: make loaders adds it"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("DGLBACKEND", raising=False)
    yield folder
    assert not list(folder.iterdir())


@needs_dgl
class TestFeatures(FeatureRowsContract):
    def config(self, **changed: Any) -> Config:
        return Config(threads=2, **changed)


@needs_dgl
@pytest.mark.parametrize("case", ["papers", "two types"])
def test_all_edges_are_those_of_the_graph(case: str, home: Path) -> None:
    lists = [[1, 2], [3], [3, 4, 1], [], [5], [0], [7], [8], [9], [6]]
    topology = homogeneous(lists) if case == "papers" else synthetic()
    fanouts = [[1000] * len(topology.shape.relations)] * 2
    config = Config()
    assert isinstance(config, SamplingLoaderConfig)
    sampler: BatchSampler = config.batch_sampler(topology, fanouts, threads=1, seed=SEED)
    seeds = [2, 9]
    batch: Any = sampler.draw(0, np.array(seeds, dtype=np.uint32))
    nodes, edges = reference(topology, fanouts, 0, seeds)
    assert batch.nodes[0][:2].tolist() == seeds
    assert [sorted(each.tolist()) for each in batch.nodes] == [sorted(each) for each in nodes]
    assert list(map(sorted, edges_of(topology.shape, batch))) == list(map(sorted, edges))
    assert batch.counts[0] == tuple(2 if number == 0 else 0 for number in range(len(nodes)))
    assert batch.row_count == sum(map(len, nodes)) == len(batch.rows(topology.shape))
    sampler.close()
    sampler.close()
    with pytest.raises(RuntimeError, match="closed"):
        sampler.draw(0, np.array(seeds, dtype=np.uint32))


@needs_dgl
def test_fanouts_limit_the_edges() -> None:
    topology, fanouts = synthetic(), [[4, 3], [5, 6]]
    sampler = Config().batch_sampler(topology, fanouts, threads=1, seed=SEED)
    seeds = np.arange(100, 120, dtype=np.uint32)
    batch: Any = sampler.draw(0, seeds)
    sampler.close()
    for layer, row in enumerate(reversed(fanouts)):
        for number, (relation, fanout) in enumerate(zip(SMALL.relations, row, strict=True)):
            found = batch.layers[layer][number]
            destinations = batch.nodes[relation.destination][
                : batch.counts[layer][relation.destination]
            ]
            degrees = np.diff(topology.indptr[number])[destinations]
            assert np.diff(found.offsets).tolist() == np.minimum(degrees, fanout).tolist()


def test_the_copy_of_the_sources_is_counted(tmp_path: Path) -> None:
    plan, _ = write_rows(tmp_path, 1)
    memory = Config().feature_bytes(replace(plan, edge_count=1001))
    assert memory == FeatureMemory(working_bytes=8008)


def test_hosts_without_dgl_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = write_rows(tmp_path, 1)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 12, 1, "final", 0))
        with pytest.raises(ConfigError, match=r"no build for 3\.12; use loader=mmap"):
            Config().check_feature_rows(plan, [])
    monkeypatch.setattr("wattload.core.workload.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"PyTorch and DGL.*dgl\].*or use loader=mmap"):
        Config().check_feature_rows(plan, [])
