"""Searches of an index against diskannpy on the same files, and parts of a search alone.

Either tool builds an index of the same vectors, and either searches both: one thread, one query
after another, no cached nodes, cold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import vector_job, vector_parts
from benchmarks.child import scratch
from benchmarks.measure import Comparison, Figures, Row, Way
from benchmarks.vector_job import ENGINE, OURS, PEER, PREFIX, Job, peer
from benchmarks.wattload_run import Run
from wattload.core.host.cgroups import usable_cpus
from wattload.loaders.vectors.files import NODES, array_bytes
from wattload.workloads.vector_search.config import Config
from wattload.workloads.vector_search.mixture import QUERIES, mixture
from wattload.workloads.vector_search.truth import hits, nearest

COUNT, LARGE, ASKED, SEED = 20_000, 1_000_000, 2_000, 1
LISTS = (20, 80)
DEPTH = "workload.inflight_per_thread=2"
CONFIG = Config(vectors=COUNT)

_queries = partial(Row, figure="queries_per_s", unit="queries/s")


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare parts, reads in flight and a walk; then searches by both tools of both indexes."""
    with scratch(target) as folder:
        yield vector_parts.look_ups(folder)
        yield vector_parts.brute_force()
        data = Data(folder, COUNT)
        threads, inflight = data.facts["threads"], data.facts["inflight_per_thread"]
        deep = replace(data.job(), threads=threads, inflight=inflight, times=5)
        reads = Row(
            name="reads, auto in flight ÷ engine",
            figure="reads_per_s",
            unit="k/s",
            scale=1e-3,
            goal=0.9,
        )
        yield Comparison(rows=(reads,), ways={OURS: deep, ENGINE: replace(deep, tool=ENGINE)})
        yield Comparison(
            rows=(
                *_within(0.1, name="walk ÷ search", figure="queries_per_s", unit="queries/s"),
                *_within(0.01, name="walk ÷ search, reads", figure="reads_per_query", unit=""),
            ),
            ways={
                name: Run([*data.options, f"workload.graph={graph}", DEPTH])
                for name, graph in (("walk", "walk"), (OURS, "vamana"))
            },
        )
        theirs = folder / "peer"
        data.built_by_peer(theirs)
        for builder, index in {OURS: data.job().index, PEER: theirs}.items():
            for search_list in LISTS:
                job = replace(data.job(), index=index, search_list=search_list)
                yield _searches(f"index of {builder}, L {search_list}", data, job)


def builds(target: Path) -> Iterator[Comparison]:
    """Build indexes once by each tool, with all CPUs."""
    for count in (COUNT, LARGE):
        with scratch(target) as folder:
            data = Data(folder, count)
            ways: dict[str, Way] = {
                OURS: data.built,
                PEER: partial(data.built_by_peer, folder / "peer"),
            }
            for tool, way in ways.items():
                name = f"build of {count:,} by {tool}"
                rows = (
                    Row(name=name, figure="seconds", unit="s"),
                    Row(name=f"{name}, memory", figure="peak_bytes", unit="MB", scale=1e-6),
                )
                yield Comparison(rows=rows, ways={tool: way}, rounds=1)


class Data:
    """Drawn vectors and queries in files of a folder, and the index that wattload builds there."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count
        self.vectors = np.concatenate(list(mixture(CONFIG, SEED, count)))
        self._queries = np.concatenate(list(mixture(CONFIG, SEED, ASKED, QUERIES)))
        array_bytes(self.vectors).tofile(folder / "vectors.fbin")
        np.save(folder / vector_job.QUERIES, self._queries)
        self.options = [
            *("workload=vector_search", "scale=demo", f"workload.vectors={count}"),
            *(f"workload.query_count={ASKED}", f"seed={SEED}"),
            *("workload.duration_s=2", "power=none", f"target.path={folder}"),
        ]

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the run that builds the index."""
        return Run(self.options).record().workload.facts

    def job(self) -> Job:
        """Return queries to the index of wattload."""
        [path] = self._folder.glob(f"*/*/{PREFIX}{NODES}")
        return Job(index=path.parent, folder=self._folder, search_list=CONFIG.search_list)

    @cached_property
    def _kth(self) -> NDArray[np.float64]:
        return nearest(self._queries, [self.vectors], CONFIG.k)[:, -1]

    def searched(self, job: Job) -> Figures:
        """Run a job, and compare its answers with the truth."""
        figures, answers = job(), np.load(job.folder / vector_job.ANSWERS)
        found = hits(answers, self.vectors.__getitem__, self._queries, self._kth)
        return {**figures, "recall": float(found.mean() / job.k)}

    def built(self) -> Figures:
        """Build by wattload."""
        build = self.facts["build"]
        seconds = build["quantization_s"] + build["graph_s"] + build["writing_s"]
        return {"seconds": seconds, "peak_bytes": build["peak_memory_bytes"]}

    def built_by_peer(self, folder: Path) -> Figures:
        """Build by diskannpy, with as many bytes of codes and threads."""
        folder.mkdir()
        sizes = {"count": self._count, "chunks": CONFIG.pq_bytes, "threads": usable_cpus()}
        shape = {"degree": CONFIG.degree, "build_list": CONFIG.build_list}
        files = {"vectors": str(self._folder / "vectors.fbin"), "index": str(folder)}
        return peer({**files, **sizes, **shape})


def _searches(name: str, data: Data, job: Job) -> Comparison:
    """Compare both tools on one index."""
    return Comparison(
        rows=(
            _queries(name=name, goal=1.0),
            Row(
                name=f"{name}, CPU",
                figure="cpu_s_per_query",
                unit="ms",
                scale=1e3,
                goal=1.0,
                sense="at_most",
            ),
            *_within(0.01, name=f"{name}, recall", figure="recall", unit=""),
            *_within(
                0.03, name=f"{name}, read", figure="read_bytes_per_query", unit="KB", scale=1e-3
            ),
        ),
        ways={tool: partial(data.searched, replace(job, tool=tool)) for tool in (OURS, PEER)},
    )


def _within(share: float, **row: Any) -> Iterator[Row]:
    """Yield the rows of a ratio that is 1 within a share."""
    yield Row(**row, goal=1 - share)
    yield Row(**row, goal=1 + share, sense="at_most")
