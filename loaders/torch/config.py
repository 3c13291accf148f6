"""The settings of loader=torch, and the checks of them before a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.io import Loader
from wattload.core.settings import setting
from wattload.core.storage.targets import Target
from wattload.core.units import compared_bytes
from wattload.core.workload import PYTORCH, Requirement, require_installed
from wattload.loaders.aligned_io import PAGE_BYTES, round_up
from wattload.loaders.block_transfers import BlockTransfers, TransferLimits
from wattload.loaders.checkpoint_store import Shard, ShardStore, make_store
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.direct.transfers import EngineTransfers
from wattload.loaders.engine.library import NULL, PREAD, choose_backend
from wattload.loaders.samples import ReadCounter, SampleSet, make_loader
from wattload.loaders.tensor_loads import LoadPlan
from wattload.loaders.torch_tensors import TensorPackage, Tensors

SHARED_MEMORY = "/dev/shm"
START_METHODS = ("forkserver", "spawn", "fork")
WORKER_LIMIT = 1024
DISK_THREADS = 4
"""Threads for reads of blocks, and as many for writes: LMCache's disk backend has four in all."""


@dataclass(slots=True, kw_only=True)
class Config(TensorPackage):
    """PyTorch's DataLoader, ``torch.save``, and ``safetensors.torch.load_file``.

    DLIO's ``read_threads`` are ``workers``; its prefetch size of 2, divided by the workers and
    rounded up, is ``prefetch_factor``.
    """

    name: ClassVar[str] = "torch"
    requires: ClassVar[tuple[Requirement, ...]] = (PYTORCH,)

    _target_: str = "wattload.loaders.torch.config.Config"
    workers: int = setting(4, "Worker processes per accelerator.", least=1, most=WORKER_LIMIT)
    prefetch_factor: int = setting(
        1, "Batches that each worker prepares at once.", least=1, most=WORKER_LIMIT
    )
    start_method: str = setting(
        "forkserver",
        "How workers start: forkserver imports PyTorch once for all of them; fork, as in DLIO 2.0, "
        "can deadlock with threads and MPI.",
        choices=START_METHODS,
    )
    bucket_bytes: int = setting(1 << 30, "Largest file of torch.save.", least=1)

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` if PyTorch is not installed; does not import it."""
        require_installed(self.requires, user="loader=torch")

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return the store that saves a rank's shard by ``torch.save`` + fsync."""
        return make_store(self, shard, seed=seed, diskless=diskless)

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return a bound on the tensors of one file: one copy, and one more while loading."""
        return 2 * (min(self.bucket_bytes, shard.size_bytes) + PAGE_BYTES * len(shard.tensors))

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """``False``: ``torch.save`` writes through the page cache."""
        return False

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise if PyTorch is not installed, or shared memory is too small."""
        require_installed(self.requires, user="loader=torch")
        require_shared_memory(self, samples)

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the DataLoader over these samples, with its workers running."""
        return make_loader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers: a whole record per worker, and the batches in preparation.

        ``np.load`` of an npz holds its member once; PyTorch itself and its processes need more.
        """
        workers = self.workers * samples.accelerators
        held_bytes = 2 if samples.in_memory else 1
        batches = workers * (self.prefetch_factor + 1) + 1
        return workers * held_bytes * max(samples.file_bytes) + batches * samples.batch_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: ``np.load`` always does for an npz."""
        return record_format(samples.record_format).HAS_CRC

    @property
    def sample_decode_timed(self) -> str:
        """``np.load`` alternates reading and decoding: the time of file reads is subtracted."""
        return (
            "headers, the CRC that np.load computes of every npz, its copies, and those into rows; "
            "for an npy, which np.load reads directly into its array, the copies into rows alone"
        )

    @property
    def sample_verified(self) -> str:
        """The workers have whole payloads in memory; the bytes around them are np.load's own."""
        return (
            "the payload of each file, in DataLoader's workers within the timed phase; np.load "
            "parses the rest"
        )

    @property
    def sample_path_is_direct(self) -> bool:
        """``False``: ``np.load`` reads through the page cache."""
        return False

    @property
    def transfers_directly(self) -> bool:
        return False

    def check_block_transfers(self, limits: TransferLimits, targets: Sequence[Target]) -> None:
        """Raise ``MissingExtraError`` if the engine is not built; it needs no PyTorch."""
        choose_backend(PREAD)

    def block_transfer_bytes(self, limits: TransferLimits) -> int:
        """Return the slots of two engines, each of the longest extent."""
        return 2 * DISK_THREADS * round_up(limits.largest_bytes, PAGE_BYTES)

    def block_transfers(
        self,
        limits: TransferLimits,
        targets: Sequence[Target],
        *,
        seed: int,
        diskless: bool = False,
    ) -> BlockTransfers:
        """Return threads that move whole extents through the page cache, four of each kind."""
        whole_bytes = round_up(limits.largest_bytes, PAGE_BYTES)
        return EngineTransfers(
            replace(limits, request_bytes=whole_bytes, queue_depth=DISK_THREADS),
            backend=NULL if diskless else PREAD,
            pollers=1,
            alignment_bytes=PAGE_BYTES,
            seed=seed,
            direct=False,
        )

    def read_tensors(self, plan: LoadPlan) -> Tensors:
        """Return tensors by ``safetensors.torch.load_file``, which maps a whole file."""
        from safetensors.torch import load_file

        for path in plan.files:
            yield from load_file(path).items()


def require_shared_memory(config: Config, samples: SampleSet) -> None:
    """Raise ``ConfigError`` if the workers' tensors do not fit: they would die of SIGBUS."""
    workers = config.workers * samples.accelerators
    needed_bytes = (workers * config.prefetch_factor + 1) * samples.batch_bytes
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return
    free_bytes = status.f_bavail * status.f_frsize
    if free_bytes < needed_bytes:
        needed, free = compared_bytes(needed_bytes, free_bytes)
        raise ConfigError(
            f"{workers} workers with {config.prefetch_factor} batches each need "
            f"{needed} of {SHARED_MEMORY}, got {free}; "
            "use fewer loader.workers, or start the container with a larger --shm-size"
        )
