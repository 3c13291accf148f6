"""The settings of the vector_search workload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.core.settings import check_settings, setting
from wattload.loaders.vectors.layout import (
    MAX_DEGREE,
    MAX_NODE_BYTES,
    MAX_NODES,
    NodeLayout,
    VectorType,
)
from wattload.loaders.vectors.vector_files import FORMATS
from wattload.results.vector_search.facts import Arrivals, Graph, Metric

AUTO = "auto"
MAX_BEAM = 128
LEAST_QUERIES = 100
MAX_INFLIGHT = 256


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of the index and of the run at one scale."""

    vectors: int | None = 200000
    graph: Graph = Graph.vamana
    query_count: int = 10000
    duration_s: float = 60.0


@dataclass(slots=True, kw_only=True)
class Config:
    """Queries to an index whose nodes are on a drive."""

    _target_: str = "wattload.workloads.vector_search.workload.VectorSearch"
    graph: Graph = setting(
        Graph.vamana, "Search a graph of vectors, or replay the reads of such a search."
    )
    source: str | None = setting(
        None,
        "Vectors to index (.fvecs, .bvecs, .fbin, .u8bin), or the prefix of an index in DiskANN's "
        "files.",
        unset="drawn vectors",
    )
    vectors: int | None = setting(
        None,
        "Vectors of the index; of a file of vectors at most the first so many.",
        least=2,
        most=MAX_NODES,
        unset="80 % of the file system, at most 2^31 - 1",
    )
    dim: int = setting(128, "Numbers of a drawn vector; a file has its own.", least=1, most=1 << 16)
    dtype: VectorType = setting(VectorType.f32, "Type of these numbers.")
    metric: Metric = setting(Metric.l2, "Which vectors are near.")
    degree: int = setting(64, "Most neighbours of a node (R).", least=1, most=MAX_DEGREE)
    build_list: int = setting(128, "List length of the build.", least=1, most=4096)
    pq_bytes: int = setting(32, "Bytes of a vector's code in memory.", least=1, most=4096)
    search_list: int = setting(64, "List length of a search (L).", least=1, most=65536)
    beam: int = setting(4, "Nodes that a query reads at the same time (W).", least=1, most=MAX_BEAM)
    k: int = setting(10, "Neighbours that a query asks for.", least=1, most=100)
    threads: int | None = setting(
        None, "Threads that search.", least=1, most=1024, unset="one per CPU"
    )
    inflight_per_thread: str = setting(
        AUTO,
        "Queries under way in a thread: 1 to 256, in DiskANN 1; auto doubles them until the rate "
        "rises by less than 3 %.",
    )
    cache_nodes: int = setting(
        0, "Nodes in memory, breadth first from the one where searches begin.", least=0
    )
    queries: str | None = setting(
        None,
        "File of queries (.fvecs, .bvecs, .fbin, .u8bin).",
        unset="drawn as the vectors, or those of the source behind the vectors",
    )
    query_count: int = setting(
        10000, "Different queries, asked in turn and then again.", least=LEAST_QUERIES, most=1 << 20
    )
    planted_noise: float | None = setting(
        None,
        "Queries are indexed vectors plus noise of this share of their length.",
        least=0,
        most=10,
        unset="none is in the index",
    )
    arrivals: Arrivals = setting(Arrivals.closed, "When queries arrive.")
    query_rate: float | None = setting(
        None, "Queries a second; arrivals=open only.", above=0, most=1e9, unset="none"
    )
    duration_s: float = setting(60.0, "Time of the queries.", above=0)
    latent_dim: int = setting(24, "Dimensions of the drawn mixture.", least=1, most=1024)
    clusters: int = setting(20, "Gaussian clusters of the mixture.", least=1, most=1 << 20)
    separation: float = setting(
        3.0, "Spread of their centres, in standard deviations of a cluster.", least=0, most=1000
    )
    noise: float = setting(
        2.5, "Length of the noise in all dimensions, in the same unit.", least=0, most=1000
    )
    scales: dict[str, Scale] = setting(dict, "Size and time by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        if self.search_list < self.k:
            raise ConfigError(
                f"workload.search_list={self.search_list} holds fewer nodes than the "
                f"workload.k={self.k} that a query asks for; set search_list to {self.k} or more"
            )
        self.depth()
        if self.source is None:
            self.check_form()
        if self.queries is not None and self.planted_noise is not None:
            raise ConfigError(
                "workload.queries and workload.planted_noise are two sources of queries; set one"
            )
        if self.queries is not None and Path(self.queries).suffix not in FORMATS:
            raise ConfigError(
                f"workload.queries={self.queries} must be a file of vectors, whose name ends in "
                f"{', '.join(FORMATS)}"
            )
        if self.graph is Graph.walk:
            for name, unset in (("source", None), ("queries", None), ("cache_nodes", 0)):
                if (value := getattr(self, name)) != unset:
                    raise ConfigError(
                        f"workload.{name}={value} has no meaning with workload.graph=walk, which "
                        "replays the reads of a search of drawn vectors"
                    )
        elif self.vectors is None and self.source is None:
            raise ConfigError(
                "workload.vectors=null is 80 % of the file system, which only workload.graph=walk "
                "has: a graph of so many vectors takes days to build; set workload.vectors"
            )
        if (self.arrivals is Arrivals.open) != (self.query_rate is not None):
            raise ConfigError(
                "workload.arrivals=open needs workload.query_rate=QUERIES_PER_S, and only that has "
                f"a rate, got arrivals={self.arrivals.value} and query_rate={self.query_rate}"
            )

    def check_form(self) -> None:
        """Raise ``ConfigError`` if no index can be built of vectors of ``dim`` and ``dtype``."""
        if self.pq_bytes > self.dim:
            raise ConfigError(
                f"workload.pq_bytes={self.pq_bytes} is more than the {self.dim} numbers of a "
                f"vector, of which a byte codes at least one; use {self.dim} or fewer"
            )
        if self.dtype is VectorType.u8 and self.metric is not Metric.l2:
            raise ConfigError(
                f"workload.metric={self.metric.value} needs f32 vectors: bytes are compared by l2 "
                "only"
            )
        layout = self.layout(1)
        if layout.node_bytes > MAX_NODE_BYTES:
            raise ConfigError(
                f"vectors of {layout.dim} numbers and workload.degree={self.degree} make nodes of "
                f"{layout.node_bytes} bytes, and a node has at most {MAX_NODE_BYTES}; lower either"
            )

    def layout(self, count: int) -> NodeLayout:
        """Return the layout of an index of so many vectors."""
        dim = self.dim + (self.metric is Metric.ip)
        return NodeLayout(count=count, dim=dim, vector_type=self.dtype, degree=self.degree)

    def depth(self) -> int | None:
        """Return the queries under way in a thread; ``None`` if they are to be found.

        Raises:
            ConfigError: the setting is neither ``auto`` nor one of the numbers that are allowed.
        """
        if self.inflight_per_thread == AUTO:
            return None
        if self.inflight_per_thread not in map(str, range(1, MAX_INFLIGHT + 1)):
            raise ConfigError(
                f"workload.inflight_per_thread must be auto or 1 to {MAX_INFLIGHT}, got "
                f"{self.inflight_per_thread}"
            )
        return int(self.inflight_per_thread)
