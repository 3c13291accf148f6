"""Batches from DALI's pipeline: a thread takes them, cuts rows, verifies, and delivers them.

The thread prepares batches ahead of the training loop, as the workers of other loaders do: neither
the copies into rows nor verification takes time in the loop. DALI needs a path
to everything it reads, so samples in memory and padding have files in memory. DALI's long error
messages become one sentence that names the file.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.core.io import Batch, DataPath, VerifiedSamples
from wattload.core.units import NS_PER_S
from wattload.loaders.dali.config import Access, Config, import_dali, tensor_count
from wattload.loaders.dali.pipeline import Output, Pipeline, PipelineSettings
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import verify_payload
from wattload.loaders.samples import ReadCounter, SampleSet, copy_resized

COPY_BYTES = 1 << 20
DIMENSIONS = 3
"""The dimensions of the padding; only the samples of one batch must agree in them."""

READS_AHEAD = (
    "DALI's reader reads ahead of the epoch's end, and no padding file was found that it can read "
    "with this access: after each epoch it read the smallest record again, for up to a few "
    "batches, which no figure counts."
)


def batch_error(
    samples: SampleSet, sources: Sequence[str], indices: Sequence[int], error: Exception | None
) -> DataError:
    """Return the error for the first of these samples that is not a valid record.

    DALI names the file in some errors only, and fails batches before the one with the fault. So the
    headers of the files are checked again. ``sources`` are the paths that were read, one per
    sample. If all are valid, the message is DALI's.
    """
    for index in dict.fromkeys(indices):
        found = _check_file(samples, sources, index)
        if found is not None:
            return found
    reason = "the array it read is not uint8" if error is None else one_line(error)
    names = f"{samples.paths[indices[0]]} to {samples.paths[indices[-1]]}"
    return DataError(f"DALI could not load the samples from {names}: {reason}")


def wrong_size(
    samples: SampleSet, sources: Sequence[str], indices: Sequence[int]
) -> DataError | None:
    """Return the error for the first of these files whose size is not the planned one.

    Bytes are counted by the planned sizes; and DALI's reader on the GPU (2.4) does not notice a
    truncated file.
    """
    for index in indices:
        found_bytes, size_bytes = Path(sources[index]).stat().st_size, samples.file_bytes[index]
        if found_bytes != size_bytes:
            what = "is truncated" if found_bytes < size_bytes else "was changed"
            return DataError(
                f"{samples.paths[index]} {what}: expected {size_bytes} bytes, got {found_bytes}; "
                "remove the data folder to generate it again"
            )
    return None


def one_line(error: Exception) -> str:
    """Return DALI's error message without its traceback and source position."""
    text = str(error).rpartition("encountered:")[2].partition("C++ context")[0].strip()
    text = re.sub(r"^Assert on .*? failed: ", "", text, flags=re.DOTALL)
    return " ".join(text.split()) or type(error).__name__


def _check_file(samples: SampleSet, sources: Sequence[str], index: int) -> DataError | None:
    path = samples.paths[index]
    try:
        record_format(samples.record_format).payload(_map_file(sources[index]), str(path))
        return wrong_size(samples, sources, [index])
    except DataError as error:
        return error
    except OSError as error:
        return DataError(f"{path} can't be read: {error.strerror}; generate the data again")


def _map_file(source: str) -> NDArray[np.uint8]:
    """Return a file's bytes as a mapping; only the parts that are accessed are read."""
    try:
        return np.memmap(source, dtype=np.uint8, mode="r")
    except ValueError:  # an empty file can't be mapped
        return np.zeros(0, dtype=np.uint8)


class SideFiles:
    """Files that exist until ``close``, or the end of this process."""

    def __init__(self) -> None:
        self._files: list[IO[bytes]] = []

    def in_memory(self, content: IO[bytes]) -> str:
        """Return the path of a copy in memory; valid in this process only."""
        file = os.fdopen(os.memfd_create("wattload"), "wb")
        self._add(file, content)
        return f"/proc/self/fd/{file.fileno()}"

    def padding(self, accepts: Callable[[str], bool]) -> str | None:
        """Return the path of an npy record of one byte that ``accepts`` accepts, or ``None``.

        The file is in memory, else in a folder for temporary files, where a killed process leaves
        it.
        """
        path = self.in_memory(_padding_record())
        if accepts(path):
            return path
        for folder in dict.fromkeys((tempfile.gettempdir(), "/var/tmp")):
            try:
                path = self._on_disk(folder, _padding_record())
            except OSError:
                continue
            if accepts(path):
                return path
        return None

    def close(self) -> None:
        """Close the files, which ends them; safe to call twice."""
        while self._files:
            self._files.pop().close()

    def _on_disk(self, folder: str, content: IO[bytes]) -> str:
        file = tempfile.NamedTemporaryFile(prefix="wattload-", dir=folder)  # noqa: SIM115 - see close
        self._add(file, content)
        return file.name

    def _add(self, file: IO[bytes], content: IO[bytes]) -> None:
        self._files.append(file)
        shutil.copyfileobj(content, file, COPY_BYTES)
        file.flush()


def takes_direct(path: str) -> bool:
    """Return whether a file can be opened with O_DIRECT; in memory it can from Linux 6.6 on."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def on_block_device(path: str) -> bool:
    """Return whether a file is on a device with its own number, which cuFile looks up."""
    return os.major(os.stat(path).st_dev) != 0  # noqa: PTH116 - a path of /proc


def _padding_record() -> IO[bytes]:
    content = io.BytesIO()
    np.save(content, np.zeros((1,) * DIMENSIONS, dtype=np.uint8))
    content.seek(0)
    return content


def make_loader(config: Config, samples: SampleSet, on_read: ReadCounter) -> DaliLoader:
    """Return the loader over these samples, after a test run of DALI."""
    return DaliLoader(config, samples, on_read)


class DaliLoader:
    """Batches by DALI, with a separate pipeline per epoch; see ``loaders.dali.config``."""

    def __init__(self, config: Config, samples: SampleSet, on_read: ReadCounter) -> None:
        config.check()
        config.check_format(samples)
        self._samples = samples
        self._on_read = on_read
        self._pass: _Pass | None = None
        self._open_pipeline: Pipeline | None = None
        self._files = SideFiles()
        try:
            self._settings = self._pipeline_settings(config)
            self._warm_up()
        except BaseException:
            self._files.close()
            raise
        shape = (samples.batch_samples, samples.resize_bytes)
        self._tensors = [np.zeros(shape, dtype=np.uint8) for _ in range(tensor_count(samples))]

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Return the batches of one epoch; an unfinished earlier epoch is ended.

        Making the pipeline counts as time of the epoch.

        Raises:
            DataError: a file is missing, truncated, corrupt, or not a record.
            RuntimeError: the loader was closed.
        """
        if not self._tensors:
            raise RuntimeError("the loader is closed")
        self._end_pass()
        self._pass = _Pass(self._settings, order)
        return self._pass.batches(self._tensors, self._on_read)

    def path(self) -> DataPath:
        path = self._settings.config.path(self._samples)
        if self._settings.padding is None and self._samples.record_format == "npy":
            return path.model_copy(update={"remarks": (*path.remarks, READS_AHEAD)})
        return path

    def close(self) -> None:
        """End all threads, DALI's after the batches in preparation; safe to call twice."""
        self._end_pass()
        if self._open_pipeline is not None:
            self._open_pipeline.close()
        self._files.close()
        self._tensors = []

    def _pipeline_settings(self, config: Config) -> PipelineSettings:
        """Return what all epochs have in common; creates the files in memory."""
        samples, access = self._samples, config.access(self._samples)
        sources = tuple(self._source(path) for path in samples.paths)
        if samples.in_memory and access is Access.o_direct and not takes_direct(sources[0]):
            access = Access.plain
        settings = PipelineSettings(config, samples, access, sources)
        if settings.by_cufile:
            return replace(settings, padding=self._files.padding(on_block_device))
        if access is Access.o_direct:
            return replace(settings, padding=self._files.padding(takes_direct))
        return replace(settings, padding=self._files.padding(lambda _: True))

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
        """Load DALI and run a pipeline once, so that neither is timed; reads no sample."""
        import_dali()
        padding, count = self._settings.padding, self._samples.batch_samples
        if padding is None:
            return
        try:
            pipeline = Pipeline(replace(self._settings, sources=(padding,)), [[0] * count])
            pipeline.next_output()
        except RuntimeError as error:
            raise ConfigError(
                "DALI failed to read a test record of one byte, before any sample: "
                f"{one_line(error)}; use other settings of loader=dali, or loader=torch"
            ) from error.with_traceback(None)
        if self._settings.by_cufile:
            self._open_pipeline = pipeline  # closing the last pipeline would close cuFile's driver
        else:
            pipeline.close()

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.stop()
            self._pass = None


class _Pass:
    """One epoch: its pipeline, and the thread that takes its output."""

    def __init__(self, settings: PipelineSettings, order: Sequence[int]) -> None:
        samples = settings.samples
        self._samples = samples
        self._sources = settings.sources
        self._layout = record_format(samples.record_format)
        size = samples.batch_samples
        self._order = order[: len(order) // size * size]
        self._pipeline = Pipeline(settings, [self._indices(n) for n in range(self._count)])
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
        """Start the thread and return the batches in order; tensors are used in rotation."""
        self._thread = threading.Thread(
            target=self._work, args=(tensors, on_read), name="dali", daemon=True
        )
        self._thread.start()
        return self._delivered()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._pipeline.close()

    def _delivered(self) -> Iterator[Batch]:
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
                batch = self._next_batch(number, tensors[number % len(tensors)])
                on_read(batch.read_bytes)
                if not self._deliver(batch):
                    return
        except BaseException as error:  # raised in batches()
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _deliver(self, batch: Batch) -> bool:
        """Wait for space in the queue; return ``False`` if the epoch was ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or len(self._ready) < self._samples.accelerators
            )
            self._ready.append(batch)
            self._changed.notify_all()
            return not self._stopped

    def _next_batch(self, number: int, tensor: NDArray[np.uint8]) -> Batch:
        """Return the next batch of the pipeline, with rows in ``tensor``."""
        indices = self._indices(number)
        error: Exception | None = None
        try:
            output = self._pipeline.next_output()
            if output.is_uint8 and not wrong_size(self._samples, self._sources, indices):
                return self._cut(indices, output, tensor)
        except (RuntimeError, UnicodeDecodeError) as caught:
            # DALI quotes what it read, and fails to decode what is not text. The traceback refers
            # to the pipeline, whose threads would not end before it is released.
            error = caught.with_traceback(None)
        under_way = self._order[number * self._samples.batch_samples :]
        raise batch_error(self._samples, self._sources, under_way, error) from error

    def _cut(self, indices: Sequence[int], output: Output, tensor: NDArray[np.uint8]) -> Batch:
        """Fill the rows of a batch and verify the payloads that are in host memory.

        From a GPU, the payloads of the drawn samples are copied and verified.
        """
        payload_bytes = decode_ns = 0
        verified = VerifiedSamples()
        for row, index in enumerate(indices):
            start_ns = time.monotonic_ns()
            payload, size_bytes = self._decode(index, output, row)
            copy_resized(payload, tensor[row])
            decode_ns += time.monotonic_ns() - start_ns
            payload_bytes += size_bytes
            if output.fronts is None:
                verified.add(verify_payload(self._samples, index, payload))
            elif index in self._samples.drawn:
                verified.add(verify_payload(self._samples, index, output.payload(row)))
        return Batch(
            tensor=tensor,
            indices=tuple(indices),
            payload_bytes=payload_bytes,
            read_bytes=sum(self._samples.file_bytes[index] for index in indices),
            verified=verified,
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
