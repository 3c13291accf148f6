"""Makes runs of gpu_read in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.context import Context
from tests.workloads.gpu_read.fake import FakeLoader
from wattload.core.workload import Accelerator
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead

FILE_BYTES = 4 << 20


def workload_of(loader: FakeLoader | None = None, **settings: Any) -> GpuRead:
    known = {"threads": 4, "file_bytes": FILE_BYTES, "duration_s": 0.1}
    config = Config(**{**known, **settings})
    config.check("demo")
    return GpuRead(config, loader or FakeLoader(), Accelerator())


def files_of(context: Context) -> list[Path]:
    found = (target.data_folder.rglob("*.bin") for target in context.targets)
    return sorted(path for paths in found for path in paths)
