"""The settings of the gpu_read workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.host.gpu_topology import check_names, named_gpus
from wattload.core.settings import check_settings, setting

STAMP_BYTES = 4096
"""Every block of this size carries a stamp, so smaller reads are not supported."""
MAX_BLOCK_BYTES = 16 << 20
MAX_THREADS = 65_536
MAX_DURATION_S = 24 * 3600.0
FILE_BYTES = 5 << 30
"""The paper's "file size of 5GB", as gdsio reads ``-s 5G``."""


class Files(Enum):
    """How many files there are."""

    per_target = "per_target"
    per_thread = "per_thread"


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of a file and the time of the reads at one scale."""

    file_bytes: int = FILE_BYTES
    duration_s: float = 30.0


@dataclass(slots=True, kw_only=True)
class Config:
    """Random reads of whole blocks into GPU memory, one in flight per thread."""

    _target_: str = "wattload.workloads.gpu_read.workload.GpuRead"
    block_bytes: int = setting(
        4096,
        "Size of one read.",
        multiple=STAMP_BYTES,
        least=STAMP_BYTES,
        most=MAX_BLOCK_BYTES,
    )
    threads: int = setting(
        64,
        "Threads over all targets, each with one read in flight; at least one per file.",
        least=1,
        most=MAX_THREADS,
    )
    duration_s: float = setting(30.0, "How long blocks are read.", above=0, most=MAX_DURATION_S)
    file_bytes: int = setting(
        FILE_BYTES, "Size of one file.", multiple=STAMP_BYTES, least=STAMP_BYTES
    )
    files: Files = setting(Files.per_target, "One file on each target, or one for each thread.")
    gpus: Any = setting(
        None,
        "GPUs by their number in nvidia-smi or their PCI address, such as [0,1]: one per target, "
        "or one for all.",
        unset="the nearest to each target by PCI Express",
    )
    scales: dict[str, Scale] = setting(dict, "Sizes and times by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        if self.file_bytes < self.block_bytes:
            raise ConfigError(
                f"workload.file_bytes must be at least workload.block_bytes, {self.block_bytes} "
                f"bytes, got {self.file_bytes}"
            )
        check_names(self.named_gpus)

    @property
    def named_gpus(self) -> tuple[str, ...]:
        """The GPUs that were named, as text; empty for the nearest ones."""
        return named_gpus(self.gpus)

    @property
    def queue_depth(self) -> int:
        return self.threads
