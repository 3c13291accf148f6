"""The settings of loader=gpu_queue: reads that a GPU asks for, through queues in memory.

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

from wattload.core.errors import ConfigError, NoGpuError, TargetError
from wattload.core.host.cgroups import memory_limit_bytes
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE
from wattload.core.units import MIB, compared_bytes
from wattload.core.workload import Requirement
from wattload.loaders.block_reads import WARP, Ability, BlockReader, Pattern, ReadPlan
from wattload.loaders.engine.library import IO_URING, TARGET_LIMIT, choose_backend
from wattload.loaders.feature_rows import FeatureMemory, FeaturePlan, read_bytes_of
from wattload.loaders.gpu.failures import NativeError
from wattload.loaders.gpu.host import check_locked
from wattload.loaders.gpu.process import ProcessReader
from wattload.loaders.gpu_queue.feature_rows import (
    SET_ROWS,
    QueueGatherer,
    compiled_rows,
    rows_error,
)
from wattload.loaders.gpu_queue.native import ROW_PAIRS, RowsSetup
from wattload.loaders.gpu_queue.reads import (
    MEMORY,
    NULL,
    STORAGE,
    QueueSetup,
    check_gpu,
    queue_way,
)

GPU, CPU = "gpu", "cpu"
DRIVER = "/dev/nvidiactl"
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

DEFAULT_CACHE_SHARE = 0.0019
"""4 GiB of 2.24 TB, as in GIDS's script for IGBH-Full."""
MOST_OUTSTANDING, MOST_ROWS, MOST_ROW_BYTES = 65_536, (1 << 31) - 1, 65_536
UNIT_BYTES, ROW_ALIGN_BYTES = 512, 16
"""What a warp, and a thread of it, copies at once; see ``loaders/engine/src/rows_abi.h``."""
COUNTS_BYTES, WORD_BYTES = 1 << 20, 9
"""Of host memory: what warps count, with room for the rings' heads. Of a page of the cache: its
word, and its share of the hand of a set."""


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
    host_share: float = setting(
        0.2,
        "Rows of features that are kept in pinned host memory, those most often drawn: a share of "
        "all rows; 0 for none.",
        least=0,
        most=1,
    )
    cache_share: float | None = setting(
        None,
        "Size of a cache of rows of features in the memory of the GPU, as a share of all rows; 0 "
        "for no cache.",
        least=0,
        most=1,
        unset="0.0019 with requester=gpu, 0 with requester=cpu",
    )
    window_batches: int = setting(
        8,
        "Rows that one of so many coming batches needs stay in that cache; 0 for no such rule.",
        least=0,
        most=1024,
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

        if self.cache_share and self.requester == CPU:
            raise ConfigError(
                f"loader.cache_share is {self.cache_share} with loader.requester=cpu: the cache is "
                "in the memory of a GPU; use loader.requester=gpu, or loader.cache_share=0"
            )

    @property
    def abilities(self) -> Ability:
        files = Ability.FILES if self.engine == STORAGE else Ability(0)
        return files | (Ability.GPU if self.fills_gpu else Ability(0))

    @property
    def fills_gpu(self) -> bool:
        """Whether threads of a GPU ask, and blocks and rows end in its memory."""
        return self.requester == GPU

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work; see ``BlockReadConfig``."""
        self.check()
        self._check_cache(plan)
        if self.fills_gpu and (not plan.gpus or not Path(DRIVER).exists()):
            raise _no_gpu()
        self._check_sizes(plan)
        if self.engine == STORAGE:
            choose_backend(IO_URING)
            for target in targets:
                _require_direct(target)
        if self.fills_gpu:
            check_gpu(plan, self.queue_setup(plan))

    def block_read_bytes(self, plan: ReadPlan) -> int:
        """Return the size of rings, slots and the table; of requesters on the CPU their blocks too.

        The rings are those of ``queue_abi.h``: a request and a lap number for each place.
        """
        rings_bytes = plan.queue_pairs * (plan.queue_size * PLACE_BYTES + PAIR_BYTES)
        output_bytes = 0 if self.fills_gpu else plan.in_flight * plan.block_bytes
        return (
            len(plan.files) * rings_bytes
            + self._slots_bytes(plan)
            + output_bytes
            + self.table_bytes
        )

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader; nothing is kept in ``folder``."""
        return ProcessReader(plan, queue_way(plan, self.queue_setup(plan)))

    def check_feature_rows(self, plan: FeaturePlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work; see ``FeatureLoaderConfig``."""
        self.check()
        self._check_rows(plan)
        if self.fills_gpu and (plan.gpu is None or not Path(DRIVER).exists()):
            raise _no_gpu()
        self._check_row_memory(plan)
        choose_backend(IO_URING)
        for target in targets:
            _require_direct(target)
        if self.fills_gpu:
            assert plan.gpu is not None
            try:
                compiled_rows(plan.gpu)
            except NativeError as error:
                raise rows_error(error, remedy=plan.remedy) from error

    def feature_bytes(self, plan: FeaturePlan) -> FeatureMemory:
        """Return the rows kept in host memory; slots, rings and lists; the GPU's cache and index.

        The index has 4 bytes for each row of the features.
        """
        setup = self.rows_setup(plan)
        slots_bytes = self._row_slots_bytes(plan)
        rings_bytes = (
            len(plan.files) * ROW_PAIRS * (_power_of_2(plan.outstanding) * PLACE_BYTES + PAIR_BYTES)
        )
        index_bytes = 4 * plan.row_count
        pages_bytes = setup.cache_rows * (plan.row_bytes + WORD_BYTES)
        has_index = not self.fills_gpu and setup.host_rows
        return FeatureMemory(
            host_rows_bytes=setup.host_rows * plan.row_bytes,
            working_bytes=slots_bytes
            + rings_bytes
            + COUNTS_BYTES
            + 8 * plan.batch_rows
            + (index_bytes if has_index else 0),
            gpu_cache_bytes=index_bytes + 8 * plan.batch_rows + pages_bytes
            if self.fills_gpu
            else 0,
        )

    def row_gatherer(self, plan: FeaturePlan) -> QueueGatherer:
        """Return the gatherer; it reads the rows that are kept in host memory."""
        return QueueGatherer(plan, self.rows_setup(plan), needs_gpu=self.fills_gpu)

    def rows_setup(self, plan: FeaturePlan) -> RowsSetup:
        share = self.cache_share
        if share is None:
            share = DEFAULT_CACHE_SHARE if self.fills_gpu else 0.0
        pairs = ROW_PAIRS * len(plan.files)
        folders = {path.parent for path in plan.paths}
        return RowsSetup(
            pollers=self.pollers or min(len(folders), DEFAULT_POLLERS, pairs),
            requester_threads=self.requester_threads,
            host_rows=int(self.host_share * plan.row_count) if plan.most_drawn else 0,
            cache_rows=int(share * plan.row_count) // SET_ROWS * SET_ROWS,
        )

    def _check_rows(self, plan: FeaturePlan) -> None:
        """Raise for a plan, or settings, that gathers can't follow."""
        if self.engine != STORAGE:
            raise ConfigError(
                f"loader.engine={self.engine} reads no storage, and rows of features are read from "
                f"it: use loader.engine={STORAGE}"
            )
        if self.cache_bytes:
            raise ConfigError(
                f"loader.cache_bytes is {self.cache_bytes}: that is a cache of random reads; use "
                "loader.cache_share for rows of features"
            )
        if plan.outstanding % WARP or not 0 < plan.outstanding <= MOST_OUTSTANDING:
            raise ConfigError(
                f"the {plan.outstanding} outstanding reads must be a multiple of {WARP}, up to "
                f"{MOST_OUTSTANDING}: a warp of the GPU has {WARP} threads with a read each"
            )
        if plan.row_count >= MOST_ROWS:
            raise ConfigError(
                f"loader=gpu_queue gathers from fewer than {MOST_ROWS} rows, got {plan.row_count}; "
                "use a smaller graph, or loader=direct"
            )
        odd = [file for file in plan.files if file.offset_bytes % ROW_ALIGN_BYTES]
        if odd or plan.row_bytes % UNIT_BYTES or not 0 < plan.row_bytes <= MOST_ROW_BYTES:
            raise ConfigError(
                f"loader=gpu_queue gathers rows of multiples of {UNIT_BYTES} bytes, up to "
                f"{MOST_ROW_BYTES}, that begin at multiples of {ROW_ALIGN_BYTES}: got "
                f"{plan.row_bytes} bytes"
                + (f" from {odd[0].offset_bytes} on in {odd[0].path}" if odd else "")
                + "; use loader=direct"
            )
        if len(plan.files) > TARGET_LIMIT:
            raise ConfigError(
                f"loader=gpu_queue reads from at most {TARGET_LIMIT} files, got {len(plan.files)}"
            )
        self._check_pollers(ROW_PAIRS, len(plan.files), "")

    def _check_pollers(self, pairs: int, files: int, more: str) -> None:
        if self.pollers is not None and self.pollers > pairs * files:
            raise ConfigError(
                f"loader.pollers must be at most {pairs * files}, {pairs} queue pairs for each of "
                f"{files} files, got {self.pollers}: one poller serves a pair; use fewer "
                f"pollers{more}"
            )

    def _check_row_memory(self, plan: FeaturePlan) -> None:
        """Raise for more host memory than the cgroup has; the workload checks its own budget."""
        memory = self.feature_bytes(plan)
        _check_memory(
            memory.host_rows_bytes + memory.working_bytes,
            "a smaller loader.host_share or fewer outstanding reads",
        )
        check_locked(self._row_slots_bytes(plan), "use fewer outstanding reads")

    @staticmethod
    def _row_slots_bytes(plan: FeaturePlan) -> int:
        most_bytes = max(read_bytes_of(file, plan.row_bytes) for file in plan.files)
        return plan.outstanding * _power_of_2(most_bytes)

    def queue_setup(self, plan: ReadPlan) -> QueueSetup:
        return QueueSetup(
            engine=self.engine,
            pollers=self._pollers(plan),
            requester_threads=self.requester_threads,
            table_bytes=self.table_bytes,
            cache_bytes=self.cache_bytes,
        )

    def _pollers(self, plan: ReadPlan) -> int:
        if self.pollers is not None:
            return self.pollers
        pairs = plan.queue_pairs * len(plan.files)
        return max(min(plan.drive_count, DEFAULT_POLLERS, pairs), 1)

    def _check_cache(self, plan: ReadPlan) -> None:
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
        if large and self.engine == STORAGE:
            most, size = compared_bytes(most_bytes, large[0].size_bytes)
            raise ConfigError(
                f"the cache holds blocks of files of at most {most} with "
                f"workload.block_bytes={plan.block_bytes}, and {large[0].path} has {size}: use "
                "loader.cache_bytes=0, larger blocks or a smaller workload.file_bytes"
            )

    def _check_sizes(self, plan: ReadPlan) -> None:
        """Raise for more pollers, targets or memory than there can be."""
        count = len(plan.files)
        if plan.queue_size < plan.per_file or plan.queue_size & (plan.queue_size - 1):
            raise ConfigError(
                "workload.queue_size must be a power of two that holds the "
                f"{plan.per_file} requests that may meet on one pair, got {plan.queue_size}; use a "
                "larger one, or fewer workload.requesters"
            )
        if count > TARGET_LIMIT:
            raise ConfigError(
                f"loader=gpu_queue reads from at most {TARGET_LIMIT} targets per process, got "
                f"{count}; use more processes with mpirun"
            )
        self._check_pollers(plan.queue_pairs, count, ", or more workload.queue_pairs")
        blocks = self.table_bytes // plan.block_bytes
        warps = plan.per_file // WARP
        if self.engine != STORAGE and plan.pattern == Pattern.REGIONS and blocks < warps:
            raise ConfigError(
                f"workload.pattern=regions needs a block for each of {warps} warps, and the table "
                f"has {blocks} of {plan.block_bytes} bytes; use a larger loader.table_bytes or "
                "fewer workload.requesters"
            )
        _check_memory(
            self.block_read_bytes(plan),
            "fewer workload.requesters, fewer or smaller queue pairs (workload.queue_pairs, "
            "workload.queue_size), or a smaller loader.table_bytes",
        )
        if self.engine == STORAGE:
            check_locked(self._slots_bytes(plan), "use fewer workload.requesters")

    @staticmethod
    def _slots_bytes(plan: ReadPlan) -> int:
        return plan.in_flight * plan.read_bytes


def _no_gpu() -> NoGpuError:
    return NoGpuError(
        f"loader=gpu_queue needs an NVIDIA GPU and {DRIVER} is missing; loader.requester=cpu runs "
        "the same queue from CPU threads, and every page says so"
    )


def _check_memory(needed_bytes: int, less: str) -> None:
    """Raise for more host memory than the cgroup has, and name what takes less."""
    limit_bytes, _ = memory_limit_bytes(LIVE)
    if limit_bytes is not None and needed_bytes > limit_bytes:
        needed, limit = compared_bytes(needed_bytes, limit_bytes)
        raise ConfigError(
            f"loader=gpu_queue takes {needed} of host memory, the memory limit of the cgroup is "
            f"{limit}: use {less}"
        )


def _require_direct(target: Target) -> None:
    if target.direct_io is None:
        raise TargetError(
            f"{target.path} has no O_DIRECT ({target.direct_io_missing}), which the queue's "
            "pollers need; choose a target on a local disk"
        )


def _power_of_2(least: int) -> int:
    """Return the smallest power of two that is at least ``least``, 1 or more."""
    return 1 << (least - 1).bit_length()
