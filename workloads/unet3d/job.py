"""What a run will do, worked out before it starts: files, accelerators, steps, order."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError
from wattload.core.workload import Communicator, RunContext
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.counts import (
    Division,
    divide,
    epoch_order,
    host_memory_bytes,
    mlperf_file_count,
    steps_per_epoch,
)
from wattload.workloads.unet3d.dataset import WORKLOAD, Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run's work; the same on every rank."""

    config: Config
    dataset: Dataset
    division: Division
    steps: int
    step_s: float
    accelerator: str

    def order(self, rank: int, seed: int, epoch: int) -> list[int]:
        """Return the samples that a rank loads in one epoch, in order."""
        return epoch_order(
            self.dataset.file_count,
            self.config.batch_samples,
            self.division,
            rank=rank,
            seed=seed,
            epoch=epoch,
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
    file_count = config.file_count
    if file_count is None:
        file_count = required_files(config, division, context.communicator)
    steps = steps_per_epoch(file_count, config.batch_samples, division)
    return Job(
        config=config,
        dataset=Dataset(config, file_count, context.targets),
        division=division,
        steps=steps,
        step_s=step_s,
        accelerator=accelerator.name,
    )


def required_files(config: Config, division: Division, world: Communicator) -> int:
    """Return the files that MLPerf's rule asks for on these hosts; every rank must call it.

    Of records in full size, also where this run's are shrunk.
    """
    of_hosts = dict(world.gather((os.uname().nodename, host_memory_bytes())))
    return mlperf_file_count(
        accelerators=division.accelerators,
        batch_samples=config.batch_samples,
        record_bytes=config.record_mean_bytes,
        memory_bytes=sum(of_hosts.values()),
    )
