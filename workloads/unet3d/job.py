"""What a run will do, worked out before it starts: files, accelerators, steps, order."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError
from wattload.core.mlperf import DataSetRule
from wattload.core.units import format_bytes
from wattload.core.workload import Communicator, RunContext
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.counts import (
    Division,
    divide,
    epoch_order,
    host_memory_bytes,
    steps_per_epoch,
)
from wattload.workloads.unet3d.dataset import WORKLOAD, Dataset

FULL_SCALE = "full"
"""The scale whose counts are those of the published rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run's work; the same on every rank. ``rule`` is what MLPerf asks of its data set."""

    config: Config
    dataset: Dataset
    division: Division
    steps: int
    step_s: float
    accelerator: str
    rule: DataSetRule

    @property
    def epoch_files(self) -> int:
        """The files that an epoch draws from: all, or as many as its bounded steps take in."""
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

    def first_epoch(self, world_size: int, seed: int) -> list[int]:
        """Return the samples that all ranks load in the first epoch."""
        return [sample for rank in range(world_size) for sample in self.order(rank, seed, 0)]

    def epoch_bytes(self, order: list[int]) -> int:
        """Return the bytes of the files in an order."""
        return sum(self.dataset.file_bytes[index] for index in order)


def plan_job(config: Config, accelerator: Accelerator, context: RunContext) -> Job:
    """Return the job that the configuration asks for.

    Raises ``ConfigError`` for what can't be run: settings out of range, fewer files than ranks or
    than one batch for each accelerator, a negative seed, an accelerator without a step time.
    """
    config.check(context.scale)
    if context.seed < 0:
        raise ConfigError(f"seed must be 0 or more, got {context.seed}")
    step_s = accelerator.step_s.get(WORKLOAD)
    if step_s is None or not 0 <= step_s < math.inf:
        raise ConfigError(
            f"accelerator.step_s.{WORKLOAD} must be 0 or more seconds, got {step_s} "
            f"for {accelerator.name!r}; use accelerator=a100, h100, b200 or unpaced"
        )
    division = divide(accelerator.count, context.communicator.world_size)
    rule = data_set_rule(config, division.accelerators, hosts_memory_bytes(context.communicator))
    file_count = config.file_count
    if file_count is None:
        file_count = rule.files
    steps = steps_per_epoch(file_count, config.batch_samples, division, config.steps_per_epoch)
    job = Job(
        config=config,
        dataset=Dataset(config, file_count, context.targets),
        division=division,
        steps=steps,
        step_s=step_s,
        accelerator=accelerator.name,
        rule=rule,
    )
    if context.scale == FULL_SCALE:
        _enforce(job)
    return job


def data_set_rule(config: Config, accelerators: int, memory_bytes: int) -> DataSetRule:
    """Return MLPerf's rule for this job, of records in full size, also where these are shrunk."""
    return DataSetRule(
        accelerators=accelerators,
        batch_samples=config.batch_samples,
        record_bytes=config.record_mean_bytes,
        memory_bytes=memory_bytes,
    )


def hosts_memory_bytes(world: Communicator) -> int:
    """Return the memory of all hosts of the job in bytes, each once; every rank must call it."""
    of_hosts = dict(world.gather((os.uname().nodename, host_memory_bytes())))
    return sum(of_hosts.values())


def _enforce(job: Job) -> None:
    rule = job.rule
    if job.epoch_files >= rule.files:
        return
    limited = job.dataset.file_count >= rule.files
    name = "steps_per_epoch" if limited else "file_count"
    allowed = rule.steps if limited else rule.files
    raise ConfigError(
        f"scale={FULL_SCALE} reads {rule.files} files or more an epoch, the larger of "
        f"{rule.by_memory} (5 x {format_bytes(rule.memory_bytes)} of host memory) and "
        f"{rule.by_steps} (500 steps of {rule.accelerators} accelerators), got {job.epoch_files}; "
        f"use workload.{name}={allowed} or more, null for what the rule asks, or scale=quick"
    )
