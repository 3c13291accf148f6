"""Batches from DALI's pipeline: a thread takes them, cuts rows, hashes, and hands them over.

The thread makes batches ahead of the training loop, as the workers of other loaders do: neither the
copies into rows nor the hashing of the samples that were chosen for it happen in the loop's time.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.core.io import Batch, DataPath
from wattload.core.units import NS_PER_S
from wattload.loaders.dali import Access, Config, tensor_count
from wattload.loaders.dali.failure import failure, one_line, wrong_size
from wattload.loaders.dali.files import SideFiles, on_block_device, takes_direct
from wattload.loaders.dali.pipeline import Output, Pipeline, Reading, import_dali
from wattload.loaders.formats import record_format
from wattload.loaders.samples import ReadCounter, SampleSet, copy_resized

READS_ON = (
    "DALI's reader runs ahead of what it is asked for, and no other file was found that it "
    "reads in this way: after each epoch it read the smallest record again, up to a few batches "
    "of it, which no figure counts."
)


class DaliLoader:
    """Batches by DALI; see ``wattload.loaders.dali``. It has a pipeline of its own per epoch."""

    def __init__(self, config: Config, samples: SampleSet, on_read: ReadCounter) -> None:
        config.check()
        config.check_format(samples)
        self._samples = samples
        self._on_read = on_read
        self._pass: _Pass | None = None
        self._kept: Pipeline | None = None
        self._files = SideFiles()
        try:
            self._reading = self._prepared(config)
            self._warm_up()
        except BaseException:
            self._files.close()
            raise
        shape = (samples.batch_samples, samples.resize_bytes)
        self._tensors = [np.zeros(shape, dtype=np.uint8) for _ in range(tensor_count(samples))]

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Return the batches of one epoch; an earlier one that has not come to its end is ended.

        Making the pipeline counts as time of the epoch.

        Raises:
            DataError: a file is missing, truncated, corrupt, or no record.
            RuntimeError: the loader was closed.
        """
        if not self._tensors:
            raise RuntimeError("the loader is closed")
        self._end_pass()
        self._pass = _Pass(self._reading, order)
        return self._pass.batches(self._tensors, self._on_read)

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        path = self._reading.config.path(self._samples)
        if self._reading.padding is None and self._samples.record_format == "npy":
            return path.model_copy(update={"remarks": (*path.remarks, READS_ON)})
        return path

    def close(self) -> None:
        """End all threads, those of DALI with the batches they are reading; safe to call twice."""
        self._end_pass()
        if self._kept is not None:
            self._kept.close()
        self._files.close()
        self._tensors = []

    def _prepared(self, config: Config) -> Reading:
        """Return what all epochs have in common; makes the files that lie in memory."""
        samples, access = self._samples, config.access(self._samples)
        sources = tuple(self._source(path) for path in samples.paths)
        if samples.in_memory and access is Access.o_direct and not takes_direct(sources[0]):
            access = Access.plain
        reading = Reading(config, samples, access, sources)
        if reading.by_cufile:
            return replace(reading, padding=self._files.padding(on_block_device))
        if access is Access.o_direct:
            return replace(reading, padding=self._files.padding(takes_direct))
        return replace(reading, padding=self._files.padding(lambda _: True))

    def _source(self, path: Path) -> str:
        if not self._samples.in_memory:
            return str(path)
        try:
            with path.open("rb") as content:
                return self._files.in_memory(content)
        except OSError as error:
            raise DataError(
                f"{path} can't be read: {error.strerror}; generate the data again"
            ) from error

    def _warm_up(self) -> None:
        """Load DALI and run a pipeline once, so that neither is ever timed; no sample is read."""
        import_dali()
        padding, count = self._reading.padding, self._samples.batch_samples
        if padding is None:
            return
        try:
            pipeline = Pipeline(replace(self._reading, sources=(padding,)), [[0] * count])
            pipeline.next_output()
        except RuntimeError as error:
            raise ConfigError(
                "DALI can't read a record of one byte here, before any of the samples: "
                f"{one_line(error)}; use other settings of loader=dali, or loader=torch"
            ) from error.with_traceback(None)
        if self._reading.by_cufile:
            self._kept = pipeline  # with the last one cuFile's driver would be closed
        else:
            pipeline.close()

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.stop()
            self._pass = None


class _Pass:
    """One epoch: its pipeline, and the thread that takes what comes out of it."""

    def __init__(self, reading: Reading, order: Sequence[int]) -> None:
        samples = reading.samples
        self._samples = samples
        self._sources = reading.sources
        self._layout = record_format(samples.record_format)
        size = samples.batch_samples
        self._order = order[: len(order) // size * size]
        self._pipeline = Pipeline(reading, [self._indices(n) for n in range(self._count)])
        self._ready: deque[Batch] = deque()
        self._failure: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def _count(self) -> int:
        return len(self._order) // self._samples.batch_samples

    def batches(
        self, tensors: Sequence[NDArray[np.uint8]], on_read: ReadCounter
    ) -> Iterator[Batch]:
        """Start the thread and return the batches in order; tensors are used by turns."""
        self._thread = threading.Thread(
            target=self._work, args=(tensors, on_read), name="dali", daemon=True
        )
        self._thread.start()
        return self._handed_over()

    def stop(self) -> None:
        """End the thread and the pipeline."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._pipeline.close()

    def _handed_over(self) -> Iterator[Batch]:
        for _ in range(self._count):
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._failure or self._stopped)
                if self._stopped:
                    raise RuntimeError("this epoch was ended before its last batch was taken")
                if not self._ready and self._failure is not None:
                    raise self._failure
                batch = self._ready.popleft()
                self._changed.notify_all()
            yield batch

    def _work(self, tensors: Sequence[NDArray[np.uint8]], on_read: ReadCounter) -> None:
        """Take the batches from the pipeline, at most one per accelerator ahead of the loop."""
        try:
            for number in range(self._count):
                batch = self._taken(number, tensors[number % len(tensors)])
                on_read(batch.read_bytes)
                if not self._hand_over(batch):
                    return
        except BaseException as error:  # handed to whoever waits for the batch
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _hand_over(self, batch: Batch) -> bool:
        """Wait until there is room; return ``False`` if the epoch was ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or len(self._ready) < self._samples.accelerators
            )
            self._ready.append(batch)
            self._changed.notify_all()
            return not self._stopped

    def _taken(self, number: int, tensor: NDArray[np.uint8]) -> Batch:
        """Return the next batch of the pipeline, with rows in ``tensor``."""
        indices = self._indices(number)
        error: Exception | None = None
        try:
            output = self._pipeline.next_output()
            if output.is_uint8 and not wrong_size(self._samples, self._sources, indices):
                return self._cut(indices, output, tensor)
        except (RuntimeError, UnicodeDecodeError) as caught:
            # DALI quotes what it read, and what is no text it can't hand over. The traceback holds
            # the pipeline, whose threads would not end before it does.
            error = caught.with_traceback(None)
        under_way = self._order[number * self._samples.batch_samples :]
        raise failure(self._samples, self._sources, under_way, error) from error

    def _cut(self, indices: Sequence[int], output: Output, tensor: NDArray[np.uint8]) -> Batch:
        """Fill the rows of a batch and hash what was chosen for it."""
        payload_bytes = decode_ns = 0
        hash_cpu_s = 0.0
        digests: dict[int, str] = {}
        for row, index in enumerate(indices):
            start_ns = time.monotonic_ns()
            payload, size_bytes = self._decode(index, output, row)
            copy_resized(payload, tensor[row])
            decode_ns += time.monotonic_ns() - start_ns
            payload_bytes += size_bytes
            if index in self._samples.hashed:
                start_s = time.thread_time()
                whole = payload if len(payload) == size_bytes else output.payload(row)
                digests[index] = hashlib.sha256(whole.data).hexdigest()
                hash_cpu_s += time.thread_time() - start_s
        return Batch(
            tensor=tensor,
            indices=tuple(indices),
            payload_bytes=payload_bytes,
            read_bytes=sum(self._samples.file_bytes[index] for index in indices),
            digests=digests,
            hash_cpu_s=hash_cpu_s,
            decode_s=decode_ns / NS_PER_S,
        )

    def _decode(self, index: int, output: Output, row: int) -> tuple[NDArray[np.uint8], int]:
        """Return a sample's payload, or the front of it, and the size of the whole in bytes."""
        samples, front = self._samples, output.front(row)
        if samples.record_format == "npy":
            return front, output.payload_bytes(row)
        name = str(samples.paths[index])
        payload = self._layout.payload(front, name, check_crc=samples.check_crc)
        return payload, len(payload)

    def _indices(self, number: int) -> Sequence[int]:
        first = number * self._samples.batch_samples
        return self._order[first : first + self._samples.batch_samples]
