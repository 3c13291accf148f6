"""What runs inside the DataLoader's worker processes: ``np.load``, resize, hash."""

from __future__ import annotations

import hashlib
import io
import os
import select
import signal
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.units import NS_PER_S
from wattload.loaders.samples import SampleSet, copy_resized

if TYPE_CHECKING:
    import torch
    from _typeshed import WriteableBuffer


@dataclass(slots=True)
class BatchResult:
    """A batch as a worker sends it; ``tensor`` lies in shared memory.

    ``cpu_s`` is the worker's CPU time since its last batch, the other fields are those of
    ``Batch``. With ``failure``, one sentence, there is nothing else: an exception would come back
    with the worker's traceback in its message.
    """

    tensor: torch.Tensor
    payload_bytes: int = 0
    read_bytes: int = 0
    digests: dict[int, str] = field(default_factory=dict)
    hash_cpu_s: float = 0.0
    cpu_s: float = 0.0
    decode_s: float = 0.0
    failure: str | None = None


class SampleDataset:
    """The samples as a map-style data set; PyTorch hands a whole batch to ``__getitems__``."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples = samples
        self._held: dict[int, bytes] = {}
        self._cpu_mark_s: float | None = None

    def __getitem__(self, index: int) -> BatchResult:
        """Return a batch of one sample."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> BatchResult:
        """Return the batch of these samples; an empty one starts the worker's clock."""
        import torch

        rows = torch.empty((len(indices), self._samples.resize_bytes), dtype=torch.uint8)
        if indices:
            rows.share_memory_()  # type: ignore[no-untyped-call]
        result = BatchResult(rows)
        try:
            self._hold()
            for row, index in zip(result.tensor.numpy(), indices, strict=True):
                self._load(index, row, result)
        except (DataError, OSError) as error:
            result = BatchResult(torch.empty(0, dtype=torch.uint8), failure=str(error))
        now_s = time.process_time()
        result.cpu_s = now_s - (now_s if self._cpu_mark_s is None else self._cpu_mark_s)
        self._cpu_mark_s = now_s
        return result

    def _hold(self) -> None:
        """Read the files once, where samples are to come from memory."""
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
        if index in self._samples.hashed:
            start_s = time.thread_time()
            result.digests[index] = hashlib.sha256(payload.data).hexdigest()
            result.hash_cpu_s += time.thread_time() - start_s


class TimedFile(io.FileIO):
    """A file whose reads are timed: ``read_ns`` by CLOCK_MONOTONIC, in all so far."""

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
    """Return a file's payload and the nanoseconds in which it was read.

    An npz is read in pieces through ``zipfile``, whose other work is decoding. The array of an npy
    is read in one go by ``np.fromfile``, and parsing its header is nothing beside that.

    Raises as ``load_payload``, and ``DataError`` for a file that changes meanwhile or has another
    size: bytes are counted by the sizes that were planned with.
    """
    start_ns = time.monotonic_ns()
    with TimedFile(path) as raw, io.BufferedReader(raw) as file:
        before = os.fstat(raw.fileno())
        if before.st_size != size_bytes:
            what = "is truncated" if before.st_size < size_bytes else "was changed"
            raise DataError(
                f"{path} {what}: it has {before.st_size} bytes, {size_bytes} were expected; "
                "remove the data folder to have it made again"
            )
        payload = load_payload(path, file)
        read_ns = raw.read_ns if path.suffix == ".npz" else time.monotonic_ns() - start_ns
        after = os.fstat(raw.fileno())
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise DataError(f"{path} changed while it was read; let no other program write to it")
    return payload, read_ns


def load_payload(path: Path, source: BinaryIO) -> NDArray[np.uint8]:
    """Return a record's payload as ``np.load`` delivers it, shape ``(n,)``; ``path`` names it.

    Raises:
        DataError: truncated, corrupt, no npz or npy file, or no uint8 array in C order.
        OSError: the file can't be read.
    """
    try:
        loaded = np.load(source, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                loaded = loaded["x"]
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(
            f"{path} is no record that np.load reads: {error}; generate the data again"
        ) from error
    if loaded.dtype != np.uint8 or not loaded.flags.c_contiguous:
        raise DataError(f"{path} holds {loaded.dtype} in another order than C; records are uint8")
    array: NDArray[np.uint8] = loaded
    return array.reshape(-1)


def end_with(run: int, _worker: int) -> None:
    """Have this worker end when the process ``run`` does, however that comes about.

    PyTorch watches the parent, which under ``forkserver`` is the fork server. That one, and the
    resource tracker, live until the last worker has closed its end of a pipe: with the workers all
    of them end.
    """
    try:
        watched = os.pidfd_open(run)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(target=_end_after, args=(watched,), name="end-with-run", daemon=True).start()


def _end_after(watched: int) -> None:
    """Wait until the process ends, then end this one at once: nobody waits for its results."""
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    os._exit(1)


@contextmanager
def start_quietly() -> Iterator[None]:
    """Start worker processes with SIGINT blocked, which they keep: the run ends them, not Ctrl-C.

    A worker that took the terminal's Ctrl-C would print a traceback of its own.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
