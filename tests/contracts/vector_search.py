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
from tests.loaders.faults import breaking_file
from tests.loaders.vectors.plain_search import (
    NOT_THERE,
    SmallIndex,
    drawn,
    make_index,
    plain_search,
    walk_index,
)
from wattload.core.errors import ConfigError, DataError
from wattload.core.io import KEPT_PAGES, Stamps
from wattload.loaders.stamps import seal
from wattload.loaders.vectors.layout import NodeLayout, VectorType
from wattload.loaders.vectors.search import (
    Queries,
    Searcher,
    SearchIndex,
    SearchPlan,
    SearchResult,
    Trace,
    VectorSearchConfig,
    Walk,
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
        with self.opened(index.search, plan) as searcher:
            how = {name: asked.pop(name) for name in ("moved", "traces") if name in asked}
            every: dict[str, Any] = {"vectors": index.queries, "most": len(index.queries)}
            return searcher.search(Queries(**every | asked), **how)

    @contextmanager
    def opened(self, index: SearchIndex, plan: SearchPlan = PLAN) -> Iterator[Searcher]:
        config = self.config()
        config.check_search(index.layout, plan, [directory_target(index.path.parent)])
        searcher = config.searcher(index, plan)
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
        with self.opened(index.search) as searcher:
            path = searcher.path()
        expected = "o_direct" if config.searches_directly else KEPT_PAGES
        assert path.path_requested == expected

    @pytest.mark.parametrize("shape", SHAPES)
    def test_answers_rounds_and_reads_are_those_of_diskanns_search(
        self, tmp_path: Path, shape: str
    ) -> None:
        whole = make_index(tmp_path, **SHAPES[shape])
        for width, beam, k, cached in ((10, 4, 10, 0), (17, 1, 3, 0), (40, 7, 10, 60)):
            index = whole.cached(range(cached, 0, -1))
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
        found = self.search(index, most=7, moved=lambda reads, size: moved.append((reads, size)))
        assert [*range(7)] == np.flatnonzero(found.answers[:, 0] != NOT_THERE).tolist()
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
        with self.opened(index.search) as searcher:
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
            self.search(index, most=None, duration_s=60, moved=interrupt)
        names = [each.name for each in threading.enumerate() if "ThreadPool" in each.name]
        assert names == []

    def test_a_trace_has_the_nodes_of_each_round(self, index: SmallIndex) -> None:
        found = self.search(index, traces=True)
        assert found.trace is not None
        for number, query in enumerate(index.queries):
            expected = plain_search(index, query, PLAN.search_list, PLAN.beam, PLAN.k)
            assert rounds_of(found.trace, number) == expected.rounds
        assert (found.trace.compute_ns > 0).all()
        assert found.trace.compute_ns.sum() / 1e9 <= found.cpu_s

    @pytest.mark.parametrize("vector_type", VectorType)
    def test_a_walk_reads_what_its_trace_says(
        self, tmp_path: Path, vector_type: VectorType
    ) -> None:
        dim = 128 if vector_type is VectorType.u8 else 1100
        layout = NodeLayout(count=270, dim=dim, vector_type=vector_type, degree=64)
        index = walk_index(tmp_path / "walk", layout)
        content = np.frombuffer(os.urandom(layout.file_bytes), np.uint8).copy()
        seal(content, STAMPS, first_block=STAMPS.first_block)
        trace = make_trace()
        for spread, hot in ((1, []), (3, []), (3, [4, 11, 60])):
            bits = np.packbits(np.isin(np.arange(90), hot), bitorder="little")
            walk = Walk(trace=trace, nodes=90, spread=spread, hot=bits, stamps=STAMPS)
            queries = Queries(walk=walk, most=20, seed=77)
            visits = list(visited(queries, walk))
            bad = layout.place(visits[0])[0]
            wrong = [node for node in visits if layout.place(node)[0] == bad]
            content[bad + 99] ^= 1
            index.path.write_bytes(content.tobytes())
            content[bad + 99] ^= 1
            with self.opened(index) as searcher:
                found = searcher.search(queries)
            assert found.reads == found.expanded == found.compared == len(visits)
            assert (found.queries, found.wrong) == (20, len(wrong))
            assert found.wrong_node in wrong
            assert found.rounds == sum(len(rounds_of(trace, i % 5)) for i in range(20))
            assert found.cpu_s >= 20 * COMPUTE_NS * 0.99 / 1e9

    def test_a_read_that_fails_is_an_error_with_its_place(self, tmp_path: Path) -> None:
        layout = NodeLayout(count=2900, dim=1100, vector_type=VectorType.f32, degree=64)
        with breaking_file(tmp_path, layout.file_bytes) as path:
            nodes = np.arange(2900, dtype=np.uint32).reshape(1, -1)
            nodes[:, 3::4] |= ROUND_END
            trace = Trace(nodes=nodes, compute_ns=np.zeros(1, np.uint64))
            hot = np.zeros(400, np.uint8)
            walk = Walk(trace=trace, nodes=2900, spread=1, hot=hot, stamps=STAMPS)
            with self.opened(walk_index(path, layout)) as searcher:
                for _ in range(2):
                    with pytest.raises(OSError, match=r"read at offset \d+ failed: .*file'"):
                        searcher.search(Queries(walk=walk, most=1))


ROUND_END = 1 << 31
COMPUTE_NS = 100_000
STAMPS = Stamps(nonce=0x1234_5678_9ABC_DEF0, word=21, first_block=5)


def make_trace() -> Trace:
    """Return five queries with rounds of one to four of 90 nodes."""
    random = np.random.default_rng(3)
    nodes = np.full((5, 30), NOT_THERE, np.uint32)
    for row in nodes:
        ends = np.cumsum(random.integers(1, 5, size=6))
        row[: ends[-1]] = random.choice(90, ends[-1], replace=False)
        row[ends - 1] |= ROUND_END
    return Trace(nodes=nodes, compute_ns=np.full(5, COMPUTE_NS, np.uint64))


def rounds_of(trace: Trace, query: int) -> list[list[int]]:
    """Return the nodes of each round of a traced query."""
    used = trace.nodes[query][trace.nodes[query] != NOT_THERE]
    ends = np.flatnonzero(used >> 31)
    return [each.tolist() for each in np.split(used & (ROUND_END - 1), ends[:-1] + 1)]


def visited(queries: Queries, walk: Walk) -> Iterator[int]:
    """Yield the nodes that a walk reads, of all its queries."""
    hot = np.unpackbits(walk.hot, bitorder="little")
    for number in range(queries.most or 0):
        for nodes in rounds_of(walk.trace, number % len(walk.trace.nodes)):
            for node in nodes:
                part = drawn(drawn(queries.seed, number), node) % walk.spread
                yield node if hot[node] else node + part * walk.nodes
