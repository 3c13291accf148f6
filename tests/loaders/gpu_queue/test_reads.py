"""The queue in its own process, by requesters on the CPU: figures, counts and proofs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.contracts.block_reads import BlockReadsContract, refuse_a_longer_file
from tests.loaders.block_plans import FILE_BYTES, plan_of, stamped_file
from tests.loaders.gpu_queue.plans import read
from wattload.core.io import PathCounts
from wattload.loaders.block_reads import BlockReadConfig
from wattload.loaders.gpu.native import block_numbers
from wattload.loaders.gpu_queue.config import Config


class TestReads(BlockReadsContract):
    def config(self) -> BlockReadConfig:
        return Config(requester="cpu", pollers=2)

    def test_a_longer_file_is_refused(self, tmp_path: Path) -> None:
        refuse_a_longer_file(self, tmp_path)


def test_every_count_is_that_of_the_reads(tmp_path: Path) -> None:
    files = [stamped_file(tmp_path / name, word) for word, name in enumerate("ab", start=1)]
    result, _ = read(plan_of(*files), tmp_path, pollers=3, requester_threads=2)
    count = result.operations
    assert count > 0
    assert sum(result.file_operations) == sum(each.answered for each in result.pollers) == count
    assert min(result.file_operations) > 0
    assert result.counts == PathCounts(
        reads=count, read_bytes=count * 512, requester="cpu",
        asked=count, taken=count, answered=count, delivered=count,
    )  # fmt: skip
    assert result.compared_bytes == 128 * 512
    assert result.file_latencies is not None
    assert all(0 < each.busy_s <= result.seconds + 0.05 for each in result.pollers)
    assert (result.queue_per_s or 0) > 0
    assert result.pull_per_s is None
    assert result.seconds >= 0.2


def test_the_trace_has_reads_that_were_drawn(tmp_path: Path) -> None:
    plan = plan_of(stamped_file(tmp_path / "file"), duration_s=0.4)
    result, _ = read(plan, tmp_path)
    assert len(result.trace)
    assert (np.diff(result.trace["submit_ns"].astype(np.int64)) >= 0).all()
    numbers = np.arange(result.operations // 64 + 2, dtype=np.uint64)
    drawn = {
        int(block) * 512
        for requester in range(64)
        for block in block_numbers(plan.seed, requester, numbers, FILE_BYTES // 512)
    }
    assert {int(offset) for offset in result.trace["offset_bytes"]} <= drawn
    assert set(result.trace["file"]) == {0}


@pytest.mark.parametrize("engine", ["null", "memory"])
def test_without_storage_no_file_is_needed(tmp_path: Path, engine: str) -> None:
    file = stamped_file(tmp_path / "file")
    file.path.unlink()
    result, path = read(plan_of(file), tmp_path, engine=engine)
    assert result.operations > 0
    assert result.counts is not None
    assert result.operations == result.counts.asked == result.counts.answered
    assert result.counts.delivered == (result.operations if engine == "memory" else 0)
    assert bool(result.compared_bytes) == (engine == "memory")
    assert (path.data_path, result.file_latencies) == ("no_storage", None)
