"""Plans of reads into GPU memory over stamped files, and what they must read."""

from __future__ import annotations

from collections import Counter
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


def read(config: Any, plan: GpuReadPlan, folder: Path) -> GpuReadResult:
    """Make the reads of a plan."""
    reader = config.gpu_reader(plan, folder)
    moved: Counter[str] = Counter()

    def count(reads: int, read_bytes: int) -> None:
        moved.update(reads=reads, bytes=read_bytes)

    try:
        result: GpuReadResult = reader.run(count)
    finally:
        reader.close()
    assert (moved["reads"], moved["bytes"]) == (result.operations, result.moved_bytes)
    return result
