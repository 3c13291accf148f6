"""What one run writes: the shards of its ranks, whole, sliced or shrunken, and where they go."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattload.core.errors import ConfigError
from wattload.core.workload import RunContext
from wattload.loaders.checkpoints import Shard
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.sharding import rank_count, scaled, shard_of, sliced


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The shards of all ranks of this run, by rank, and the size of what they are a part of.

    ``rank_bytes`` is the size of these ranks' whole shards, ``model_bytes`` that of all ranks that
    the model has.
    """

    config: Config
    shards: tuple[Shard, ...]
    rank_bytes: int
    model_bytes: int
    model_ranks: int
    target_count: int

    @property
    def checkpoint_bytes(self) -> int:
        """The bytes of one checkpoint as it is written."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def most_kept(self) -> int:
        """How many checkpoints lie on the target at once, at most."""
        return min(self.config.kept + 1, self.config.checkpoint_count)

    def target_of(self, rank: int) -> int:
        """Return the index of the target that a rank writes to."""
        return rank % self.target_count


def plan_job(config: Config, context: RunContext) -> Job:
    """Return what this run writes.

    Raises ``ConfigError`` for settings or a seed out of range, for more ranks than the model
    has, and for more targets than ranks.
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
    if len(context.targets) > world:
        raise ConfigError(
            f"each rank writes to one target, so {len(context.targets)} targets need as many "
            f"ranks, got {world}; start more processes with mpirun -n, or give fewer targets"
        )
    whole = [shard_of(config.model, rank) for rank in range(ranks)]
    return Job(
        config=config,
        shards=tuple(_as_written(shard, config) for shard in whole[:world]),
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
