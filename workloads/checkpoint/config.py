"""The settings of the checkpoint workload, and the shards that a run writes with them.

The shards of the ranks may be whole, sliced or shrunk; each goes to one target.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wattload.core.errors import ConfigError
from wattload.core.mlperf.rules import CHECKPOINT_INTERVAL_S
from wattload.core.settings import check_settings, setting
from wattload.core.workload import RunContext
from wattload.loaders.checkpoint_store import Shard
from wattload.workloads.checkpoint.models import (
    NAMES,
    SERVER_NAME,
    model_named,
    rank_count,
    scaled,
    shard_of,
    sliced,
)

MODES = ("sync", "async")
PROTOCOLS = ("plain", "mlperf")
MAX_SECONDS = 1e6
MAX_CHECKPOINTS = 1_000_000


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale; see ``Config``."""

    checkpoint_count: int = 10
    slice_bytes: int | None = None
    shrink_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class Config:
    """Checkpoints of a Llama-3 model, one shard per rank, written and read back.

    Each checkpoint is read back before it is removed. With ``keep`` equal to the count, all are
    written before the first is read, as in MLPerf Storage. An asynchronous run keeps 2 by default,
    so that a checkpoint can overlap with the drain of the previous one. ``slice_bytes`` writes only
    the first tensors of a rank's list, each completely.
    """

    _target_: str = "wattload.workloads.checkpoint.workload.Checkpoint"
    model: str = setting(SERVER_NAME, f"Model whose state is saved: {', '.join(NAMES)}.")
    mode: str = setting(
        "sync",
        "Training stalls until a checkpoint is durable (sync), or only for a snapshot, and the "
        "bytes drain while it continues (async).",
        choices=MODES,
    )
    protocol: str = setting(
        "plain", "mlperf adds the checks of MLPerf Storage's rules.", choices=PROTOCOLS
    )
    checkpoint_count: int = setting(10, "Checkpoints written.", least=1, most=MAX_CHECKPOINTS)
    keep: int | None = setting(
        None,
        "Checkpoints that stay on the target while the next is written.",
        least=1,
        most=MAX_CHECKPOINTS,
        unset="1, or 2 with mode=async",
    )
    interval_s: float | None = setting(
        None,
        "Training time between two checkpoints, in whole steps of step_s.",
        least=0,
        most=MAX_SECONDS,
        unset="0, or 5 with mode=async, as in MLPerf Storage",
    )
    step_s: float | None = setting(
        None,
        "Length of one training step.",
        least=0,
        most=MAX_SECONDS,
        unset="the step time of the emulated accelerator",
    )
    fsync: bool = setting(True, "Make files durable inside the timed window.")
    slice_bytes: int | None = setting(
        None, "Largest part of a rank's shard that is written.", least=1, unset="the whole shard"
    )
    shrink_bytes: int | None = setting(
        None,
        "Scales the tensors so that a rank has exactly this size; at scale=demo only.",
        least=1,
        unset="tensors of full size",
    )
    scales: dict[str, Scale] = field(default_factory=dict)

    @property
    def is_async(self) -> bool:
        return self.mode == "async"

    @property
    def kept(self) -> int:
        """How many checkpoints stay on the target while the next is written."""
        return self.keep if self.keep is not None else (2 if self.is_async else 1)

    @property
    def training_s(self) -> float:
        """The training time between two checkpoints, in seconds."""
        if self.interval_s is not None:
            return self.interval_s
        return CHECKPOINT_INTERVAL_S if self.is_async else 0.0

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range or not allowed at this scale."""
        model_named(self.model)
        check_settings(self, "workload")
        if self.is_async and not self.training_s:
            raise ConfigError(
                "workload.interval_s must be above 0 for workload.mode=async, which drains a "
                "checkpoint during training; got 0"
            )
        if self.shrink_bytes is not None and scale != "demo":
            raise ConfigError(
                f"workload.shrink_bytes must be null at scale={scale}, got {self.shrink_bytes}; "
                "only scale=demo may shrink tensors"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The shards of this run's ranks, by rank, and the full sizes.

    ``rank_bytes`` is the size of the whole shards of these ranks, ``model_bytes`` that of all
    ranks of the model. ``sharers`` are the ranks that see the same targets as this one, itself
    included; each writes to one of them.
    """

    config: Config
    shards: tuple[Shard, ...]
    sharers: tuple[int, ...]
    rank_bytes: int
    model_bytes: int
    model_ranks: int
    target_count: int

    @property
    def checkpoint_bytes(self) -> int:
        """The size of one checkpoint as written, in bytes."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def shared_bytes(self) -> int:
        """The part of a checkpoint that is on the targets of this rank, in bytes."""
        return sum(self.shards[rank].size_bytes for rank in self.sharers)

    @property
    def most_kept(self) -> int:
        """The largest number of checkpoints on the target at once."""
        return min(self.config.kept + 1, self.config.checkpoint_count)

    def target_of(self, rank: int) -> int:
        """Return the index of the target that one of the sharers writes to."""
        return self.sharers.index(rank) % self.target_count


def plan_job(config: Config, context: RunContext) -> Job:
    """Return what this run writes.

    Raises ``ConfigError`` for settings or a seed out of range, for more ranks than the model has,
    and for more targets than ranks.
    """
    config.check(context.scale)
    if context.seed < 0:
        raise ConfigError(f"seed must be 0 or more, got {context.seed}")
    world, ranks = context.communicator.world_size, rank_count(config.model)
    if world > ranks:
        raise ConfigError(
            f"a checkpoint of {config.model} has {ranks} ranks, got {world}; "
            f"start at most {ranks} processes"
        )
    sharing = context.sharers.world_size
    if len(context.targets) > sharing:
        raise ConfigError(
            f"each rank writes to one target, so {len(context.targets)} targets need at least as "
            f"many ranks, got {sharing}; start more processes with mpirun -n, or give fewer "
            "targets"
        )
    whole = [shard_of(config.model, rank) for rank in range(ranks)]
    return Job(
        config=config,
        shards=tuple(_as_written(shard, config) for shard in whole[:world]),
        sharers=tuple(context.sharers.members),
        rank_bytes=sum(shard.size_bytes for shard in whole[:world]),
        model_bytes=sum(shard.size_bytes for shard in whole),
        model_ranks=ranks,
        target_count=len(context.targets),
    )


def _as_written(shard: Shard, config: Config) -> Shard:
    if config.shrink_bytes is not None:
        shard = replace(shard, tensors=scaled(shard.tensors, config.shrink_bytes))
    if config.slice_bytes is not None:
        shard = sliced(shard, config.slice_bytes)
    return shard
