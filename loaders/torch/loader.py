"""Batches by PyTorch's DataLoader: worker processes that ``np.load``, resize and verify."""

from __future__ import annotations

import io
import multiprocessing
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError, RunError, content_fault, host_fault
from wattload.core.io import Batch, DataPath, VerifiedSamples
from wattload.core.units import NS_PER_S
from wattload.core.workload import missing_error
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import verify_payload
from wattload.loaders.samples import ReadCounter, SampleSet, copy_resized
from wattload.loaders.torch.config import Config, require_shared_memory

if TYPE_CHECKING:
    import torch
    from _typeshed import WriteableBuffer
    from torch.utils.data import DataLoader, Dataset


T = TypeVar("T")


@dataclass(slots=True)
class BatchResult:
    """A batch as a worker sends it; ``tensor`` is in shared memory.

    ``cpu_s`` is the worker's CPU time since its last batch; the other fields are those of
    ``Batch``. With ``failure``, one sentence, all other fields are empty: an exception would add
    the worker's traceback to its message.
    """

    tensor: torch.Tensor
    payload_bytes: int = 0
    read_bytes: int = 0
    verified: VerifiedSamples = field(default_factory=VerifiedSamples)
    cpu_s: float = 0.0
    decode_s: float = 0.0
    failure: str | None = None


class SampleDataset:
    """The samples as a map-style data set; PyTorch passes a whole batch to ``__getitems__``."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples = samples
        self._held: dict[int, bytes] = {}
        self._cpu_mark_s: float | None = None

    def __getitem__(self, index: int) -> BatchResult:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> BatchResult:
        """Return the batch of these samples; an empty one starts the worker's CPU clock."""
        import torch

        rows = torch.empty((len(indices), self._samples.resize_bytes), dtype=torch.uint8)
        if indices:
            rows.share_memory_()  # type: ignore[no-untyped-call]  # torch
        result = BatchResult(rows)
        try:
            self._hold()
            for row, index in zip(result.tensor.numpy(), indices, strict=True):
                self._load(index, row, result)
        except (DataError, OSError, MemoryError) as error:
            failure = str(host_fault(error) or error)
            result = BatchResult(torch.empty(0, dtype=torch.uint8), failure=failure)
        now_s = time.process_time()
        result.cpu_s = now_s - (now_s if self._cpu_mark_s is None else self._cpu_mark_s)
        self._cpu_mark_s = now_s
        return result

    def _hold(self) -> None:
        """Read the files once, if samples come from memory."""
        if self._samples.in_memory and not self._held:
            self._held = {
                index: path.read_bytes() for index, path in enumerate(self._samples.paths)
            }

    def _load(self, index: int, row: NDArray[np.uint8], result: BatchResult) -> None:
        path = self._samples.paths[index]
        held = self._held.get(index)
        start_ns = time.monotonic_ns()
        if held is None:
            payload, read_ns = read_payload(path, self._samples.file_bytes[index])
        else:
            payload, read_ns = load_payload(path, io.BytesIO(held)), 0
        copy_resized(payload, row)
        result.decode_s += (time.monotonic_ns() - start_ns - read_ns) / NS_PER_S
        result.payload_bytes += len(payload)
        result.read_bytes += self._samples.file_bytes[index]
        result.verified.add(verify_payload(self._samples, index, payload))


class TimedFile(io.FileIO):
    """A file with timed reads: ``read_ns`` is their sum so far, by CLOCK_MONOTONIC."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read_ns = 0

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read as ``io.FileIO`` does."""
        start_ns = time.monotonic_ns()
        count = super().readinto(buffer)
        self.read_ns += time.monotonic_ns() - start_ns
        return count


def read_payload(path: Path, size_bytes: int) -> tuple[NDArray[np.uint8], int]:
    """Return a file's payload and the nanoseconds spent reading it.

    An npz is read in pieces through ``zipfile``, whose other work is decoding. The array of an npy
    is read at once by ``np.fromfile``, a JPEG as bytes; parsing their headers takes no measurable
    time.

    Raises:
        DataError: as ``load_payload``; or the file changed meanwhile or has another size, while
            bytes are counted by the planned sizes.
        OSError: the file can't be read.
    """
    start_ns = time.monotonic_ns()
    with TimedFile(path) as raw, io.BufferedReader(raw) as file:
        before = os.fstat(raw.fileno())
        if before.st_size != size_bytes:
            what = "is truncated" if before.st_size < size_bytes else "was changed"
            raise DataError(
                f"{path} {what}: expected {size_bytes} bytes, got {before.st_size}; "
                "remove the data folder to generate it again"
            )
        payload = load_payload(path, file)
        read_ns = raw.read_ns if path.suffix == ".npz" else time.monotonic_ns() - start_ns
        after = os.fstat(raw.fileno())
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise DataError(f"{path} changed while it was read; do not modify it during a run")
    return payload, read_ns


def load_payload(path: Path, source: BinaryIO) -> NDArray[np.uint8]:
    """Return a record's payload as ``np.load`` delivers it, shape ``(n,)``; ``path`` names it.

    A JPEG is read as bytes and not decoded.

    Raises:
        DataError: the file is truncated, corrupt, of another format, or not a uint8 array in C
            order.
        OSError: the file can't be read.
    """
    if path.suffix == ".jpeg":
        return record_format("jpeg").payload(np.frombuffer(source.read(), np.uint8), str(path))
    try:
        loaded = np.load(source, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                loaded = loaded["x"]
    except Exception as error:
        reason = content_fault(error)
        if reason is None:
            raise
        raise DataError(
            f"{path} is not a record that np.load can read: {reason}; generate the data again"
        ) from error
    if loaded.dtype != np.uint8 or not loaded.flags.c_contiguous:
        raise DataError(f"{path} has dtype {loaded.dtype}; records are uint8 in C order")
    array: NDArray[np.uint8] = loaded
    return array.reshape(-1)


def exit_with_run(run: int, _worker: int) -> None:
    """Make this worker end when the process ``run`` does, for any reason.

    PyTorch watches the parent, which under ``forkserver`` is the fork server. The fork server and
    the resource tracker live until the last worker has closed its end of a pipe, so they end with
    the workers.
    """
    try:
        watched = os.pidfd_open(run)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(target=_exit_after, args=(watched,), name="end-with-run", daemon=True).start()


def _exit_after(watched: int) -> None:
    """Wait until the process ends, then exit at once: nothing waits for the results."""
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    os._exit(1)


@contextmanager
def sigint_blocked(start_method: str) -> Iterator[None]:
    """Start worker processes with SIGINT blocked, so that the run ends them, not Ctrl-C.

    A worker that received the terminal's Ctrl-C would print its own traceback. Unless processes are
    forked, Python's tracker of shared resources starts first: its start unblocks SIGINT.
    """
    if start_method != "fork":
        resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def make_loader(config: Config, samples: SampleSet, on_read: ReadCounter) -> TorchLoader:
    """Return the DataLoader over these samples, its workers started."""
    return TorchLoader(config, samples, on_read)


class TorchLoader:
    """Batches by ``torch.utils.data.DataLoader``, one batch per worker at a time."""

    def __init__(self, config: Config, samples: SampleSet, on_read: ReadCounter) -> None:
        config.check()
        require_shared_memory(config, samples)
        self._samples = samples
        self._on_read = on_read
        self._batches: list[list[int]] = []
        self._workers = config.workers * samples.accelerators
        self._loader: DataLoader[Any] | None = _data_loader(config, samples, self._batches)
        with sigint_blocked(config.start_method):
            self._warm_up()

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Yield the batches of one epoch; each worker reads ``prefetch_factor`` batches ahead.

        Raises:
            DataError: a file is truncated, corrupt, or not a record.
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
                verified=result.verified,
                worker_cpu_s=result.cpu_s,
                decode_s=result.decode_s,
            )

    def path(self) -> DataPath:
        if self._samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        return DataPath(data_path="np.load in DataLoader workers", path_requested="page_cache")

    def close(self) -> None:
        """End the workers; PyTorch joins them, and kills a worker that does not end."""
        if self._loader is not None:
            iterator = getattr(self._loader, "_iterator", None)
            if iterator is not None:
                # The garbage collector would end the workers at an unknown time.
                iterator._shutdown_workers()
            self._loader = None

    def _results(self) -> Iterator[BatchResult]:
        if self._loader is None:
            raise RuntimeError("the loader is closed")
        with _worker_errors():
            with ignore_worker_warning():
                batches = iter(self._loader)
            yield from batches

    def _warm_up(self) -> None:
        """Start the workers with one empty batch each, so that start-up is never timed."""
        self._batches[:] = [[] for _ in range(self._workers)]
        try:
            failures = [result.failure for result in self._results()]
        except BaseException:
            self.close()
            raise
        _raise_first(failures)


def _data_loader(config: Config, samples: SampleSet, batches: list[list[int]]) -> DataLoader[Any]:
    """Return a DataLoader that takes its batches from the list, read again at each epoch."""
    try:
        from torch.utils.data import DataLoader
    except ImportError as error:
        raise missing_error(Config.requires, user="loader=torch") from error
    with ignore_worker_warning():
        return DataLoader(
            cast("Dataset[Any]", SampleDataset(samples)),
            batch_sampler=batches,
            num_workers=config.workers * samples.accelerators,
            prefetch_factor=config.prefetch_factor,
            persistent_workers=True,
            collate_fn=_unchanged,
            worker_init_fn=partial(exit_with_run, os.getpid()),
            multiprocessing_context=_start_context(config.start_method),
        )


def _start_context(start_method: str) -> BaseContext:
    context = multiprocessing.get_context(start_method)
    context.set_forkserver_preload(["torch.utils.data", SampleDataset.__module__])
    return context


@contextmanager
def ignore_worker_warning() -> Iterator[None]:
    """Suppress PyTorch's advice to use fewer workers: their number is part of the workload."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Raise the end of a worker as ``RunError``: PyTorch raises ``RuntimeError`` for any."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise RunError(
            f"{str(error).splitlines()[0].rstrip('. ')}; if the host ran out of memory, set a "
            "lower loader.workers or loader.prefetch_factor"
        ) from error


def _raise_first(failures: Iterable[str | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise DataError(failure)


def _unchanged(result: T) -> T:
    return result
