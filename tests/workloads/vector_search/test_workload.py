"""Searches of small indexes on real files: what is counted agrees with what moved."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.context import context_at
from tests.workloads.vector_search.making import (
    config,
    made,
    nodes_file,
    planned,
    small_runs,
    write_fvecs,
)
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.mmap.config import Config as MappedConfig
from wattload.loaders.vectors.files import CODES, NODES, PIVOTS, load_index, read_nodes
from wattload.loaders.vectors.layout import MAX_NODES, VectorType
from wattload.loaders.vectors.search import Queries, Trace, VectorSearchConfig
from wattload.results.vector_search.facts import (
    BUILD,
    FIRST_PASS,
    SEARCH,
    Arrivals,
    Graph,
    Metric,
    VectorFacts,
)
from wattload.workloads.vector_search.dataset import Dataset
from wattload.workloads.vector_search.walk import (
    PROFILE_VECTORS,
    hot_nodes,
    profile_of,
    walk_file,
    walk_layout,
    walk_of,
)
from wattload.workloads.vector_search.workload import LEAST_GAIN

__all__ = ["small_runs"]

CASES: dict[str, tuple[dict[str, Any], VectorSearchConfig]] = {
    "by a ring": ({}, DirectConfig()),
    "by pread": ({"inflight_per_thread": "1"}, DirectConfig(engine="pread")),
    "by a mapping": ({"inflight_per_thread": "1"}, MappedConfig()),
    "bytes": ({"dtype": VectorType.u8}, DirectConfig()),
    "cosine": ({"metric": Metric.cosine}, DirectConfig()),
    "inner product": ({"metric": Metric.ip}, DirectConfig()),
    "planted queries": ({"planted_noise": 0.1}, DirectConfig()),
    "cached nodes": ({"cache_nodes": 300}, DirectConfig()),
    "two sectors a node": ({"dim": 1100, "vectors": 300, "latent_dim": 8}, DirectConfig()),
    "one neighbour": ({"k": 1, "search_list": 1, "beam": 1}, DirectConfig()),
    "open loop": ({"arrivals": Arrivals.open, "query_rate": 300.0}, DirectConfig()),
}


@pytest.mark.parametrize(("settings", "loader"), CASES.values(), ids=CASES)
def test_what_is_counted_is_what_moved(
    tmp_path: Path, settings: dict[str, Any], loader: VectorSearchConfig
) -> None:
    run = made(tmp_path, config(**settings), loader)
    facts = run.facts
    assert list(facts.passes) == ([FIRST_PASS] if not facts.reads_directly else []) + [SEARCH]
    for name, found in facts.passes.items():
        assert found.reads == found.expanded - found.cached > 0
        assert found.read_bytes == found.reads * facts.index.read_bytes
        assert run.phase(name).read_bytes == found.read_bytes
        assert run.phase(name).timed
        assert found.latency is not None
        assert found.latency.count == found.queries > 0
        assert found.compared > 0 == found.wrong
    assert (found.cached > found.queries) == ("cache_nodes" in settings)
    assert facts.data is not None
    assert facts.answers is not None
    assert facts.data.queries == sum(facts.answers.hits) == sum(facts.data.code_order_hits) == 100
    assert facts.answers.short == 0
    assert [check.verdict for check in run.checks] == ["pass"] * 3
    assert {check.name for check in run.checks} == {"cold_cache", "stored_nodes", "medoid"}
    assert facts.drive_ceiling_reads_per_s is not None
    assert facts.host_ceiling_queries_per_s is not None
    assert run.context.has_ended
    assert (facts.schedule_s is None) == ("query_rate" not in settings)
    as_stored = facts.model_dump(mode="json")
    assert VectorFacts.model_validate({**as_stored, "settings": facts.settings}) == facts


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize("planted", [None, 0.1], ids=["held out", "planted"])
def test_most_neighbours_are_found(tmp_path: Path, metric: Metric, planted: float | None) -> None:
    run = made(tmp_path, config(metric=metric, planted_noise=planted, search_list=40))
    assert 0.9 < run.recall <= 1


def test_loaders_have_the_same_answers(tmp_path: Path) -> None:
    direct = made(tmp_path, config())
    mapped = made(tmp_path, config(inflight_per_thread="1"), MappedConfig())
    assert direct.facts.answers == mapped.facts.answers
    assert mapped.facts.passes[FIRST_PASS].queries == 100
    assert mapped.facts.passes[FIRST_PASS].cut == 0
    again = made(tmp_path, config())
    assert again.outcome.queue_depth == 2 * 2 * 4
    size_bytes = nodes_file(tmp_path).stat().st_size
    of_mapping = mapped.facts.index.memory_bytes["page cache"]
    assert 0 < of_mapping <= size_bytes
    assert "page cache" not in direct.facts.index.memory_bytes
    assert mapped.outcome.queue_depth == direct.outcome.queue_depth == 0


def test_an_index_is_built_once_and_asked_in_several_ways(tmp_path: Path) -> None:
    first = made(tmp_path, config())
    build, phase = first.facts.build, first.phase(BUILD)
    assert build is not None
    assert phase.timed
    files = [path for path in tmp_path.rglob("index_*") if path.is_file()]
    assert phase.written_bytes == sum(path.stat().st_size for path in files)
    again = made(tmp_path, config(search_list=40))
    other = made(tmp_path, config(k=5))
    for run in (again, other):
        assert run.facts.build is None
        assert run.facts.index.digest == first.facts.index.digest
        assert [phase.name for phase in run.context.phases if phase.timed] == [SEARCH]
    assert again.facts.data == first.facts.data != other.facts.data
    assert again.recall >= first.recall
    assert len([*tmp_path.rglob("queries-*")]) == 2
    assert planned(context_at(tmp_path), config()).plan(context_at(tmp_path)).prepare_bytes == 0


def test_an_index_follows_from_its_settings_and_seed(tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        digests.append(made(tmp_path / name, config()).facts.index.digest)
    assert digests[0] == digests[1]


def test_an_index_of_ones_own_is_searched_where_it_is(tmp_path: Path) -> None:
    ours = made(tmp_path, config())
    folder = nodes_file(tmp_path).parent
    prefix, target = tmp_path / "own", tmp_path / "target"
    target.mkdir()
    for suffix in (NODES, PIVOTS, CODES):
        shutil.move(f"{folder / 'index'}{suffix}", f"{prefix}{suffix}")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(f"{prefix}{NODES}", tmp_path / "elsewhere")
    Path(f"{prefix}{NODES}").symlink_to(tmp_path / "elsewhere" / f"own{NODES}")
    [asked] = folder.glob("queries-*")
    queries = write_fvecs(tmp_path / "asked.fvecs", np.load(asked)["queries"])
    run = made(target, config(source=str(prefix), queries=queries, vectors=None))
    assert run.facts.build is None
    assert run.facts.index.build_list is None
    assert run.facts.index.digest == ours.facts.index.digest
    assert run.facts.answers == ours.facts.answers
    assert run.facts.data == ours.facts.data
    assert run.check("stored_nodes").verdict == "pass"
    kept = [path.name for path in target.rglob("*") if not path.name.startswith(".")]
    assert not any(name.startswith("index") for name in kept)


@pytest.mark.parametrize("queries_in_file", [False, True], ids=["held out", "file"])
def test_the_vectors_of_a_file_are_indexed(tmp_path: Path, queries_in_file: bool) -> None:
    vectors = np.random.default_rng(1).standard_normal((1200, 24), np.float32)
    source = write_fvecs(tmp_path / "some.fvecs", vectors)
    asked = write_fvecs(tmp_path / "asked.fvecs", vectors[-100:]) if queries_in_file else None
    run = made(tmp_path, config(source=source, queries=asked, dim=999, vectors=1150))
    assert run.facts.index.vectors == (1150 if queries_in_file else 1100)
    assert run.facts.index.dim == 24
    index = load_index(str(nodes_file(tmp_path)).removesuffix(NODES))
    stored = read_nodes(index.path, index.layout, np.arange(index.layout.count))["vector"]
    assert (stored == vectors[: len(stored)]).all()
    [noted] = tmp_path.rglob("queries-*")
    assert (np.load(noted)["queries"] == vectors[-100:]).all()


def test_the_depth_rises_while_the_rate_does(tmp_path: Path) -> None:
    facts = made(tmp_path, config(inflight_per_thread="auto")).facts
    rates = [tried.queries / tried.seconds for tried in facts.tried]
    depths = [tried.inflight_per_thread for tried in facts.tried]
    assert depths == [2**power for power in range(len(depths))]
    rises = [after >= LEAST_GAIN * before for before, after in pairwise(rates)]
    assert all(rises[:-1])
    assert facts.inflight_per_thread == (depths[-1] if all(rises) else depths[-2])
    mapped = made(tmp_path, config(inflight_per_thread="auto"), MappedConfig()).facts
    assert (mapped.inflight_per_thread, mapped.tried) == (1, ())


def test_arrivals_are_those_of_the_seed(tmp_path: Path) -> None:
    run = made(tmp_path, config(arrivals=Arrivals.open, query_rate=500.0))
    found = run.facts.passes[SEARCH]
    gaps_s = np.random.default_rng(run.context.seed).exponential(1 / 500, 1000)
    arrivals_s = np.cumsum(gaps_s)
    assert 0 < found.queries + found.cut <= (arrivals_s < 0.2).sum()
    sum_s = arrivals_s[: found.queries + found.cut].sum()
    assert run.facts.schedule_s == pytest.approx(sum_s)
    assert run.outcome.queue_depth == 0


WALK = {"graph": Graph.walk, "vectors": 8000}


@pytest.fixture
def small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILE_VECTORS, "demo", 2000)


@pytest.mark.parametrize("loader", [DirectConfig(), MappedConfig()], ids=["direct", "mmap"])
@pytest.mark.usefixtures("small_profile")
def test_a_walk_replays_reads_over_a_larger_file(
    tmp_path: Path, loader: VectorSearchConfig
) -> None:
    run = made(tmp_path, config(**WALK, inflight_per_thread="1"), loader)
    facts = run.facts
    assert (facts.data, facts.answers, facts.build) == (None, None, None)
    assert facts.index.vectors == 8000
    assert facts.index.pq_bytes == 0
    assert facts.host_ceiling_queries_per_s is None
    for name, found in facts.passes.items():
        assert found.reads == found.expanded > 0 == found.cached
        assert run.phase(name).read_bytes == found.read_bytes
        assert found.compared > 0 == found.wrong
    assert not any(phase.timed for phase in run.context.phases if phase.name == BUILD)
    assert [check.name for check in run.checks] == ["cold_cache"]


@pytest.mark.usefixtures("small_profile")
@pytest.mark.parametrize(("vectors", "spread"), [(2000, 1), (7999, 3)])
def test_a_walk_reads_as_the_search_does(tmp_path: Path, vectors: int, spread: int) -> None:
    """The same number of reads, in the same rounds, whatever the size of the file."""
    context = context_at(tmp_path)
    settings = config(**{**WALK, "vectors": vectors}, inflight_per_thread="1")
    workload = planned(context, settings)
    workload.prepare(context)
    workload.run(context)
    profile = Dataset(profile_of(settings, "demo"), context.seed, context.targets[0])
    index, asked = profile.load()
    plan, loader = workload._plan(), DirectConfig()
    once = Queries(vectors=asked.queries.astype(np.float32), most=100)
    searched = loader.searcher(index, plan).search(once, traces=True)
    assert searched.trace is not None
    layout = walk_layout(settings, profile.layout, context.targets[0])
    assert layout.count == 2000 * spread
    walk = walk_of(searched.trace, profile.layout, layout, walk_file(layout, context.targets[0]))
    replayed = loader.searcher(workload._index, plan).search(Queries(walk=walk, most=100))
    assert (replayed.reads, replayed.rounds) == (searched.reads, searched.rounds)
    assert (replayed.queries, replayed.wrong) == (100, 0)


def test_a_walk_has_no_more_nodes_than_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = SimpleNamespace(f_blocks=1 << 33, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: blocks)
    target, profile = context_at(tmp_path).targets[0], config().layout(2000)
    found = walk_layout(config(graph=Graph.walk, vectors=None), profile, target)
    assert found.count == MAX_NODES // 2000 * 2000
    assert found.count * 5 > MAX_NODES


def test_nodes_that_many_queries_expand_stand_for_themselves() -> None:
    nodes = np.full((200, 3), 0xFFFFFFFF, np.uint32)
    nodes[:, 0] = 9
    nodes[:3, 1] = 0x80000000 | 4
    nodes[:2, 2] = 5
    hot = hot_nodes(Trace(nodes=nodes, compute_ns=np.zeros(200, np.uint64)), 12)
    assert hot.tolist() == [1 << 4, 1 << 1]
