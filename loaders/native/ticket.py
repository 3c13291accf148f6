"""A plan under way in the native engine: wait for it, hear of its bytes, get its result."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import BUCKET_COUNT, Histogram
from wattload.core.io import TRACE_DTYPE, ByteCounter, DataPath, IOResult
from wattload.core.units import NS_PER_S
from wattload.loaders.native import library
from wattload.loaders.native.errors import exception

SLICE_S = 0.05
"""How long a wait lasts at most before interrupts are seen and bytes are told, in seconds."""


class Ticket:
    """One plan in an engine's queue. One thread waits for it; any may stop or discard it.

    But ``moved`` must not: it is called within a wait, which discarding, or closing the engine,
    waits for. A preallocated file of a plan that is stopped or fails keeps its full length.
    """

    def __init__(
        self,
        job: ctypes.c_void_p,
        path: DataPath,
        settle: Callable[[Ticket, int], None],
        *,
        moved: ByteCounter | None,
        stamped: bool,
    ) -> None:
        self._library = library.load()
        self._job: ctypes.c_void_p | None = job
        self._path = path
        self._settle = settle
        self._moved = moved
        self._stamped = stamped
        self._told = (0, 0)
        self._outcome: IOResult | Exception | None = None
        self._lock = threading.Condition()
        self._waiting = 0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the plan is done, at most so long; returns whether it is.

        Interrupts are seen, and ``moved`` is told, every 50 ms.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = SLICE_S if deadline is None else deadline - time.monotonic()
            if self._wait_once(min(max(left_s, 0.0), SLICE_S), self._moved):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def progress(self) -> tuple[int, int]:
        """Return the bytes and operations that are done so far."""
        with self._lock:
            return self._told if self._job is None else self._progress(self._job)

    def stop(self) -> None:
        """Have no more of the plan begun; what is in flight is still finished."""
        with self._lock:
            if self._job is not None:
                self._library.wl_job_stop(self._job)

    def result(self) -> IOResult:
        """Wait for the end and return the result.

        Raises:
            OSError: the kernel refused; the file and the offset are in the message.
            DataError: a file is shorter than an extent that is to be read, or changed meanwhile.
            TargetError: the file system refuses O_DIRECT.
            CancelledError: the plan was stopped or thrown away before it was done.
        """
        while not self.wait(SLICE_S):
            pass
        self._collect()
        if isinstance(self._outcome, IOResult):
            return self._outcome
        raise self._outcome or CancelledError("the plan was thrown away before it was done")

    def discard(self) -> None:
        """Stop the plan, wait for what is in flight and forget it; nothing after ``result``.

        An interrupt ends the wait, which may be for a long fsync; another call takes it up again.
        """
        self.stop()
        while not self._wait_once(SLICE_S, None):
            pass
        job = self._taken()
        if job is not None:
            self._library.wl_job_free(job)
            self._settle(self, 0)

    def _wait_once(self, timeout_s: float, moved: ByteCounter | None) -> bool:
        with self._lock:
            job = self._job
            if job is None:
                return True
            self._waiting += 1
        try:
            done = bool(self._library.wl_job_wait(job, math.ceil(timeout_s * 1000)))
            if moved is not None:
                self._tell(moved, self._progress(job))
            return done
        finally:
            with self._lock:
                self._waiting -= 1
                self._lock.notify_all()

    def _taken(self) -> ctypes.c_void_p | None:
        """Return the job, for the one caller who is to free it, once nobody waits for it."""
        with self._lock:
            job, self._job = self._job, None
            self._lock.wait_for(lambda: not self._waiting)
        return job

    def _progress(self, job: ctypes.c_void_p) -> tuple[int, int]:
        found = library.Progress()
        self._library.wl_job_progress(job, ctypes.byref(found))
        return int(found.bytes), int(found.operations)

    def _tell(self, moved: ByteCounter, now: tuple[int, int]) -> None:
        """Tell of what moved since the last time, a call for each operation."""
        moved_bytes, operations = now[0] - self._told[0], now[1] - self._told[1]
        if operations <= 0:
            return
        self._told = now
        each, rest = divmod(moved_bytes, operations)
        for number in range(operations):
            moved(each + (number < rest))

    def _collect(self) -> None:
        """Take the outcome over from the job that is done, and free it."""
        job = self._taken()
        if job is None:
            return
        found = library.Result()
        try:
            self._library.wl_job_result(job, ctypes.byref(found))
            self._outcome = self._read(job, found)
        finally:
            self._library.wl_job_free(job)
            self._settle(self, found.extending_files)

    def _read(self, job: ctypes.c_void_p, found: library.Result) -> IOResult | Exception:
        if found.error.code != library.OK:
            return exception(found.error)
        if found.stopped:
            return CancelledError(f"the plan was stopped after {found.bytes} bytes")
        return IOResult(
            moved_bytes=found.bytes,
            operation_count=found.operations,
            seconds=(found.end_ns - found.start_ns) / NS_PER_S,
            cpu_s=found.cpu_ns / NS_PER_S,
            path=self._path,
            latency=self._histogram(job, found),
            trace=self._trace(job),
            checksum=found.checksum if self._stamped else None,
            bad_blocks=found.bad_blocks,
            sync_ns=found.sync_ns,
        )

    def _histogram(self, job: ctypes.c_void_p, found: library.Result) -> Histogram:
        counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
        self._library.wl_job_histogram(job, counts.ctypes.data_as(ctypes.POINTER(library.Counts)))
        if not found.operations:
            return Histogram(counts)
        return Histogram(counts, found.latency_sum_ns, found.latency_min_ns, found.latency_max_ns)

    def _trace(self, job: ctypes.c_void_p) -> NDArray[np.void] | None:
        count = ctypes.c_uint64()
        rows = self._library.wl_job_trace(job, ctypes.byref(count))
        if not rows or not count.value:
            return None
        return np.frombuffer(
            ctypes.string_at(rows, count.value * TRACE_DTYPE.itemsize), dtype=TRACE_DTYPE
        )
