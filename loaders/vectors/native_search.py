"""The engine's beam search over an index in a file: by a ring, by ``pread``, or by page faults."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.core.histogram import Histogram
from wattload.core.io import DataPath
from wattload.core.units import NS_PER_S
from wattload.loaders.aligned_io import aligned_buffer, refuses_direct
from wattload.loaders.engine import library
from wattload.loaders.engine.header import constants, setup_of, struct
from wattload.loaders.vectors.build import TYPES
from wattload.loaders.vectors.search import Queries, SearchIndex, SearchPlan, SearchResult, Trace

BY_RING, BY_PREAD = constants()["WL_BY_RING"], constants()["WL_BY_PREAD"]
BY_MAPPING = constants()["WL_BY_MAPPING"]
INFLIGHT_LIMIT = constants()["WL_SEARCH_INFLIGHT"]
NO_NODE = constants()["WL_NO_NODE"]
ROUND_END = np.uint32(constants()["WL_ROUND_END"])
_SLICE_S = 0.05
_LONGEST_S = 1e9
_U64_MAX = (1 << 64) - 1
_OF_PLAN = ("threads", "inflight_per_thread", "search_list", "beam", "k", "check_every")
_OF_LAYOUT = ("dim", "degree", "node_bytes", "nodes_per_sector", "read_bytes")
_OF_INDEX = ("centroid", "offsets", "codes", "medoids", "medoid_vectors", "cached_nodes", "digests")
_COUNTS = (
    *("queries", "cut", "rounds", "expanded", "cached", "reads", "read_bytes"),
    *("compared", "wrong"),
)


class EngineSearcher:
    """An open file, and memory for its reads; implements ``Searcher``."""

    def __init__(
        self, index: SearchIndex, plan: SearchPlan, path: DataPath, *, access: int, advice: int = 0
    ) -> None:
        """Open the file, and map it for ``BY_MAPPING``, with an advice of ``mmap.MADV_*``.

        Raises as ``VectorSearchConfig.searcher``.
        """
        layout = index.layout
        self._plan, self._path, self._layout = plan, path, layout
        self._file = _open_file(index, direct=access != BY_MAPPING)
        rows = np.argsort(index.cached)
        found = {name: getattr(index, name) for name in _OF_INDEX} | {
            "columns": index.pivots.T,
            "cached": index.cached[rows],
            "cached_rows": rows.astype(np.uint32),
        }
        self._arrays = {
            name: np.ascontiguousarray(each) for name, each in found.items() if each is not None
        }
        if access == BY_MAPPING:
            mapped = mmap.mmap(self._file, layout.file_bytes, prot=mmap.PROT_READ)
            mapped.madvise(advice)
            self._arrays["mapped"] = np.frombuffer(mapped, np.uint8)
        else:
            self._arrays["memory"] = aligned_buffer(plan.reads_in_flight * layout.read_bytes)
        self._setup = setup_of(
            "wl_search_setup",
            access=access,
            path=os.fsencode(index.path),
            fd=self._file,
            type=TYPES[layout.vector_type],
            node_count=layout.count,
            chunks=index.codes.shape[-1],
            medoid_count=len(index.medoids),
            cached_count=len(index.cached),
            **{name: getattr(plan, name) for name in _OF_PLAN},
            **{name: getattr(layout, name) for name in _OF_LAYOUT},
            **_addresses(self._arrays),
        )

    def path(self) -> DataPath:
        return self._path

    def search(
        self,
        queries: Queries,
        moved: Callable[[int, int], Any] | None = None,
        *,
        traces: bool = False,
    ) -> SearchResult:
        """Answer queries, or follow a walk; see ``Searcher.search``. An interrupt ends it."""
        trace = queries.walk.trace if queries.walk else None
        if traces and queries.vectors is not None:
            count = len(queries.vectors)
            nodes = np.full((count, 4 * self._plan.search_list + 64), NO_NODE, np.uint32)
            trace = Trace(nodes=nodes, compute_ns=np.zeros(count, np.uint64))
        run, kept = self._run_of(queries, trace)
        results = (struct("wl_search_result") * self._plan.threads)()
        stop, seen = ctypes.c_uint32(), 0
        arguments = ctypes.byref(self._setup), ctypes.byref(run), ctypes.byref(stop), results
        with ThreadPoolExecutor(1) as threads:
            call = threads.submit(lambda: library.invoke("wl_search", *arguments))
            try:
                is_done = False
                while not is_done:
                    is_done = bool(wait([call], _SLICE_S).done)
                    reads = sum(each.reads for each in results)
                    if moved is not None:
                        moved(reads - seen, (reads - seen) * self._layout.read_bytes)
                    seen = reads
            finally:
                stop.value = 1
        call.result()
        return SearchResult(
            start_ns=results[0].start_ns,
            end_ns=max(each.end_ns for each in results),
            **{name: sum(getattr(each, name) for each in results) for name in _COUNTS},
            wrong_node=next((each.wrong_node for each in results if each.wrong), 0),
            cpu_s=sum(each.cpu_ns for each in results) / NS_PER_S,
            late_s=max(each.late_ns for each in results) / NS_PER_S,
            latency=reduce(
                Histogram.merged, (library.histogram_of(each.latencies) for each in results)
            ),
            answers=kept["answers"],
            trace=trace if traces else None,
        )

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._arrays = -1, {}

    def _run_of(
        self, queries: Queries, trace: Trace | None
    ) -> tuple[ctypes.Structure, dict[str, NDArray[Any]]]:
        """Return what the engine takes, and the arrays that it points into."""
        walk, kept, plain = queries.walk, dict[str, NDArray[Any]](), dict[str, int]()
        if queries.vectors is not None:
            kept["queries"] = np.ascontiguousarray(queries.vectors, np.float32)
            if kept["queries"].shape[1:] != (self._layout.dim,):
                raise ConfigError(
                    f"queries of {queries.vectors.shape[-1]} numbers do not fit an index of "
                    f"{self._layout.dim}; use queries of the same data set"
                )
        if trace is not None:
            kept |= {"trace": trace.nodes, "compute_ns": trace.compute_ns}
            plain["trace_stride"] = trace.nodes.shape[1]
        if walk is not None:
            ends = (walk.trace.nodes != NO_NODE) & (walk.trace.nodes >= ROUND_END)
            rounds = np.maximum(ends.sum(1, dtype=np.uint64), 1)
            kept |= {"hot": walk.hot, "compute_ns": walk.trace.compute_ns // rounds}
            plain |= {"is_walk": 1, "walk_nodes": walk.nodes, "spread": walk.spread}
            plain |= {name: getattr(walk.stamps, name) for name in ("nonce", "word", "first_block")}
        if queries.arrivals_s is not None:
            kept["due_ns"] = (queries.arrivals_s * NS_PER_S).astype(np.uint64)
        count = len(kept["queries" if walk is None else "trace"])
        kept["answers"] = np.full((count, self._plan.k), NO_NODE, np.uint32)
        run = setup_of(
            "wl_search_run",
            query_count=count,
            most=_U64_MAX if queries.most is None else queries.most,
            duration_ns=int(min(queries.duration_s, _LONGEST_S) * NS_PER_S),
            seed=queries.seed & _U64_MAX,
            **plain,
            **_addresses(kept),
        )
        return run, kept


def _addresses(arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
    return {name: each.ctypes.data for name, each in arrays.items()}


def _open_file(index: SearchIndex, *, direct: bool) -> int:
    try:
        if direct:
            file = os.open(index.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        else:
            file = os.open(index.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise TargetError(refuses_direct(index.path)) from error
    size_bytes = os.fstat(file).st_size
    if size_bytes < index.layout.file_bytes:
        os.close(file)
        raise DataError(
            f"{index.path} has {size_bytes} bytes, {index.layout.count} nodes take "
            f"{index.layout.file_bytes}; build the index again"
        )
    return file
