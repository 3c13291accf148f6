"""The workload with an emulated GPU, for whole runs: see ``workload._target_``."""

from __future__ import annotations

import pytest

from tests.loaders.gpu_queue.emulated_gpu import install
from wattload.core.workload import Accelerator
from wattload.loaders.block_reads import BlockReadConfig
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead


class Emulated(GpuRead):
    """Reads by a GPU that runs on the CPU."""

    def __init__(self, config: Config, loader: BlockReadConfig, accelerator: Accelerator) -> None:
        install(pytest.MonkeyPatch())
        super().__init__(config, loader, accelerator)
