"""The pure-Python reference engine: the same plans by threads, for tests and for where C is not.

``queue_depth`` threads live as long as the engine. Each has one aligned, pre-touched buffer that is
used again for every block, takes the next block of the plan, moves it with ``preadv`` or
``pwritev`` (which release the interpreter's lock) and takes the next. So ``queue_depth`` blocks are
in flight until the plan runs out, over the border between two files too.

What a block holds is the business of a *visitor*: it is called on the block's thread, before a
write to fill the buffer, after a read to look at it. Some hundred thousand operations a second are
what an interpreter does at most; every page says where this engine was at work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import (
    BlockVisitor,
    ByteCounter,
    DataPath,
    EngineCapabilities,
    IOKind,
    IOPlan,
    IOResult,
)
from wattload.core.units import NS_PER_S
from wattload.loaders.aligned import PAGE_BYTES, aligned_buffers
from wattload.loaders.native.plan import check
from wattload.loaders.python.blockio import DirectMedium, Medium, NullMedium
from wattload.loaders.python.blockjob import BlockJob
from wattload.loaders.stamps import fill_random

LABEL = "pure-Python reference"
REMARK = (
    "The I/O went through the pure-Python reference engine (loader.engine=python), not the native "
    "one: small blocks and fast drives are limited by the interpreter."
)


class PythonEngine:
    """Executes plans by O_DIRECT with ``queue_depth`` threads; ``close`` ends them.

    With ``diskless`` the same loop moves nothing: its rate is the harness's own ceiling.
    """

    def __init__(self, *, block_bytes: int, depth: int, diskless: bool = False) -> None:
        self._block_bytes = block_bytes
        self._depth = depth
        self._diskless = diskless
        self._preallocates = True
        self._buffers = aligned_buffers(depth, block_bytes)
        fill_random(self._buffers, seed=0, rank=0)
        self._threads = ThreadPoolExecutor(depth, thread_name_prefix="direct")

    @property
    def buffers(self) -> Sequence[NDArray[np.uint8]]:
        """The engine's buffers, ``depth`` of shape ``(block_bytes,)``; visitors get views."""
        return self._buffers

    def capabilities(self) -> EngineCapabilities:
        """Return what the engine can do."""
        direct = not self._diskless
        return EngineCapabilities(
            direct=direct, diskless=self._diskless, visits=True, latencies=True
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

        Extents start at multiples of ``alignment_bytes``; only the last one of a file may end
        elsewhere. ``visit`` fills or looks at each block; without it a write sends what the buffers
        hold, random bytes at first, so the same blocks again and again.
        ``moved`` is told of each block's bytes when they have moved.

        Raises:
            ConfigError: the plan asks for larger blocks or more depth than the engine has, or for
                an extent that O_DIRECT can't do.
            DataError: a file is shorter than an extent that is to be read.
            OSError: the kernel refused; the file and the offset are in the message.
        """
        check(
            plan,
            block_bytes=self._block_bytes,
            depth=self._depth,
            alignment_bytes=alignment_bytes,
        )
        medium = self._medium(plan, alignment_bytes)
        job = BlockJob(plan, medium, visit=visit, moved=moved, alignment_bytes=alignment_bytes)
        start_ns = time.monotonic_ns()
        cpu_s = self._worked(job, plan)
        if plan.fsync and plan.kind is IOKind.WRITE and not self._diskless:
            job.sync_folders()
        end_ns = time.monotonic_ns()
        self._preallocates &= not isinstance(medium, DirectMedium) or medium.preallocates
        return IOResult(
            moved_bytes=job.moved_bytes,
            operation_count=job.operation_count,
            seconds=(end_ns - start_ns) / NS_PER_S,
            cpu_s=cpu_s,
            path=self.path(),
            latency=job.latency(),
            checksum=job.checksum if plan.stamps is not None else None,
            bad_blocks=job.bad_blocks,
            sync_ns=medium.sync_ns if isinstance(medium, DirectMedium) else 0,
        )

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, with what this engine is."""
        way = "null" if self._diskless else "o_direct"
        engine = f"{LABEL}, {self._depth} threads"
        return DataPath(
            data_path=f"{way} by the {LABEL}",
            path_requested=way,
            engine=engine,
            remarks=(REMARK,),
        )

    @property
    def preallocates(self) -> bool:
        """Whether all files written so far were preallocated; on some file systems they extend."""
        return self._preallocates

    def close(self) -> None:
        """End the threads and give the buffers back."""
        self._threads.shutdown(cancel_futures=True)
        self._buffers = []

    def _medium(self, plan: IOPlan, alignment_bytes: int) -> Medium:
        if self._diskless:
            return NullMedium()
        return DirectMedium(alignment_bytes=alignment_bytes, allocation=plan.allocation)

    def _worked(self, job: BlockJob, plan: IOPlan) -> float:
        """Have all threads do the job, and its files finished; returns the threads' CPU seconds."""
        running = [
            self._threads.submit(job.work, buffer[: plan.block_bytes])
            for buffer in self._buffers[: plan.depth]
        ]
        try:
            _wait(job, running)
            job.raise_failure()
            job.finish_files()
        finally:
            job.close_files()
        return sum(future.result() for future in running)


def _wait(job: BlockJob, running: Sequence[Future[float]]) -> None:
    """Wait for all threads; an interrupt stops them first."""
    try:
        wait(running)
    except BaseException:
        job.stop()
        wait(running)
        raise
