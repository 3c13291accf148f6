"""The ``torch`` loader: PyTorch's DataLoader as DLIO runs it, worker processes and ``np.load``."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wattload.core.errors import ConfigError, DataError, MissingExtraError
from wattload.core.io import Batch, DataPath, Loader
from wattload.core.target import Target
from wattload.core.units import format_bytes
from wattload.loaders.aligned import PAGE_BYTES
from wattload.loaders.checkpoints import Shard, ShardStore
from wattload.loaders.formats import record_format
from wattload.loaders.samples import ReadCounter, SampleSet
from wattload.loaders.torch.worker import BatchResult, SampleDataset, end_with, start_quietly

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset

T = TypeVar("T")

SHARED_MEMORY = "/dev/shm"
MISSING_TORCH = (
    "loader=torch needs PyTorch, which is not installed; "
    "install it with: pip install 'wattload[torch]', or use loader=direct"
)
START_METHODS = ("forkserver", "spawn", "fork")


@dataclass(slots=True, kw_only=True)
class Config:
    """PyTorch's DataLoader, and ``torch.save``.

    ``workers`` is the number of worker processes per accelerator (DLIO's ``read_threads``) and
    ``prefetch_factor`` the batches that each has under way (DLIO: its prefetch size of 2 divided by
    the workers, rounded up). ``start_method`` is how workers start: ``forkserver`` imports PyTorch
    once for all of them; ``fork``, DLIO 2.0's way, can deadlock beside threads and MPI.
    ``bucket_bytes`` bounds one file of ``torch.save``.
    """

    _target_: str = "wattload.loaders.torch.Config"
    workers: int = 4
    prefetch_factor: int = 1
    start_method: str = "forkserver"
    bucket_bytes: int = 1 << 30

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        for name in ("workers", "prefetch_factor", "bucket_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"loader.{name} must be 1 or more, got {getattr(self, name)}")
        if self.start_method not in START_METHODS:
            raise ConfigError(
                f"loader.start_method must be one of {', '.join(START_METHODS)}, "
                f"got {self.start_method!r}"
            )

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` where PyTorch is not installed; it is not imported yet."""
        if find_spec("torch") is None:
            raise MissingExtraError(MISSING_TORCH)

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard by ``torch.save`` + fsync."""
        from wattload.loaders.torch.checkpoint import TorchStore

        return TorchStore(shard, bucket_bytes=self.bucket_bytes, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return a bound on the tensors of one file, held once and once more while loading."""
        return 2 * (min(self.bucket_bytes, shard.size_bytes) + PAGE_BYTES * len(shard.tensors))

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``False``: ``torch.save`` writes through the page cache."""
        return False

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for missing PyTorch, and for too little shared memory."""
        if find_spec("torch") is None:
            raise MissingExtraError(MISSING_TORCH)
        _require_shared_memory(self, samples)

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the DataLoader over these samples, its workers started."""
        return TorchLoader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers: one whole record per worker, and the batches under way.

        ``np.load`` of an npz holds its member once; PyTorch itself and its processes come on top.
        """
        workers = self.workers * samples.accelerators
        held_bytes = 2 if samples.in_memory else 1
        batches = workers * (self.prefetch_factor + 1) + 1
        return workers * held_bytes * max(samples.file_bytes) + batches * samples.batch_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: ``np.load`` does for each npz, asked or not."""
        return record_format(samples.record_format).HAS_CRC

    @property
    def sample_bytes_counted(self) -> str:
        """Workers are other processes: what they read is told with the batch, not as it moves."""
        return (
            "at delivery of each batch, by the size of its files; workers had read them earlier, "
            "so these times are not those of the I/O"
        )

    @property
    def sample_decode_timed(self) -> str:
        """``np.load`` does both by turns: what it spends in reads of the file is taken off."""
        return (
            "headers, the CRC that np.load computes of every npz, its copies, and those into rows; "
            "of an npy, which np.load reads straight into its array, the copies into rows alone"
        )

    @property
    def sample_path_is_direct(self) -> bool:
        """``False``: ``np.load`` reads through the page cache."""
        return False


class TorchLoader:
    """Batches by ``torch.utils.data.DataLoader``, one batch per worker at a time."""

    def __init__(self, config: Config, samples: SampleSet, on_read: ReadCounter) -> None:
        config.check()
        _require_shared_memory(config, samples)
        self._samples = samples
        self._on_read = on_read
        self._batches: list[list[int]] = []
        self._workers = config.workers * samples.accelerators
        self._loader: DataLoader[Any] | None = _data_loader(config, samples, self._batches)
        with start_quietly():
            self._warm_up()

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Yield the batches of one epoch; workers read ahead by ``prefetch_factor`` batches each.

        Raises:
            DataError: a file is truncated, corrupt, or no record.
            RuntimeError: the loader was closed.
        """
        size = self._samples.batch_samples
        whole = len(order) // size * size
        self._batches[:] = [list(order[start : start + size]) for start in range(0, whole, size)]
        for indices, result in zip(self._batches, self._results(), strict=True):
            _raise_first([result.failure])
            self._on_read(result.read_bytes)
            yield Batch(
                tensor=result.tensor.numpy(),
                indices=tuple(indices),
                payload_bytes=result.payload_bytes,
                read_bytes=result.read_bytes,
                digests=result.digests,
                hash_cpu_s=result.hash_cpu_s,
                worker_cpu_s=result.cpu_s,
                decode_s=result.decode_s,
            )

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        if self._samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        return DataPath(data_path="np.load in DataLoader workers", path_requested="page_cache")

    def close(self) -> None:
        """End the workers; PyTorch joins them, and ends by force one that does not come."""
        if self._loader is not None:
            iterator = getattr(self._loader, "_iterator", None)
            if iterator is not None:
                # Left to the garbage collector, workers would live on for an unknown time.
                iterator._shutdown_workers()
            self._loader = None

    def _results(self) -> Iterator[BatchResult]:
        if self._loader is None:
            raise RuntimeError("the loader is closed")
        with quiet_about_workers():
            return iter(self._loader)

    def _warm_up(self) -> None:
        """Start the workers with one empty batch each, so that no start-up is ever timed."""
        self._batches[:] = [[] for _ in range(self._workers)]
        try:
            failures = [result.failure for result in self._results()]
        except BaseException:
            self.close()
            raise
        _raise_first(failures)


def _data_loader(config: Config, samples: SampleSet, batches: list[list[int]]) -> DataLoader[Any]:
    """Return a DataLoader that takes its batches from the list, read anew at each epoch."""
    try:
        from torch.utils.data import DataLoader
    except ImportError as error:
        raise MissingExtraError(MISSING_TORCH) from error
    with quiet_about_workers():
        return DataLoader(
            cast("Dataset[Any]", SampleDataset(samples)),
            batch_sampler=batches,
            num_workers=config.workers * samples.accelerators,
            prefetch_factor=config.prefetch_factor,
            persistent_workers=True,
            collate_fn=_as_it_is,
            worker_init_fn=partial(end_with, os.getpid()),
            multiprocessing_context=_started_by(config.start_method),
        )


def _started_by(start_method: str) -> BaseContext:
    context = multiprocessing.get_context(start_method)
    context.set_forkserver_preload(["torch.utils.data", SampleDataset.__module__])
    return context


@contextmanager
def quiet_about_workers() -> Iterator[None]:
    """Keep PyTorch from advising fewer workers: their number is part of the workload."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


def _raise_first(failures: Iterable[str | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise DataError(failure)


def _as_it_is(result: T) -> T:
    return result


def _require_shared_memory(config: Config, samples: SampleSet) -> None:
    """Raise ``ConfigError`` where the workers' tensors would not fit: they die of SIGBUS then."""
    workers = config.workers * samples.accelerators
    needed_bytes = (workers * config.prefetch_factor + 1) * samples.batch_bytes
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return
    free_bytes = status.f_bavail * status.f_frsize
    if free_bytes < needed_bytes:
        raise ConfigError(
            f"{workers} workers with {config.prefetch_factor} batches each need "
            f"{format_bytes(needed_bytes)} of {SHARED_MEMORY}, got {format_bytes(free_bytes)}; "
            "use fewer loader.workers, or give a container more with --shm-size"
        )
