"""The workload with an emulated GPU, for whole runs: see ``workload._target_``."""

from __future__ import annotations

import pytest

from tests.loaders.gpu_queue.emulated_gpu import install
from wattload.core.workload import Accelerator
from wattload.loaders.random_reads import RandomReadLoaderConfig
from wattload.workloads.gpu_random_read.config import Config
from wattload.workloads.gpu_random_read.workload import GpuRandomRead


class Emulated(GpuRandomRead):
    """Reads by a GPU that runs on the CPU."""

    def __init__(
        self, config: Config, loader: RandomReadLoaderConfig, accelerator: Accelerator
    ) -> None:
        install(pytest.MonkeyPatch())
        super().__init__(config, loader, accelerator)
