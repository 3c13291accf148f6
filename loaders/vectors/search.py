"""Searches of a vector index whose nodes are on a drive: the plan, the result, and the protocol.

A query expands nodes in rounds. It reads those of a round at the same time, and knows the next ones
only when it has all of them. A thread has up to ``inflight_per_thread`` queries under way, so that
at most threads x queries x beam reads are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, Stamps
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig
from wattload.loaders.vectors.layout import NodeLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """How a search works: the length of its list, its beam, its answers, and what is in flight.

    ``check_every``: the digest of one delivered node in so many is compared.
    """

    search_list: int
    beam: int
    k: int
    threads: int
    inflight_per_thread: int
    check_every: int = 64

    @property
    def reads_in_flight(self) -> int:
        return self.threads * self.inflight_per_thread * self.beam


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchIndex:
    """An index: its nodes in a file, and what a search has of it in memory.

    ``pivots`` (256, dim) float32 and ``offsets`` (chunks + 1,) uint32 are those of product
    quantization, ``codes`` (count, chunks) uint8, ``centroid`` (dim,) float32 what was subtracted
    before. ``medoids`` (n,) uint32 are where searches begin, ``medoid_vectors`` (n, dim) float32
    what decides among them. ``cached`` (m,) uint32 are nodes that are in memory, ``cached_nodes``
    (m, node_bytes) uint8. ``digests`` (count,) uint64 are ``wl_sum`` of each node's bytes.
    """

    path: Path
    layout: NodeLayout
    centroid: NDArray[np.float32]
    pivots: NDArray[np.float32]
    offsets: NDArray[np.uint32]
    codes: NDArray[np.uint8]
    medoids: NDArray[np.uint32]
    medoid_vectors: NDArray[np.float32]
    digests: NDArray[np.uint64] | None = None
    cached: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    cached_nodes: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """What searches did: the nodes that each query expanded in which round, and its computation.

    ``nodes`` (queries, n) uint32 are expanded nodes in order. The last one of a round has the bit
    ``WL_ROUND_END``; after the last round follow ``WL_NO_NODE``. ``compute_ns`` (queries,) uint64.
    """

    nodes: NDArray[np.uint32]
    compute_ns: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """The reads of a trace over a file that has ``spread`` times its nodes, and stamps in place.

    Traced node v stands for one of v + i x ``nodes``, drawn for each visit; a node whose bit is set
    in ``hot`` always for itself.
    """

    trace: Trace
    nodes: int
    spread: int
    hot: NDArray[np.uint8]
    stamps: Stamps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queries:
    """What is asked: ``vectors`` (n, dim), in turn from the first one on; or a walk.

    At most ``most`` queries are started, and none after ``duration_s``: those that are in flight
    then end after their round, and are cut off. With ``arrivals_s`` (most,), query i arrives so
    long after the start; else a thread asks the next one when it has room.
    """

    vectors: NDArray[np.float32] | NDArray[np.uint8] | None = None
    walk: Walk | None = None
    most: int | None = None
    duration_s: float = float("inf")
    arrivals_s: NDArray[np.float64] | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchResult:
    """What a search did in one window: from its start to the last read of its last thread.

    ``queries`` ended in it, ``cut`` were cut off by its end; rounds, nodes and reads are of both.
    ``expanded`` nodes were read or ``cached``. Of ``compared`` nodes ``wrong`` had another digest,
    the first of them ``wrong_node``. ``latency`` is from the start of a query to its answer, with
    arrivals from when it was due; ``late_s`` is the longest time from an arrival to its start.
    ``answers`` (queries, k) uint32 are the ids that were found, nearest first, ``WL_NO_NODE`` where
    there are fewer, or where a query was not answered. ``trace`` if it was asked for.
    """

    start_ns: int
    end_ns: int
    queries: int
    cut: int
    rounds: int
    expanded: int
    cached: int
    reads: int
    read_bytes: int
    compared: int
    wrong: int
    wrong_node: int
    cpu_s: float
    late_s: float
    latency: Histogram
    answers: NDArray[np.uint32]
    trace: Trace | None = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class Searcher(Protocol):
    """An open file, threads' memory and rings, ready to search."""

    def path(self) -> DataPath:
        """Return the requested path of the bytes, and what moves them."""
        ...

    def search(
        self,
        queries: Queries,
        moved: Callable[[int, int], Any] | None = None,
        *,
        traces: bool = False,
    ) -> SearchResult:
        """Answer queries, or follow a walk; ``moved`` hears of reads and their bytes meanwhile.

        Raises:
            DataError: the file is shorter than the index, or a neighbour is no node of it.
            OSError: a read failed.
        """
        ...

    def close(self) -> None:
        """Release the memory; safe to call twice."""
        ...


@runtime_checkable
class VectorSearchConfig(LoaderConfig, Protocol):
    """The configuration of a loader that reads the nodes of a search."""

    @property
    def searches_directly(self) -> bool:
        """Whether nodes bypass the page cache."""
        ...

    @property
    def most_inflight_per_thread(self) -> int:
        """The most queries that a thread can have under way; 1 where its reads block."""
        ...

    def check_search(self, layout: NodeLayout, plan: SearchPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; creates nothing.

        Raises:
            ConfigError: the settings do not fit the plan or this host.
            MissingExtraError: the engine is not built.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def search_bytes(self, layout: NodeLayout, plan: SearchPlan) -> int:
        """Return the host memory of a search, without the index in memory."""
        ...

    def searcher(self, index: SearchIndex, plan: SearchPlan) -> Searcher:
        """Open the file; nothing is read yet.

        Raises:
            ConfigError: the kernel refuses.
            DataError: the file is shorter than its layout.
            OSError: the file can't be opened.
            TargetError: its file system has no O_DIRECT.
        """
        ...
