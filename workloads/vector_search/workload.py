"""The vector_search workload: which drive answers more queries, and for how many joules."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.host.cgroups import usable_cpus, usable_memory_bytes
from wattload.core.io import Extent, IOKind, IOOrder, IOPlan
from wattload.core.record.results import Check, latencies_of
from wattload.core.record.run import DataRecord
from wattload.core.units import MIB, compared_bytes, format_bytes
from wattload.core.workload import (
    Accelerator,
    Outcome,
    OverHosts,
    Phase,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.data.cold_cache import cold_cache_check, evict, residency
from wattload.loaders.data.data_folder import existing_on_targets
from wattload.loaders.data.stamped_files import StampedFiles, unfinished_bytes
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.mmap.config import Config as MappedConfig
from wattload.loaders.vectors import search
from wattload.loaders.vectors.layout import SECTOR_BYTES, NodeLayout
from wattload.loaders.vectors.native_search import NO_NODE
from wattload.results.vector_search import facts
from wattload.workloads.vector_search.config import MAX_INFLIGHT, Config
from wattload.workloads.vector_search.dataset import WORKLOAD, Asked, Dataset, digest_of, vectors_at
from wattload.workloads.vector_search.truth import hits
from wattload.workloads.vector_search.walk import profile_of, walk_file, walk_layout, walk_of

MOST_READS = 4096
"""Reads in flight at which ``inflight_per_thread=auto`` ends."""
LEAST_GAIN = 1.03
TRIED_S, CEILING_S = 1.0, 3.0
MOST_POLLERS = 64
MEMORY_SHARE = 0.5
"""A file is searched in memory if it takes at most this share of what is available."""
SPARE_BYTES = 256 * MIB
"""Memory for blocks of vectors and for Python."""


_SHAPE = ("dim", "degree", "node_bytes", "read_bytes", "file_bytes")


class VectorSearch:
    """Queries to an index whose nodes are on a drive, or the reads of such queries.

    An index that is missing is built in the timed phase ``build``. Queries are answered in the
    timed phase ``search``; before it, each once, in ``first_pass`` if the loader reads through the
    page cache. Those that are left at its end are answered behind it, for the recall.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (search.VectorSearchConfig,)
    over_hosts: ClassVar[OverHosts] = "one"
    """An index is one file, on one drive."""
    prepares_last: ClassVar[bool] = True
    _data: Dataset
    _index: search.SearchIndex
    _layout: NodeLayout

    def __init__(
        self, config: Config, loader: search.VectorSearchConfig, accelerator: Accelerator
    ) -> None:
        self.config, self._loader = config, loader
        self._file: StampedFiles | None = None
        self._build: facts.Build | None = None

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Raises:
            ConfigError: the settings do not fit each other, the source or the memory.
            DataError: a file of the source can't be used.
            MissingExtraError: the engine is not built.
            TargetError: the loader can't read from the target.
        """
        config, target = self.config, context.targets[0]
        if len(context.targets) > 1:
            raise ConfigError(
                f"target.path names {len(context.targets)} folders, and an index is one file on "
                "one drive; name one"
            )
        data = self._data = Dataset(profile_of(config, context.scale), context.seed, target)
        layout, plan, present_bytes = data.layout, self._plan(), 0
        data_bytes = sum(data.sizes.values())
        missing_bytes = sum(data.sizes[name] for name in data.missing)
        if config.graph is facts.Graph.walk:
            layout = walk_layout(config, layout, target)
            file = self._file = walk_file(layout, target)
            data_bytes += file.data_bytes
            missing_bytes += sum(each.size_bytes for each in file.missing())
            present_bytes = sum(map(unfinished_bytes, existing_on_targets([target], file.key)))
        self._layout = layout
        most = self._loader.most_inflight_per_thread
        if plan.inflight_per_thread > most:
            raise ConfigError(
                f"workload.inflight_per_thread={plan.inflight_per_thread} is more than the {most} "
                f"that loader={self._loader.name} has under way in a thread; lower it"
            )
        self._loader.check_search(layout, plan, context.targets)
        held_bytes = sum(data.held_bytes.values()) + self._loader.search_bytes(layout, plan)
        memory_bytes = max(held_bytes, data.build_bytes) + SPARE_BYTES
        _require_memory(memory_bytes, is_build=data.build_bytes > held_bytes)
        nodes = (
            f"{layout.count:,} vectors of {layout.dim} {layout.vector_type.value} numbers, "
            f"{layout.degree} neighbours each, {format_bytes(layout.file_bytes)}; "
            f"{max(layout.nodes_per_sector, 1)} in a read of {layout.read_bytes} bytes"
        )
        most_asked = f"{plan.threads} threads x {plan.inflight_per_thread} x {plan.beam}"
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=missing_bytes,
            run_bytes=0,
            peak_bytes=data_bytes,
            present_bytes=present_bytes,
            memory_bytes_per_rank=memory_bytes,
            needs_direct_io=self._loader.searches_directly,
            reading_s=config.duration_s,
            lines=(("index", nodes), ("search", f"at most {most_asked} reads at the same time")),
            maximum_ranks=1,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Build the index, or the one whose searches are replayed, and write the file of a walk."""
        record, built = self._data.prepare(context, timed=self._file is None)
        if self._file is None:
            self._build = built
            return record
        return self._file.facts(reused=self._file.prepare(context))

    def run(self, context: RunContext) -> Outcome:
        """Search, then measure what bounds the rate.

        Raises:
            DataError: a file is short or not what was written, or a neighbour is no node.
            OSError: a read failed.
        """
        config, loader, file = self.config, self._loader, self._file
        index, asked = self._data.load()
        queries, count = search.Queries(vectors=asked.queries), len(asked.kth)
        if file:
            context.progress.begin("tracing a search")
            with (
                context.phase("trace", timed=False) as phase,
                closing(loader.searcher(index, self._plan(1))) as searcher,
            ):
                once = replace(queries, most=count)
                trace = searcher.search(once, _counting(phase), traces=True).trace
            assert trace is not None
            walk = walk_of(trace, index.layout, self._layout, file)
            queries = search.Queries(walk=walk, seed=context.seed)
            index = replace(index, path=file.paths[0], layout=self._layout, digests=None)
        self._index = index
        plan, tried = self._found_plan(context, queries)
        arrivals_s = self._arrivals_s(context.seed)
        most = None if arrivals_s is None else len(arrivals_s)
        timed = replace(queries, duration_s=config.duration_s, arrivals_s=arrivals_s, most=most)
        passes = {facts.SEARCH: timed}
        if not loader.searches_directly:
            passes = {facts.FIRST_PASS: replace(queries, most=count)} | passes
        evict([index.path])
        cold, results = cold_cache_check([index.path]), {}
        memory = {"buffers": loader.search_bytes(index.layout, plan)}
        context.progress.begin("searching")
        with closing(loader.searcher(index, plan)) as searcher:
            for name, each in passes.items():
                with context.phase(name) as phase:
                    results[name] = searcher.search(each, _counting(phase))
            context.end_job()
            if not loader.searches_directly:
                memory["page cache"] = residency([index.path]).resident_bytes or 0
            found, path = results[facts.SEARCH], searcher.path()
            answers = None if file else self._answers(context, searcher, found, asked)
        started = found.queries + found.cut
        # A build writes other blocks, the page cache and arrivals keep no queue full.
        is_even = loader.searches_directly and arrivals_s is None and self._build is None
        outcome = facts.VectorFacts(
            settings=facts.VectorSettings.model_validate(config),
            index=self._described(index, memory),
            data=None if file else asked.data,
            build=self._build,
            passes={name: _pass(name, each, index) for name, each in results.items()},
            answers=answers,
            threads=plan.threads,
            inflight_per_thread=plan.inflight_per_thread,
            tried=tried,
            reads_directly=loader.searches_directly,
            schedule_s=None if arrivals_s is None else float(arrivals_s[:started].sum()),
            drive_ceiling_reads_per_s=self._drive_ceiling(context, plan),
            host_ceiling_queries_per_s=self._host_ceiling(context, queries, plan),
        )
        wrong = [each.wrong_node for each in results.values() if each.wrong]
        remarks = [f"Node {node} of {index.path} is not what was written." for node in wrong]
        return Outcome(
            facts=outcome,
            paths=(path,),
            checks=(cold,),
            remarks=remarks,
            queue_depth=self._in_flight(plan) if is_even else 0,
            block_bytes=index.layout.read_bytes,
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare all nodes with their digests, and the medoid with the mean of the vectors."""
        return () if self._file else tuple(self._data.verify(self._index, context))

    def _plan(self, depth: int | None = None) -> search.SearchPlan:
        """Return the plan with a depth, by default the one that is set, or the most of ``auto``."""
        config, threads = self.config, self.config.threads or usable_cpus()
        fitting = max(MOST_READS // (threads * config.beam), 1)
        deepest = min(self._loader.most_inflight_per_thread, MAX_INFLIGHT, fitting)
        return search.SearchPlan(
            search_list=config.search_list,
            beam=config.beam,
            k=config.k,
            threads=threads,
            inflight_per_thread=depth or config.depth() or deepest,
        )

    def _in_flight(self, plan: search.SearchPlan) -> int:
        """Return the most reads at the drive: one a thread where reads block."""
        blocks = self._loader.most_inflight_per_thread == 1
        return plan.threads if blocks else plan.reads_in_flight

    def _found_plan(
        self, context: RunContext, queries: search.Queries
    ) -> tuple[search.SearchPlan, tuple[facts.Tried, ...]]:
        """Return the plan, its queries in a thread doubled while the rate rises, and all tries."""
        plan, tried, best = self._plan(), [], 0.0
        most = plan.inflight_per_thread
        if self.config.depth() is not None or most == 1:
            return plan, ()
        context.progress.begin("finding how many queries a thread takes")
        with context.phase("depth", timed=False) as phase:
            for depth in (1 << power for power in range(most.bit_length())):
                with closing(self._loader.searcher(self._index, self._plan(depth))) as searcher:
                    found = searcher.search(replace(queries, duration_s=TRIED_S), _counting(phase))
                tried.append(
                    facts.Tried(
                        inflight_per_thread=depth, queries=found.queries, seconds=found.seconds
                    )
                )
                rate = found.queries / found.seconds
                if rate < LEAST_GAIN * best:
                    break
                plan, best = self._plan(depth), rate
        return plan, tuple(tried)

    def _arrivals_s(self, seed: int) -> NDArray[np.float64] | None:
        """Return when queries arrive, with exponential gaps; ``None`` in a closed loop."""
        rate, duration_s = self.config.query_rate, self.config.duration_s
        if rate is None:
            return None
        mean = rate * duration_s
        most = math.ceil(mean + 10 * math.sqrt(mean) + 10)  # ten standard deviations more
        arrivals_s = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, most))
        return arrivals_s[arrivals_s < duration_s]

    def _answers(
        self,
        context: RunContext,
        searcher: search.Searcher,
        found: search.SearchResult,
        asked: Asked,
    ) -> facts.Answers:
        """Return how right all answers are; queries without one are asked once more."""
        index, k, ids = self._index, self.config.k, found.answers.copy()
        left = np.flatnonzero(ids[:, 0] == NO_NODE)
        context.progress.begin("checking the answers")
        with context.phase("answers", timed=False) as phase:
            if left.size:
                queries = search.Queries(vectors=asked.queries[left], most=len(left))
                ids[left] = searcher.search(queries, _counting(phase)).answers
            exact = hits(ids, partial(vectors_at, index), asked.queries, asked.kth)
        return facts.Answers(
            hits=tuple(np.bincount(exact[ids[:, 0] != NO_NODE], minlength=k + 1).tolist()),
            short=int((ids == NO_NODE).any(axis=1).sum()),
            digest=digest_of(ids.astype("<u4")),
        )

    def _described(self, index: search.SearchIndex, memory: dict[str, int]) -> facts.Index:
        layout, data, file = index.layout, self._data, self._file
        return facts.Index(
            vectors=layout.count,
            dtype=layout.vector_type.value,
            build_list=None if data.is_own else self.config.build_list,
            **{name: getattr(layout, name) for name in _SHAPE},
            pq_bytes=0 if file else index.codes.shape[1],
            memory_bytes=memory if file else data.held_bytes | memory,
            digest=hashlib.sha256(str(layout).encode()).hexdigest()
            if index.digests is None
            else digest_of(index.digests),
        )

    def _drive_ceiling(self, context: RunContext, plan: search.SearchPlan) -> float | None:
        """Return the rate of random reads of the same size and depth from the same file."""
        if context.targets[0].direct_io is None:
            return None
        index, pollers = self._index, min(plan.threads, MOST_POLLERS)
        size_bytes, depth = index.layout.read_bytes, -(-self._in_flight(plan) // pollers)
        nodes = Extent(index.path, SECTOR_BYTES, index.layout.file_bytes - SECTOR_BYTES)
        context.progress.begin("reading at random")
        with (
            context.phase("drive_ceiling", timed=False) as phase,
            closing(IOEngine(block_bytes=size_bytes, depth=depth, pollers=pollers)) as engine,
        ):
            reads = IOPlan(
                kind=IOKind.READ,
                extents=[nodes],
                block_bytes=size_bytes,
                depth=depth,
                order=IOOrder.RANDOM,
                duration_s=CEILING_S,
                seed=context.seed,
            )
            result = engine.run(reads, moved=phase.count_read)
        return result.operation_count / result.seconds

    def _host_ceiling(
        self, context: RunContext, queries: search.Queries, plan: search.SearchPlan
    ) -> float | None:
        """Return the rate of the same search in memory, ``None`` if the file does not fit."""
        index, free_bytes = self._index, usable_memory_bytes() or 0
        if self._file or index.layout.file_bytes > MEMORY_SHARE * free_bytes:
            return None
        context.progress.begin("searching in memory")
        alone = replace(plan, inflight_per_thread=1)
        with (
            context.phase("host_ceiling", timed=False),
            closing(MappedConfig().searcher(index, alone)) as searcher,
            index.path.open("rb", buffering=0) as file,
        ):
            memory = bytearray(4 * MIB)
            while file.readinto(memory):
                pass
            found = searcher.search(replace(queries, duration_s=CEILING_S))
        return found.queries / found.seconds


def _require_memory(needed_bytes: int, *, is_build: bool) -> None:
    """Raise ``ConfigError`` with what to lower unless so much memory is available."""
    free_bytes = usable_memory_bytes()
    if free_bytes is not None and needed_bytes > free_bytes:
        needed, free = compared_bytes(needed_bytes, free_bytes)
        what = "build" if is_build else "search"
        lower = "workload.degree" if is_build else "workload.pq_bytes or workload.cache_nodes"
        raise ConfigError(
            f"to {what} this index takes {needed} of memory, and {free} are available; lower "
            f"workload.vectors, {lower}"
        )


def _counting(phase: Phase) -> Callable[[int, int], None]:
    return lambda reads, size: phase.moved(read_bytes=size, operations=reads)


def _pass(name: str, result: search.SearchResult, index: search.SearchIndex) -> facts.Pass:
    """Return the facts of a pass."""
    size = index.layout.read_bytes
    rows = latencies_of(result.latency, phase=name, kind="request", operation_bytes=size)
    counts = {each: getattr(result, each) for each in facts.Pass.model_fields}
    return facts.Pass(**counts | {"latency": next(iter(rows), None)})
