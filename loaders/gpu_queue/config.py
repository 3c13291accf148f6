"""The settings of loader=gpu_queue: random reads that a GPU asks for, through queues in memory.

Threads of a GPU write requests into queue pairs in pinned host memory. Pollers on the CPU serve
them by io_uring, and the GPU pulls the blocks out of host memory. It needs neither a kernel module
nor a privilege. ``requester=cpu`` runs the same queue from CPU threads. The engines ``memory`` and
``null`` read no storage: they measure the link, and the queue alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError, TargetError
from wattload.core.host.facts import memory_limit_bytes
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE
from wattload.core.units import MIB, format_bytes
from wattload.core.workload import Requirement
from wattload.loaders.engine.library import IO_URING, choose_backend
from wattload.loaders.engine.targets import TARGET_LIMIT
from wattload.loaders.gpu.limits import check_locked
from wattload.loaders.gpu_queue.failures import DRIVER, no_gpu
from wattload.loaders.gpu_queue.reader import QueueReader, QueueSetup, probe
from wattload.loaders.random_reads import WARP, Pattern, RandomReader, RandomReadPlan

STORAGE, MEMORY, NULL = "storage", "memory", "null"
GPU, CPU = "gpu", "cpu"
MOST_POLLERS = 256
DEFAULT_POLLERS = 4
"""By default no more pollers than this, however many drives there are."""
MOST_THREADS = 1024
PLACE_BYTES, PAIR_BYTES = 20, 19 << 10
"""Of a queue pair: a place of its ring, and what its poller counts."""
LEAST_TABLE_BYTES, MOST_TABLE_BYTES = 64 << 10, 4 << 30
MOST_CACHE_BYTES = 256 << 30
SET_BLOCKS = 16
"""Blocks of a set of the cache, as in ``loaders/engine/src/queue_abi.h``."""
MOST_CACHED_BLOCKS = (1 << 36) - 1
"""Most blocks of a file that the cache can tell apart; see ``cache.cuh``."""


@dataclass(slots=True, kw_only=True)
class Config:
    """Who asks through the queue, and what answers."""

    name: ClassVar[str] = "gpu_queue"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.gpu_queue.config.Config"
    engine: str = setting(
        STORAGE,
        "What answers requests: the drives; a table in host memory (memory), which gives what the "
        "link carries; or nothing (null), which gives what the queue carries.",
        choices=(STORAGE, MEMORY, NULL),
    )
    requester: str = setting(
        GPU, "Who asks: threads of a GPU, or threads of the CPU.", choices=(GPU, CPU)
    )
    pollers: int | None = setting(
        None,
        "CPU threads that serve the queue pairs of a process, with an I/O ring each.",
        least=1,
        most=MOST_POLLERS,
        unset="one per physical drive, at most 4",
    )
    requester_threads: int = setting(
        1, "CPU threads that ask (requester=cpu).", least=1, most=MOST_THREADS
    )
    table_bytes: int = setting(
        32 * MIB,
        "Size of the table that the link's ceiling and engine=memory read: a power of two. A GPU "
        "pulls less from a large one.",
        least=LEAST_TABLE_BYTES,
        most=MOST_TABLE_BYTES,
    )
    cache_bytes: int = setting(
        0,
        "Size of a cache of blocks in the memory of each GPU: a power of two, at least 16 blocks; "
        "0 for no cache. Drives read only what it does not hold.",
        least=0,
        most=MOST_CACHE_BYTES,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")
        if self.table_bytes & (self.table_bytes - 1):
            following = 1 << self.table_bytes.bit_length()
            raise ConfigError(
                f"loader.table_bytes must be a power of two, got {self.table_bytes}; use "
                f"{following}"
            )
        if self.cache_bytes and (self.requester == CPU or self.engine == NULL):
            what = "requester=cpu" if self.requester == CPU else "engine=null"
            raise ConfigError(
                f"loader.cache_bytes is {self.cache_bytes} with loader.{what}: a cache is in the "
                "memory of a GPU and holds blocks that are delivered; use loader.requester=gpu "
                "with loader.engine=storage or memory, or loader.cache_bytes=0"
            )

    @property
    def reads_storage(self) -> bool:
        """Whether files are read at all."""
        return self.engine == STORAGE

    @property
    def needs_gpu(self) -> bool:
        """Whether a GPU asks."""
        return self.requester == GPU

    def check_random_reads(self, plan: RandomReadPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work; see ``RandomReadLoaderConfig``."""
        self.check()
        self._check_cache(plan)
        if self.needs_gpu and (plan.gpu is None or not Path(DRIVER).exists()):
            raise no_gpu()
        self._check_sizes(plan)
        if self.reads_storage:
            choose_backend(IO_URING)
            for target in targets:
                if target.direct_io is None:
                    raise TargetError(
                        f"{target.path} has no O_DIRECT ({target.direct_io_missing}), which the "
                        "queue's pollers need; choose a target on a local disk"
                    )
        if plan.gpu is not None and self.needs_gpu:
            probe(plan, self.queue_setup(plan))

    def memory_bytes(self, plan: RandomReadPlan) -> int:
        """Return the size of rings, slots and the table; of requesters on the CPU their blocks too.

        The rings are those of ``queue_abi.h``: a request and a lap number for each place.
        """
        rings_bytes = plan.queue_pairs * (plan.queue_size * PLACE_BYTES + PAIR_BYTES)
        output_bytes = 0 if self.needs_gpu else plan.outstanding * plan.block_bytes
        return (
            len(plan.files) * rings_bytes
            + self._slots_bytes(plan)
            + output_bytes
            + (self.table_bytes)
        )

    def random_reader(self, plan: RandomReadPlan, folder: Path) -> RandomReader:
        """Return the reader; nothing is kept in ``folder``."""
        return QueueReader(plan, self.queue_setup(plan))

    def queue_setup(self, plan: RandomReadPlan) -> QueueSetup:
        """Return how the queue of a plan is run."""
        return QueueSetup(
            engine=self.engine,
            pollers=self._pollers(plan),
            requester_threads=self.requester_threads,
            table_bytes=self.table_bytes,
            cache_bytes=self.cache_bytes,
        )

    def _pollers(self, plan: RandomReadPlan) -> int:
        if self.pollers is not None:
            return self.pollers
        pairs = plan.queue_pairs * len(plan.files)
        return max(min(plan.drive_count, DEFAULT_POLLERS, pairs), 1)

    def _check_cache(self, plan: RandomReadPlan) -> None:
        """Raise unless the cache is a power of two of whole sets, and can tell blocks apart."""
        if not self.cache_bytes:
            return
        least_bytes = SET_BLOCKS * plan.block_bytes
        if self.cache_bytes < least_bytes or self.cache_bytes & (self.cache_bytes - 1):
            following = max(least_bytes, 1 << self.cache_bytes.bit_length())
            raise ConfigError(
                f"loader.cache_bytes must be 0 or a power of two that holds {SET_BLOCKS} blocks of "
                f"{plan.block_bytes} bytes, got {self.cache_bytes}; use {following}"
            )
        most_bytes = MOST_CACHED_BLOCKS * plan.block_bytes
        large = [file for file in plan.files if file.size_bytes > most_bytes]
        if large and self.reads_storage:
            raise ConfigError(
                f"the cache holds blocks of files of at most {format_bytes(most_bytes)} with "
                f"workload.block_bytes={plan.block_bytes}, and {large[0].path} has "
                f"{format_bytes(large[0].size_bytes)}: use loader.cache_bytes=0, larger blocks or "
                "a smaller workload.file_bytes"
            )

    def _check_sizes(self, plan: RandomReadPlan) -> None:
        """Raise for more pollers, targets or memory than there can be."""
        count = len(plan.files)
        if count > TARGET_LIMIT:
            raise ConfigError(
                f"loader=gpu_queue reads from at most {TARGET_LIMIT} targets per process, got "
                f"{count}; use more processes with mpirun"
            )
        pairs = plan.queue_pairs * count
        if self.pollers is not None and self.pollers > pairs:
            raise ConfigError(
                f"loader.pollers must be at most {pairs}, the queue pairs of a process "
                f"({plan.queue_pairs} per target), got {self.pollers}: one poller serves a pair; "
                "use fewer pollers, or more workload.queue_pairs"
            )
        blocks = self.table_bytes // plan.block_bytes
        warps = plan.requesters // WARP
        if not self.reads_storage and plan.pattern == Pattern.REGIONS and blocks < warps:
            raise ConfigError(
                f"workload.pattern=regions needs a block for each of {warps} warps, and the table "
                f"has {blocks} of {plan.block_bytes} bytes; use a larger loader.table_bytes or "
                "fewer workload.requesters"
            )
        needed_bytes = self.memory_bytes(plan)
        limit_bytes, _ = memory_limit_bytes(LIVE)
        if limit_bytes is not None and needed_bytes > limit_bytes:
            raise ConfigError(
                f"the queue takes {format_bytes(needed_bytes)} of host memory, the memory limit of "
                f"the cgroup is {format_bytes(limit_bytes)}: use fewer workload.requesters, fewer "
                "or smaller queue pairs (workload.queue_pairs, workload.queue_size), or a smaller "
                "loader.table_bytes"
            )
        if self.reads_storage:
            check_locked(self._slots_bytes(plan), "use fewer workload.requesters")

    @staticmethod
    def _slots_bytes(plan: RandomReadPlan) -> int:
        return plan.outstanding * max(file.read_bytes for file in plan.files)
