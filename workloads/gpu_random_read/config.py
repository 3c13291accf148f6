"""The settings of the gpu_random_read workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.host.gpu_topology import check_names, named_gpus
from wattload.core.settings import check_settings, setting
from wattload.core.units import MIB
from wattload.loaders.random_reads import WARP, Pattern

UNIT_BYTES = 512
"""Every block of this size carries a stamp, so smaller reads are not supported."""
MAX_BLOCK_BYTES = 65_536
MAX_REQUESTERS = 65_536
MAX_QUEUE_SIZE = 65_536
MAX_QUEUE_PAIRS = 1024
MAX_DURATION_S = 24 * 3600.0


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of a file and the time of the reads at one scale."""

    file_bytes: int | None = 8 << 30
    duration_s: float = 30.0


@dataclass(slots=True, kw_only=True)
class Config:
    """Random reads of small blocks, many in flight on each target.

    The defaults are those of the paper: "Request=512 Thread/1024 QueueSize, QueuePairSize=8".
    """

    _target_: str = "wattload.workloads.gpu_random_read.workload.GpuRandomRead"
    block_bytes: int = setting(
        512,
        "Size of one read: a power of two.",
        multiple=UNIT_BYTES,
        least=UNIT_BYTES,
        most=MAX_BLOCK_BYTES,
    )
    requesters: int = setting(
        512,
        "Threads per target that ask, each with one read in flight: a multiple of 32.",
        least=WARP,
        most=MAX_REQUESTERS,
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
        "Which blocks are read: any of the file, or those of a region for each warp of 32 threads.",
        choices=tuple(each.value for each in Pattern),
    )
    duration_s: float = setting(30.0, "How long blocks are read.", above=0, most=MAX_DURATION_S)
    file_bytes: int | None = setting(
        None,
        "Size of the file on each target.",
        multiple=MIB,
        least=MIB,
        unset="all but 5 % of the file system",
    )
    gpus: Any = setting(
        None,
        "GPUs by their number in nvidia-smi or their PCI address, such as [0,1]: one per process.",
        unset="one per process, by PCI address",
    )
    scales: dict[str, Scale] = setting(dict, "Sizes and times by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        _require_power_of_two("block_bytes", self.block_bytes)
        if self.requesters % WARP:
            following = (self.requesters // WARP + 1) * WARP
            raise ConfigError(
                f"workload.requesters must be a multiple of {WARP}, the threads of a warp, got "
                f"{self.requesters}; use {following}"
            )
        _require_power_of_two("queue_size", self.queue_size)
        if self.queue_size < self.requesters:
            raise ConfigError(
                f"workload.queue_size must hold the {self.requesters} requests that may meet on "
                f"one pair, got {self.queue_size}; use a larger one, or fewer workload.requesters"
            )
        check_names(self.named_gpus)

    @property
    def named_gpus(self) -> tuple[str, ...]:
        """The GPUs that were named, as text; empty for one per process."""
        return named_gpus(self.gpus)


def _require_power_of_two(name: str, value: int) -> None:
    if value & (value - 1):
        raise ConfigError(
            f"workload.{name} must be a power of two, got {value}; use {1 << value.bit_length()}"
        )
