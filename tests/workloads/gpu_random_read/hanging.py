"""The workload with a last drive that stops to answer: see ``workload._target_``."""

from __future__ import annotations

from tests.workloads.gpu_random_read.making import FaultyLoader
from wattload.core.workload import Accelerator
from wattload.loaders.random_reads import RandomReadLoaderConfig
from wattload.workloads.gpu_random_read.config import Config
from wattload.workloads.gpu_random_read.workload import GpuRandomRead


class Hanging(GpuRandomRead):
    """Waits for answers that are never given."""

    def __init__(
        self, config: Config, loader: RandomReadLoaderConfig, accelerator: Accelerator
    ) -> None:
        super().__init__(config, FaultyLoader(requester="cpu", fault="silent"), accelerator)
