"""Makes runs of gpu_read in this process, by requesters on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.context import Context, directory_target
from wattload.core.record.results import Check
from wattload.core.storage.file_system import DirectIo
from wattload.core.storage.targets import Target
from wattload.core.workload import Accelerator, Communicator
from wattload.loaders.block_reads import BlockReader, ReadPlan
from wattload.loaders.gpu.process import ProcessReader
from wattload.loaders.gpu_queue.config import Config as Loader
from wattload.loaders.gpu_queue.native import HANG_S
from wattload.loaders.gpu_queue.reads import queue_way
from wattload.run.ranks import LocalCommunicator
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead

FILE_BYTES = 1 << 20


@dataclass(slots=True, kw_only=True)
class FaultyLoader(Loader):
    """Its pollers do something wrong with answers: see ``native.FAULTS``."""

    fault: str = "none"
    hang_s: float = HANG_S

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        setup = replace(self.queue_setup(plan), fault=self.fault, hang_s=self.hang_s)
        return ProcessReader(plan, queue_way(plan, setup))


def workload_of(loader: Loader | None = None, **settings: Any) -> GpuRead:
    known = {
        "file_bytes": FILE_BYTES, "duration_s": 0.2, "requesters": 64, "queue_pairs": 2,
        "block_bytes": 512,
    }  # fmt: skip
    config = Config(**{**known, **settings})
    config.check("demo")
    return GpuRead(config, loader or Loader(requester="cpu"), Accelerator())


def target_at(path: Path, *, index: int = 0, least_bytes: int = 512) -> Target:
    """Return a target whose O_DIRECT takes blocks of ``least_bytes``."""
    needs = DirectIo(memory_align_bytes=4, offset_align_bytes=least_bytes, found_by="test")
    return replace(directory_target(path, index=index), direct_io=needs)


def context_of(
    folder: Path, *names: str, least_bytes: int = 512, communicator: Communicator | None = None
) -> Context:
    """Return a context with a target in each of the named folders, which are made."""
    targets = []
    for index, name in enumerate(names or ("target",)):
        (folder / name).mkdir(exist_ok=True)
        targets.append(target_at(folder / name, index=index, least_bytes=least_bytes))
    return Context(targets=tuple(targets), communicator=communicator or LocalCommunicator())


def files_of(context: Context) -> list[Path]:
    found = (target.data_folder.rglob("*.bin") for target in context.targets)
    return [path for paths in found for path in sorted(paths)]


def verdicts(checks: dict[str, Check], names: Sequence[str]) -> list[str]:
    return [checks[name].verdict for name in names]
