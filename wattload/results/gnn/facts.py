"""The facts of training on a graph, and its trace tables.

Batches are sampled, their rows of features gathered, and trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from wattload.core.base_models import Frozen
from wattload.core.host.io_profile import IOProfile
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun
from wattload.results.tables import Column, TraceTable

PHASE = "gnn"
AGGREGATION, TRANSFER, TRAINING, VERIFICATION = (
    "aggregation", "transfer", "training", "verification",
)  # fmt: skip
STAGES = ("sampling", AGGREGATION, TRANSFER, TRAINING, VERIFICATION)
"""The stages of a step, in their order."""
PLACES = ("storage_rows", "host_rows", "cache_rows", "merged_rows")
"""The places that rows come from; each row from one."""
AHEAD, EMULATED, DROPPED = "ahead", "emulated", "drop_cache"
STAGE_MEANINGS = {
    "sampling": "drawing neighbours and classes of the batches, in all",
    AGGREGATION: "gathering their rows of features, in all",
    TRANSFER: "copying rows from pinned memory to the GPU, in all",
    TRAINING: "forward, backward and update of the model, in all",
    VERIFICATION: "recomputing rows where the model takes them, in all",
}


class GraphSettings(Settings):
    """The settings of the workload that are read here."""

    source: str | None
    batch_seeds: int
    fanouts: tuple[int | tuple[int, ...], ...]
    overlap: Literal["serial", "ahead"]
    compare_every: int


class TrainingGpu(Frozen):
    """A GPU, by its PCI address."""

    address: str
    name: str


class Memory(Frozen):
    """The memory of a run, in bytes; ``None`` where it is unknown."""

    share: float = fact("host memory for topology, batches, loader and page cache ÷ features")
    budget_bytes: int = fact("that share", "B", ge=0)
    method: str = fact("cgroup1, cgroup2, or drop_cache: the page cache dropped before each step")
    reason: str | None = fact("why there is no cgroup")
    limit_bytes: int | None = fact("the limit of the cgroup", "B")
    peak_bytes: int | None = fact("the most that the cgroup used", "B")
    own_bytes: int | None = fact("what the process itself had after the first step", "B")
    page_cache_bytes: int | None = fact("the limit less that", "B")
    limit_hits: int | None = fact(
        "times that the limit was reached in the timed steps", default=None
    )
    stalled_s: float | None = fact(
        "seconds of the timed steps in which a thread waited for memory, its code or mapped pages",
        "s",
        default=None,
    )
    topology_bytes: int = fact("the topology, in host memory", "B", ge=0)
    batch_bytes: int = fact("batches, in host memory", "B", ge=0)
    host_rows_bytes: int = fact("rows that the loader keeps in host memory", "B", ge=0)
    working_bytes: int = fact("the loader's own", "B", ge=0)
    gpu_cache_bytes: int = fact("the cache of rows in the GPU", "B", ge=0)
    gpu_batch_bytes: int = fact("batches in the GPU", "B", ge=0)
    gpu_topology_bytes: int = fact("the topology in the GPU", "B", ge=0)


class Ceilings(Frozen):
    """Rows per second without sampling and training; ``None`` where not measured."""

    engine_rows_per_s: float | None = fact("random reads of the engine by itself", "1/s")
    host_rows_per_s: float | None = fact("the engine without drives", "1/s")
    pull_rows_per_s: float | None = fact("rows over the GPU's link", "1/s")


class ProfiledSteps(Frozen):
    """What the drives saw of a few untimed steps, and what the loader counted in them."""

    seen: IOProfile
    steps: int = fact("steps", ge=1)
    own_reads: int | None = fact("reads of the loader")
    own_read_bytes: int = fact("bytes that storage gave the loader", "B", ge=0)


class GraphFacts(Facts):
    """The facts of the timed steps of a run, in all.

    Each row of the batches came from one of four places. These are ``None`` where the page cache
    decided, as it does for mapped files: nothing counts them.
    """

    settings: GraphSettings = fact("of the workload", exclude=True)
    graph: str = fact("name of the graph's shape")
    nodes: Mapping[str, int] = fact("nodes by type")
    edges: Mapping[str, int] = fact("edges by relation")
    largest_degree: int = fact("most edges of a node")
    row_bytes: int = fact("a row of features", "B", ge=1)
    training_seeds: int = fact("nodes that train", ge=1)
    trainer: Literal["gpu", "cpu", "emulated"] = fact("what trains")
    emulated_step_s: float | None = fact("what an emulated step sleeps", "s")
    gpu: TrainingGpu | None = fact("the GPU that trains or that rows are gathered into")
    sampler: Literal["c", "torch", "dgl"] = fact("who draws batches: all but dgl draw the same")
    sampler_threads: int | None = fact("threads that sample; None on a GPU")
    torch: str = fact("version of PyTorch")
    memory: Memory
    steps: int = fact("timed steps", ge=1)
    stages_s: Mapping[str, float] = fact("seconds of each stage that there is", "s")
    transfer_gpu_s: float | None = fact("transfer by CUDA events", "s")
    training_gpu_s: float | None = fact("training by CUDA events", "s")
    eviction_s: float = fact("dropping caches, which serial steps leave out", "s", ge=0)
    rows: int = fact("rows gathered", ge=1)
    storage_rows: int | None = fact("rows read from the drive", ge=0)
    host_rows: int | None = fact("rows from the loader's host memory", ge=0)
    cache_rows: int | None = fact("rows from the GPU's cache", ge=0)
    merged_rows: int | None = fact("rows that came with another row's read under way", ge=0)
    storage_bytes: int = fact("bytes that storage gave", "B", ge=0)
    operations: int = fact("reads; through the page cache, rows", ge=0)
    read_bytes: int | None = fact("bytes of each read; None through the page cache", "B")
    read_bytes_per_row: int = fact("bytes that a reader of blocks moves for a row", "B", ge=1)
    major_faults: int | None = fact("page faults that read", ge=0)
    cpu_s: float = fact("CPU time of gathering", "s", ge=0)
    losses: tuple[float, ...] = fact("cross entropy of each step; empty without training")
    compared_rows: int = fact("rows compared where the model takes them; all were right", ge=0)
    ceilings: Ceilings
    ceiling_reason: str = fact("why ceilings are missing")
    profile: ProfiledSteps | None = fact("the I/O profile")

    @property
    def is_ahead(self) -> bool:
        """Whether the next batch is fetched while one is trained on."""
        return self.settings.overlap == AHEAD

    @property
    def is_counted(self) -> bool:
        """Whether the loader counts the places of rows."""
        return self.storage_rows is not None

    @property
    def feature_bytes(self) -> int:
        return sum(self.nodes.values()) * self.row_bytes

    @property
    def steps_per_epoch(self) -> int:
        return self.training_seeds // self.settings.batch_seeds

    @property
    def has_whole_epoch(self) -> bool:
        return self.steps >= self.steps_per_epoch

    @property
    def aggregation_s(self) -> float:
        return self.stages_s.get(AGGREGATION, 0.0)


Run = AnyRun[GraphFacts]

STEPS = TraceTable(
    name="steps",
    row="a timed step; with overlap its stages ran beside those of other steps",
    columns=(
        Column("step", "int64", "number, from 0"),
        Column("start_ns", "int64", "CLOCK_MONOTONIC"),
        Column("end_ns", "int64", "CLOCK_MONOTONIC"),
        *(Column(f"{stage}_s", "float64", STAGE_MEANINGS[stage]) for stage in STAGES),
        Column("transfer_gpu_s", "float64", "transfer by CUDA events"),
        Column("training_gpu_s", "float64", "training by CUDA events"),
        Column("rows", "int64", "rows gathered"),
        *(Column(name, "int64", "rows from this place") for name in PLACES),
        Column("storage_bytes", "int64", "bytes that storage gave"),
        Column("loss", "float64", "cross entropy"),
    ),
    drawn=("start_ns", "end_ns", "storage_bytes"),
    interval=("start_ns", "end_ns"),
)
REQUESTS = TraceTable(
    name="io_requests",
    row="a request of the I/O profile, in order of issue",
    columns=(
        Column("issued_ns", "int64", "CLOCK_MONOTONIC"),
        Column("completed_ns", "int64", "CLOCK_MONOTONIC"),
        Column("bytes", "int64", "size"),
        Column("device", "string", "kernel's name of the device"),
        Column("is_read", "bool", "whether it is a read"),
    ),
    drawn=("issued_ns", "completed_ns", "bytes", "is_read"),
    interval=("issued_ns", "completed_ns"),
    of_operations=True,
)
