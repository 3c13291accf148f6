"""The settings of the gpu_read workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.host.gpus import check_names, named_gpus
from wattload.core.settings import check_settings, setting
from wattload.core.units import MIB
from wattload.loaders.block_reads import WARP, Pattern

UNIT_BYTES = 512
"""Every block of this size carries a stamp, so smaller reads are not supported."""
MAX_BLOCK_BYTES = 16 << 20
MAX_IN_FLIGHT = 65_536
MAX_QUEUE_SIZE = 65_536
MAX_QUEUE_PAIRS = 1024
MAX_DURATION_S = 24 * 3600.0
FILE_BYTES = 5 << 30
"""A paper's "file size of 5GB", as gdsio reads ``-s 5G``."""


class Files(Enum):
    """How many files there are."""

    per_target = "per_target"
    per_thread = "per_thread"


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of a file and the time of the reads at one scale."""

    file_bytes: int | None = FILE_BYTES
    duration_s: float = 30.0


@dataclass(slots=True, kw_only=True)
class Config:
    """Random reads of whole blocks, by threads or by requesters as the loader has them.

    The defaults of queues are those of a paper: "Request=512 Thread/1024 QueueSize,
    QueuePairSize=8".
    """

    _target_: str = "wattload.workloads.gpu_read.workload.GpuRead"
    block_bytes: int = setting(
        4096,
        "Size of one read; of bounce, cufile and kvikio a multiple of 4096, of gpu_queue, direct "
        "and mmap a power of two up to 65536.",
        multiple=UNIT_BYTES,
        least=UNIT_BYTES,
        most=MAX_BLOCK_BYTES,
    )
    threads: int = setting(
        64,
        "Threads over all targets, each with one read in flight; at least one per file (bounce, "
        "cufile, kvikio, gdsio).",
        least=1,
        most=MAX_IN_FLIGHT,
    )
    requesters: int = setting(
        512,
        "Threads per target that ask, each with one read in flight: a multiple of 32 (gpu_queue, "
        "direct, mmap).",
        least=WARP,
        most=MAX_IN_FLIGHT,
    )
    queue_pairs: int = setting(
        8,
        "Rings per target between requesters and pollers; drives see the pollers' own queues.",
        least=1,
        most=MAX_QUEUE_PAIRS,
    )
    queue_size: int = setting(
        1024,
        "Places of a queue pair: a power of two, at least workload.requesters.",
        least=WARP,
        most=MAX_QUEUE_SIZE,
    )
    pattern: str = setting(
        Pattern.UNIFORM.value,
        "Which blocks are read: any of the file, or those of a region for each warp of 32 "
        "requesters.",
        choices=tuple(each.value for each in Pattern),
    )
    duration_s: float = setting(30.0, "How long blocks are read.", above=0, most=MAX_DURATION_S)
    file_bytes: int | None = setting(
        FILE_BYTES,
        "Size of one file.",
        multiple=MIB,
        least=MIB,
        unset="all but 5 % of the file system",
    )
    files: Files = setting(Files.per_target, "One file on each target, or one for each thread.")
    gpus: Any = setting(
        None,
        "GPUs by their number in nvidia-smi or their PCI address, such as [0,1]: one per target, "
        "or one for all; with gpu_queue, one per process.",
        unset="the nearest to each target by PCI Express; with gpu_queue, one per process, by PCI "
        "address",
    )
    scales: dict[str, Scale] = setting(dict, "Sizes and times by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        if self.file_bytes is not None and self.file_bytes < self.block_bytes:
            raise ConfigError(
                f"workload.file_bytes must be at least workload.block_bytes, {self.block_bytes} "
                f"bytes, got {self.file_bytes}"
            )
        if self.file_bytes is None and self.files is Files.per_thread:
            raise ConfigError(
                "workload.files=per_thread needs workload.file_bytes: only one file on each target "
                "can fill it"
            )
        check_names(self.named_gpus)

    @property
    def named_gpus(self) -> tuple[str, ...]:
        """The GPUs that were named, as text; empty for those that are found."""
        return named_gpus(self.gpus)
