"""Plans of reads into GPU memory over stamped files, and what they must read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wattload.core.io import Stamps
from wattload.loaders.gpu_reads import GpuFile, GpuReadPlan, GpuReadResult
from wattload.loaders.stamps import seal

GPU = "0000:65:00.0"
BLOCK = 4096
FILE_BYTES = 64 * BLOCK


def stamped_file(path: Path, word: int = 1, gpu: str = GPU, size: int = FILE_BYTES) -> GpuFile:
    """Write a file of random bytes with stamps."""
    stamps = Stamps(7, word, first_block=5)
    content = np.random.default_rng(word).integers(0, 256, size, dtype=np.uint8)
    seal(content, stamps, first_block=stamps.first_block)
    path.write_bytes(content.tobytes())
    return GpuFile(path=path, size_bytes=size, gpu=gpu, node=None, stamps=stamps)


def plan_of(*files: GpuFile, **changes: Any) -> GpuReadPlan:
    """Return a plan of a fraction of a second by four threads."""
    values: dict[str, Any] = {
        "files": files, "block_bytes": BLOCK, "threads": 4, "duration_s": 0.3, "seed": 11,
    }  # fmt: skip
    return GpuReadPlan(**values | changes)


class Watch:
    """Counts the reads of a timed stretch, and how often it begins and ends."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.reads = self.read_bytes = 0

    def begin(self) -> None:
        self.events.append("begin")

    def moved(self, reads: int, read_bytes: int) -> None:
        assert self.events == ["begin"]
        self.reads += reads
        self.read_bytes += read_bytes

    def end(self, start_ns: int, end_ns: int) -> None:
        self.events.append("end")


def read(config: Any, plan: GpuReadPlan, folder: Path) -> GpuReadResult:
    """Make the reads of a plan."""
    reader, watch = config.gpu_reader(plan, folder), Watch()
    try:
        result: GpuReadResult = reader.run(watch)
    finally:
        reader.close()
    assert watch.events == ["begin", "end"]
    assert watch.reads == result.operations
    assert watch.read_bytes == watch.reads * plan.block_bytes
    return result
