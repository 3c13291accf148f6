"""What one run writes: the shards of its ranks, whole, sliced or shrunken, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wattload.core.errors import ConfigError, TargetError
from wattload.core.target import Target
from wattload.core.workload import RunContext
from wattload.loaders.aligned import PAGE_BYTES
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


def check_alignment(targets: Sequence[Target]) -> None:
    """Raise ``TargetError`` for a target whose O_DIRECT needs a coarser alignment than 4096 bytes.

    Buffers, offsets and lengths of the direct store are multiples of 4096 bytes, the last block of
    a file included, whatever ``loader.block_bytes``. A target without O_DIRECT is the preflight's.
    """
    for target in targets:
        found = target.direct_io
        if found is None:
            continue
        needs = {"memory": found.memory_align_bytes, "offsets": found.offset_align_bytes}
        for what, align_bytes in needs.items():
            if PAGE_BYTES % max(align_bytes, 1):
                raise TargetError(
                    f"{target.path}: O_DIRECT needs {what} at multiples of {align_bytes} bytes "
                    f"there, and loader=direct keeps multiples of {PAGE_BYTES}; use loader=torch, "
                    f"or format the drive with blocks of at most {PAGE_BYTES} bytes"
                )


def _as_written(shard: Shard, config: Config) -> Shard:
    if config.shrink_bytes is not None:
        shard = replace(shard, tensors=scaled(shard.tensors, config.shrink_bytes))
    if config.slice_bytes is not None:
        shard = sliced(shard, config.slice_bytes)
    return shard
