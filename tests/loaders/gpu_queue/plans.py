"""Random reads through the queue over stamped files, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.loaders import block_plans
from wattload.core.io import DataPath, Stamps
from wattload.loaders.block_reads import ReadFile, ReadPlan, ReadResult
from wattload.loaders.gpu_queue.config import Config
from wattload.loaders.gpu_queue.native import Queue

NONCE, UNIT = 7, 512


def queue_file(path: Path | str, size: int, word: int, first_block: int = 0) -> ReadFile:
    """Return a file of a queue with a stamp per unit."""
    stamps = Stamps(nonce=NONCE, word=word, first_block=first_block, unit_bytes=UNIT)
    return ReadFile(path=Path(path), size_bytes=size, stamps=stamps)


def queue_of(files: Sequence[ReadFile], **changes: Any) -> Queue:
    """Open a small queue."""
    values: dict[str, Any] = {
        "engine": "storage", "block_bytes": UNIT, "read_bytes": UNIT, "requesters": 64,
        "queue_pairs": 2, "queue_size": 64, "pollers": 1, "requester_threads": 1,
        "sample_every": 64, "table_bytes": 1 << 20, "duration_s": 0.05, "seed": 3,
    }  # fmt: skip
    return Queue(files=files, **values | changes)


def read(plan: ReadPlan, folder: Path, **settings: Any) -> tuple[ReadResult, DataPath]:
    """Make the reads of a plan by requesters on the CPU; return their path too."""
    config = Config(**{"requester": "cpu", **settings})
    result, watch, path = block_plans.read(config, plan, folder)
    each_bytes = plan.read_bytes if config.engine == "storage" else 0
    assert watch.read_bytes == watch.reads * each_bytes
    return result, path
