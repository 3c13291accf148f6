"""The plan of a run: its files, accelerators, steps and sample order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wattload.core.errors import ConfigError
from wattload.core.mlperf.edition import published_accelerators
from wattload.core.mlperf.rules import DataSetRule
from wattload.core.storage.targets import Target, refuse_too_many_files
from wattload.core.units import format_bytes
from wattload.core.workload import Accelerator, RunContext
from wattload.workloads.training.config import FULL_SCALE, Config, data_set_rule
from wattload.workloads.training.dataset import Dataset
from wattload.workloads.training.source import source_dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of one run, the same on every rank; ``rule`` is MLPerf's for its data set."""

    config: Config
    dataset: Dataset
    division: Division
    steps: int
    step_s: float
    accelerator: str
    rule: DataSetRule

    @property
    def epoch_files(self) -> int:
        """How many files an epoch reads: all, or as many as its limited steps take."""
        if self.config.steps_per_epoch is None:
            return self.dataset.file_count
        taken = self.steps * self.config.batch_samples * self.division.accelerators
        return min(taken, self.dataset.file_count)

    def order(self, rank: int, seed: int, epoch: int) -> list[int]:
        """Return the samples that a rank loads in one epoch, in order."""
        return epoch_order(
            self.dataset.file_count,
            self.config.batch_samples,
            self.division,
            rank=rank,
            seed=seed,
            epoch=epoch,
            most_steps=self.config.steps_per_epoch,
        )

    def epoch(self, seed: int, epoch: int) -> list[int]:
        """Return the samples that all ranks load in one epoch."""
        everyone = Division(world_size=1, per_rank=self.division.accelerators)
        return replace(self, division=everyone).order(0, seed, epoch)

    def epoch_bytes(self, order: list[int]) -> int:
        """Return the total size of the files in an order, in bytes."""
        return sum(self.dataset.file_bytes[index] for index in order)


def plan_job(config: Config, accelerator: Accelerator, context: RunContext) -> Job:
    """Return the job that the configuration describes.

    Raises ``ConfigError`` for settings out of range, a negative seed, an accelerator without a step
    time, fewer files than ranks, and fewer files than one batch for each accelerator.
    """
    config.check(context.scale)
    if context.seed < 0:
        raise ConfigError(f"seed must be 0 or more, got {context.seed}")
    step_s = accelerator.step_s.get(config.model)
    if step_s is None or not 0 <= step_s < math.inf:
        known = ", ".join(published_accelerators(config.model))
        raise ConfigError(
            f"accelerator.step_s.{config.model} must be 0 or more seconds, got {step_s} for "
            f"{accelerator.name!r}; use accelerator={known} or unpaced"
        )
    division = divide(accelerator.count, context.communicator.world_size)
    rule = data_set_rule(config, division.accelerators, context.hosts_memory_bytes)
    dataset = _dataset(config, rule, context.targets)
    steps = steps_per_epoch(
        dataset.file_count, config.batch_samples, division, config.steps_per_epoch
    )
    job = Job(
        config=config,
        dataset=dataset,
        division=division,
        steps=steps,
        step_s=step_s,
        accelerator=accelerator.name,
        rule=rule,
    )
    if context.scale == FULL_SCALE:
        _enforce(job)
    return job


def _dataset(config: Config, rule: DataSetRule, targets: tuple[Target, ...]) -> Dataset:
    if config.source is not None:
        return source_dataset(config, config.source, targets)
    file_count = config.file_count or max(rule.files, config.least_file_count)
    refuse_too_many_files(
        targets,
        setting="workload.file_count",
        file_count=file_count,
        data_bytes=file_count * config.distribution().mean_bytes,
    )
    return Dataset(config, file_count, targets)


def _enforce(job: Job) -> None:
    rule = job.rule
    if job.epoch_files >= rule.files:
        return
    limited = job.dataset.file_count >= rule.files
    name = "steps_per_epoch" if limited else "file_count"
    allowed = rule.steps if limited else rule.files
    raise ConfigError(
        f"an epoch at scale={FULL_SCALE} must read at least {rule.files} files, the larger of "
        f"{rule.by_memory} (5 x {format_bytes(rule.memory_bytes)} of host memory) and "
        f"{rule.by_steps} (500 steps of {rule.accelerators} accelerators), got {job.epoch_files}; "
        f"use workload.{name}={allowed} or more, null to follow the rule, or scale=quick"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The emulated accelerators of a job: ``per_rank`` of them on each of ``world_size`` ranks."""

    world_size: int
    per_rank: int

    @property
    def accelerators(self) -> int:
        return self.world_size * self.per_rank


def divide(accelerators: int, world_size: int) -> Division:
    """Return how ``accelerators`` are divided among the ranks.

    The usual setting, 1, means one per rank, as in DLIO. Raises ``ConfigError`` for any other
    number that is not a multiple of the ranks: with uneven ranks the barriers would never match.
    """
    if accelerators == 1:
        return Division(world_size=world_size, per_rank=1)
    if accelerators < 1 or accelerators % world_size:
        raise ConfigError(
            f"accelerator.count must be 1 (one per rank) or a multiple of the {world_size} ranks, "
            f"got {accelerators}"
        )
    return Division(world_size=world_size, per_rank=accelerators // world_size)


def steps_per_epoch(
    file_count: int, batch_samples: int, division: Division, most_steps: int | None = None
) -> int:
    """Return the steps of one epoch, the same on every rank; incomplete batches are dropped.

    ``most_steps`` limits them, so that an epoch reads part of a larger data set.
    Raises ``ConfigError`` if there are fewer files than ranks, or fewer than one batch for each
    accelerator.
    """
    if file_count < division.world_size:
        raise ConfigError(
            f"workload.file_count must be at least the number of ranks ({division.world_size}), "
            f"got {file_count}; use more files, or at most {file_count} ranks"
        )
    steps = file_count // (batch_samples * division.accelerators)
    if not steps:
        raise ConfigError(
            f"workload.file_count must be {division.accelerators * batch_samples} or more for "
            f"{division.accelerators} accelerators with batches of {batch_samples}, "
            f"got {file_count}"
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

    Samples are shuffled by seed and epoch. With one sample per file this is both the file shuffle
    and the sample shuffle of DLIO. Each accelerator gets a contiguous shard of equal length. A rank
    that feeds several accelerators takes one batch for each of them in turn. If ``most_steps``
    limits an epoch, it reads the first part of each shard, after a new shuffle in every epoch.
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


MOST_DRAWN = 256
"""The loop hashes rows while the accelerators wait."""


def drawn_samples(order: list[int], draw: int) -> frozenset[int]:
    """Return the samples whose rows are hashed: 1 in 16 of the first epoch, from 1 to 256.

    ``draw`` is a random number of 64 bits, new for every run.
    """
    count = min(max(round(len(order) / 16), 1), MOST_DRAWN)
    drawn = np.random.default_rng((draw, len(order))).choice(order, count, replace=False)
    return frozenset(int(sample) for sample in drawn)
