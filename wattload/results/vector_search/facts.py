"""The facts of vector search: the index, the queries and reads of each pass, and the answers."""

from __future__ import annotations

from enum import Enum

from pydantic import NonNegativeInt

from wattload.core.base_models import Frozen
from wattload.core.record.results import Latency
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun

BUILD, FIRST_PASS, SEARCH = "build", "first_pass", "search"
"""The timed phases: the index is built; each query once, of a loader that warms itself; queries."""


class Graph(Enum):
    """What is searched."""

    vamana = "vamana"
    """A graph that is built from vectors, or a user's own."""
    walk = "walk"
    """The reads of a real search, replayed over a file of any size: there is no recall."""


class Metric(Enum):
    """What is near."""

    l2 = "l2"
    ip = "ip"
    """The largest inner product, as l2 in one dimension more."""
    cosine = "cosine"
    """Vectors are normalised, then l2."""


class Arrivals(Enum):
    """When queries arrive."""

    closed = "closed"
    """A thread asks again when it has an answer."""
    open = "open"
    """At the requested rate, whatever happened to earlier queries."""


class VectorSettings(Settings):
    """The settings of the workload that are read here."""

    metric: Metric
    search_list: int
    beam: int
    k: int
    query_rate: float | None
    duration_s: float


class Index(Frozen):
    """The file that is searched, and what of it is in memory."""

    vectors: int = fact("nodes", ge=1)
    dim: int = fact("numbers of a vector as stored", ge=1)
    dtype: str = fact("f32 or u8")
    degree: int = fact("room for neighbours of a node", ge=1)
    build_list: int | None = fact("length of the list of the build; None: built elsewhere")
    node_bytes: int = fact("a node", "B", ge=1)
    read_bytes: int = fact("a read of a node", "B", ge=1)
    file_bytes: int = fact("size of the file of nodes", "B", ge=1)
    pq_bytes: int = fact("code of a vector; 0 in a walk, which has none", "B", ge=0)
    memory_bytes: dict[str, int] = fact("memory that the search holds, by what it is for", "B")
    digest: str = fact("SHA-256 of the digests of all nodes; of a walk, of its parameters")


class Data(Frozen):
    """The vectors and queries, and how hard they are; each counted once, with the truth."""

    queries: int = fact("queries with a known answer", ge=1)
    truth_digest: str = fact("SHA-256 of queries, and of the distances to their true k-th")
    intrinsic_dimension: float | None = fact(
        "mean over queries of 1 / mean(log(d_100 / d_i)); None with fewer than 200 vectors"
    )
    code_order_hits: tuple[NonNegativeInt, ...] = fact(
        "queries by how many of their k nearest are the first k by the distances of codes",
        min_length=2,
    )


class Build(Frozen):
    """How this run built its index."""

    threads: int = fact("threads", ge=1)
    quantization_s: float = fact("training and codes", "s", ge=0)
    graph_s: float = fact("both passes of Vamana", "s", ge=0)
    writing_s: float = fact("files, made durable", "s", ge=0)
    peak_memory_bytes: int | None = fact("most memory of the process", "B")


class Pass(Frozen):
    """What one pass did in its window; rounds, nodes and reads include queries that were cut."""

    queries: int = fact("queries that were answered", ge=0)
    cut: int = fact("queries that the end of the window cut off", ge=0)
    rounds: int = fact("rounds of reads", ge=0)
    expanded: int = fact("nodes that were expanded", ge=0)
    cached: int = fact("of these, from the cache of nodes", ge=0)
    reads: int = fact("reads of nodes", ge=0)
    read_bytes: int = fact("bytes of these reads", "B", ge=0)
    compared: int = fact("nodes whose digest was compared", ge=0)
    wrong: int = fact("of these, nodes with another one", ge=0)
    cpu_s: float = fact("CPU time of the searching threads", "s", ge=0)
    latency: Latency | None = fact("of a query; from its arrival in an open loop")
    late_s: float = fact("longest time from an arrival to its start; 0 in a closed loop", "s", ge=0)


class Answers(Frozen):
    """All queries' answers, each once."""

    hits: tuple[NonNegativeInt, ...] = fact(
        "answered queries by how many distinct answers are no farther than the true k-th, 0 to k",
        min_length=2,
    )
    short: int = fact("queries with fewer than k answers", ge=0)
    digest: str = fact("SHA-256 of the ids in the order of the queries")


class Tried(Frozen):
    """One depth that was tried before."""

    inflight_per_thread: int = fact("queries under way in a thread", ge=1)
    queries: int = fact("queries that were answered", ge=0)
    seconds: float = fact("in this time", "s", gt=0)


class VectorFacts(Facts):
    """The facts of one run."""

    settings: VectorSettings = fact("of the workload", exclude=True)
    index: Index
    data: Data | None = fact("None in a walk")
    build: Build | None = fact("None if the index was there, and in a walk")
    passes: dict[str, Pass] = fact("by phase")
    answers: Answers | None = fact("None in a walk")
    threads: int = fact("threads that search", ge=1)
    inflight_per_thread: int = fact("queries under way in a thread", ge=1)
    tried: tuple[Tried, ...] = fact("depths that were tried, rising; empty if one was set")
    reads_directly: bool = fact("whether reads bypass the page cache")
    schedule_s: float | None = fact(
        "sum of the arrivals of the answered and cut queries of an open loop; else None", "s"
    )
    drive_ceiling_reads_per_s: float | None = fact(
        "the engine's random reads of this size at this depth from this file; None: not measured"
    )
    host_ceiling_queries_per_s: float | None = fact(
        "the same search with the file in memory; None if it does not fit, and in a walk"
    )


Run = AnyRun[VectorFacts]
