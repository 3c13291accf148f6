"""The I/O engine: planned I/O by poller threads in C, over memory that Python owns.

``run`` executes a plan and returns its result. ``submit`` queues a plan and returns a ``Ticket``,
so that several plans follow each other without a pause. Blocks pass through the engine's slots, or
with a ``destination`` directly to or from memory that was given to the engine::

    engine = IOEngine(block_bytes=4 << 20, depth=8, regions=[buffer])
    ticket = engine.submit(plan, destination=buffer[:size])
    while not ticket.wait(0.05):
        ...
    result = ticket.result()

No Python code touches a block while it moves. Interrupts are seen within 50 ms.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import cast

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.histogram import Histogram
from wattload.core.io import (
    ByteCounter,
    DataPath,
    IOPlan,
    IOReading,
    IOResult,
)
from wattload.core.units import NS_PER_S
from wattload.loaders.aligned_io import HUGE_PAGE_BYTES, PAGE_BYTES, aligned_buffer, fill_random
from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, constants, setup_of, struct
from wattload.loaders.engine.library import (
    AUTO,
    BackendFlag,
    UnavailableError,
    choose_backend,
    exception_of,
    fall_back,
)
from wattload.loaders.engine.plan import MemoryPosition, check, encode, needed_bytes

SLICE_S = 0.05
"""The longest wait, in seconds, before interrupts are seen and bytes are counted."""


class Ticket:
    """One plan in an engine's queue. One thread waits for it; any thread may stop or discard it.

    The ``moved`` callback must not discard it or close the engine: both wait until the callback has
    returned. A preallocated file of a plan that is stopped or fails keeps its full length.
    """

    def __init__(
        self,
        job: ctypes.c_void_p,
        path: DataPath,
        forget: Callable[[Ticket, int], None],
        *,
        moved: ByteCounter | None,
    ) -> None:
        self._library = library.load()
        self._job: ctypes.c_void_p | None = job
        self._path = path
        self._forget = forget
        self._moved = moved
        self._counted = (0, 0)
        self._outcome: IOResult | Exception | None = None
        self._last: IOReading | None = None
        self._failure: tuple[int, int] | None = None
        self._lock = threading.Condition()
        self._waiting = 0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the plan is done, or for ``timeout_s``; return whether it is done.

        Interrupts are seen, and ``moved`` is called, every 50 ms.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = SLICE_S if deadline is None else deadline - time.monotonic()
            if self._wait_once(min(max(left_s, 0.0), SLICE_S), self._moved):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def progress(self) -> tuple[int, int]:
        with self._lock:
            if self._job is not None:
                return self._progress(self._job)
            last = self._last
            return self._counted if last is None else (last.moved_bytes, last.operation_count)

    def reading(self) -> IOReading:
        """Return what the plan has done so far; of a plan that is done, all of it at its end.

        Pollers do not stop for it. It copies 18 KB: once a second it costs nothing that can be
        measured. Any thread may call it.
        """
        with self._lock:
            if self._job is not None:
                return self._read_job(self._job)
            self._lock.wait_for(lambda: self._last is not None)
            return cast("IOReading", self._last)

    def trace(self) -> NDArray[np.void] | None:
        """Return the traced operations of a plan that is done, even if it was stopped."""
        with self._lock:
            if self._job is not None:
                return self._trace(self._job)
            return self._outcome.trace if isinstance(self._outcome, IOResult) else None

    def failed_operation(self) -> tuple[int, int] | None:
        """Return the code and the offset of the operation that failed a plan, after ``result``.

        The code is an errno, or negative and one of ``library``'s; ``None`` if no operation failed.
        """
        return self._failure

    def stop(self) -> None:
        """Issue no more of the plan; operations in flight are still finished."""
        with self._lock:
            if self._job is not None:
                self._library.wl_job_stop(self._job)

    def result(self) -> IOResult:
        """Wait until the plan is done and return the result.

        Raises:
            OSError: the kernel refused; the message has the file and the offset.
            DataError: a file is shorter than an extent that is read, or changed during the read.
            TargetError: the file system refuses O_DIRECT, what was opened is another device than
                the plan's, or a plan without a device would write to one. Nothing was moved.
            CancelledError: the plan was stopped or discarded before it was done.
        """
        while not self.wait(SLICE_S):
            pass
        self._collect()
        if isinstance(self._outcome, IOResult):
            return self._outcome
        raise self._outcome or CancelledError("the plan was discarded before it was done")

    def discard(self) -> None:
        """Stop the plan, wait for operations in flight and release it; no effect after ``result``.

        An interrupt ends the wait, which may be for a long fsync; another call continues it.
        """
        self.stop()
        while not self._wait_once(SLICE_S, None):
            pass
        job = self._take_job()
        if job is not None:
            self._library.wl_job_free(job)
            self._forget(self, 0)

    def _wait_once(self, timeout_s: float, moved: ByteCounter | None) -> bool:
        with self._lock:
            job = self._job
            if job is None:
                return True
            self._waiting += 1
        try:
            done = bool(self._library.wl_job_wait(job, math.ceil(timeout_s * 1000)))
            if moved is not None:
                self._count(moved, self._progress(job))
            return done
        finally:
            with self._lock:
                self._waiting -= 1
                self._lock.notify_all()

    def _take_job(self) -> ctypes.c_void_p | None:
        """Return the job, for the one caller that frees it, once no thread waits for it."""
        with self._lock:
            job, self._job = self._job, None
            self._lock.wait_for(lambda: not self._waiting)
            if job is not None:
                self._last = self._read_job(job)
                self._lock.notify_all()
        return job

    def _progress(self, job: ctypes.c_void_p) -> tuple[int, int]:
        found = struct("wl_progress")()
        self._library.wl_job_progress(job, ctypes.byref(found))
        return int(found.bytes), int(found.operations)

    def _count(self, moved: ByteCounter, now: tuple[int, int]) -> None:
        """Call ``moved`` for each operation since the last call."""
        moved_bytes, operations = now[0] - self._counted[0], now[1] - self._counted[1]
        if operations <= 0:
            return
        self._counted = now
        each, rest = divmod(moved_bytes, operations)
        for number in range(operations):
            moved(each + (number < rest))

    def _collect(self) -> None:
        """Read the outcome of the finished job, and free the job."""
        job = self._take_job()
        if job is None:
            return
        found = struct("wl_result")()
        try:
            self._library.wl_job_result(job, ctypes.byref(found))
            self._outcome = self._read(job, found)
        finally:
            self._library.wl_job_free(job)
            self._forget(self, found.extending_files)

    def _read(self, job: ctypes.c_void_p, found: ctypes.Structure) -> IOResult | Exception:
        if found.error.code != library.OK:
            if found.error.offset != library.NO_OFFSET:
                self._failure = (int(found.error.code), int(found.error.offset))
            return exception_of(found.error)
        if found.stopped:
            return CancelledError(f"the plan was stopped after {found.bytes} bytes")
        return IOResult(
            moved_bytes=found.bytes,
            operation_count=found.operations,
            start_ns=found.start_ns,
            end_ns=found.end_ns,
            cpu_s=found.cpu_ns / NS_PER_S,
            path=self._path,
            latency=self.reading().latency,
            trace=self._trace(job),
            bad_blocks=found.bad_blocks,
            compared_bytes=found.compared_bytes,
            synced_files=found.synced_files,
            open_s=found.open_ns / NS_PER_S,
            opened_files=found.opened_files,
        )

    def _read_job(self, job: ctypes.c_void_p) -> IOReading:
        found = struct("wl_reading")()
        self._library.wl_job_read(job, ctypes.byref(found))
        latency = Histogram(np.frombuffer(found.counts, dtype=np.uint64).copy())
        if latency.count:
            latency = Histogram(
                latency.counts, found.latency_sum_ns, found.latency_min_ns, found.latency_max_ns
            )
        return IOReading(
            time_ns=found.time_ns,
            moved_bytes=found.bytes,
            operation_count=found.operations,
            latency=latency,
        )

    def _trace(self, job: ctypes.c_void_p) -> NDArray[np.void] | None:
        rows = library.trace_rows(self._library.wl_job_trace, job)
        return rows if len(rows) else None


class IOEngine:
    """Executes plans with ``pollers`` threads of ``depth`` operations each; ``close`` ends them.

    ``slots`` is the memory that blocks pass through, at least ``depth x pollers x block_bytes``
    from a multiple of 4096; by default the engine allocates it and fills it with random bytes.
    Plans with stamps keep sums of it, so only ``fill`` and plans may change it afterwards.
    ``regions`` is further memory, for destinations: contiguous uint8 arrays. All memory is
    registered with the kernel once, and is kept until ``close``. Registration makes all of it
    resident; without ``registers`` the kernel maps the pages of a block for each operation.
    Without ``direct`` files pass through the page cache. ``signal`` is an event descriptor to
    which 1 is added at the end of each plan; the caller keeps it open until ``close``.
    """

    def __init__(
        self,
        *,
        backend: str = AUTO,
        block_bytes: int,
        depth: int,
        pollers: int = 1,
        slots: NDArray[np.uint8] | None = None,
        regions: Sequence[NDArray[np.uint8]] = (),
        direct: bool = True,
        registers: bool = True,
        signal: int | None = None,
    ) -> None:
        self._choice = choose_backend(backend)
        self._limits = (block_bytes, depth, pollers)
        self._direct = direct
        self._registers = registers
        self._signal = -1 if signal is None else signal
        self._slots = random_slots(block_bytes, depth, pollers) if slots is None else slots
        self._regions = [self._slots, *regions]
        for memory in self._regions:
            if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.c_contiguous:
                raise ConfigError(
                    "an engine's memory must be contiguous uint8 of one dimension, got "
                    f"{memory.dtype} of shape {memory.shape}"
                )
        self._lock = threading.Lock()
        self._tickets: set[Ticket] = set()
        self._extended = False
        self._library = library.load()
        try:
            self._handle: ctypes.c_void_p | None = self._open()
        except UnavailableError as error:  # the probe used a smaller ring
            self._choice = fall_back(backend, str(error))
            self._handle = self._open()
        self._owner = os.getpid()
        # Pollers use this memory: they are stopped before it is released, even without close().
        self._end = weakref.finalize(
            self, library.close_engine, self._handle, self._regions, self._owner
        )
        self._facts = struct("wl_facts")()
        self._library.wl_engine_facts(self._handle, ctypes.byref(self._facts))
        self._path = self._data_path()

    def fill(self, *, seed: int, rank: int = 0) -> None:
        """Fill the slots with the random bytes of a seed and rank; no plan may be under way."""
        fill_random([self._slots], seed=seed, rank=rank)
        self._library.wl_engine_refilled(self._handle)

    @property
    def preallocates(self) -> bool:
        """Whether all files written so far were preallocated; some file systems can't do it."""
        return not self._extended

    def holds(self, memory: NDArray[np.uint8]) -> bool:
        """Return whether the memory is inside one of the engine's regions."""
        return self._find(memory) is not None

    def run(
        self,
        plan: IOPlan,
        *,
        destination: NDArray[np.uint8] | None = None,
        moved: ByteCounter | None = None,
        alignment_bytes: int = PAGE_BYTES,
    ) -> IOResult:
        """Execute a plan and return when it is done, including any fsync.

        ``moved`` is called for each operation's bytes, in bursts every 50 ms or less, on this
        thread. It must not close the engine. An interrupt stops the plan and waits for operations
        in flight. A preallocated file of a plan that is stopped or fails keeps its full length.
        Destinations and errors as in ``submit`` and ``Ticket.result``.
        """
        ticket = self.submit(
            plan, destination=destination, moved=moved, alignment_bytes=alignment_bytes
        )
        try:
            while not ticket.wait(SLICE_S):
                pass
            return ticket.result()
        finally:
            ticket.discard()

    def submit(
        self,
        plan: IOPlan,
        *,
        destination: NDArray[np.uint8] | None = None,
        moved: ByteCounter | None = None,
        alignment_bytes: int = PAGE_BYTES,
    ) -> Ticket:
        """Queue a plan and return its ticket at once; may be called from several threads.

        Plans are executed in the order of submission. With a ``destination``, a part of one of the
        engine's regions, block i of the plan is moved to or from ``i x plan.block_bytes`` in it.
        ``alignment_bytes`` is what O_DIRECT needs for the files (see ``direct_alignment``).

        Raises:
            ConfigError: the plan has larger blocks or more depth than the engine, an extent that
                O_DIRECT can't move or that is not on the plan's device, or a destination outside
                its regions.
            RuntimeError: the engine is closed.
        """
        block_bytes, depth, _ = self._limits
        check(plan, block_bytes=block_bytes, depth=depth, alignment_bytes=alignment_bytes)
        position = (
            None if destination is None else self._position(destination, plan, alignment_bytes)
        )
        data = encode(
            plan, alignment_bytes=alignment_bytes, direct=self._direct, destination=position
        )
        job = ctypes.c_void_p()
        with self._lock:
            if self._handle is None:
                raise RuntimeError("the engine is closed")
            library.invoke("wl_job_submit", self._handle, data, len(data), ctypes.byref(job))
            ticket = Ticket(job, self._path, self._forget, moved=moved)
            self._tickets.add(ticket)
        return ticket

    def path(self) -> DataPath:
        """Return the requested path of the bytes, what moves them, and what the kernel refused."""
        return self._path

    def close(self) -> None:
        """Stop plans, wait for operations in flight, end the pollers; safe to repeat.

        Does nothing in a forked process, which has no pollers.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            tickets = list(self._tickets)
            self._handle = None
        for ticket in tickets:
            ticket.discard()
        self._end()
        self._regions = []

    def _open(self) -> ctypes.c_void_p:
        block_bytes, depth, pollers = self._limits
        regions = array_of(
            "wl_region", ((region.ctypes.data, region.nbytes) for region in self._regions)
        )
        setup = setup_of(
            "wl_setup",
            depth=depth,
            pollers=pollers,
            block_bytes=block_bytes,
            region_count=len(regions),
            flags=constants()["WL_REGISTER_FILES"]
            | (constants()["WL_REGISTER_BUFFERS"] if self._registers else 0),
            regions=regions,
            backend=self._choice.name.encode(),
            signal=self._signal,
        )
        return library.open_handle("wl_engine_open", setup)

    def _position(
        self, destination: NDArray[np.uint8], plan: IOPlan, alignment_bytes: int
    ) -> MemoryPosition:
        """Return the position of a destination; raises ``ConfigError`` outside the regions."""
        position = self._find(destination)
        if position is None:
            raise ConfigError("the destination is not in any of the engine's regions")
        needed = needed_bytes(plan, alignment_bytes)
        if not destination.flags.c_contiguous or destination.nbytes < needed:
            raise ConfigError(
                f"the destination must be contiguous and at least the plan's {needed} bytes, got "
                f"{destination.nbytes}"
            )
        return position

    def _find(self, memory: NDArray[np.uint8]) -> MemoryPosition | None:
        for number, region in enumerate(self._regions):
            offset = memory.ctypes.data - region.ctypes.data
            if offset >= 0 and offset + memory.nbytes <= region.nbytes:
                return MemoryPosition(number, offset)
        return None

    def _forget(self, ticket: Ticket, extending_files: int) -> None:
        with self._lock:
            self._tickets.discard(ticket)
            self._extended |= extending_files > 0

    def _data_path(self) -> DataPath:
        if BackendFlag.DISKLESS in self._choice.flags:
            way = self._choice.name
        else:
            way = "o_direct" if self._direct else "page_cache"
        return DataPath(
            data_path=way,
            path_requested=way,
            engine=self._engine_name(),
            remarks=(*self._choice.remarks, *self._refusals()),
        )

    def _engine_name(self) -> str:
        _, depth, pollers = self._limits
        if BackendFlag.SYNC in self._choice.flags:
            return f"{self._choice.name}, {self._facts.threads} threads"
        got = [
            f"{self._choice.name}, {pollers} poller{'s' * (pollers > 1)} of depth {depth}",
            *(["buffers registered"] if self._facts.buffers_refused == library.OK else []),
            *(["files registered"] if self._facts.files_refused == library.OK else []),
        ]
        return ", ".join(got)

    def _refusals(self) -> tuple[str, ...]:
        """Return a sentence for each registration that the kernel refused."""
        refused = []
        if self._facts.buffers_refused > 0:
            limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            held = sum(region.nbytes for region in self._regions)
            refused.append(
                f"The kernel refused to register the engine's {held} bytes of buffers "
                f"({os.strerror(self._facts.buffers_refused)}; RLIMIT_MEMLOCK is {limit} bytes), "
                "so every operation maps its pages again; `ulimit -l` raises the limit."
            )
        if self._facts.files_refused > 0:
            refused.append(
                "The kernel refused to register the engine's files "
                f"({os.strerror(self._facts.files_refused)}), so every operation looks up its file."
            )
        return tuple(refused)


def random_slots(block_bytes: int, depth: int, pollers: int) -> NDArray[np.uint8]:
    """Return slots filled with random bytes, in huge pages where the kernel provides them."""
    size_bytes = block_bytes * depth * pollers
    slots = aligned_buffer(size_bytes, HUGE_PAGE_BYTES)
    fill_random([slots], seed=0, rank=0)
    return slots
