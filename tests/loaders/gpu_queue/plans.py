"""Random reads through the queue over stamped files, and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.loaders import block_plans
from wattload.core.io import DataPath
from wattload.loaders.block_reads import ReadPlan, ReadResult
from wattload.loaders.gpu_queue.config import Config


def read(plan: ReadPlan, folder: Path, **settings: Any) -> tuple[ReadResult, DataPath]:
    """Make the reads of a plan by requesters on the CPU; return their path too."""
    config = Config(**{"requester": "cpu", **settings})
    result, watch, path = block_plans.read(config, plan, folder)
    each_bytes = plan.read_bytes if config.engine == "storage" else 0
    assert watch.read_bytes == watch.reads * each_bytes
    return result, path
