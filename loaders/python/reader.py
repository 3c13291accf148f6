"""Reading whole files ahead by threads: the pure-Python reference of ``direct.reader``.

It also reads from any ``Medium`` that holds the files elsewhere than on a disk.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import ByteCounter, DataPath, IOKind
from wattload.loaders.aligned import PAGE_BYTES, direct_alignment, round_up
from wattload.loaders.python.blockio import DirectMedium, Medium, too_short
from wattload.loaders.python.engine import LABEL, REMARK


class PythonReader:
    """Reads files with ``depth`` threads of its own; ``close`` ends them."""

    def __init__(self, *, block_bytes: int, depth: int, medium: Medium | None = None) -> None:
        """Start the threads; ``medium`` is where the files are, by O_DIRECT unless given."""
        self._block_bytes = block_bytes
        self._depth = depth
        self._medium = medium or DirectMedium()
        self._is_direct = medium is None
        self._latencies_ns: list[int] = []
        self._queue: SimpleQueue[tuple[_Ticket, int] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"direct-read-{number}", daemon=True)
            for number in range(depth)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        path: Path,
        buffer: NDArray[np.uint8],
        size_bytes: int,
        *,
        moved: ByteCounter | None = None,
    ) -> Future[int]:
        """Begin to read a file; see ``direct.reader.DirectReader.submit``."""
        alignment_bytes = direct_alignment(path) if self._is_direct else PAGE_BYTES
        check_buffer(buffer, size_bytes, alignment_bytes)
        if not self._threads:
            raise RuntimeError("the reader is closed")
        offsets = range(0, size_bytes, self._block_bytes)
        ticket = _Ticket(
            path,
            buffer,
            size_bytes,
            block_count=len(offsets),
            moved=moved,
            alignment_bytes=alignment_bytes,
        )
        ticket.future.set_running_or_notify_cancel()
        if not offsets:
            ticket.future.set_result(0)
        for offset_bytes in offsets:
            self._queue.put((ticket, offset_bytes))
        return ticket.future

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, with what this reader is."""
        return DataPath(
            data_path=f"o_direct by the {LABEL}",
            path_requested="o_direct",
            engine=f"{LABEL}, {self._depth} threads",
            remarks=(REMARK,),
        )

    def latency(self) -> Histogram:
        """Return how long the reads of blocks took so far."""
        return Histogram.of(tuple(self._latencies_ns))

    def close(self) -> None:
        """Finish what was submitted and end the threads; safe to call twice."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            ticket, offset_bytes = item
            try:
                start_ns = time.monotonic_ns()
                ticket.read_block(self._medium, offset_bytes, self._block_bytes)
                self._latencies_ns.append(time.monotonic_ns() - start_ns)
            except BaseException as error:  # the ticket's holder gets it
                ticket.fail(error)
            ticket.block_done(self._medium)


class _Ticket:
    """One file under way: opened by its first block, closed by its last."""

    def __init__(
        self,
        path: Path,
        buffer: NDArray[np.uint8],
        size_bytes: int,
        *,
        block_count: int,
        moved: ByteCounter | None,
        alignment_bytes: int,
    ) -> None:
        self.future: Future[int] = Future()
        self._path = path
        self._buffer = buffer
        self._size_bytes = size_bytes
        self._blocks_left = block_count
        self._moved = moved
        self._alignment_bytes = alignment_bytes
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._failure: BaseException | None = None

    def read_block(self, medium: Medium, offset_bytes: int, block_bytes: int) -> None:
        """Read one block into its place; does nothing once another block has failed."""
        if self._failure is not None:
            return
        handle = self._opened(medium)
        wanted_bytes = min(block_bytes, self._size_bytes - offset_bytes)
        end_bytes = offset_bytes + round_up(wanted_bytes, self._alignment_bytes)
        asked = self._buffer[offset_bytes:end_bytes]
        read_bytes = medium.read(handle, self._path, asked, offset_bytes)
        if read_bytes < wanted_bytes:
            raise too_short(self._path, offset_bytes, wanted_bytes, read_bytes)
        if self._moved is not None:
            self._moved(wanted_bytes)

    def fail(self, error: BaseException) -> None:
        """Keep the first failure of this file."""
        with self._lock:
            self._failure = self._failure or error

    def block_done(self, medium: Medium) -> None:
        """Count a block down; the last one closes the file and fulfils the ticket."""
        with self._lock:
            self._blocks_left -= 1
            if self._blocks_left:
                return
        if self._handle is not None:
            medium.close(self._handle)
        if self._failure is not None:
            self.future.set_exception(self._failure)
        else:
            self.future.set_result(self._size_bytes)

    def _opened(self, medium: Medium) -> int:
        with self._lock:
            if self._handle is None:
                self._handle = medium.open(self._path, IOKind.READ, self._size_bytes)
            return self._handle


def check_buffer(buffer: NDArray[np.uint8], size_bytes: int, alignment_bytes: int) -> None:
    """Raise ``ValueError`` for a buffer that direct I/O of ``size_bytes`` does not fit."""
    if buffer.ctypes.data % alignment_bytes or not buffer.flags.c_contiguous:
        raise ValueError(
            f"the buffer must be contiguous and start at a multiple of {alignment_bytes}"
        )
    if buffer.nbytes < round_up(size_bytes, alignment_bytes):
        raise ValueError(
            f"the buffer must hold {size_bytes} bytes rounded up to {alignment_bytes}, "
            f"got {buffer.nbytes} bytes"
        )
