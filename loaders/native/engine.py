"""The native engine: planned I/O by pollers in C over memory that this side owns.

``run`` executes a plan and returns its result; ``submit`` queues one and returns a ``Ticket``, so
that several plans follow each other without a pause. Blocks pass through the engine's slots, or
with a ``destination`` straight to or from memory that was named when the engine was made::

    engine = NativeEngine(backend="auto", block_bytes=4 << 20, depth=8, regions=[buffer])
    ticket = engine.submit(plan, destination=buffer[:size])
    while not ticket.wait(0.05): ...
    result = ticket.result()

Python sees no block while it moves. Interrupts are seen within 50 ms.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.io import (
    BlockVisitor,
    ByteCounter,
    DataPath,
    EngineCapabilities,
    IOPlan,
    IOResult,
)
from wattload.loaders.aligned import HUGE_PAGE_BYTES, PAGE_BYTES, aligned_buffer
from wattload.loaders.native import library
from wattload.loaders.native.backend import AUTO, Flag, choose, instead
from wattload.loaders.native.errors import UnavailableError, exception
from wattload.loaders.native.plan import Place, check, encode, needed_bytes
from wattload.loaders.native.ticket import SLICE_S, Ticket
from wattload.loaders.stamps import fill_random


class NativeEngine:
    """Executes plans with ``pollers`` threads of ``depth`` operations each; ``close`` ends them.

    ``slots`` is the memory that blocks pass through, at least ``depth x pollers x block_bytes``
    from a multiple of 4096; without it the engine makes its own and fills it with random bytes.
    ``regions`` is further memory, for destinations. All of it is registered with the kernel once,
    and is kept until ``close``. Without ``direct`` files pass through the page cache.
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
    ) -> None:
        self._choice = choose(backend)
        self._limits = (block_bytes, depth, pollers)
        self._direct = direct
        self._slots = own_slots(block_bytes, depth, pollers) if slots is None else slots
        self._regions = [self._slots, *regions]
        self._lock = threading.Lock()
        self._tickets: set[Ticket] = set()
        self._extended = False
        self._library = library.load()
        try:
            self._handle: ctypes.c_void_p | None = self._open()
        except UnavailableError as error:  # the probe's ring was a smaller one
            self._choice = instead(backend, str(error))
            self._handle = self._open()
        self._owner = os.getpid()
        # Pollers work in this memory: they end before it goes, whoever forgets to close.
        self._end = weakref.finalize(
            self, library.close_engine, self._handle, self._regions, self._owner
        )
        self._facts = library.Facts()
        self._library.wl_engine_facts(self._handle, ctypes.byref(self._facts))
        self._path = self._describe_path()

    @property
    def buffers(self) -> Sequence[NDArray[np.uint8]]:
        """The engine's slots, ``depth x pollers`` of shape ``(block_bytes,)``."""
        block_bytes, depth, pollers = self._limits
        starts = range(0, depth * pollers * block_bytes, block_bytes)
        return [self._slots[start : start + block_bytes] for start in starts]

    @property
    def preallocates(self) -> bool:
        """Whether all files written so far were preallocated; on some file systems they extend."""
        return not self._extended

    def holds(self, memory: NDArray[np.uint8]) -> bool:
        """Return whether some memory lies in one of the engine's regions."""
        return self._found(memory) is not None

    def capabilities(self) -> EngineCapabilities:
        """Return what the engine can do."""
        diskless = Flag.DISKLESS in self._choice.flags
        return EngineCapabilities(
            direct=self._direct and not diskless, diskless=diskless, latencies=True
        )

    def run(
        self,
        plan: IOPlan,
        *,
        visit: BlockVisitor | None = None,
        moved: ByteCounter | None = None,
        alignment_bytes: int = PAGE_BYTES,
    ) -> IOResult:
        """Execute a plan and return when all of it is done, durable if it says ``fsync``.

        ``moved`` is told of each operation's bytes, in bursts every 50 ms or less, on this thread.
        It must not close the engine. An interrupt stops the plan; what is in flight is waited for.
        A preallocated file of a plan that is stopped or fails keeps its full length, whatever of
        it was written. Errors as in ``submit`` and
        ``Ticket.result``.

        Raises:
            ConfigError: there is a visitor; this engine shows no blocks.
        """
        if visit is not None:
            raise ConfigError(
                "the native engine shows its blocks to nobody; loader.engine=python does, and "
                "stamps or a destination take a visitor's place"
            )
        ticket = self.submit(plan, moved=moved, alignment_bytes=alignment_bytes)
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

        Plans are served in the order of submission. With a ``destination``, a part of one of the
        engine's regions, block i of the plan goes to or comes from ``i x plan.block_bytes`` in it.
        ``alignment_bytes`` is what O_DIRECT needs where the files lie (see ``direct_alignment``).

        Raises:
            ConfigError: the plan asks for larger blocks or more depth than the engine has, for an
                extent that O_DIRECT can't do, or for a destination in none of its regions.
            RuntimeError: the engine is closed.
        """
        block_bytes, depth, _ = self._limits
        check(plan, block_bytes=block_bytes, depth=depth, alignment_bytes=alignment_bytes)
        place = None if destination is None else self._place(destination, plan, alignment_bytes)
        data = encode(plan, alignment_bytes=alignment_bytes, direct=self._direct, destination=place)
        job, error = ctypes.c_void_p(), library.Error()
        with self._lock:
            if self._handle is None:
                raise RuntimeError("the engine is closed")
            code = self._library.wl_job_submit(
                self._handle, data, len(data), ctypes.byref(job), ctypes.byref(error)
            )
            if code != library.OK:
                raise exception(error)
            stamped = plan.stamps is not None
            ticket = Ticket(job, self._path, self._settle, moved=moved, stamped=stamped)
            self._tickets.add(ticket)
        return ticket

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, what moves them, and what was refused."""
        return self._path

    def close(self) -> None:
        """Stop what is under way, wait for what is in flight, end the pollers; safe to repeat.

        Does nothing in a process that was forked off: the pollers are not there.
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
        for memory in self._regions:
            if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.c_contiguous:
                raise ConfigError(
                    "an engine's memory must be contiguous uint8 of one dimension, got "
                    f"{memory.dtype} of shape {memory.shape}"
                )
        regions = (library.Region * len(self._regions))(
            *[library.Region(memory.ctypes.data, memory.nbytes) for memory in self._regions]
        )
        setup = library.Setup(
            ctypes.sizeof(library.Setup),
            *(depth, pollers, block_bytes, len(regions)),
            library.REGISTER_BUFFERS | library.REGISTER_FILES,
            regions,
            self._choice.name.encode(),
        )
        handle, error = ctypes.c_void_p(), library.Error()
        code = self._library.wl_engine_open(
            ctypes.byref(setup), ctypes.byref(handle), ctypes.byref(error)
        )
        if code != library.OK:
            raise exception(error)
        return handle

    def _place(self, destination: NDArray[np.uint8], plan: IOPlan, alignment_bytes: int) -> Place:
        """Return where a destination lies; raises ``ConfigError`` if that is nowhere."""
        place = self._found(destination)
        if place is None:
            raise ConfigError("the destination lies in none of the engine's regions")
        needed = needed_bytes(plan, alignment_bytes)
        if not destination.flags.c_contiguous or destination.nbytes < needed:
            raise ConfigError(
                f"the destination must be contiguous and hold the plan's {needed} bytes, got "
                f"{destination.nbytes}"
            )
        return place

    def _found(self, memory: NDArray[np.uint8]) -> Place | None:
        for number, region in enumerate(self._regions):
            offset = memory.ctypes.data - region.ctypes.data
            if offset >= 0 and offset + memory.nbytes <= region.nbytes:
                return Place(number, offset)
        return None

    def _settle(self, ticket: Ticket, extending_files: int) -> None:
        """Forget a ticket whose job is freed."""
        with self._lock:
            self._tickets.discard(ticket)
            self._extended |= extending_files > 0

    def _describe_path(self) -> DataPath:
        if Flag.DISKLESS in self._choice.flags:
            way = self._choice.name
        else:
            way = "o_direct" if self._direct else "page_cache"
        return DataPath(
            data_path=way,
            path_requested=way,
            engine=self._described(),
            remarks=(*self._choice.remarks, *self._refusals()),
        )

    def _described(self) -> str:
        _, depth, pollers = self._limits
        if Flag.SYNC in self._choice.flags:
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
            held = sum(memory.nbytes for memory in self._regions)
            refused.append(
                f"The kernel refused to register the engine's {held} bytes of buffers "
                f"({os.strerror(self._facts.buffers_refused)}; RLIMIT_MEMLOCK is {limit} bytes), "
                "so each operation maps its pages anew; `ulimit -l` raises it."
            )
        if self._facts.files_refused > 0:
            refused.append(
                "The kernel refused to register the engine's files "
                f"({os.strerror(self._facts.files_refused)}), so each operation looks its file up."
            )
        return tuple(refused)


def own_slots(block_bytes: int, depth: int, pollers: int) -> NDArray[np.uint8]:
    """Return slots of random bytes, in huge pages where the kernel gives them."""
    size_bytes = block_bytes * depth * pollers
    slots = aligned_buffer(size_bytes, HUGE_PAGE_BYTES)
    fill_random([slots], seed=0, rank=0)
    return slots
