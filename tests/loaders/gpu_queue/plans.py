"""Plans of random reads over stamped files, and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.loaders.gpu.plans import Watch
from wattload.core.io import DataPath, Stamps
from wattload.loaders.gpu_queue.config import Config
from wattload.loaders.random_reads import (
    Pattern,
    RandomReadFile,
    RandomReadPlan,
    RandomReadResult,
)
from wattload.loaders.stamps import seal

FILE_BYTES = 1 << 20


def stamped_file(path: Path, word: int = 1, size: int = FILE_BYTES) -> RandomReadFile:
    """Write a file of random bytes with a stamp per 512 of them."""
    stamps = Stamps(7, word, first_block=5, unit_bytes=512)
    content = np.random.default_rng(word).integers(0, 256, size, dtype=np.uint8)
    seal(content, stamps, first_block=stamps.first_block, unit_bytes=512)
    path.write_bytes(content.tobytes())
    return RandomReadFile(path=path, size_bytes=size, stamps=stamps, read_bytes=512)


def plan_of(*files: RandomReadFile, **changes: Any) -> RandomReadPlan:
    """Return a plan of a fraction of a second by two warps per file."""
    values: dict[str, Any] = {
        "files": files, "block_bytes": 512, "requesters": 64, "queue_pairs": 2, "queue_size": 64,
        "pattern": Pattern.UNIFORM, "duration_s": 0.2, "seed": 11, "gpu": None, "node": None,
    }  # fmt: skip
    return RandomReadPlan(**values | changes)


def read(plan: RandomReadPlan, folder: Path, **settings: Any) -> tuple[RandomReadResult, DataPath]:
    """Make the reads of a plan by requesters on the CPU; return their path too."""
    config = Config(**{"requester": "cpu", **settings})
    config.check()
    reader, watch = config.random_reader(plan, folder), Watch()
    try:
        result = reader.run(watch)
        path = reader.path()
    finally:
        reader.close()
    assert watch.events == ["begin", "end"]
    assert watch.reads == result.operations
    each_bytes = plan.files[0].read_bytes if config.reads_storage else 0
    assert watch.read_bytes == watch.reads * each_bytes
    return result, path
