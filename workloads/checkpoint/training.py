"""The training that goes on between checkpoints: emulated steps, and the snapshot it waits for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError
from wattload.core.workload import RunContext
from wattload.loaders.aligned import aligned_buffers
from wattload.workloads.checkpoint.account import Step
from wattload.workloads.checkpoint.config import Config

TRAIN_PHASE = "train"
SNAPSHOT_BUFFER_BYTES = 32 << 20

_WORKLOAD = "checkpoint"
_STAND_IN = "unet3d"


def step_seconds(config: Config, accelerator: Accelerator) -> float:
    """Return the seconds of one step: the setting, or the accelerator's published one.

    No step time is published for Llama checkpoints: without one of its own for ``checkpoint`` the
    accelerator's for unet3d stands in. Raises ``ConfigError`` where training is asked for in steps
    that take no time.
    """
    found = config.step_s
    if found is None:
        found = accelerator.step_s.get(_WORKLOAD, accelerator.step_s.get(_STAND_IN, 0.0))
    if config.training_s and not found:
        raise ConfigError(
            f"training for {config.training_s:g} s between checkpoints needs steps that take time, "
            f"and accelerator={accelerator.name} has steps of 0 s; give workload.step_s, or "
            "workload.interval_s=0"
        )
    return found


class Training:
    """Steps of an emulated accelerator: each rank sleeps for the step time, then meets the others.

    The meeting is the end of a step in data-parallel training. Nothing is computed: what slows a
    step here is the host (cores and memory that a drain takes), not an accelerator's own work.
    """

    def __init__(self, context: RunContext, step_s: float) -> None:
        self.steps: list[Step] = []
        self._world = context.communicator
        self._step_s = step_s

    def step_count(self, seconds: float) -> int:
        """Return how many whole steps take at least ``seconds``; the same on every rank."""
        return math.ceil(seconds / self._step_s) if seconds else 0

    def step(self, tell: Callable[[], Any], *, draining: bool) -> list[Any]:
        """Make one step; returns what each rank told at its end, by rank."""
        start_ns = time.monotonic_ns()
        time.sleep(self._step_s)
        told = self._world.gather(tell())
        self.steps.append(Step(time.monotonic_ns() - start_ns, draining))
        return told


class Snapshot:
    """The copy that training waits for, of a shard of any size in bounded memory.

    As many bytes as the shard has are copied from one buffer to another, at the speed of memory.
    The copy is not kept, and the bytes that drain are generated: a whole copy would take the
    shard's size in host memory, which a checkpoint of tens of gigabytes a rank does not leave.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        window_bytes = min(size_bytes, SNAPSHOT_BUFFER_BYTES)
        self._source, self._copy = aligned_buffers(2, window_bytes)

    def take(self) -> None:
        """Copy the shard's bytes once."""
        whole, rest = divmod(self._size_bytes, self._source.size)
        for _ in range(whole):
            np.copyto(self._copy, self._source)
        np.copyto(self._copy[:rest], self._source[:rest])


def snapshot_memory_bytes(size_bytes: int) -> int:
    """Return the memory of a snapshot of a shard."""
    return 2 * min(size_bytes, SNAPSHOT_BUFFER_BYTES)
