"""dlio-benchmark as an outside program: it trains on our files, and its figures become ours too.

The program runs in processes of its own. In them ``launch`` stands in for two packages that it
imports and does not need; the stand-in for its tracer tells the ``conductor``, on our side, when an
epoch begins and ends, and waits there until the page cache is cold. Here are its settings, and
what can be said of it before it runs.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.target import Target
from wattload.loaders.direct import Config as DirectConfig
from wattload.loaders.direct import check_alignment
from wattload.loaders.formats import record_format
from wattload.loaders.samples import SampleSet

if TYPE_CHECKING:
    from wattload.loaders.dlio.harness import DlioHarness
    from wattload.loaders.sampleharness import Training

NEEDED = ("dlio_benchmark", "torch", "mpi4py", "pandas", "psutil")
"""What the program imports for unet3d."""

READERS = ("dlio", "wattload")
START_METHODS = ("fork", "forkserver", "spawn")


@dataclass(slots=True, kw_only=True)
class Config:
    """dlio-benchmark 2.0.0 in the environment that runs wattload, one process per accelerator.

    ``workers`` (DLIO's ``read_threads``) and ``prefetch_factor`` (its prefetch size divided by the
    workers, rounded up) are those of its PyTorch DataLoader; ``start_method`` is its
    ``multiprocessing_context``. ``cold_epochs`` empties the page cache before every epoch; without
    it before the first alone, as DLIO leaves it. ``reader`` is who reads files inside DLIO: its
    own code by ``np.load``, or ours by O_DIRECT, ``reader_queue_depth`` blocks of
    ``reader_block_bytes`` in flight per worker.
    """

    _target_: str = "wattload.loaders.dlio.Config"
    workers: int = 4
    prefetch_factor: int = 1
    start_method: str = "fork"
    cold_epochs: bool = True
    reader: str = "dlio"
    reader_block_bytes: int = 4 << 20
    reader_queue_depth: int = 8

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        for name in ("workers", "prefetch_factor"):
            if getattr(self, name) < 1:
                raise ConfigError(f"loader.{name} must be 1 or more, got {getattr(self, name)}")
        for name, allowed in (("reader", READERS), ("start_method", START_METHODS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"loader.{name} must be one of {', '.join(allowed)}, "
                    f"got {getattr(self, name)!r}"
                )
        with _named_as_here():
            self._reader_config().check()

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for a program that is not installed, and for what our reader can't do here."""
        require_program()
        if samples.accelerators > 1:
            mpirun()
        if self.sample_path_is_direct:
            self._reader_config().require_checkpoint_library()
            with _named_as_here():
                for target in targets:
                    check_alignment(target, self.reader_block_bytes)

    def training_harness(self, training: Training) -> DlioHarness:
        """Return the program, ready to run the job."""
        from wattload.loaders.dlio.harness import DlioHarness

        return DlioHarness(self, training)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers: a whole record per worker, and the batches under way.

        PyTorch itself and the processes come on top.
        """
        workers = self.workers * samples.accelerators
        batches = workers * (self.prefetch_factor + 1) + samples.accelerators
        return workers * max(samples.file_bytes) + batches * samples.batch_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: ``np.load`` does for each npz, ours when asked."""
        has_crc = record_format(samples.record_format).HAS_CRC
        return has_crc and (self.reader == "dlio" or samples.check_crc)

    @property
    def sample_bytes_counted(self) -> str:
        """Workers are other processes: what they read is told with the batch, not as it moves."""
        return (
            "as each batch reaches DLIO's loop, by the size of its files; workers had read them "
            "earlier, so these times are not those of the I/O"
        )

    @property
    def sample_decode_timed(self) -> str:
        """Why decoding is not told apart from reading; for the record."""
        return "dlio-benchmark does not tell decoding from reading"

    @property
    def sample_path_is_direct(self) -> bool:
        """Whether our reader is plugged in: DLIO's own reads through the page cache."""
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
        """Return what a reader must know who compares with our own loop."""
        side = math.isqrt(training.samples.resize_bytes)
        found = [
            "DLIO ran its own loop. It was given links that are pointed anew before "
            "each epoch, so that it read the same files in the same order as the other loaders "
            "do, where it would have shuffled by itself. It starts its workers in the first epoch, "
            "which other loaders do before the clock runs."
        ]
        if self.reader == "dlio":
            found.append(
                f"DLIO throws the bytes away that it reads: each sample of its batches is one "
                f"made-up image of {side} x {side} bytes."
            )
        else:
            found.append(
                "Files were read by wattload's reader in DLIO's plug-in point, which hands over "
                f"the first {side * side} bytes of each record."
            )
        return found


def require_program() -> None:
    """Raise ``MissingExtraError`` where dlio-benchmark, or what it imports, is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"loader=dlio needs dlio-benchmark, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed; install it by two commands, "
            "since pip can't resolve what it declares: pip install 'wattload[dlio,torch]' and "
            "pip install --no-deps dlio-benchmark==2.0.0"
        )


def mpirun() -> str:
    """Return the launcher: the one of this environment, else the first on the path.

    Raises ``MissingExtraError`` where there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise MissingExtraError(
            "loader=dlio starts one process per accelerator by mpirun, which is not there; "
            "pip install 'wattload[mpi]' brings it, or use accelerator.count=1"
        )
    return found


@contextmanager
def _named_as_here() -> Iterator[None]:
    """Have a complaint of the direct reader name the settings as they are called here."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error).replace("loader.", "loader.reader_", 1)) from error
