"""Makes runs of gpu_read in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.context import Context
from tests.workloads.gpu_read.fake import FakeLoader
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead

FILE_BYTES = 4 << 20


def workload_of(loader: FakeLoader | None = None, **settings: Any) -> GpuRead:
    known = {"threads": 4, "file_bytes": FILE_BYTES, "duration_s": 0.1}
    config = Config(**{**known, **settings})
    config.check("demo")
    return GpuRead(config, loader or FakeLoader(), Accelerator())


def made(workload: GpuRead, context: Context) -> tuple[Outcome, dict[str, Check]]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    return outcome, {check.name: check for check in (*outcome.checks, *workload.verify(context))}


def files_of(context: Context) -> list[Path]:
    found = (target.data_folder.rglob("*.bin") for target in context.targets)
    return sorted(path for paths in found for path in paths)


def metric(outcome: Outcome, name: str) -> float | None:
    [found] = [each for each in outcome.metrics if each.name == name]
    return found.value
