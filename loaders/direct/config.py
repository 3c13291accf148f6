"""The settings of loader=direct: planned I/O that bypasses the page cache.

``engine=auto`` uses io_uring where the kernel allows it and a pool of ``pread`` threads elsewhere.
The engine's ``path()`` has the backend that was used, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.io import Loader
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.aligned_io import PAGE_BYTES, round_up
from wattload.loaders.checkpoint_store import Shard, ShardStore
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import AUTO, IO_URING, NULL, PREAD, choose_backend
from wattload.loaders.factories import make_loader, make_store
from wattload.loaders.operation_log import ROWS_LIMIT
from wattload.loaders.samples import ReadCounter, SampleSet

ENGINES = (AUTO, IO_URING, PREAD)
BLOCK_BYTES_LIMIT = 1 << 30
QUEUE_DEPTH_LIMIT = 1024
POLLER_LIMIT = 64
SLOT_ALIGN_BYTES = 64 << 10
"""Slots start at multiples of this: the largest logical block size of Linux."""


@dataclass(slots=True, kw_only=True)
class Config:
    """How the direct loader moves bytes.

    ``engine`` is ``auto``, ``io_uring`` or ``pread``. ``block_bytes`` is the size of one I/O, a
    multiple of 4096; ``queue_depth`` is how many are in flight per poller, ``pollers`` how many
    threads with their own ring there are per rank. Their product is the memory of one rank's
    engine. ``trace_operations`` is the most single operations that a rank traces, spread evenly
    over all its reads and over its writes; 0 traces none.

    The other settings are for whole samples (``sample_loader``): ``workers`` decoding threads and
    ``prefetch_batches`` batches prepared ahead per accelerator, and ``prefetch_bytes`` of memory
    per rank for files that are being read or decoded.
    """

    name: ClassVar[str] = "direct"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.direct.config.Config"
    engine: str = AUTO
    block_bytes: int = 4 << 20
    queue_depth: int = 8
    pollers: int = 1
    trace_operations: int = 4096
    workers: int = 4
    prefetch_batches: int = 4
    prefetch_bytes: int = 2 << 30

    def check(self) -> None:
        """Raise ``ConfigError`` for an unknown engine, or a setting outside its range."""
        if self.engine not in ENGINES:
            raise ConfigError(
                f"loader.engine must be one of {', '.join(ENGINES)}, got {self.engine!r}"
            )
        if not PAGE_BYTES <= self.block_bytes <= BLOCK_BYTES_LIMIT or self.block_bytes % PAGE_BYTES:
            raise ConfigError(
                f"loader.block_bytes must be a multiple of {PAGE_BYTES} up to {BLOCK_BYTES_LIMIT}, "
                f"got {self.block_bytes}"
            )
        if not 1 <= self.queue_depth <= QUEUE_DEPTH_LIMIT:
            raise ConfigError(
                f"loader.queue_depth must be 1 to {QUEUE_DEPTH_LIMIT}, got {self.queue_depth}"
            )
        if not 1 <= self.pollers <= POLLER_LIMIT:
            raise ConfigError(f"loader.pollers must be 1 to {POLLER_LIMIT}, got {self.pollers}")
        if not 0 <= self.trace_operations <= ROWS_LIMIT:
            raise ConfigError(
                f"loader.trace_operations must be 0 to {ROWS_LIMIT}, got {self.trace_operations}"
            )
        for name in ("workers", "prefetch_batches", "prefetch_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"loader.{name} must be 1 or more, got {getattr(self, name)}")

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
    def sample_bytes_counted(self) -> str:
        """Each block is counted when it has been read, as the kernel reports it."""
        return "as each block is read, by the count that the kernel returned"

    @property
    def sample_decode_timed(self) -> str:
        """Files are decoded after they have been read whole, so reading is not included."""
        return "headers, the CRC if it is checked, and the copies into rows"

    @property
    def sample_path_is_direct(self) -> bool:
        """``True``: nothing passes through the page cache."""
        return True


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


def check_alignment(target: Target, block_bytes: int) -> None:
    """Raise ``ConfigError`` for blocks that a target's O_DIRECT does not accept.

    The preflight refuses a target without O_DIRECT.
    """
    needs = target.direct_io
    if needs is None:
        return
    align_bytes = max(needs.offset_align_bytes, needs.memory_align_bytes)
    if block_bytes % align_bytes:
        raise ConfigError(
            f"O_DIRECT on {target.path} needs multiples of {align_bytes} bytes; loader.block_bytes "
            f"must be one of them, got {block_bytes}"
        )
