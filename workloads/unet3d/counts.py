"""How many files, and which sample goes to which accelerator in which step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattload.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The emulated accelerators of a job: ``per_rank`` of them on each of ``world_size`` ranks."""

    world_size: int
    per_rank: int

    @property
    def accelerators(self) -> int:
        """How many accelerators there are in all."""
        return self.world_size * self.per_rank


def divide(accelerators: int, world_size: int) -> Division:
    """Return how ``accelerators`` are dealt to the ranks.

    1, the usual setting, stands for one per rank, as DLIO has it. Raises ``ConfigError`` for any
    other number that the ranks can't share evenly: uneven ranks would wait at a step's barrier for
    ever.
    """
    if accelerators == 1:
        return Division(world_size=world_size, per_rank=1)
    if accelerators < 1 or accelerators % world_size:
        raise ConfigError(
            f"accelerator.count must be 1 (one per rank) or a multiple of the {world_size} ranks, "
            f"got {accelerators}"
        )
    return Division(world_size=world_size, per_rank=accelerators // world_size)


def host_memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory of this host in bytes, MemTotal of ``/proc/meminfo``."""
    for line in meminfo.read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024
    raise ConfigError(f"{meminfo} has no MemTotal; set workload.file_count=")


def steps_per_epoch(
    file_count: int, batch_samples: int, division: Division, most_steps: int | None = None
) -> int:
    """Return the steps of one epoch, the same on every rank; incomplete batches are dropped.

    ``most_steps`` bounds them, so that an epoch reads a part of a larger data set.
    Raises ``ConfigError`` for fewer files than ranks, or than one batch for each accelerator.
    """
    if file_count < division.world_size:
        raise ConfigError(
            f"workload.file_count is {file_count}, fewer than the {division.world_size} ranks; "
            f"use at most {file_count} ranks or more files"
        )
    steps = file_count // (batch_samples * division.accelerators)
    if not steps:
        raise ConfigError(
            f"workload.file_count is {file_count}; {division.accelerators} accelerators with "
            f"batches of {batch_samples} need {division.accelerators * batch_samples} or more"
        )
    return steps if most_steps is None else min(steps, most_steps)


def epoch_order(
    file_count: int,
    batch_samples: int,
    division: Division,
    *,
    rank: int,
    seed: int,
    epoch: int,
    most_steps: int | None = None,
) -> list[int]:
    """Return the samples that a rank loads in one epoch, in order, in whole batches.

    All samples are shuffled by seed and epoch, which at one sample per file is both the file and
    the sample shuffle of DLIO; each accelerator gets a contiguous shard of equal length. A rank
    that feeds several takes one batch for each of them in turn. Where ``most_steps`` bounds an
    epoch it reads the front of each shard, of another shuffle in every epoch.
    """
    shuffled = np.random.default_rng((seed, epoch)).permutation(file_count)
    steps = steps_per_epoch(file_count, batch_samples, division, most_steps)
    shard = file_count // division.accelerators
    first = rank * division.per_rank
    starts = np.arange(first, first + division.per_rank) * shard
    batches = starts[None, :, None] + (
        np.arange(steps)[:, None, None] * batch_samples + np.arange(batch_samples)
    )
    return [int(sample) for sample in shuffled[batches.ravel()]]


def hashed_samples(order: list[int], seed: int) -> frozenset[int]:
    """Return the samples whose delivered bytes are hashed: 1 in 16 of the first epoch's, by seed.

    At least one.
    """
    count = max(round(len(order) / 16), 1)
    chosen = np.random.default_rng((seed, len(order))).choice(order, count, replace=False)
    return frozenset(int(sample) for sample in chosen)
