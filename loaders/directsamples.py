"""Whole samples by O_DIRECT: read ahead into reused buffers, decoded in place, cut into batches.

Files are read in the order of the samples, several blocks of them in flight (``DirectReader``),
each into one of a fixed set of aligned, pre-touched slots. As soon as a file is there a decoding
thread finds the payload in its slot, copies the front of it into a row of a batch and frees the
slot for the next file. So memory does not grow with the batches that are made ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.io import Batch, DataPath, IOKind
from wattload.loaders.aligned import PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.blockio import DirectMedium
from wattload.loaders.direct import Config
from wattload.loaders.directreader import DirectReader
from wattload.loaders.readahead import Arrival, Pass
from wattload.loaders.samples import ReadCounter, SampleSet


def slot_count(config: Config, samples: SampleSet) -> int:
    """Return how many whole files are held at once: as the memory, or the batches, allow.

    Raises ``ConfigError`` if it does not hold the largest.
    """
    slot_bytes = slot_size_bytes(samples)
    if config.prefetch_bytes < slot_bytes:
        raise ConfigError(
            f"loader.prefetch_bytes must hold the largest file, {slot_bytes} bytes, "
            f"got {config.prefetch_bytes}"
        )
    of_batches = tensor_count(config, samples) * samples.batch_samples
    return min(config.prefetch_bytes // slot_bytes, of_batches)


def slot_size_bytes(samples: SampleSet) -> int:
    """Return the size of a slot: the largest file, in whole pages."""
    return round_up(max(samples.file_bytes), PAGE_BYTES)


def memory_bytes(config: Config, samples: SampleSet) -> int:
    """Return the memory that one rank's loader holds, in bytes.

    Raises ``ConfigError`` if ``prefetch_bytes`` does not hold the largest file.
    """
    slots_bytes = slot_count(config, samples) * slot_size_bytes(samples)
    held_bytes = sum(samples.file_bytes) if samples.in_memory else 0
    return slots_bytes + tensor_count(config, samples) * samples.batch_bytes + held_bytes


def tensor_count(config: Config, samples: SampleSet) -> int:
    """Return the batch tensors: those made ahead for each accelerator, and the one handed over."""
    return config.prefetch_batches * samples.accelerators + 1


class DirectSampleLoader:
    """Batches of samples by ``DirectReader``; passes no byte through the page cache."""

    def __init__(self, config: Config, samples: SampleSet, on_read: ReadCounter) -> None:
        config.check()
        self._samples = samples
        self._on_read = on_read
        self._pass: Pass | None = None
        count = slot_count(config, samples)
        medium = PreloadedMedium(samples.paths) if samples.in_memory else None
        self._slots = [aligned_buffer(slot_size_bytes(samples)) for _ in range(count)]
        shape = (samples.batch_samples, samples.resize_bytes)
        self._tensors = [
            np.zeros(shape, dtype=np.uint8) for _ in range(tensor_count(config, samples))
        ]
        self._reader = DirectReader(config, medium=medium)
        self._decoders = ThreadPoolExecutor(
            config.workers * samples.accelerators, thread_name_prefix="decode"
        )

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Return the batches of one epoch; whatever an earlier one has in flight is ended first.

        Raises:
            DataError: a file is truncated, corrupt, or no record.
            OSError: the kernel refused a read; the file and the offset are in the message.
            RuntimeError: the loader was closed.
        """
        if not self._slots:
            raise RuntimeError("the loader is closed")
        self._end_pass()
        self._pass = Pass(self._samples, order, self._slots, self._tensors, self._fetch)
        return self._pass.batches()

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        if self._samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        return self._reader.path()

    def close(self) -> None:
        """End the threads and give the buffers back; safe to call twice."""
        self._end_pass()
        self._reader.close()
        self._decoders.shutdown()
        self._slots, self._tensors = [], []

    def _end_pass(self) -> None:
        """Wait for the files in flight: the reader writes into their slots until then."""
        if self._pass is not None:
            self._pass.stop()
            self._pass = None

    def _fetch(self, index: int, slot: NDArray[np.uint8], then: Arrival) -> None:
        """Begin to read a sample's file into a slot; ``then`` is called on a decoding thread."""
        ticket = self._reader.submit(
            self._samples.paths[index], slot, self._samples.file_bytes[index], moved=self._on_read
        )
        ticket.add_done_callback(lambda done: self._decode(then, done))

    def _decode(self, then: Arrival, done: Future[int]) -> None:
        self._decoders.submit(then, done)


class PreloadedMedium(DirectMedium):
    """Files that were read into memory once: every later block is a copy in place of the I/O."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = [np.fromfile(path, dtype=np.uint8) for path in paths]
        self._handles = {path: handle for handle, path in enumerate(paths)}

    def open(self, path: Path, kind: IOKind, end_bytes: int) -> int:
        """Return the file's number."""
        return self._handles[path]

    def read(self, handle: int, path: Path, buffer: NDArray[np.uint8], offset_bytes: int) -> int:
        """Copy from memory."""
        part = self._files[handle][offset_bytes : offset_bytes + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def close(self, handle: int) -> None:
        """Do nothing: the file stays in memory."""
