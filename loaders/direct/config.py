"""The settings of loader=direct: planned I/O that bypasses the page cache.

``engine=auto`` uses io_uring where the kernel allows it and a pool of ``pread`` threads elsewhere.
The engine's ``path()`` has the backend that was used, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError, TargetError
from wattload.core.io import DataPath, Loader
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.aligned_io import PAGE_BYTES, check_alignment, direct_alignment, round_up
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan
from wattload.loaders.block_transfers import BlockTransfers, TransferLimits
from wattload.loaders.checkpoint_store import Shard, ShardStore, make_store
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.direct.extent_reads import EngineReads
from wattload.loaders.direct.feature_rows import DirectGatherer, staging_bytes
from wattload.loaders.direct.random_reads import DirectRandomReader
from wattload.loaders.direct.tensors import GpuLoad, HostLoad, Layout
from wattload.loaders.direct.transfers import EngineTransfers
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import AUTO, IO_URING, NULL, PREAD, choose_backend
from wattload.loaders.feature_rows import FeatureMemory, FeaturePlan, RowGatherer
from wattload.loaders.operation_log import ROWS_LIMIT
from wattload.loaders.samples import ReadCounter, SampleSet, make_loader
from wattload.loaders.tensor_loads import LoadPlan, TensorLoad
from wattload.loaders.vectors.layout import SECTOR_BYTES, NodeLayout
from wattload.loaders.vectors.native_search import (
    BY_PREAD,
    BY_RING,
    INFLIGHT_LIMIT,
    EngineSearcher,
)
from wattload.loaders.vectors.search import Searcher, SearchIndex, SearchPlan

ENGINES = (AUTO, IO_URING, PREAD)
BLOCK_BYTES_LIMIT = 1 << 30
QUEUE_DEPTH_LIMIT = 1024
POLLER_LIMIT = 64
READS_LIMIT = 4096
"""Random reads that a poller of the engine keeps in flight."""
WORKER_LIMIT = 1024
SLOT_ALIGN_BYTES = 64 << 10
"""Slots start at multiples of this: the largest logical block size of Linux."""


@dataclass(slots=True, kw_only=True)
class Config:
    """How the direct loader moves bytes.

    The product of ``block_bytes``, ``queue_depth`` and ``pollers`` is the memory of one rank's
    engine. The last three settings are for whole samples (``sample_loader``). Random reads
    (``block_reader``) take the size of their blocks and how many are in flight from the workload.
    """

    name: ClassVar[str] = "direct"
    requires: ClassVar[tuple[Requirement, ...]] = ()
    fills_gpu: ClassVar[bool] = False
    window_batches: ClassVar[int] = 0

    _target_: str = "wattload.loaders.direct.config.Config"
    engine: str = setting(
        AUTO, "What issues the I/O; auto: io_uring where the kernel allows it.", choices=ENGINES
    )
    block_bytes: int = setting(
        4 << 20,
        "Size of one I/O.",
        multiple=PAGE_BYTES,
        least=PAGE_BYTES,
        most=BLOCK_BYTES_LIMIT,
    )
    queue_depth: int = setting(8, "I/Os in flight per poller.", least=1, most=QUEUE_DEPTH_LIMIT)
    pollers: int = setting(
        1,
        "Threads with an I/O ring of their own, per rank; gpu_random_read: per target.",
        least=1,
        most=POLLER_LIMIT,
    )
    trace_operations: int = setting(
        4096,
        "Most single operations that a rank records, spread evenly over its reads and its writes; "
        "0: none.",
        least=0,
        most=ROWS_LIMIT,
    )
    workers: int = setting(
        4, "Threads that decode samples, per accelerator.", least=1, most=WORKER_LIMIT
    )
    prefetch_batches: int = setting(
        4, "Batches prepared ahead per accelerator.", least=1, most=WORKER_LIMIT
    )
    prefetch_bytes: int = setting(
        2 << 30, "Memory per rank for files that are being read or decoded.", least=1
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for an unknown engine, or a setting outside its range."""
        check_settings(self, "loader")

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` if the engine is not built, ``ConfigError`` if unusable."""
        choose_backend(self.engine)

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard in one file by O_DIRECT."""
        return make_store(self, shard, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return the bytes of a store's buffers, the same for saving and loading."""
        return self.queue_depth * self.pollers * self.block_bytes

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``True``: checkpoints need O_DIRECT on the target."""
        return True

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for memory that holds no file, blocks that do not fit a target, or no engine."""
        self.sample_memory_bytes(samples)
        self.require_checkpoint_library()
        for target in targets:
            check_alignment(target, self.block_bytes)

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the loader of whole samples by O_DIRECT, its threads and buffers ready."""
        return make_loader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return the bytes of a rank's file slots, batch tensors, and files held in memory.

        Raises:
            ConfigError: ``prefetch_bytes`` does not hold the largest file.
        """
        slots_bytes = slot_count(self, samples) * slot_size_bytes(samples)
        held_bytes = sum(samples.file_bytes) if samples.in_memory else 0
        return slots_bytes + tensor_count(self, samples) * samples.batch_bytes + held_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: where the format has one and it is requested."""
        return samples.check_crc and record_format(samples.record_format).HAS_CRC

    @property
    def sample_decode_timed(self) -> str:
        """Files are decoded after they have been read whole, so reading is not included."""
        return "headers, the CRC if it is checked, and the copies into rows"

    @property
    def sample_verified(self) -> str:
        """Decoding threads verify whole files: they scale with the drive, one poller would not."""
        return "every byte of each file, in the loader's decoding threads while it reads"

    @property
    def sample_path_is_direct(self) -> bool:
        """``True``: nothing passes through the page cache."""
        return True

    @property
    def abilities(self) -> Ability:
        return Ability.FILES

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise for targets without O_DIRECT, and for reads that the pollers can't share."""
        self.check()
        for target in targets:
            _require_direct(target)
            check_alignment(target, plan.read_bytes, "workload.block_bytes")
        depth, rest = divmod(plan.per_file, self.pollers)
        if rest or depth > READS_LIMIT:
            raise ConfigError(
                f"each poller of a target keeps as many of its {plan.per_file} reads in flight, "
                f"up to {READS_LIMIT}; loader.pollers must divide workload.requesters, got "
                f"{self.pollers}"
            )
        self.require_checkpoint_library()

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.read_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader of random blocks by O_DIRECT; nothing is kept in ``folder``."""
        return DirectRandomReader(
            plan,
            backend=self.engine,
            pollers=self.pollers,
            traced_operations=self.trace_operations,
        )

    def check_feature_rows(self, plan: FeaturePlan, targets: Sequence[Target]) -> None:
        """Raise for targets without O_DIRECT, and for reads that the pollers can't share."""
        self.check()
        for target in targets:
            _require_direct(target)
            check_alignment(target, plan.row_bytes, "a row of features")
        depth, rest = divmod(plan.outstanding, self.pollers)
        if rest or not 1 <= depth <= READS_LIMIT:
            raise ConfigError(
                f"each poller keeps as many of the {plan.outstanding} outstanding reads in flight, "
                f"1 to {READS_LIMIT}; loader.pollers must divide them, got {self.pollers}"
            )
        self.require_checkpoint_library()

    def feature_bytes(self, plan: FeaturePlan) -> FeatureMemory:
        """Return the size of the engine's own slots, and of what unaligned rows pass through."""
        slots_bytes = plan.outstanding * plan.row_bytes
        return FeatureMemory(working_bytes=slots_bytes + staging_bytes(plan))

    def row_gatherer(self, plan: FeaturePlan) -> RowGatherer:
        return DirectGatherer(plan, backend=self.engine, pollers=self.pollers)

    @property
    def transfers_directly(self) -> bool:
        return True

    def check_block_transfers(self, limits: TransferLimits, targets: Sequence[Target]) -> None:
        """Raise for targets without O_DIRECT, and for a queue depth that pollers can't share."""
        self.check()
        for target in targets:
            _require_direct(target)
            check_alignment(target, limits.request_bytes, "workload.request_bytes")
        if limits.queue_depth % self.pollers:
            raise ConfigError(
                f"each poller has an equal part of workload.queue_depth={limits.queue_depth}; "
                f"loader.pollers must divide it, got {self.pollers}"
            )
        self.require_checkpoint_library()

    def block_transfer_bytes(self, limits: TransferLimits) -> int:
        """Return the slots of two engines."""
        return 2 * limits.queue_depth * limits.request_bytes

    def block_transfers(
        self,
        limits: TransferLimits,
        targets: Sequence[Target],
        *,
        seed: int,
        diskless: bool = False,
    ) -> BlockTransfers:
        return EngineTransfers(
            limits,
            backend=NULL if diskless else self.engine,
            pollers=self.pollers,
            alignment_bytes=max(direct_alignment(target.path) for target in targets),
            seed=seed,
        )

    def check_extent_reads(self, target: Target) -> None:
        """Raise for a target without O_DIRECT, blocks that do not fit it, or no engine."""
        self.check()
        _require_direct(target)
        check_alignment(target, self.block_bytes)
        self.require_checkpoint_library()

    def extent_reads(
        self, memory_bytes: int, target: Target, *, diskless: bool = False
    ) -> EngineReads:
        return EngineReads(
            memory_bytes,
            target,
            backend=NULL if diskless else self.engine,
            block_bytes=self.block_bytes,
            depth=self.queue_depth,
            pollers=self.pollers,
        )

    @property
    def tensors_bypass_cache(self) -> bool:
        return True

    @property
    def reads_columns(self) -> bool:
        """``False``: the columns of a part are copied out of whole rows."""
        return False

    def check_tensor_load(self, plan: LoadPlan, targets: Sequence[Target]) -> None:
        """Raise for targets without O_DIRECT or with another alignment, and for no engine."""
        self.check()
        for target in targets:
            _require_direct(target)
            check_alignment(target, self.block_bytes)
        self.require_checkpoint_library()

    def tensor_load_bytes(self, plan: LoadPlan) -> int:
        """Return the size of staging memory, and of the model unless it is for a GPU."""
        layout = Layout(
            plan,
            block_bytes=self.block_bytes,
            depth_bytes=self.block_bytes * self.queue_depth * self.pollers,
        )
        staging_bytes = layout.slots * layout.slot_bytes
        return staging_bytes + (layout.memory_bytes if plan.device is None else 0)

    def tensor_load(self, plan: LoadPlan) -> TensorLoad:
        return (HostLoad if plan.device is None else GpuLoad)(
            plan,
            backend=self.engine,
            block_bytes=self.block_bytes,
            depth=self.queue_depth,
            pollers=self.pollers,
        )

    @property
    def searches_directly(self) -> bool:
        return True

    @property
    def most_inflight_per_thread(self) -> int:
        return 1 if choose_backend(self.engine).name == PREAD else INFLIGHT_LIMIT

    def check_search(self, layout: NodeLayout, plan: SearchPlan, targets: Sequence[Target]) -> None:
        """Raise for targets without O_DIRECT, whose blocks must fit sectors, and for no engine."""
        self.check()
        for target in targets:
            _require_direct(target)
            check_alignment(target, SECTOR_BYTES, "a sector of the index")

    def search_bytes(self, layout: NodeLayout, plan: SearchPlan) -> int:
        return plan.reads_in_flight * layout.read_bytes

    def searcher(self, index: SearchIndex, plan: SearchPlan) -> Searcher:
        choice = choose_backend(self.engine)
        each = f"up to {plan.inflight_per_thread} x {plan.beam} reads in flight in each"
        path = DataPath(
            data_path="o_direct",
            path_requested="o_direct",
            engine=f"{choice.name}, {plan.threads} threads, "
            f"{'one read at a time' if choice.name == PREAD else each}; into host memory",
            remarks=choice.remarks,
        )
        access = BY_PREAD if choice.name == PREAD else BY_RING
        return EngineSearcher(index, plan, path, access=access)


def _require_direct(target: Target) -> None:
    if target.direct_io is None:
        raise TargetError(
            f"{target.path} has no O_DIRECT ({target.direct_io_missing}), which "
            "loader=direct needs; choose a target on a local disk, or a "
            "loader that reads through the page cache"
        )


def slot_count(config: Config, samples: SampleSet) -> int:
    """Return how many whole files are held at once, as memory and batches allow.

    Raises:
        ConfigError: the memory does not hold the largest file.
    """
    slot_bytes = slot_size_bytes(samples)
    if config.prefetch_bytes < slot_bytes:
        raise ConfigError(
            f"loader.prefetch_bytes must hold the largest file, {slot_bytes} bytes, "
            f"got {config.prefetch_bytes}"
        )
    of_batches = tensor_count(config, samples) * samples.batch_samples
    return min(config.prefetch_bytes // slot_bytes, of_batches)


def group_files(config: Config, samples: SampleSet) -> int:
    """Return how many files are read by one plan.

    They fill the blocks that are in flight, and there is memory for four groups or more. A file of
    several blocks has a plan of its own, and so has one without a byte.
    """
    slot_bytes = slot_size_bytes(samples)
    if slot_bytes > config.block_bytes or not min(samples.file_bytes):
        return 1
    in_flight = config.queue_depth * config.pollers * config.block_bytes // slot_bytes
    return max(min(in_flight, slot_count(config, samples) // 4), 1)


def slot_size_bytes(samples: SampleSet) -> int:
    """Return the size of a slot: the largest file, rounded up for any drive's blocks."""
    return round_up(max(samples.file_bytes), SLOT_ALIGN_BYTES)


def tensor_count(config: Config, samples: SampleSet) -> int:
    """Return the batch tensors: those prepared ahead per accelerator, and the delivered one."""
    return config.prefetch_batches * samples.accelerators + 1


def open_engine(config: Config, *, diskless: bool = False) -> IOEngine:
    """Return the engine for a configuration, its buffers filled with random bytes.

    With ``diskless`` the same engine moves nothing: its rate is the harness's own ceiling.

    Raises:
        ConfigError: a setting is out of range, or its engine can't run here.
        MissingExtraError: the engine is not built.
    """
    config.check()
    return IOEngine(
        backend=NULL if diskless else config.engine,
        block_bytes=config.block_bytes,
        depth=config.queue_depth,
        pollers=config.pollers,
    )
