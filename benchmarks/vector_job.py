"""Searches of an index in a process of its own: ``python -m benchmarks.vector_job JOB``.

wattload and DiskANN ask the same queries of the same files. The engine reads the nodes that a
search expands, query by query, as a list.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import ROOT, output
from benchmarks.measure import Figures, NotMeasuredError
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.direct.config import Config as Loader
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.header import constants
from wattload.loaders.vectors.files import load_index
from wattload.loaders.vectors.layout import SECTOR_BYTES
from wattload.loaders.vectors.search import Queries, SearchIndex, SearchPlan, Trace

OURS, PEER, ENGINE = "vector_search", "diskannpy", "engine"
PEER_SCRIPT = ROOT / "benchmarks/vector_peers/diskann.py"
PYTHON = "DISKANNPY_PYTHON"
"""The environment variable that names the Python of diskannpy's environment."""
PREFIX, QUERIES, ANSWERS = "index", "queries.npy", "answers.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The queries in ``folder``, asked ``times`` over of the index in another folder.

    ``threads`` have ``inflight`` queries under way each.
    """

    index: Path
    folder: Path
    search_list: int
    beam: int = 4
    k: int = 10
    threads: int = 1
    inflight: int = 1
    times: int = 1
    tool: str = OURS

    def __call__(self) -> Figures:
        """Drop the index from the page cache and search it; returns figures of a query."""
        evict(sorted(self.index.glob(f"{PREFIX}*")))
        if self.tool == PEER:
            found = peer(asdict(self))
        else:
            text = json.dumps(asdict(self), default=str)
            found = json.loads(output([sys.executable, "-m", "benchmarks.vector_job", text]))
        count = self.times * len(np.load(self.folder / QUERIES, mmap_mode="r"))
        per_query = {f"{name}_per_query": found[name] / count for name in ("cpu_s", "read_bytes")}
        return {"queries_per_s": count / found["seconds"], **per_query, **found}


def peer(job: dict[str, Any]) -> dict[str, float]:
    """Run diskannpy's side of a job.

    OpenMP's threads sleep while they wait: its default is to spin, which slows the k-means of a
    build many times over on a busy host.
    """
    if not os.environ.get(PYTHON):
        raise NotMeasuredError(f"set {PYTHON} to the Python of diskannpy: docs/benchmarks.md")
    waiting = {"OMP_NUM_THREADS": str(job["threads"]), "OMP_WAIT_POLICY": "passive"}
    command = [os.environ[PYTHON], str(PEER_SCRIPT), json.dumps(job, default=str)]
    found: dict[str, float] = json.loads(output(command, os.environ | waiting).splitlines()[-1])
    return found


def run(job: Job) -> dict[str, float]:
    """Search here, or read what a search expands; CPU time is that of this process."""
    index, vectors = load_index(job.index / PREFIX), np.load(job.folder / QUERIES)
    queries = Queries(vectors=vectors, most=job.times * len(vectors))
    plan = SearchPlan(
        search_list=job.search_list,
        beam=job.beam,
        k=job.k,
        threads=job.threads,
        inflight_per_thread=job.inflight,
    )
    with closing(Loader().searcher(index, plan)) as searcher:
        if job.tool == ENGINE:
            found = searcher.search(replace(queries, most=len(vectors)), traces=True)
            return _replayed(index, plan, found.trace, job.times)
        before, start_cpu_s = _read_bytes(), time.process_time()
        found = searcher.search(queries)
        cpu_s, read_bytes = time.process_time() - start_cpu_s, _read_bytes() - before
    np.save(job.folder / ANSWERS, found.answers)
    return {
        "seconds": found.seconds,
        "cpu_s": cpu_s,
        "read_bytes": read_bytes,
        "reads_per_s": found.reads / found.seconds,
    }


def _replayed(
    index: SearchIndex, plan: SearchPlan, trace: Trace | None, times: int
) -> dict[str, float]:
    """Read the expanded nodes by the engine, at the depth of the search."""
    assert trace is not None
    layout, mark = index.layout, np.uint32(constants()["WL_ROUND_END"])
    nodes = trace.nodes[trace.nodes != constants()["WL_NO_NODE"]] & ~mark
    blocks = np.tile(nodes // max(layout.nodes_per_sector, 1), times).astype(np.uint64)
    depth = plan.inflight_per_thread * plan.beam
    reads = IOPlan(
        kind=IOKind.READ,
        extents=[Extent(index.path, SECTOR_BYTES, layout.file_bytes - SECTOR_BYTES)],
        block_bytes=layout.read_bytes,
        depth=depth,
        blocks=blocks,
    )
    engine = IOEngine(block_bytes=layout.read_bytes, depth=depth, pollers=plan.threads)
    with closing(engine):
        start_cpu_s = time.process_time()
        result = engine.run(reads)
    return {
        "seconds": result.seconds,
        "cpu_s": time.process_time() - start_cpu_s,
        "read_bytes": result.moved_bytes,
        "reads_per_s": result.operation_count / result.seconds,
    }


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    given |= {name: Path(given[name]) for name in ("index", "folder")}
    sys.stdout.write(json.dumps(run(Job(**given))))
