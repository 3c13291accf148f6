"""The workload with a last drive that stops to answer: see ``workload._target_``."""

from __future__ import annotations

from tests.workloads.gpu_read.asking import FaultyLoader
from wattload.core.workload import Accelerator
from wattload.loaders.block_reads import BlockReadConfig
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead


class Hanging(GpuRead):
    """Waits for answers that are never given."""

    def __init__(self, config: Config, loader: BlockReadConfig, accelerator: Accelerator) -> None:
        super().__init__(
            config, FaultyLoader(requester="cpu", fault="silent", hang_s=0.3), accelerator
        )
