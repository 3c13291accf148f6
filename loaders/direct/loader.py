"""Whole samples by O_DIRECT: read ahead into reused buffers, decoded in place, cut into batches.

Files are read in the order of the samples by ``FileReader``, with several blocks in flight, across
file borders too. Each file goes into one of a fixed set of slots: one piece of pre-touched memory
in huge pages, registered with the kernel once. When a file has been read, a decoding thread finds
the payload in its slot, copies the front of it into a row of a batch, verifies the file and frees
the slot for the next one. That is the only copy, and memory does not grow with the batches prepared
ahead. Batches use pre-touched memory too: the first touch of a page costs more than a copy.

Small files are read in groups, each by one plan of the engine: opening, reading and closing them
takes no Python code per file. A group is decoded by one thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import (
    Batch,
    ByteCounter,
    DataPath,
    Extent,
    IOKind,
    IOPlan,
    IOResult,
    TracedOperations,
    VerifiedSamples,
)
from wattload.core.units import NS_PER_S
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffers, direct_alignment, round_up
from wattload.loaders.data.equal_records import EqualRecords
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.data.verification import verify_file
from wattload.loaders.direct.config import (
    SLOT_ALIGN_BYTES,
    Config,
    group_files,
    slot_count,
    slot_size_bytes,
    tensor_count,
)
from wattload.loaders.engine.engine import IOEngine, Ticket
from wattload.loaders.engine.library import NULL
from wattload.loaders.operation_log import OperationLog, OperationRange
from wattload.loaders.samples import ReadCounter, SampleSet, copy_resized

REGION_BYTES_LIMIT = 1 << 30
"""The most that the kernel registers in one piece."""

Arrival = Callable[[Future[IOResult]], None]
"""Called with the future of a group of files that was read or failed."""

Fetch = Callable[[Sequence[int], NDArray[np.uint8], Arrival], None]
"""Begins to read the files of samples into slots, the rows of an array."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Files that are being read: their future, and their place among all operations."""

    ticket: Ticket
    future: Future[IOResult]
    plan: IOPlan
    operations: OperationRange


class FileReader:
    """Reads whole files by O_DIRECT into ``buffers``; ``close`` ends it.

    ``buffers`` are all that files will be read into, or larger pieces that hold them: the engine
    registers them once. One thread waits for the files, in the order in which they were submitted.
    ``log`` keeps a sample of the reads.

    With ``is_null`` the same engine uses I/O that takes no time and moves nothing. Direct I/O costs
    the host no copy, so samples from memory need none in its place.
    """

    def __init__(
        self,
        config: Config,
        *,
        buffers: Sequence[NDArray[np.uint8]],
        log: OperationLog | None = None,
        is_null: bool = False,
    ) -> None:
        config.check()
        self._config = config
        self._log = log or OperationLog(0)
        # A large region serves as the slots, which stay unused.
        slots_bytes = config.queue_depth * config.pollers * config.block_bytes
        regions = _join_adjacent(buffers)
        large = next((one for one in regions if one.nbytes >= slots_bytes), None)
        self._engine = IOEngine(
            backend=NULL if is_null else config.engine,
            block_bytes=config.block_bytes,
            depth=config.queue_depth,
            pollers=config.pollers,
            slots=large,
            regions=[region for region in regions if region is not large],
        )
        self._latency = Histogram.of(())
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Read | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._complete_reads, name="direct-read", daemon=True
        )
        self._thread.start()

    def submit(
        self,
        files: Sequence[tuple[Path, int]],
        slots: NDArray[np.uint8],
        *,
        moved: ByteCounter | None = None,
    ) -> Future[IOResult]:
        """Begin to read the first bytes of files, one or more each, as many as stated.

        ``slots`` has shape ``(files or more, bytes of a slot)``; each file goes to the start of a
        row. Several files must each fit into a block. The future raises what ``Ticket.result``
        raises. ``moved`` is called as in ``IOEngine.run``, on the thread that waits for the files.

        Raises:
            ConfigError: the buffer is not one of the reader's, or does not fit direct I/O.
            RuntimeError: the reader is closed.
        """
        alignment_bytes = direct_alignment(files[0][0])
        if self._thread is None:
            raise RuntimeError("the reader is closed")
        future: Future[IOResult] = Future()
        future.set_running_or_notify_cancel()
        # Block i of a plan goes to the i-th stretch of that many bytes of its destination.
        block_bytes = slots.shape[1] if len(files) > 1 else self._config.block_bytes
        operations = self._log.begin(sum(-(-size // block_bytes) for _, size in files))
        plan = IOPlan(
            kind=IOKind.READ,
            extents=tuple(Extent(path, 0, size) for path, size in files),
            block_bytes=block_bytes,
            depth=self._config.queue_depth,
            trace_every=operations.trace_every,
        )
        with self._lock:  # tickets are waited for in the order of the engine's queue
            ticket = self._engine.submit(
                plan,
                destination=slots[: len(files)].reshape(-1),
                moved=moved,
                alignment_bytes=alignment_bytes,
            )
            self._queue.put(_Read(ticket, future, plan, operations))
        return future

    def path(self) -> DataPath:
        """Return the requested path of the bytes, and what moves them."""
        return self._engine.path()

    def latency(self) -> Histogram:
        """Return the latencies of the block reads of all finished files."""
        return self._latency

    def close(self) -> None:
        """Finish submitted reads and end the engine; safe to call twice."""
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join()
        self._thread = None
        self._engine.close()

    def _complete_reads(self) -> None:
        while (read := self._queue.get()) is not None:
            try:
                read.future.set_result(self._result(read))
            except BaseException as error:  # raised by the future
                read.future.set_exception(error)

    def _result(self, read: _Read) -> IOResult:
        result = read.ticket.result()
        if result.latency is not None:
            self._latency = self._latency.merged(result.latency)
        self._log.add(
            read.operations,
            result.trace,
            extents=read.plan.extents,
            block_bytes=read.plan.block_bytes,
        )
        return result


def _join_adjacent(buffers: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Return the buffers, with adjacent ones of the same memory joined.

    An engine accepts about a thousand regions, and the kernel registers at most 1 GiB in one.
    """
    joined: list[tuple[int, NDArray[np.uint8]]] = []
    for buffer in sorted(buffers, key=lambda one: one.ctypes.data):
        start = buffer.ctypes.data
        if joined and isinstance(buffer.base, np.ndarray):
            first, before = joined[-1]
            size_bytes = start + buffer.nbytes - first
            if (
                before.base is buffer.base
                and start == first + before.nbytes
                and size_bytes <= REGION_BYTES_LIMIT
            ):
                at = first - buffer.base.ctypes.data
                joined[-1] = (first, buffer.base[at : at + size_bytes])
                continue
        joined.append((start, buffer))
    return [memory for _, memory in joined]


class _Assembly:
    """A batch in preparation: the rows still missing, and the sums so far."""

    def __init__(self, tensor: NDArray[np.uint8], indices: Sequence[int]) -> None:
        self.tensor = tensor
        self.address = tensor.ctypes.data
        self.indices = tuple(indices)
        self.rows_left = len(indices)
        self.payload_bytes = 0
        self.read_bytes = 0
        self.decode_ns = 0.0
        self.open_s = 0.0
        self.verified = VerifiedSamples()

    def add(
        self, payload_bytes: int, read_bytes: int, decode_ns: float, verified: VerifiedSamples
    ) -> None:
        self.rows_left -= 1
        self.payload_bytes += payload_bytes
        self.read_bytes += read_bytes
        self.decode_ns += decode_ns
        self.verified.add(verified)

    def finished(self) -> Batch:
        return Batch(
            tensor=self.tensor,
            indices=self.indices,
            payload_bytes=self.payload_bytes,
            read_bytes=self.read_bytes,
            verified=self.verified,
            decode_s=self.decode_ns / NS_PER_S,
            open_s=self.open_s,
        )


@dataclass(frozen=True, slots=True)
class _Row:
    """A sample in preparation, and its row in a batch."""

    index: int
    number: int
    assembly: _Assembly


@dataclass(frozen=True, slots=True)
class _Group:
    """Samples whose files are read together: the first one's position, and the slots."""

    position: int
    rows: Sequence[_Row]
    slots: NDArray[np.uint8]


class Pass:
    """One pass over an order of samples; reads begin as slots, tensors and the queue allow.

    ``slots`` are pieces of memory of shape ``(files of a group, bytes of a slot)``, all alike.
    ``fetch`` begins to read the files of a group into one and calls back, on any other thread, when
    they have been read or one has failed. The callback decodes them and begins the next group. With
    ``held``, the files' bytes by sample, those are decoded instead of the content of the slots.
    With ``equal`` a group is decoded in one call. ``spare`` runs a call on another thread: to begin
    a group costs milliseconds of Python, which the consumer would wait for.

    Beyond the group that is read now, at most ``queued_bytes`` are requested, and at least one
    group: enough to keep the reader's queue full across the border between two of them. Beyond
    that, it is better to reuse the slot that was used last, while it is still in the CPU's caches.
    """

    def __init__(
        self,
        samples: SampleSet,
        order: Sequence[int],
        slots: Sequence[NDArray[np.uint8]],
        tensors: Sequence[NDArray[np.uint8]],
        fetch: Fetch,
        *,
        spare: Callable[[Callable[[], None]], object],
        queued_bytes: int,
        held: Sequence[NDArray[np.uint8]] | None = None,
        equal: EqualRecords | None = None,
    ) -> None:
        self._samples = samples
        self._spare = spare
        self._layout = record_format(samples.record_format)
        self._equal = equal
        self._size = samples.batch_samples
        self._order = order[: len(order) // self._size * self._size]
        self._tensors = tensors
        self._fetch = fetch
        self._queued_bytes = queued_bytes
        self._held = held
        self._reading: dict[int, int] = {}
        self._free = list(slots)
        self._slot_count = len(slots)
        self._begun = 0
        self._returned = 0
        self._assemblies: dict[int, _Assembly] = {}
        self._failure: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()

    def batches(self) -> Iterator[Batch]:
        """Yield the batches in order; each tensor is reused when the next batch is requested."""
        self._advance()
        for number in range(len(self._order) // self._size):
            with self._changed:
                self._changed.wait_for(partial(self._is_settled, number))
                if self._failure is not None:
                    raise self._failure
                if self._stopped:
                    raise RuntimeError("this epoch was ended before its last batch was taken")
                assembly = self._assemblies.pop(number)
            yield assembly.finished()
            with self._changed:
                self._returned += 1
            self._spare(self._advance)

    def stop(self) -> None:
        """Begin no more files, and wait until the slots of those in flight are free."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: len(self._free) == self._slot_count)

    def _is_settled(self, number: int) -> bool:
        assembly = self._assemblies.get(number)
        return self._stopped or (assembly is not None and not assembly.rows_left)

    def _advance(self) -> None:
        """Begin to read as many files as there are free slots and batch tensors."""
        while True:
            with self._changed:
                count = self._next_count()
                if not count:
                    return
                slots, position = self._free.pop(), self._begun
                self._begun += count
                rows = [self._row(at) for at in range(position, self._begun)]
                sizes = self._samples.file_bytes
                self._reading[position] = sum(sizes[row.index] for row in rows)
            self._begin(_Group(position, rows, slots))

    def _next_count(self) -> int:
        """Return how many files may be begun together: a whole group, or the rest; 0 for none."""
        if self._stopped or not self._free or not self._may_queue():
            return 0
        most = (self._returned + len(self._tensors)) * self._size
        count = min(len(self._free[-1]), len(self._order) - self._begun)
        return count if self._begun + count <= most else 0

    def _row(self, position: int) -> _Row:
        batch, number = divmod(position, self._size)
        assembly = self._assemblies.get(batch) or self._assemble(batch)
        return _Row(self._order[position], number, assembly)

    def _may_queue(self) -> bool:
        """Whether the reader's queue could run empty before the current group has been read."""
        later = list(self._reading.values())[1:]
        return sum(later) < self._queued_bytes

    def _assemble(self, number: int) -> _Assembly:
        first = number * self._size
        tensor = self._tensors[number % len(self._tensors)]
        assembly = _Assembly(tensor, self._order[first : first + self._size])
        self._assemblies[number] = assembly
        return assembly

    def _begin(self, group: _Group) -> None:
        try:
            indices = [row.index for row in group.rows]
            self._fetch(indices, group.slots, partial(self._arrived, group))
        except BaseException as error:  # the slots must be freed in any case
            self._settle(group.slots, error)

    def _arrived(self, group: _Group, ticket: Future[IOResult]) -> None:
        """Begin the next group, then decode this one; called on a decoding thread."""
        failure: BaseException | None = None
        with self._changed:
            del self._reading[group.position]
        self._advance()
        try:
            open_s = ticket.result().open_s / len(group.rows)
            with self._changed:
                for row in group.rows:
                    row.assembly.open_s += open_s
            self._decode_group(group)
        except BaseException as error:  # raised in batches()
            failure = error
        self._settle(group.slots, failure)
        self._advance()

    def _settle(self, slots: NDArray[np.uint8], failure: BaseException | None) -> None:
        with self._changed:
            self._free.append(slots)
            if failure is not None:
                self._failure = self._failure or failure
                self._stopped = True
            self._changed.notify_all()

    def _decode_group(self, group: _Group) -> None:
        rows, sizes = group.rows, self._samples.file_bytes
        slots = group.slots if self._held is None else [self._held[row.index] for row in rows]
        files = [slot[: sizes[row.index]] for row, slot in zip(rows, slots, strict=False)]
        compared: Sequence[VerifiedSamples | None] = [None] * len(rows)
        if self._equal is not None:
            compared, decode_ns = self._equal.take(
                [row.index for row in rows],
                [file.ctypes.data for file in files],
                [row.assembly.address + row.number * self._samples.resize_bytes for row in rows],
            )
        for row, file, verified in zip(rows, files, compared, strict=True):
            if self._equal is None or verified is None:
                self._decode(row, file)
                continue
            with self._changed:
                row.assembly.add(self._equal.payload_bytes, len(file), decode_ns, verified)

    def _decode(self, row: _Row, raw: NDArray[np.uint8]) -> None:
        samples, assembly = self._samples, row.assembly
        name = str(samples.paths[row.index])
        start_ns = time.monotonic_ns()
        payload = self._layout.payload(raw, name, check_crc=samples.check_crc)
        copy_resized(payload, assembly.tensor[row.number])
        decode_ns = time.monotonic_ns() - start_ns
        verified = verify_file(samples, row.index, raw, payload)
        with self._changed:
            assembly.add(len(payload), len(raw), decode_ns, verified)


class DirectSampleLoader:
    """Batches of samples read by ``FileReader``; passes no byte through the page cache."""

    def __init__(self, config: Config, samples: SampleSet, on_read: ReadCounter) -> None:
        config.check()
        self._samples = samples
        self._on_read = on_read
        self._pass: Pass | None = None
        self._equal = EqualRecords(samples) if EqualRecords.fit(samples) else None
        self._held: list[NDArray[np.uint8]] | None = None
        if samples.in_memory:
            self._held = [np.fromfile(path, dtype=np.uint8) for path in samples.paths]
        size_bytes, together = slot_size_bytes(samples), group_files(config, samples)
        pieces = aligned_buffers(
            slot_count(config, samples) // together, together * size_bytes, SLOT_ALIGN_BYTES
        )
        self._slots = [piece.reshape(together, size_bytes) for piece in pieces]
        self._tensors = [
            memory.reshape(samples.batch_samples, samples.resize_bytes)
            for memory in aligned_buffers(tensor_count(config, samples), samples.batch_bytes)
        ]
        self._log = OperationLog(config.trace_operations)
        self._reader = FileReader(
            config,
            buffers=pieces,
            log=None if samples.in_memory else self._log,
            is_null=samples.in_memory,
        )
        largest_bytes = round_up(max(samples.file_bytes), PAGE_BYTES)
        self._block_bytes = min(config.block_bytes, largest_bytes)
        self._queued_bytes = 2 * config.queue_depth * config.pollers * config.block_bytes
        self._decoders = ThreadPoolExecutor(
            config.workers * samples.accelerators, thread_name_prefix="decode"
        )

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Return the batches of one epoch; an earlier epoch is ended first.

        Raises:
            DataError: a file is truncated, corrupt, or not a record.
            OSError: the kernel refused a read; the message has the file and the offset.
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
            spare=self._decoders.submit,
            queued_bytes=self._queued_bytes,
            held=self._held,
            equal=self._equal,
        )
        return self._pass.batches()

    def path(self) -> DataPath:
        if self._samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        return self._reader.path()

    @property
    def operation_bytes(self) -> int:
        """The size of one read: ``loader.block_bytes``, or that of the largest file."""
        return self._block_bytes

    def latency(self, kind: IOKind) -> Histogram:
        """Return the latencies of block reads so far; there are no writes."""
        return self._reader.latency() if kind is IOKind.READ else Histogram.of(())

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample of block reads so far; there are no writes."""
        return self._log.traced(kind, phase) if kind is IOKind.READ else ()

    def close(self) -> None:
        """End the threads and release the buffers; safe to call twice."""
        self._end_pass()
        self._reader.close()
        self._decoders.shutdown()
        self._slots, self._tensors = [], []

    def _end_pass(self) -> None:
        """Wait for files in flight: the reader writes into their slots until then."""
        if self._pass is not None:
            self._pass.stop()
            self._pass = None

    def _fetch(self, indices: Sequence[int], slots: NDArray[np.uint8], then: Arrival) -> None:
        """Begin to read samples' files into slots; ``then`` is called on a decoding thread."""
        paths, sizes = self._samples.paths, self._samples.file_bytes
        files = [(paths[index], sizes[index]) for index in indices]
        ticket = self._reader.submit(files, slots, moved=self._on_read)
        ticket.add_done_callback(lambda done: self._decode(then, done))

    def _decode(self, then: Arrival, done: Future[IOResult]) -> None:
        self._decoders.submit(then, done)


make_loader = DirectSampleLoader
"""What ``samples.make_loader`` calls."""
