"""Reading ahead whole files with the engine; no Python thread touches a block."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import ByteCounter, DataPath, Extent, IOKind, IOPlan
from wattload.loaders.aligned_io import direct_alignment, round_up
from wattload.loaders.direct.config import Config
from wattload.loaders.engine.engine import IOEngine, Ticket
from wattload.loaders.engine.library import NULL
from wattload.loaders.operation_log import OperationLog, Stretch

REGION_BYTES_LIMIT = 1 << 30
"""The most that the kernel registers in one piece."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that is being read: its future, and its place among all operations."""

    ticket: Ticket
    future: Future[int]
    path: Path
    size_bytes: int
    stretch: Stretch


class FileReader:
    """Reads whole files by O_DIRECT into ``buffers``; ``close`` ends it.

    ``buffers`` are all that files will be read into, or larger pieces that hold them: the engine
    registers them once. Any other buffer is registered on its first use, if no read is in flight,
    and until the next such buffer. One thread waits for the files, in the order in which they were
    submitted. ``log`` keeps a sample of the reads.

    With ``is_null`` the same engine uses I/O that takes no time and moves nothing. Direct I/O costs
    the host no copy, so samples from memory need none in its place.
    """

    def __init__(
        self,
        config: Config,
        *,
        buffers: Sequence[NDArray[np.uint8]] = (),
        log: OperationLog | None = None,
        is_null: bool = False,
    ) -> None:
        config.check()
        self._config = config
        self._backend = NULL if is_null else config.engine
        self._log = log or OperationLog(0)
        self._declared = list(buffers)
        self._engine = self._open_engine(self._declared)
        self._latency = Histogram.of(())
        self._lock = threading.Lock()
        self._reads_in_flight = 0
        self._queue: SimpleQueue[_Read | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._complete_reads, name="direct-read", daemon=True
        )
        self._thread.start()

    def submit(
        self,
        path: Path,
        buffer: NDArray[np.uint8],
        size_bytes: int,
        *,
        moved: ByteCounter | None = None,
    ) -> Future[int]:
        """Begin to read a file's first ``size_bytes`` into a buffer.

        The future's result is ``size_bytes``; it raises what ``Ticket.result`` raises. ``moved`` is
        called as in ``Engine.run``, on the thread that waits for the files.

        Raises:
            ValueError: the buffer does not fit direct I/O, or is new while reads are in flight.
            RuntimeError: the reader is closed.
        """
        alignment_bytes = direct_alignment(path)
        _check_buffer(buffer, size_bytes, alignment_bytes)
        if self._thread is None:
            raise RuntimeError("the reader is closed")
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()
        if not size_bytes:
            future.set_result(0)
            return future
        stretch = self._log.begin(-(-size_bytes // self._config.block_bytes))
        plan = IOPlan(
            kind=IOKind.READ,
            extents=(Extent(path, 0, size_bytes),),
            block_bytes=self._config.block_bytes,
            depth=self._config.queue_depth,
            trace_every=stretch.trace_every,
        )
        with self._lock:
            self._register(buffer)
            ticket = self._engine.submit(
                plan,
                destination=buffer[: round_up(size_bytes, alignment_bytes)],
                moved=moved,
                alignment_bytes=alignment_bytes,
            )
            self._reads_in_flight += 1
            self._queue.put(_Read(ticket, future, path, size_bytes, stretch))
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

    def _open_engine(self, buffers: Sequence[NDArray[np.uint8]]) -> IOEngine:
        """Return an engine over the buffers; a large one serves as the slots, which stay unused."""
        slots_bytes = self._config.queue_depth * self._config.pollers * self._config.block_bytes
        regions = _join_adjacent(buffers)
        large = next((one for one in regions if one.nbytes >= slots_bytes), None)
        return IOEngine(
            backend=self._backend,
            block_bytes=self._config.block_bytes,
            depth=self._config.queue_depth,
            pollers=self._config.pollers,
            slots=large,
            regions=[region for region in regions if region is not large],
        )

    def _register(self, buffer: NDArray[np.uint8]) -> None:
        """Register a buffer; raises ``ValueError`` while reads are in flight."""
        if self._engine.holds(buffer):
            return
        if self._reads_in_flight:
            raise ValueError(
                "the buffer is not one of the reader's, and other reads are in flight; pass all "
                "buffers with buffers= when the reader is made"
            )
        self._engine.close()
        self._engine = self._open_engine([*self._declared, buffer])

    def _complete_reads(self) -> None:
        while (read := self._queue.get()) is not None:
            try:
                outcome: int | BaseException = self._result(read)
            except BaseException as error:  # raised by the future
                outcome = error
            with self._lock:
                self._reads_in_flight -= 1
            if isinstance(outcome, int):
                read.future.set_result(outcome)
            else:
                read.future.set_exception(outcome)

    def _result(self, read: _Read) -> int:
        result = read.ticket.result()
        if result.latency is not None:
            self._latency = self._latency.merged(result.latency)
        self._log.add(
            read.stretch,
            result.trace,
            path=read.path,
            size_bytes=read.size_bytes,
            block_bytes=self._config.block_bytes,
        )
        return result.moved_bytes


def _check_buffer(buffer: NDArray[np.uint8], size_bytes: int, alignment_bytes: int) -> None:
    """Raise ``ValueError`` for a buffer that does not fit direct I/O of ``size_bytes``."""
    if buffer.ctypes.data % alignment_bytes or not buffer.flags.c_contiguous:
        raise ValueError(
            f"the buffer must be contiguous and start at a multiple of {alignment_bytes}"
        )
    if buffer.nbytes < round_up(size_bytes, alignment_bytes):
        raise ValueError(
            f"the buffer must hold {size_bytes} bytes rounded up to {alignment_bytes}, "
            f"got {buffer.nbytes} bytes"
        )


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
