"""The GPU of a rank, as PyTorch has it, and what bounds copies to it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.units import MIB
from wattload.core.workload import RunContext
from wattload.loaders.device_copy import require_cuda
from wattload.workloads.model_load.config import Destination

COPY_BYTES, COPIES = 128 * MIB, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGpu:
    """A CUDA device by its number, with its PCI address as the kernel writes it.

    At most ``ranks`` of the run share its ``free_bytes``.
    """

    number: int
    name: str
    address: str
    free_bytes: int
    ranks: int

    def copy_ceiling(self, context: RunContext) -> float:
        """Return the rate of copies from pinned memory to it, in bytes/s."""
        import torch

        context.progress.begin("copying to the GPU")
        with context.phase("copy_ceiling", timed=False), torch.cuda.device(self.number):
            host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
            there = host.to("cuda")
            torch.cuda.synchronize()
            start_s = time.monotonic()
            for _ in range(COPIES):
                there.copy_(host, non_blocking=True)
            torch.cuda.synchronize()
            return COPIES * COPY_BYTES / (time.monotonic() - start_s)


def gpu_of(destination: Destination, rank: int, ranks: int) -> RankGpu | None:
    """Return the GPU of a rank, ``None`` for host memory; ranks use GPUs in rotation.

    Raises:
        ConfigError, MissingExtraError: ``destination=gpu``, and PyTorch sees none.
    """
    if destination is Destination.host:
        return None
    try:
        require_cuda(user="workload.destination=gpu", alternative="workload.destination=host")
    except (ConfigError, MissingExtraError):
        if destination is Destination.gpu:
            raise
        return None
    import torch

    number, count = rank % torch.cuda.device_count(), torch.cuda.device_count()
    found: Any = torch.cuda.get_device_properties(number)  # its stub lacks the PCI address
    return RankGpu(
        number=number,
        name=found.name,
        address=f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0",
        free_bytes=torch.cuda.mem_get_info(number)[0],
        ranks=-(-ranks // count),
    )
