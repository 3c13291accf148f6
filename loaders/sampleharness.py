"""What a harness that trains on samples is given, and what its configuration must offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattload.core.harness import Harness, HarnessResult
from wattload.loaders.samples import SampleConfig, SampleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training job for an outside program to run.

    ``orders[epoch][accelerator]`` are the samples that an accelerator loads in an epoch, in order
    and in whole batches, the same number for each. ``step_s`` is the computation of one step.
    ``record_mean_bytes`` and ``record_stdev_bytes`` describe the records to a program that asks.
    """

    samples: SampleSet
    orders: Sequence[Sequence[Sequence[int]]]
    step_s: float
    record_mean_bytes: float
    record_stdev_bytes: float

    @property
    def epochs(self) -> int:
        """How many epochs there are."""
        return len(self.orders)

    @property
    def accelerators(self) -> int:
        """How many accelerators train."""
        return len(self.orders[0])

    @property
    def steps(self) -> int:
        """The steps of one epoch, the same for each accelerator."""
        return len(self.orders[0][0]) // self.samples.batch_samples

    def batch_bytes_read(self, epoch: int, accelerator: int, step: int) -> int:
        """Return the size of the files that make up one batch, in bytes."""
        size = self.samples.batch_samples
        batch = self.orders[epoch][accelerator][step * size : (step + 1) * size]
        return sum(self.samples.file_bytes[index] for index in batch)

    def epoch_bytes_read(self, epoch: int, accelerator: int) -> int:
        """Return the size of the files that an accelerator loads in an epoch, in bytes."""
        return sum(self.samples.file_bytes[index] for index in self.orders[epoch][accelerator])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedEpoch:
    """One epoch on one accelerator; the program's own times, one entry per step, in seconds.

    ``duration_s`` is the whole epoch on CLOCK_MONOTONIC, seen from outside the program's loop.
    ``load_s`` is the wait for a batch, ``processed_s`` the whole step, ``compute_s`` what is left;
    the barrier behind each step is in ``duration_s`` alone. ``cpu_s`` is the CPU time of all the
    accelerator's processes in the epoch. ``called_bytes`` is what its read calls returned and
    ``storage_bytes`` what was fetched from storage for it, both as the kernel counts them, ``None``
    where it does not. ``peak_bytes`` is the memory of its processes, each at its own peak so far,
    what they share divided among them (PSS).
    """

    duration_s: float
    load_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    processed_s: tuple[float, ...]
    read_bytes: int
    cpu_s: float
    called_bytes: int | None
    storage_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult(HarnessResult):
    """What a training harness did: ``epochs[epoch][accelerator]``.

    ``recomputed`` has those of its ``reported`` figures that follow from its times of single
    steps, under the same names. ``plugged_bytes`` counts what a reader of ours moved inside the
    program, ``None`` where the program read by itself.
    """

    epochs: Sequence[Sequence[TrainedEpoch]]
    recomputed: Mapping[str, Sequence[float]]
    plugged_bytes: int | None = None


class SampleHarnessConfig(SampleConfig, Protocol):
    """The configuration of a harness that trains on whole samples: it makes the harness."""

    def training_harness(self, training: Training) -> Harness[TrainingResult]:
        """Return the program, ready to run the job."""
        ...

    @property
    def is_cold_in_every_epoch(self) -> bool:
        """Whether the page cache is to be emptied before every epoch, not the first alone."""
        ...

    def differences(self, training: Training) -> Sequence[str]:
        """Return sentences on what the program does differently from our own loop."""
        ...
