"""Whole samples: the files of a data set, training jobs on them, and the protocols of loaders.

``wattload.loaders.<name>`` has ``config`` and, for what it can do, ``loader`` (samples),
``checkpoint`` (shards) or ``harness`` (a whole training). These import ``config``. The other
direction goes by name, in ``make_loader``, ``run_training`` and ``checkpoint_store.make_store``: a
loader's library is imported only when the loader is used, so that every configuration can be read
and checked where the library is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import DataPath, Loader, VerifiedSamples
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig, Phase

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
    """A training job for one call of an outside program.

    ``orders[accelerator]`` are the samples that an accelerator loads in each of ``epochs``, in
    order and in whole batches, the same number for each. ``step_s`` is the computation time of one
    step of the ``model`` on the emulated ``accelerator``. ``record_mean_bytes`` and
    ``record_stdev_bytes`` describe the records to programs that need them.
    """

    samples: SampleSet
    orders: Sequence[Sequence[int]]
    model: str
    accelerator: str
    step_s: float
    record_mean_bytes: float
    record_stdev_bytes: float
    epochs: int = 1

    @property
    def accelerators(self) -> int:
        return len(self.orders)

    @property
    def steps(self) -> int:
        """The steps of an epoch, the same for each accelerator."""
        return len(self.orders[0]) // self.samples.batch_samples

    def batch_bytes_read(self, accelerator: int, step: int) -> int:
        """Return the size of the files that make up one batch, in bytes."""
        size = self.samples.batch_samples
        batch = self.orders[accelerator][step * size : (step + 1) * size]
        return sum(self.samples.file_bytes[index] for index in batch)

    def bytes_read(self, accelerator: int) -> int:
        """Return the size of the files that an accelerator loads in an epoch, in bytes."""
        return sum(self.samples.file_bytes[index] for index in self.orders[accelerator])

    @property
    def epoch_bytes(self) -> int:
        """The size of the files that all accelerators load in an epoch."""
        return sum(map(self.bytes_read, range(self.accelerators)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRank:
    """The epoch on one accelerator by the program's clock, in seconds; lists have one entry a step.

    ``duration_s`` is the whole epoch, barriers included. ``load_s`` is the wait for a batch,
    ``processed_s`` the whole step without the barrier after it.
    """

    duration_s: float
    load_s: tuple[float, ...]
    processed_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCounts:
    """What the kernel counted for the program's processes in the timed window.

    ``called_bytes`` is what read calls returned from any source, ``storage_bytes`` what was fetched
    from storage, ``peak_bytes`` their memory, each process at its own peak, with shared pages
    divided among them (PSS); ``None`` where the kernel does not count it.
    """

    cpu_s: float
    called_bytes: int | None
    storage_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The program's own figures: AU in [0, 1], and throughput in samples and nominal bytes."""

    au: float
    samples_per_s: float
    nominal_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedEpoch:
    """One epoch by an outside program: its accelerators' times, and its own report.

    ``window_s`` is the timed window on CLOCK_MONOTONIC. ``plugged_bytes`` counts what our reader
    moved inside the program, ``None`` where the program used its own.
    """

    ranks: Sequence[TrainedRank]
    window_s: float
    counts: ProcessCounts
    reported: Reported
    plugged_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """A training job by an outside program.

    ``verified`` is what our reader compared inside it, ``None`` where it used its own, or where
    the files have no stamps.
    """

    epochs: Sequence[TrainedEpoch]
    path: DataPath
    version: str
    command: tuple[str, ...]
    verified: VerifiedSamples | None = None


TimedWindow = Callable[[], AbstractContextManager[Phase]]
"""Opens the phase of an epoch of the program's loop, before it begins."""


@runtime_checkable
class SampleHarnessConfig(SampleConfig, Protocol):
    """The configuration of an outside program that owns the loop, such as dlio-benchmark."""

    def train(self, training: Training, folder: Path, window: TimedWindow | None) -> TrainingResult:
        """Run the program, keep its raw output in ``folder``, which must not exist yet.

        Without ``window`` the job is not part of the run's phases.

        All processes of the program have ended when the call returns or raises.

        Raises:
            RunError: the program failed, or its output can't be read; the message has its last
                error line and the path of its log.
        """
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


def run_training(
    config: LoaderConfig, training: Training, folder: Path, window: TimedWindow | None
) -> TrainingResult:
    """Return what ``train`` of the loader's module ``harness`` returns."""
    module = import_module(f"wattload.loaders.{config.name}.harness")
    trained: TrainingResult = module.train(config, training, folder, window)
    return trained
