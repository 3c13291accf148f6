"""Results as MLPerf Storage publishes them: facts of others' runs, with the files they are from.

A published set is what one row of a results table is made from: the runs of one system, workload
and accelerator. Its runs hold what their files say, and no figure that follows from it. They have
no power, no counters of ours and no checks, so they are shown beside runs of ours and never enter a
verdict.

The same types describe a run of ours as these formulas and rules see it: they take facts, and don't
ask whose run it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from wattload.core.base_models import Frozen

SET_FILE = "published.json"
"""The name of a stored ``PublishedSet``, one in a folder."""

Division = Literal["closed", "open", "whatif"]
Kind = Literal["training", "checkpointing", "kv_cache", "vector_database"]
Setting = bool | int | float | str | None
Source = Literal["steps", "blocks", "summary"]
"""What a run's rates were computed from: the step lists of all its ranks, the times of blocks, of
checkpoints or of trials, or nothing but what its summary says."""
SOURCES = {"steps": "step lists", "blocks": "block times", "summary": "summaries"}


class Unread(Frozen):
    """A file or folder that is left out, and why, in one sentence."""

    path: str
    reason: str


class RankBlock(Frozen):
    """One block of an epoch on one rank; times are in seconds.

    ``steps`` and what follows are ``None`` without the rank's step list. ``first_step_s`` is its
    first step up to the end of the computation, ``proc[0]`` in DLIO's lists. ``compute_s`` sums the
    computation of all steps, the first included.
    """

    rank: int = Field(ge=0)
    duration_s: float = Field(gt=0)
    steps: int | None = Field(default=None, ge=1)
    first_step_s: float | None = Field(default=None, ge=0)
    first_compute_s: float | None = Field(default=None, ge=0)
    compute_s: float | None = Field(default=None, ge=0)


Epoch = tuple[RankBlock, ...]
"""The blocks of all known ranks: usually one each, more if a checkpoint divides the epoch."""


class ReportedTraining(Frozen):
    """What a training run's own summary prints; a list has a value per epoch.

    ``nominal_bytes_per_s`` is DLIO's ``train_io_mean_MB_per_second``, which means MiB of nominal
    record length.
    """

    au: tuple[float, ...] = ()
    au_mean: float | None = None
    samples_per_s: tuple[float, ...] = ()
    samples_per_s_mean: float | None = None
    nominal_bytes_per_s: float | None = None


class TrainingFacts(Frozen):
    """A training run. ``record_bytes`` and ``step_s`` are nominal, as configured."""

    kind: Literal["training"] = "training"
    model: str
    accelerator: str | None
    accelerators: int = Field(ge=1)
    file_count: int = Field(ge=1)
    samples_per_file: int = Field(ge=1)
    record_bytes: float | None = Field(gt=0)
    batch_samples: int | None = Field(ge=1)
    step_s: float | None = Field(ge=0)
    epochs: tuple[Epoch, ...]
    reported: ReportedTraining | None = None

    @property
    def source(self) -> Source:
        """What its rates follow from; step lists only if each rank has one of each block."""
        if not any(self.epochs):
            return "summary"
        is_listed = all(block.steps is not None for epoch in self.epochs for block in epoch)
        ranks = {len({block.rank for block in epoch}) for epoch in self.epochs}
        return "steps" if is_listed and ranks == {self.accelerators} else "blocks"


class Operation(Frozen):
    """One checkpoint written or read, over all ranks.

    ``seconds`` has the duration of each rank whose file is there, in the order of ranks.
    ``device_bytes`` is what local block devices moved between the samples around it, so at most
    this much was its own; ``None`` if that is unknown or storage is behind a network.
    """

    seconds: tuple[float, ...] = Field(min_length=1)
    device_bytes: int | None = Field(default=None, ge=0)


class CheckpointFacts(Frozen):
    """A run that writes or reads checkpoints. ``checkpoint_bytes`` is of one, over all ranks.

    What a summary reports of each direction is the mean of its rates.
    """

    kind: Literal["checkpointing"] = "checkpointing"
    model: str
    ranks: int = Field(ge=1)
    checkpoint_bytes: int | None = Field(gt=0)
    fsync: bool | None
    interval_s: float | None = Field(ge=0)
    writes: tuple[Operation, ...] = ()
    reads: tuple[Operation, ...] = ()
    reported_write_bytes_per_s: float | None = None
    reported_read_bytes_per_s: float | None = None

    @property
    def source(self) -> Source:
        """What its rates follow from."""
        return "blocks" if self.writes or self.reads else "summary"


class CacheTrial(Frozen):
    """One trial of one option on one rank; ``None`` is what its files don't say.

    Requests read ``read_bytes`` in all, ``memory_bytes`` of them from the memory tiers. The two
    95th percentiles are of whole writes to storage and of their ``fsync`` alone.
    """

    seconds: float | None = Field(default=None, gt=0)
    read_bytes: int | None = Field(default=None, ge=0)
    memory_bytes: int | None = Field(default=None, ge=0)
    tokens_processed: int | None = Field(default=None, ge=0)
    write_p95_s: float | None = Field(default=None, ge=0)
    fsync_p95_s: float | None = Field(default=None, ge=0)


class CacheOption(Frozen):
    """One of MLPerf's options of the KV cache, as its summary prints it, with trials if there."""

    option: str
    read_bytes_per_s: float | None = Field(ge=0)
    written_bytes_per_s: float | None = Field(ge=0)
    tokens_per_s: float | None = Field(ge=0)
    trials: tuple[CacheTrial, ...] = ()


class CacheFacts(Frozen):
    """A run of MLPerf's KV cache benchmark."""

    kind: Literal["kv_cache"] = "kv_cache"
    model: str
    ranks: int = Field(ge=1)
    trials: int = Field(ge=1)
    options: tuple[CacheOption, ...]

    @property
    def source(self) -> Source:
        """What its rates follow from; trials only if all are here."""
        due = self.trials * self.ranks
        return "blocks" if all(len(o.trials) == due for o in self.options) else "summary"


class VectorFacts(Frozen):
    """A run of MLPerf's vector database benchmark, as its summary prints it.

    ``max_degree`` is of DiskANN's graph, ``None`` for another index or if no file says it.
    """

    kind: Literal["vector_database"] = "vector_database"
    database: str
    index: str
    vectors: int | None = Field(ge=1)
    dimensions: int = Field(ge=1)
    max_degree: int | None = Field(default=None, ge=1)
    queries: int | None = Field(ge=0)
    seconds: float | None = Field(gt=0)
    queries_per_s: float | None = Field(ge=0)
    recall: float | None = Field(ge=0, le=1)
    latency_p99_s: float | None = Field(ge=0)


AnyFacts = Annotated[
    TrainingFacts | CheckpointFacts | CacheFacts | VectorFacts, Field(discriminator="kind")
]


class PublishedRun(Frozen):
    """One run, as its files tell.

    ``name`` is its folder relative to that of its set. ``started_s`` and ``ended_s`` are seconds
    since 1970 by the clock of its host, whose time zone is unknown. ``host_memory_bytes`` has a
    value per host, ``None`` if unknown. ``settings`` are those of its configuration by dotted name,
    ``overrides`` the ones that its command changed. ``sources`` are the files that facts are from,
    by path in the tree, with their SHA-256.
    """

    name: str
    started_s: float | None = None
    ended_s: float | None = None
    host_memory_bytes: tuple[int | None, ...] = ()
    settings: Mapping[str, Setting] = Field(default_factory=dict)
    overrides: Mapping[str, str] = Field(default_factory=dict)
    facts: AnyFacts
    sources: Mapping[str, str] = Field(default_factory=dict)


class ReportedSet(Frozen):
    """What the report of a set prints, and of each of its runs by name."""

    runs: Mapping[str, float] = Field(default_factory=dict)
    samples_per_s_mean: float | None = None


class PublishedSet(Frozen):
    """The runs behind one row of a results table.

    ``tree`` names the tree, ``path`` is the set's folder in it. ``edition`` is what the tree calls
    itself, such as ``v1.0``, ``None`` if it does not say; formulas and rules don't follow from it.
    """

    schema_version: Literal[1] = 1
    tree: str
    path: str
    edition: str | None
    division: Division | None
    organisation: str
    system: str
    runs: tuple[PublishedRun, ...] = Field(min_length=1)
    reported: ReportedSet | None = None
    unread: tuple[Unread, ...] = ()

    @property
    def facts(self) -> AnyFacts:
        """The facts of the first run; runs of one set are of one kind, model and accelerator."""
        return self.runs[0].facts
