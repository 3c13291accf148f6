"""The settings of loader=dlio, and what it differs in from our own loop."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import MissingExtraError
from wattload.core.installation import install_command
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import PYTORCH, Requirement, require_installed
from wattload.loaders.aligned_io import PAGE_BYTES, check_alignment
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.direct.config import BLOCK_BYTES_LIMIT, QUEUE_DEPTH_LIMIT
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.samples import (
    SampleSet,
    TimedWindow,
    Training,
    TrainingResult,
    run_training,
)

READERS = ("dlio", "wattload")
START_METHODS = ("fork", "forkserver", "spawn")
WORKER_LIMIT = 1024


@dataclass(slots=True, kw_only=True)
class Config:
    """dlio-benchmark 2.0.0 in the environment that runs wattload, one process per accelerator.

    ``workers`` (DLIO's ``read_threads``) and ``prefetch_factor`` (its prefetch size divided by the
    workers, rounded up) are those of its PyTorch DataLoader; ``start_method`` is its
    ``multiprocessing_context``.
    """

    name: ClassVar[str] = "dlio"
    requires: ClassVar[tuple[Requirement, ...]] = (
        # Its own requirements can't be resolved by pip, so wattload's extra lists them instead.
        Requirement(
            module="dlio_benchmark",
            software="dlio-benchmark",
            extra="dlio",
            package="dlio-benchmark==2.0.0",
        ),
        PYTORCH,
        *(
            Requirement(module=module, software=software, extra="dlio")
            for module, software in (
                ("mpi4py", "mpi4py"),
                ("pandas", "pandas"),
                ("PIL", "Pillow"),
                ("psutil", "psutil"),
            )
        ),
    )
    """What the program imports; Pillow for JPEG alone."""

    _target_: str = "wattload.loaders.dlio.config.Config"
    workers: int = setting(4, "Worker processes per accelerator.", least=1, most=WORKER_LIMIT)
    prefetch_factor: int = setting(
        1, "Batches that each worker prepares at once.", least=1, most=WORKER_LIMIT
    )
    start_method: str = setting("fork", "How workers start.", choices=START_METHODS)
    cold_epochs: bool = setting(
        True,
        "Empty the page cache before every epoch, each a call of DLIO; false: before the first of "
        "all epochs in one call.",
    )
    reader: str = setting(
        "dlio",
        "What reads files inside DLIO: its own code by np.load, or wattload's by O_DIRECT.",
        choices=READERS,
    )
    reader_block_bytes: int = setting(
        4 << 20,
        "Size of one I/O of wattload's reader.",
        multiple=PAGE_BYTES,
        least=PAGE_BYTES,
        most=BLOCK_BYTES_LIMIT,
    )
    reader_queue_depth: int = setting(
        8, "I/Os in flight per worker of wattload's reader.", least=1, most=QUEUE_DEPTH_LIMIT
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for a program that is not installed, and for settings that our reader can't use."""
        require_installed(self.requires, user="loader=dlio")
        if samples.accelerators > 1:
            mpirun()
        if self.sample_path_is_direct:
            self._reader_config().require_checkpoint_library()
            for target in targets:
                check_alignment(target, self.reader_block_bytes, "loader.reader_block_bytes")

    def train(self, training: Training, folder: Path, window: TimedWindow | None) -> TrainingResult:
        """Run the program; see ``harness.train``."""
        return run_training(self, training, folder, window)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers: a record per worker, and the batches in preparation.

        PyTorch itself and the processes need more.
        """
        workers = self.workers * samples.accelerators
        batches = workers * (self.prefetch_factor + 1) + samples.accelerators
        return workers * max(samples.file_bytes) + batches * samples.batch_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: by ``np.load`` for each npz, by ours if asked."""
        has_crc = record_format(samples.record_format).HAS_CRC
        return has_crc and (self.reader == "dlio" or samples.check_crc)

    @property
    def sample_decode_timed(self) -> str:
        """Why the decoding time is unknown; for the record."""
        return "dlio-benchmark does not time decoding and reading separately"

    @property
    def sample_verified(self) -> str:
        if self.reader == "wattload":
            return "every byte of each file, in DLIO's workers within the timed phase"
        return "none: dlio-benchmark discards the bytes that it reads"

    @property
    def sample_path_is_direct(self) -> bool:
        """Whether our reader is used: DLIO's own reads through the page cache."""
        return self.reader == "wattload"

    @property
    def is_cold_in_every_epoch(self) -> bool:
        """Whether the page cache is emptied before every epoch."""
        return self.cold_epochs

    def _reader_config(self) -> DirectConfig:
        return DirectConfig(
            block_bytes=self.reader_block_bytes, queue_depth=self.reader_queue_depth
        )

    def differences(self, training: Training) -> Sequence[str]:
        """Return the differences that matter in a comparison with our own loop."""
        side = math.isqrt(training.samples.resize_bytes)
        order = (
            "one epoch at a time. It read links, so that it read the same files in the same order "
            "as the other loaders"
            if training.epochs == 1
            else "all epochs in one call. It read links in the order of the other loaders' first "
            "epoch, in every epoch"
        )
        found = [
            f"DLIO ran its own loop, {order}; its own shuffling was off. It starts its workers in "
            "the first timed epoch of a call, which other loaders do before the measurement.",
            "Bytes are those of the files of every batch that DLIO reports as processed. Counters "
            "of CPU and devices are read when its log announces a timed block or its end, within "
            "milliseconds of them.",
        ]
        if self.reader == "dlio":
            found.append(
                "DLIO discards the bytes that it reads: each sample of its batches is the same "
                f"synthetic image of {side} x {side} bytes."
            )
        else:
            found.append(
                "Files were read by wattload's reader, as a plug-in of DLIO; it delivers the first "
                f"{side * side} bytes of each record."
            )
        return found


def mpirun() -> str:
    """Return the launcher of this environment, else the first on the path.

    Raises:
        MissingExtraError: there is none.
    """
    local = Path(sys.executable).parent / "mpirun"
    found = str(local) if local.exists() else shutil.which("mpirun")
    if found is None:
        raise MissingExtraError(
            "loader=dlio starts one process per accelerator by mpirun, which is not installed; "
            f"install it with: {install_command(['mpi'])}, or use accelerator.count=1"
        )
    return found
