"""Reading whole files ahead by the native engine: no thread of Python's touches a block."""

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
from wattload.loaders.aligned import direct_alignment, round_up
from wattload.loaders.native.engine import NativeEngine
from wattload.loaders.native.ticket import Ticket
from wattload.loaders.operationlog import OperationLog, Stretch
from wattload.loaders.python.reader import check_buffer

REGION_BYTES_LIMIT = 1 << 30
"""What the kernel registers in one piece."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A file under way: who waits for it, and its place among all operations."""

    ticket: Ticket
    future: Future[int]
    path: Path
    size_bytes: int
    stretch: Stretch


class NativeReader:
    """Reads files into ``buffers``, which are registered once; ``close`` ends it.

    One thread waits for the files, in the order in which they were asked for. A buffer that is none
    of ``buffers`` is registered when it comes, while no file is under way, and until the next such.
    ``log`` keeps a sample of the reads.
    """

    def __init__(
        self,
        *,
        backend: str,
        block_bytes: int,
        depth: int,
        pollers: int,
        buffers: Sequence[NDArray[np.uint8]],
        log: OperationLog | None = None,
    ) -> None:
        self._backend = backend
        self._block_bytes = block_bytes
        self._depth = depth
        self._pollers = pollers
        self._log = log or OperationLog(0)
        self._declared = list(buffers)
        self._engine = self._opened(self._declared)
        self._latency = Histogram.of(())
        self._lock = threading.Lock()
        self._under_way = 0
        self._queue: SimpleQueue[_Read | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._fulfil, name="direct-read", daemon=True
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
        """Begin to read a file; see ``direct.reader.DirectReader.submit``."""
        alignment_bytes = direct_alignment(path)
        check_buffer(buffer, size_bytes, alignment_bytes)
        if self._thread is None:
            raise RuntimeError("the reader is closed")
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()
        if not size_bytes:
            future.set_result(0)
            return future
        stretch = self._log.begin(-(-size_bytes // self._block_bytes))
        plan = IOPlan(
            kind=IOKind.READ,
            extents=(Extent(path, 0, size_bytes),),
            block_bytes=self._block_bytes,
            depth=self._depth,
            trace_every=stretch.trace_every,
        )
        with self._lock:
            self._know(buffer)
            ticket = self._engine.submit(
                plan,
                destination=buffer[: round_up(size_bytes, alignment_bytes)],
                moved=moved,
                alignment_bytes=alignment_bytes,
            )
            self._under_way += 1
            self._queue.put(_Read(ticket, future, path, size_bytes, stretch))
        return future

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, and what moves them."""
        return self._engine.path()

    def latency(self) -> Histogram:
        """Return how long the reads of blocks took, of all files that are done."""
        return self._latency

    def close(self) -> None:
        """Finish what was submitted and end the engine; safe to call twice."""
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join()
        self._thread = None
        self._engine.close()

    def _opened(self, buffers: Sequence[NDArray[np.uint8]]) -> NativeEngine:
        """Return an engine over the buffers; a large one stands in for slots, used by nobody."""
        slots_bytes = self._depth * self._pollers * self._block_bytes
        regions = _joined(buffers)
        large = next((one for one in regions if one.nbytes >= slots_bytes), None)
        return NativeEngine(
            backend=self._backend,
            block_bytes=self._block_bytes,
            depth=self._depth,
            pollers=self._pollers,
            slots=large,
            regions=[region for region in regions if region is not large],
        )

    def _know(self, buffer: NDArray[np.uint8]) -> None:
        """Have a buffer registered; raises ``ValueError`` where that is too late."""
        if self._engine.holds(buffer):
            return
        if self._under_way:
            raise ValueError(
                "the buffer is none of the reader's, and others are being read into; name all "
                "with buffers= when the reader is made"
            )
        self._engine.close()
        self._engine = self._opened([*self._declared, buffer])

    def _fulfil(self) -> None:
        """Wait for file after file and tell those who asked."""
        while (read := self._queue.get()) is not None:
            try:
                outcome: int | BaseException = self._result(read)
            except BaseException as error:  # the future's holder gets it
                outcome = error
            with self._lock:
                self._under_way -= 1
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
            block_bytes=self._block_bytes,
        )
        return result.moved_bytes


def _joined(buffers: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Return the buffers with neighbours that were cut from one piece of memory made one again.

    An engine takes some thousand regions at most, and the kernel 1 GiB in one.
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
