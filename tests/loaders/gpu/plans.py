"""Plans of reads into GPU memory by threads, over stamped files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.loaders import block_plans
from wattload.loaders.block_reads import BlockReadConfig, ReadFile, ReadPlan, ReadResult

GPU = "0000:65:00.0"
BLOCK = 4096
FILE_BYTES = 64 * BLOCK


def stamped_file(path: Path, word: int = 1, gpu: str = GPU, size: int = FILE_BYTES) -> ReadFile:
    """Write a file of random bytes with stamps."""
    return block_plans.stamped_file(path, word, size, gpu=gpu)


def plan_of(*files: ReadFile, threads: int = 4, **changes: Any) -> ReadPlan:
    """Return a plan of a fraction of a second by four threads."""
    known = {"block_bytes": BLOCK, "in_flight": threads, "duration_s": 0.3}
    return block_plans.plan_of(*files, **known | changes)


def read(config: BlockReadConfig, plan: ReadPlan, folder: Path) -> ReadResult:
    """Make the reads of a plan."""
    return block_plans.read(config, plan, folder).result
