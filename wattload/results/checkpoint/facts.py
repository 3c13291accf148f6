"""The facts of checkpoints that were written and read back.

The window and the bytes of each checkpoint on each rank are the spans of its phases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from wattload.core.base_models import Frozen
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun

WRITE_PHASE, READ_PHASE = "write", "read"


class CheckpointSettings(Settings):
    """The settings of the workload that are read here."""

    model: str
    mode: Literal["sync", "async"]
    protocol: Literal["plain", "mlperf"]
    checkpoint_count: int
    fsync: bool


@dataclass(slots=True)
class Stall:
    """How long training stalled for one checkpoint: for the previous drain, and for the copy.

    ``trained_s`` is the time of the steps since the previous checkpoint. It is ``None`` without a
    previous one, or if that one was read back in between. Its drain had then ended already, so this
    stall is shorter than in uninterrupted training.
    """

    wait_s: float
    snapshot_s: float
    trained_s: float | None


@dataclass(slots=True)
class RankCounts:
    """The counts and times of one rank.

    A checkpoint has ``file_count`` files of this rank. For each checkpoint there are
    ``synced_counts``, how many of them were fsynced; ``file_bytes``, their size; and ``stalls`` if
    it drained during training. Containers may add ``overhead_bytes`` to a checkpoint.
    ``payload_bytes`` are the delivered tensor bytes, ``bad_blocks`` and ``bad_files`` their errors.
    ``write_s`` and ``read_s`` are the times for this rank's own shards, without waiting for others.
    """

    file_count: int = 0
    overhead_bytes: int = 0
    synced_counts: list[int] = field(default_factory=list)
    file_bytes: list[int] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    payload_bytes: int = 0
    bad_blocks: int = 0
    bad_files: list[str] = field(default_factory=list)
    write_s: float = 0.0
    read_s: float = 0.0
    write_cpu_s: float = 0.0
    read_cpu_s: float = 0.0


@dataclass(slots=True)
class StepTimes:
    """The number of training steps of one kind, and their time."""

    count: int = 0
    seconds: float = 0.0


class Ceilings(Frozen):
    """What all ranks together do without a target."""

    write_bytes_per_s: float = fact("the loop that saves", "B/s", ge=0)
    read_bytes_per_s: float = fact("the loop that loads", "B/s", ge=0)
    generator_bytes_per_s: float = fact("stamping alone, one thread per rank", "B/s", ge=0)


class CheckpointFacts(Facts):
    """The facts of a run; lists are by rank."""

    settings: CheckpointSettings = fact("of the workload", exclude=True)
    model_ranks: int = fact("ranks of the whole model", ge=1)
    model_bytes: int = fact("the whole model", "B", ge=1)
    whole_bytes: int = fact("the whole shards of the ranks of this run, in all", "B", ge=1)
    rank_bytes: tuple[int, ...] = fact("the shards as written", "B")
    rank_tensors: tuple[int, ...] = fact("the tensors of the shards")
    kept: int = fact("checkpoints that stay on the target while the next is written", ge=1)
    interval_s: float = fact("training time between two checkpoints", "s", ge=0)
    step_s: float = fact("a step of training", "s", ge=0)
    ranks: tuple[RankCounts, ...] = fact("what each rank counted")
    draining_steps: StepTimes = fact("steps that began during a drain")
    other_steps: StepTimes = fact("all other steps")
    ceilings: Ceilings

    @property
    def checkpoint_bytes(self) -> int:
        """One checkpoint as written."""
        return sum(self.rank_bytes)

    @property
    def planned_bytes(self) -> int:
        return self.checkpoint_bytes * self.settings.checkpoint_count


Run = AnyRun[CheckpointFacts]
