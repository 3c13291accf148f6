"""loader=direct: planned I/O past the page cache by the native engine, or its Python reference.

``open_engine`` makes the engine that a configuration asks for. ``engine=auto`` takes io_uring where
the kernel allows it and a pool of ``pread`` threads elsewhere; what was taken, and why, stands in
the engine's ``path()``. For reading whole samples ahead into buffers of your own see
``wattload.loaders.direct.reader``, for checkpoints ``wattload.loaders.direct.checkpoint``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.core.io import Loader
from wattload.core.target import Target
from wattload.loaders.aligned import PAGE_BYTES
from wattload.loaders.checkpoints import Shard, ShardStore
from wattload.loaders.formats import record_format
from wattload.loaders.native.backend import AUTO, IO_URING, NULL, PREAD, choose
from wattload.loaders.native.engine import NativeEngine
from wattload.loaders.operationlog import ROWS_LIMIT
from wattload.loaders.python.engine import PythonEngine
from wattload.loaders.samples import ReadCounter, SampleSet

PYTHON = "python"
ENGINES = (AUTO, IO_URING, PREAD, PYTHON)
BLOCK_BYTES_LIMIT = 1 << 30
QUEUE_DEPTH_LIMIT = 1024
POLLER_LIMIT = 64


@dataclass(slots=True, kw_only=True)
class Config:
    """How the direct engine moves bytes.

    ``engine`` is ``auto``, ``io_uring``, ``pread`` or ``python``. ``block_bytes`` is the size of
    one I/O, a multiple of 4096; ``queue_depth`` is how many are in flight per poller, ``pollers``
    how many threads with a ring each there are per rank (``python`` has none). Their product is the
    memory that one rank's engine holds. ``trace_operations`` is how many single operations a rank
    keeps a trace of at most, spread evenly over all of its reads and of its writes; 0 keeps none
    (``python`` has none).

    The others are for whole samples (``sample_loader``): ``workers`` decoding threads and
    ``prefetch_batches`` batches made ahead per accelerator, and ``prefetch_bytes`` of memory per
    rank for files that are being read or decoded.
    """

    _target_: str = "wattload.loaders.direct.Config"
    engine: str = AUTO
    block_bytes: int = 4 << 20
    queue_depth: int = 8
    pollers: int = 1
    trace_operations: int = 4096
    workers: int = 4
    prefetch_batches: int = 4
    prefetch_bytes: int = 2 << 30

    def check(self) -> None:
        """Raise ``ConfigError`` for an engine there is not, a size or a depth that can't be run."""
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
        if self.pollers > 1 and self.engine == PYTHON:
            raise ConfigError(f"loader.pollers must be 1 with engine={PYTHON}, got {self.pollers}")
        if not 0 <= self.trace_operations <= ROWS_LIMIT:
            raise ConfigError(
                f"loader.trace_operations must be 0 to {ROWS_LIMIT}, got {self.trace_operations}"
            )
        for name in ("workers", "prefetch_batches", "prefetch_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"loader.{name} must be 1 or more, got {getattr(self, name)}")

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` where the native engine is asked for and was not built."""
        if self.engine != PYTHON:
            choose(self.engine)

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard in one file by O_DIRECT."""
        from wattload.loaders.direct.checkpoint import DirectStore

        return DirectStore(self, shard, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return the bytes of a store's buffers, the same for saving and loading."""
        return self.queue_depth * self.pollers * self.block_bytes

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``True``: checkpoints need O_DIRECT on the target."""
        return True

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for memory that holds no file, blocks too small for a target, and no engine."""
        self.sample_memory_bytes(samples)
        self.require_checkpoint_library()
        for target in targets:
            check_alignment(target, self.block_bytes)

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the loader of whole samples by O_DIRECT, its threads and buffers ready."""
        from wattload.loaders.direct.samples import DirectSampleLoader

        return DirectSampleLoader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return the bytes of a rank's file slots and batch tensors (see ``direct.samples``)."""
        from wattload.loaders.direct.samples import memory_bytes

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


def open_engine(config: Config, *, diskless: bool = False) -> NativeEngine | PythonEngine:
    """Return the engine that a configuration asks for, its buffers filled with random bytes.

    With ``diskless`` the same engine moves nothing: its rate is the harness's own ceiling.

    Raises:
        ConfigError: a setting is out of range, or its engine can't run here.
        MissingExtraError: the native engine was not built.
    """
    config.check()
    if config.engine == PYTHON:
        return PythonEngine(
            block_bytes=config.block_bytes, depth=config.queue_depth, diskless=diskless
        )
    return NativeEngine(
        backend=NULL if diskless else config.engine,
        block_bytes=config.block_bytes,
        depth=config.queue_depth,
        pollers=config.pollers,
    )


def check_alignment(target: Target, block_bytes: int) -> None:
    """Raise ``ConfigError`` for blocks that a target's O_DIRECT can't take.

    A target that takes no O_DIRECT at all is refused by the preflight.
    """
    needs = target.direct_io
    if needs is None:
        return
    align_bytes = max(needs.offset_align_bytes, needs.memory_align_bytes)
    if block_bytes % align_bytes:
        raise ConfigError(
            f"{target.path} takes O_DIRECT at multiples of {align_bytes} bytes; loader.block_bytes "
            f"must be one of them, got {block_bytes}"
        )
