"""The direct engine: planned I/O past the page cache, by O_DIRECT, many blocks in flight.

``queue_depth`` threads live as long as the engine. Each has one aligned, pre-touched buffer that
is used again for every block, takes the next block of the plan, moves it with ``preadv`` or
``pwritev`` (which release the interpreter's lock) and takes the next. So ``queue_depth`` blocks are
in flight until the plan runs out, over the border between two files too.

What a block holds is the business of a *visitor*: it is called on the block's thread, before a
write to fill the buffer, after a read to look at it. For reading whole samples ahead into buffers
of your own see ``wattload.loaders.directreader``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, TargetError
from wattload.core.io import (
    BlockVisitor,
    ByteCounter,
    DataPath,
    EngineCapabilities,
    IOKind,
    IOPlan,
    IOResult,
    Loader,
)
from wattload.core.target import Target
from wattload.loaders.aligned import PAGE_BYTES, aligned_buffers
from wattload.loaders.blockio import DirectMedium, Medium, NullMedium
from wattload.loaders.blockjob import BlockJob
from wattload.loaders.checkpoints import Shard, ShardStore
from wattload.loaders.formats import record_format
from wattload.loaders.samples import ReadCounter, SampleSet
from wattload.loaders.stamps import fill_random

BLOCK_BYTES_LIMIT = 1 << 30
QUEUE_DEPTH_LIMIT = 1024


@dataclass(slots=True, kw_only=True)
class Config:
    """How the direct engine moves bytes.

    ``block_bytes`` is the size of one I/O, a multiple of 4096; ``queue_depth`` is how many are in
    flight per rank. Their product is the memory that one rank's engine holds.

    The others are for whole samples (``sample_loader``): ``workers`` decoding threads and
    ``prefetch_batches`` batches made ahead per accelerator, and ``prefetch_bytes`` of memory per
    rank for files that are being read or decoded.
    """

    _target_: str = "wattload.loaders.direct.DirectEngine"
    block_bytes: int = 4 << 20
    queue_depth: int = 8
    workers: int = 4
    prefetch_batches: int = 4
    prefetch_bytes: int = 2 << 30

    def check(self) -> None:
        """Raise ``ConfigError`` for a size or a depth that can't be run."""
        if not PAGE_BYTES <= self.block_bytes <= BLOCK_BYTES_LIMIT or self.block_bytes % PAGE_BYTES:
            raise ConfigError(
                f"loader.block_bytes must be a multiple of {PAGE_BYTES} up to {BLOCK_BYTES_LIMIT}, "
                f"got {self.block_bytes}"
            )
        if not 1 <= self.queue_depth <= QUEUE_DEPTH_LIMIT:
            raise ConfigError(
                f"loader.queue_depth must be 1 to {QUEUE_DEPTH_LIMIT}, got {self.queue_depth}"
            )
        for name in ("workers", "prefetch_batches", "prefetch_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"loader.{name} must be 1 or more, got {getattr(self, name)}")

    def require_checkpoint_library(self) -> None:
        """Return: NumPy is all that a store needs."""

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard in one file by O_DIRECT."""
        from wattload.loaders.direct_checkpoint import DirectStore

        return DirectStore(self, shard, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return the bytes of a store's buffers, one set to save and one to load."""
        return 2 * self.queue_depth * self.block_bytes

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``True``: checkpoints need O_DIRECT on the target."""
        return True

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for memory that holds no file, and for targets whose blocks are too large."""
        self.sample_memory_bytes(samples)
        for target in targets:
            _check_alignment(target)

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the loader of whole samples by O_DIRECT, its threads and buffers ready."""
        from wattload.loaders.directsamples import DirectSampleLoader

        return DirectSampleLoader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return the bytes of a rank's file slots and batch tensors (see ``directsamples``)."""
        from wattload.loaders.directsamples import memory_bytes

        return memory_bytes(self, samples)

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: where there is one and it was asked for."""
        return samples.check_crc and record_format(samples.record_format).HAS_CRC

    @property
    def sample_bytes_counted(self) -> str:
        """Each block counts when it has come, as what the kernel says was read."""
        return "as each block is read, by what the kernel returned"

    @property
    def sample_decode_timed(self) -> str:
        """Files are decoded when they have come whole, so nothing of reading is in it."""
        return "headers, the CRC where it was asked for, and the copies into rows"

    @property
    def sample_path_is_direct(self) -> bool:
        """``True``: nothing passes through the page cache."""
        return True


class DirectEngine:
    """Executes plans by O_DIRECT with ``queue_depth`` threads; ``close`` ends them.

    With ``diskless`` the same loop moves nothing: its rate is the harness's own ceiling.
    """

    def __init__(self, config: Config, *, diskless: bool = False) -> None:
        config.check()
        self.config = config
        self._diskless = diskless
        self._medium: Medium = NullMedium() if diskless else DirectMedium()
        self._buffers = aligned_buffers(config.queue_depth, config.block_bytes)
        fill_random(self._buffers, seed=0, rank=0)
        self._threads = ThreadPoolExecutor(config.queue_depth, thread_name_prefix="direct")

    @property
    def buffers(self) -> Sequence[NDArray[np.uint8]]:
        """The engine's buffers, ``queue_depth`` of shape ``(block_bytes,)``; visitors get views."""
        return self._buffers

    def capabilities(self) -> EngineCapabilities:
        """Return what the engine can do."""
        return EngineCapabilities(direct=not self._diskless, diskless=self._diskless)

    def run(
        self,
        plan: IOPlan,
        *,
        visit: BlockVisitor | None = None,
        moved: ByteCounter | None = None,
    ) -> IOResult:
        """Execute a plan and return when all of it is done, durable if it says ``fsync``.

        Extents start at multiples of 4096 bytes; only the last one of a file may end elsewhere.
        ``visit`` fills or looks at each block; without it a write sends what the buffers hold,
        random bytes at first, so the same blocks again and again.
        ``moved`` is told of each block's bytes when they have moved.

        Raises:
            ConfigError: the plan asks for larger blocks or more depth than the engine has, or for
                an extent that O_DIRECT can't do.
            DataError: a file is shorter than an extent that is to be read.
            OSError: the kernel refused; the file and the offset are in the message.
        """
        self._check(plan)
        job = BlockJob(plan, self._medium, visit=visit, moved=moved)
        start_ns = time.monotonic_ns()
        running = [
            self._threads.submit(job.work, buffer[: plan.block_bytes])
            for buffer in self._buffers[: plan.depth]
        ]
        cpu_s = _finished(job, running)
        if plan.fsync and plan.kind is IOKind.WRITE and not self._diskless:
            job.sync_folders()
        return IOResult(
            moved_bytes=job.moved_bytes,
            operation_count=job.operation_count,
            seconds=(time.monotonic_ns() - start_ns) / 1e9,
            cpu_s=cpu_s,
            path=self.path(),
        )

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        if self._diskless:
            return DataPath(data_path="null", path_requested="null")
        return DataPath(data_path="o_direct", path_requested="o_direct")

    @property
    def preallocates(self) -> bool:
        """Whether all files written so far were preallocated; on some file systems they extend."""
        return not isinstance(self._medium, DirectMedium) or self._medium.preallocates

    def close(self) -> None:
        """End the threads and give the buffers back."""
        self._threads.shutdown(cancel_futures=True)
        self._buffers = []

    def _check(self, plan: IOPlan) -> None:
        if not 1 <= plan.depth <= len(self._buffers):
            raise ConfigError(
                f"the plan's depth must be 1 to queue_depth {len(self._buffers)}, got {plan.depth}"
            )
        most_bytes = self.config.block_bytes
        if not PAGE_BYTES <= plan.block_bytes <= most_bytes or plan.block_bytes % PAGE_BYTES:
            raise ConfigError(
                f"the plan's block_bytes must be a multiple of {PAGE_BYTES} up to the engine's "
                f"{most_bytes}, got {plan.block_bytes}"
            )


def _check_alignment(target: Target) -> None:
    """Raise ``TargetError`` for O_DIRECT in larger blocks than those in which files end here.

    ``block_bytes`` is no way out: the end of a file is moved in units of 4096 bytes. A target that
    takes no O_DIRECT at all is refused by the preflight.
    """
    needs = target.direct_io
    if needs is None:
        return
    align_bytes = max(needs.offset_align_bytes, needs.memory_align_bytes)
    if align_bytes > PAGE_BYTES:
        raise TargetError(
            f"{target.path} takes O_DIRECT at multiples of {align_bytes} bytes, and loader=direct "
            f"moves the ends of files at multiples of {PAGE_BYTES}; choose another target, or "
            "loader=torch"
        )


def _finished(job: BlockJob, running: Sequence[Future[float]]) -> float:
    """Wait for all threads and return their CPU seconds; an interrupt stops them first."""
    try:
        wait(running)
    except BaseException:
        job.stop()
        wait(running)
        raise
    finally:
        job.close_files()
    job.raise_failure()
    return sum(future.result() for future in running)
