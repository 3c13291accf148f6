"""Whole samples by O_DIRECT: read ahead into reused buffers, decoded in place, cut into batches.

Files are read in the order of the samples, several blocks of them in flight (``DirectReader``) over
the border between two files too, each into one of a fixed set of slots: one piece of pre-touched
memory in huge pages, registered with the kernel once. As soon as a file is there a decoding thread
finds the payload in its slot, copies the front of it into a row of a batch and frees the slot for
the next file. That is the only copy there is, and memory does not grow with the batches that are
made ahead. Batches lie in pre-touched memory too: the first touch of a page costs more than a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.histogram import Histogram
from wattload.core.io import Batch, DataPath, IOKind, TracedOperations
from wattload.loaders.aligned import aligned_buffers, round_up
from wattload.loaders.direct import PYTHON, Config
from wattload.loaders.direct.readahead import Arrival, Pass
from wattload.loaders.direct.reader import DirectReader
from wattload.loaders.native.backend import NULL
from wattload.loaders.native.reader import NativeReader
from wattload.loaders.operationlog import OperationLog
from wattload.loaders.python.blockio import NullMedium
from wattload.loaders.samples import ReadCounter, SampleSet

SLOT_ALIGN_BYTES = 64 << 10
"""Slots start at multiples of this: the largest logical blocks that Linux takes."""


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
    """Return the size of a slot: the largest file, rounded up for any drive's blocks."""
    return round_up(max(samples.file_bytes), SLOT_ALIGN_BYTES)


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
        self._held = held_files(samples) if samples.in_memory else None
        count = slot_count(config, samples)
        self._slots = aligned_buffers(count, slot_size_bytes(samples), SLOT_ALIGN_BYTES)
        self._tensors = [
            memory.reshape(samples.batch_samples, samples.resize_bytes)
            for memory in aligned_buffers(tensor_count(config, samples), samples.batch_bytes)
        ]
        self._log = OperationLog(config.trace_operations)
        self._reader = _reader(config, self._slots, self._log, is_null=samples.in_memory)
        self._block_bytes = config.block_bytes
        self._queued_bytes = 2 * config.queue_depth * config.pollers * config.block_bytes
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
        self._pass = Pass(
            self._samples,
            order,
            self._slots,
            self._tensors,
            self._fetch,
            queued_bytes=self._queued_bytes,
            held=self._held,
        )
        return self._pass.batches()

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        if self._samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        return self._reader.path()

    @property
    def operation_bytes(self) -> int:
        """The size of one read, ``loader.block_bytes``."""
        return self._block_bytes

    def latency(self, kind: IOKind) -> Histogram:
        """Return how long the reads of blocks took so far; there are no writes."""
        return self._reader.latency() if kind is IOKind.READ else Histogram.of(())

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample of the reads of blocks so far; there are no writes."""
        return self._log.traced(kind, phase) if kind is IOKind.READ else ()

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


def held_files(samples: SampleSet) -> Sequence[NDArray[np.uint8]]:
    """Return the files' bytes, each of shape ``(file bytes,)``, read through the page cache."""
    return [np.fromfile(path, dtype=np.uint8) for path in samples.paths]


def _reader(
    config: Config, slots: Sequence[NDArray[np.uint8]], log: OperationLog, *, is_null: bool
) -> DirectReader | NativeReader:
    """Return what reads files into the slots.

    With ``is_null`` it is the same engine with I/O that takes no time and moves nothing: direct I/O
    costs the host no copy, so none stands in for it where samples come from memory.
    """
    if not is_null:
        return DirectReader(config, buffers=slots, log=log)
    if config.engine == PYTHON:
        return DirectReader(config, medium=NullMedium())
    return NativeReader(
        backend=NULL,
        block_bytes=config.block_bytes,
        depth=config.queue_depth,
        pollers=config.pollers,
        buffers=slots,
    )
