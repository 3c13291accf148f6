"""What every loader that reads the nodes of a search does alike: answers, counts and faults."""

from __future__ import annotations

import os
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import directory_target
from tests.contracts.engine import open_descriptors
from tests.loaders.vectors.plain_search import NOT_THERE, SmallIndex, make_index, plain_search
from wattload.core.errors import ConfigError, DataError
from wattload.loaders.vectors.layout import VectorType
from wattload.loaders.vectors.search import (
    Queries,
    Searcher,
    SearchPlan,
    SearchResult,
    VectorSearchConfig,
)

PLAN = SearchPlan(search_list=20, beam=4, k=10, threads=2, inflight_per_thread=1, check_every=1)
SHAPES: dict[str, dict[str, Any]] = {
    "several nodes a sector": {},
    "one node a sector": {"dim": 500, "count": 160, "degree": 64, "chunks": 10},
    "several sectors a node": {"dim": 1536, "count": 120, "degree": 64, "chunks": 12},
    "bytes, several medoids": {"dim": 33, "vector_type": VectorType.u8, "medoids": 5},
    "codes of one byte": {"chunks": 1, "dim": 5},
}


class VectorSearchContract(ABC):
    @abstractmethod
    def config(self) -> VectorSearchConfig:
        """Return the loader's configuration."""

    inflight = 1
    """The most queries under way in a thread that are tried."""

    def search(self, index: SmallIndex, plan: SearchPlan = PLAN, **asked: Any) -> SearchResult:
        """Search with what is asked, by default each query once."""
        with self.opened(index, plan) as searcher:
            how = {name: asked.pop(name) for name in ("moved", "traces") if name in asked}
            every: dict[str, Any] = {"vectors": index.queries, "most": len(index.queries)}
            return searcher.search(Queries(**every | asked), **how)

    @contextmanager
    def opened(self, index: SmallIndex, plan: SearchPlan = PLAN) -> Iterator[Searcher]:
        config = self.config()
        config.check_search(index.search.layout, plan, [directory_target(index.search.path.parent)])
        searcher = config.searcher(index.search, plan)
        try:
            yield searcher
        finally:
            searcher.close()

    @pytest.fixture
    def index(self, tmp_path: Path) -> SmallIndex:
        return make_index(tmp_path)

    def test_it_is_a_loader_of_searches(self, index: SmallIndex) -> None:
        config = self.config()
        assert isinstance(config, VectorSearchConfig)
        assert config.most_inflight_per_thread >= self.inflight
        assert config.search_bytes(index.search.layout, PLAN) == (
            PLAN.reads_in_flight * 4096 if config.searches_directly else 0
        )
        with self.opened(index) as searcher:
            path = searcher.path()
        assert path.path_requested == ("o_direct" if config.searches_directly else "page_cache")
        many = replace(PLAN, inflight_per_thread=config.most_inflight_per_thread + 1)
        with pytest.raises(
            ConfigError, match=r"workload\.inflight_per_thread must be in that range"
        ):
            config.check_search(index.search.layout, many, [])

    @pytest.mark.parametrize("shape", SHAPES)
    def test_answers_rounds_and_reads_are_those_of_diskanns_search(
        self, tmp_path: Path, shape: str
    ) -> None:
        whole = make_index(tmp_path, **SHAPES[shape])
        for width, beam, k, cached in ((10, 4, 10, 0), (17, 1, 3, 0), (40, 7, 10, 60)):
            index = whole.cached(range(1, cached + 1))
            plan = replace(PLAN, search_list=width, beam=beam, k=k)
            found = self.search(index, plan)
            expected = [plain_search(index, query, width, beam, k) for query in index.queries]
            assert found.answers.tolist() == [each.ids for each in expected]
            assert found.expanded == sum(each.expanded for each in expected)
            assert found.cached == sum(each.cached for each in expected)
            assert found.rounds == sum(each.reading_rounds for each in expected)
            assert found.reads == found.compared == found.expanded - found.cached > 0
            assert found.read_bytes == found.reads * index.search.layout.read_bytes
            assert (found.queries, found.cut, found.wrong) == (len(index.queries), 0, 0)

    def test_answers_do_not_depend_on_threads_and_queries_under_way(
        self, index: SmallIndex
    ) -> None:
        whole = self.search(index, replace(PLAN, threads=1))
        for threads, inflight in ((1, self.inflight), (3, self.inflight), (5, 1)):
            plan = replace(PLAN, threads=threads, inflight_per_thread=inflight)
            found = self.search(index, plan, most=3 * len(index.queries))
            assert (found.answers == whole.answers).all()
            assert (found.reads, found.rounds) == (3 * whole.reads, 3 * whole.rounds)

    def test_queries_are_asked_in_turn_and_counted_in_one_window(self, index: SmallIndex) -> None:
        moved: list[tuple[int, int]] = []
        found = self.search(
            index, first=37, most=7, moved=lambda reads, size: moved.append((reads, size))
        )
        asked = [37, 38, 39, 0, 1, 2, 3]
        assert sorted(asked) == np.flatnonzero(found.answers[:, 0] != NOT_THERE).tolist()
        assert found.queries == found.latency.count == 7
        assert (found.latency.maximum_ns or 0) <= found.end_ns - found.start_ns
        assert found.cpu_s > 0
        assert [sum(each) for each in zip(*moved, strict=True)] == [found.reads, found.read_bytes]

    def test_fewer_nodes_than_answers_leave_places_free(self, tmp_path: Path) -> None:
        index = make_index(tmp_path, count=6, degree=4, dim=8)
        found = self.search(index)
        assert (np.sort(found.answers)[:, -4:] == NOT_THERE).all()

    def test_the_end_of_the_time_cuts_off_what_is_under_way(self, index: SmallIndex) -> None:
        plan = replace(PLAN, threads=2, inflight_per_thread=self.inflight, search_list=300)
        found = self.search(index, plan, most=None, duration_s=0.05)
        assert found.cut <= plan.threads * plan.inflight_per_thread
        assert found.queries + found.cut > 0
        assert found.reads == found.expanded - found.cached == found.compared
        assert found.seconds >= 0.05
        at_once = self.search(index, plan, duration_s=0.0)
        assert (at_once.queries, at_once.reads) == (0, 0)
        assert at_once.latency.count == 0

    def test_arrivals_wait_for_their_time_and_latencies_count_from_it(
        self, index: SmallIndex
    ) -> None:
        due_s = np.array([0.0, 0.0, 0.02, 0.04, 0.06, 5.0])
        found = self.search(index, most=len(due_s), arrivals_s=due_s, duration_s=0.2)
        assert (found.queries, found.cut) == (5, 0)
        assert found.seconds >= 0.06
        assert found.late_s * 1e9 <= (found.latency.maximum_ns or 0)
        late = self.search(index, replace(PLAN, threads=1), arrivals_s=np.zeros(40))
        assert late.queries == 40
        assert 0 < late.late_s <= late.seconds  # the last one waits for all others
        assert (late.latency.maximum_ns or 0) <= late.end_ns - late.start_ns

    def test_a_node_that_changed_is_found_by_its_digest(self, tmp_path: Path) -> None:
        index = make_index(tmp_path)
        node = int(index.search.medoids[0])
        index.change(node, 0, struct.pack("<f", 1.5))
        found = self.search(index)
        assert (found.wrong, found.wrong_node) == (found.queries, node)
        some = self.search(index, replace(PLAN, threads=1, check_every=7))
        assert some.compared == -(-some.reads // 7)
        none = replace(index, search=replace(index.search, digests=None))
        assert self.search(none).compared == 0

    @pytest.mark.parametrize(
        ("at", "value", "said"),
        [
            (68, 4_000_000_000, "has a neighbour 4000000000, and the index has 700 nodes"),
            (64, 13, "has 13 neighbours, and the index has room for 12"),
        ],
    )
    def test_a_node_that_can_not_be_is_an_error(
        self, tmp_path: Path, at: int, value: int, said: str
    ) -> None:
        index = make_index(tmp_path)
        node = int(index.search.medoids[0])
        index.change(node, at, struct.pack("<I", value))
        with pytest.raises(DataError, match=f"node {node} of .*small_disk.index {said}; build"):
            self.search(index)

    def test_a_file_that_is_shorter_than_its_nodes_is_refused(self, tmp_path: Path) -> None:
        index = make_index(tmp_path)
        os.truncate(index.search.path, 4096 * 3)
        before = open_descriptors()
        with pytest.raises(DataError, match=r"small_disk\.index has 12288 bytes, 700 nodes take"):
            self.search(index)
        assert open_descriptors() == before

    def test_a_file_that_is_cut_while_it_is_open_is_an_error(self, tmp_path: Path) -> None:
        index = make_index(tmp_path)
        with self.opened(index) as searcher:
            os.truncate(index.search.path, 4096)
            with pytest.raises((DataError, OSError), match=r"small_disk\.index"):
                searcher.search(Queries(vectors=index.queries))

    def test_queries_of_another_length_are_refused(self, index: SmallIndex) -> None:
        with pytest.raises(ConfigError, match="queries of 15 numbers do not fit an index of 16"):
            self.search(index, vectors=index.queries[:, :15])

    def test_an_interrupt_ends_the_search(self, index: SmallIndex) -> None:
        def interrupt(reads: int, size: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.search(index, most=None, moved=interrupt)
        names = [each.name for each in threading.enumerate() if "ThreadPool" in each.name]
        assert names == []

    def test_a_trace_has_the_nodes_of_each_round(self, index: SmallIndex) -> None:
        found = self.search(index, traces=True)
        assert found.trace is not None
        for nodes, query in zip(found.trace.nodes, index.queries, strict=True):
            used = nodes[nodes != NOT_THERE]
            ends = np.flatnonzero(used >> 31)
            rounds = np.split(used & 0x7FFFFFFF, ends[:-1] + 1)
            expected = plain_search(index, query, PLAN.search_list, PLAN.beam, PLAN.k)
            assert [each.tolist() for each in rounds] == expected.rounds
        assert (found.trace.compute_ns > 0).all()
        assert found.trace.compute_ns.sum() / 1e9 <= found.cpu_s
