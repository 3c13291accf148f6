"""Whole samples: the files of a data set, training jobs on them, and the protocols of loaders.

``wattload.loaders.<name>`` has ``config`` and, for what it can do, ``loader`` (samples),
``checkpoint`` (shards) or ``harness`` (a whole training). These import ``config``. The other
direction goes by name, in ``make_loader``, ``make_harness`` and ``checkpoint_store.make_store``: a
loader's library is imported only when the loader is used, so that every configuration can be read
and checked where the library is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Harness, HarnessResult, Loader, VerifiedSamples
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig

ReadCounter = Callable[[int], None]
"""Called with the bytes just read from the target; from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSet:
    """Files that hold one record each, and how they are grouped into batches.

    ``paths`` and ``file_bytes`` correspond; a sample's index is its position there. A batch has
    ``batch_samples`` rows of the first ``resize_bytes`` of a record, padded with zeros. With a
    ``nonce`` the files are sealed under it (``loaders.data.verification``), and loaders verify what
    they decode; a loader that has whole payloads on a GPU only verifies those of the samples in
    ``drawn``. With ``check_crc`` every loader checks the CRC-32 of formats that have one.
    ``accelerators`` is how many of them this rank feeds: settings per accelerator are multiplied by
    it. With ``in_memory`` the files are read once, when the loader is made, and every sample then
    comes from memory.
    """

    paths: tuple[Path, ...]
    file_bytes: tuple[int, ...]
    record_format: str
    batch_samples: int
    resize_bytes: int
    drawn: frozenset[int] = frozenset()
    nonce: int | None = None
    check_crc: bool = False
    accelerators: int = 1
    in_memory: bool = False

    @property
    def batch_bytes(self) -> int:
        """Size of one batch as it is delivered, in bytes."""
        return self.batch_samples * self.resize_bytes


class SampleConfig(LoaderConfig, Protocol):
    """The configuration of anything that loads whole samples: a loader, or an outside program."""

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        ...

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; reads and creates nothing.

        Raises:
            ConfigError: the settings do not fit these samples, or this host.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers of one rank's loader, in bytes."""
        ...

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the loader computes a CRC-32 of these samples, requested or not."""
        ...

    @property
    def sample_bytes_counted(self) -> str:
        """When bytes are counted, and by which figure; for the record."""
        ...

    @property
    def sample_decode_timed(self) -> str:
        """What ``Batch.decode_s`` covers with this loader, or why it is ``None``; for the record.

        A clause without a full stop: "headers, the CRC where it is checked, and rows".
        """
        ...

    @property
    def sample_verified(self) -> str:
        """Which bytes are compared with what was written, and where; for the record.

        A clause without a full stop: "every byte of each file, in the decoding threads".
        """
        ...

    @property
    def sample_path_is_direct(self) -> bool:
        """Whether the loader needs O_DIRECT."""
        ...


@runtime_checkable
class SampleLoaderConfig(SampleConfig, Protocol):
    """The configuration of a loader."""

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return a loader whose workers are running and have read nothing yet.

        Raises:
            ConfigError: a setting is out of range, or does not fit these samples.
            MissingExtraError: the library behind the loader is not installed.
        """
        ...


def copy_resized(payload: NDArray[np.uint8], row: NDArray[np.uint8]) -> None:
    """Copy the first bytes of a payload into a batch's row, and fill the rest with zeros."""
    count = min(len(payload), len(row))
    row[:count] = payload[:count]
    row[count:] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training job for an outside program to run.

    ``orders[epoch][accelerator]`` are the samples that an accelerator loads in an epoch, in order
    and in whole batches, the same number for each. ``step_s`` is the computation time of one step.
    ``record_mean_bytes`` and ``record_stdev_bytes`` describe the records to programs that need
    them.
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

    ``duration_s`` is the whole epoch on CLOCK_MONOTONIC, measured outside the program's loop.
    ``load_s`` is the wait for a batch, ``processed_s`` the whole step, ``compute_s`` the rest; the
    barrier after each step is in ``duration_s`` alone. ``cpu_s`` is the CPU time of all the
    accelerator's processes in the epoch. ``called_bytes`` is what its read calls returned and
    ``storage_bytes`` what was fetched from storage for it, both as the kernel counts them, ``None``
    where it does not. ``peak_bytes`` is the memory of its processes, each at its own peak so far;
    shared pages are divided among them (PSS).
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
    """The result of a training harness: ``epochs[epoch][accelerator]``.

    ``recomputed`` has those of its ``reported`` figures that follow from its times of single steps,
    under the same names. ``plugged_bytes`` counts what our reader moved inside the program, and
    ``verified`` what it compared, both ``None`` where the program used its own.
    """

    epochs: Sequence[Sequence[TrainedEpoch]]
    recomputed: Mapping[str, Sequence[float]]
    plugged_bytes: int | None = None
    verified: VerifiedSamples | None = None


@runtime_checkable
class SampleHarnessConfig(SampleConfig, Protocol):
    """The configuration of a harness that trains on whole samples."""

    def training_harness(self, training: Training) -> Harness[TrainingResult]:
        """Return the program, ready to run the job."""
        ...

    @property
    def is_cold_in_every_epoch(self) -> bool:
        """Whether the page cache is to be emptied before every epoch, not the first alone."""
        ...

    def differences(self, training: Training) -> Sequence[str]:
        """Return sentences on how the program differs from our own loop."""
        ...


def make_loader(config: LoaderConfig, samples: SampleSet, on_read: ReadCounter) -> Loader:
    """Return what ``make_loader`` of the loader's module ``loader`` makes.

    Raises:
        ConfigError: a setting is out of range, or does not fit these samples.
        MissingExtraError: the library behind the loader is not installed.
    """
    module = import_module(f"wattload.loaders.{config.name}.loader")
    made: Loader = module.make_loader(config, samples, on_read)
    return made


def make_harness(config: LoaderConfig, training: Training) -> Harness[TrainingResult]:
    """Return what ``make_harness`` of the loader's module ``harness`` makes."""
    module = import_module(f"wattload.loaders.{config.name}.harness")
    made: Harness[TrainingResult] = module.make_harness(config, training)
    return made
