"""Gathers through the queue by threads of the CPU: the contract, counts, and what goes wrong."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contracts.feature_rows import (
    COUNT,
    ROW,
    FeatureRowsContract,
    refuse_outstanding,
    write_rows,
)
from tests.loaders.faults import BROKEN_FROM_BYTES, breaking_file
from wattload.core.errors import ConfigError, NoGpuError, RunError
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.feature_rows import FeatureFile, FeaturePlan
from wattload.loaders.gpu_queue.config import Config
from wattload.loaders.gpu_queue.feature_rows import QueueGatherer
from wattload.loaders.gpu_queue.native import RowsSetup


class TestThreads(FeatureRowsContract):
    def config(self, **changed: Any) -> Config:
        return Config(requester="cpu", requester_threads=2, **changed)


ALL = np.arange(COUNT, dtype=np.uint64)


def opened(plan: FeaturePlan, **changed: Any) -> QueueGatherer:
    """Return a gatherer of two threads."""
    values: dict[str, Any] = {
        "pollers": 1, "requester_threads": 2, "host_rows": 0, "cache_rows": 0,
    }  # fmt: skip
    return QueueGatherer(plan, RowsSetup(**values | changed), needs_gpu=False)


def memory_of(plan: FeaturePlan, count: int = COUNT) -> NDArray[np.uint8]:
    (memory,) = plan.memories
    assert isinstance(memory, np.ndarray)
    return memory[: count * ROW]


@pytest.mark.parametrize("offset", [0, 128])
def test_rows_that_are_kept_are_not_read(tmp_path: Path, offset: int) -> None:
    plan, rows = write_rows(tmp_path, 2, offset=offset)
    drawn = np.random.default_rng(3).permutation(ALL)
    plan = replace(plan, most_drawn=lambda count: drawn[:count])
    config = Config(requester="cpu", host_share=0.2)
    config.check_feature_rows(plan, [])
    assert config.feature_bytes(plan).host_rows_bytes == 20 * ROW
    gatherer = config.row_gatherer(plan)
    numbers = np.repeat(ALL, 3)
    result = gatherer.gather(numbers, memory_of(plan, len(numbers)))
    assert np.array_equal(memory_of(plan, len(numbers)).reshape(-1, ROW), rows[numbers.astype(int)])
    assert (result.host_rows, result.storage_rows) == (60, 243)
    assert (result.cache_rows, result.merged_rows) == (0, 0)
    assert gatherer.pull_rows_per_s is None
    counts = gatherer.path().counts
    assert counts is not None
    assert (counts.word, counts.reads, counts.asked) == ("cpu_queue", 243, 243)
    assert counts.hits is None
    gatherer.close()


def test_pollers_use_no_cpu_between_gathers(tmp_path: Path) -> None:
    plan, _ = write_rows(tmp_path, 1)
    gatherer = opened(plan)
    gatherer.gather(ALL, memory_of(plan))
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05
    assert gatherer.gather(ALL, memory_of(plan)).storage_rows == COUNT
    gatherer.close()


@pytest.fixture
def large(tmp_path: Path) -> FeaturePlan:
    """A plan of 2048 rows: one answer in 1000 is wrong with a fault."""
    path = tmp_path / "rows"
    path.write_bytes(np.arange(2048 * ROW // 8, dtype=np.uint64).tobytes())
    return FeaturePlan(
        files=(FeatureFile(path=path, row_count=2048),), row_count=2048, row_bytes=ROW,
        outstanding=64, batch_rows=2048, memories=(aligned_buffer(2048 * ROW),),
    )  # fmt: skip


def gather_all(gatherer: QueueGatherer, plan: FeaturePlan) -> None:
    gatherer.gather(np.arange(2048, dtype=np.uint64), memory_of(plan, 2048))


def test_counts_that_differ_are_an_error(large: FeaturePlan) -> None:
    gatherer = opened(large, fault="twice")
    with pytest.raises(RunError, match="2080 requests answered by pollers, 2048 rows asked for"):
        gather_all(gatherer, large)
    gatherer.close()


def test_another_row_than_asked_for_is_in_the_memory(large: FeaturePlan) -> None:
    gatherer = opened(large, fault="swapped")
    gather_all(gatherer, large)
    first = memory_of(large, 2048).view(np.uint64).reshape(2048, -1)[:, 0] // (ROW // 8)
    wrong = np.flatnonzero(first != np.arange(2048))
    assert len(wrong) == 32
    assert set(first[wrong]) == set(wrong ^ 1)
    gatherer.close()


@pytest.mark.parametrize("fault", ["lost", "silent"])
def test_a_read_without_an_answer_ends_the_gather(large: FeaturePlan, fault: str) -> None:
    gatherer = opened(large, fault=fault, hang_s=0.3)
    with pytest.raises(RunError, match=rf"requests unanswered for 0.3 s on {large.paths[0]}"):
        gather_all(gatherer, large)
    with pytest.raises(RunError, match="an earlier gather was ended"):
        gather_all(gatherer, large)
    gatherer.close()


def test_an_interrupt_ends_the_gather(large: FeaturePlan) -> None:
    gatherer = opened(large, fault="silent", hang_s=60.0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            gather_all(gatherer, large)
        gatherer.close()
        assert time.monotonic() - start < 30
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_broken_drive_names_file_and_offset(tmp_path: Path) -> None:
    count = (BROKEN_FROM_BYTES + (8 << 20)) // ROW
    content = np.repeat(np.arange(count, dtype=np.uint64), ROW // 8).tobytes()
    with breaking_file(tmp_path, len(content), content) as path:
        plan = FeaturePlan(
            files=(FeatureFile(path=path, row_count=count),), row_count=count, row_bytes=ROW,
            outstanding=64, batch_rows=count, memories=(aligned_buffer(count * ROW),),
        )  # fmt: skip
        # The kernel thread that completes failed reads may wait seconds for a busy CPU.
        gatherer = opened(plan, hang_s=60.0)
        with pytest.raises(
            OSError, match=r"rows can't be read, the first at offset \d+: "
        ) as error:
            gatherer.gather(np.arange(count, dtype=np.uint64), memory_of(plan, count))
        assert (error.value.errno, error.value.filename) == (5, str(path))
        whole = np.arange(64, dtype=np.uint64)
        gatherer.gather(whole, memory_of(plan, 64))
        assert np.array_equal(memory_of(plan, 64).view(np.uint64)[:: ROW // 8], whole)
        gatherer.close()


@pytest.mark.parametrize("outstanding", [0, 33, 1 << 17])
def test_reads_that_fill_no_warps_are_refused(tmp_path: Path, outstanding: int) -> None:
    refuse_outstanding(Config(requester="cpu"), tmp_path, outstanding)


def with_offset(plan: FeaturePlan) -> FeaturePlan:
    return replace(plan, files=(replace(plan.files[0], offset_bytes=100),))


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({"cache_share": 0.1}, None, "loader.cache_share is 0.1 with loader.requester=cpu"),
        ({"cache_bytes": 65_536}, None, "a cache is in the memory of a GPU"),
        ({"host_share": 1.5}, None, "loader.host_share must be 0 to 1, got 1.5"),
        ({"engine": "memory"}, None, "loader.engine=memory reads no storage"),
        ({"pollers": 9}, None, "must be at most 8, 8 queue pairs for each of 1 files, got 9"),
        ({}, with_offset, "multiples of 16: got 4096 bytes from 100 on in .*features-0.bin"),
        ({}, lambda plan: replace(plan, row_bytes=100), "rows of multiples of 512 bytes"),
        ({}, lambda plan: replace(plan, row_count=1 << 31), "fewer than 2147483647 rows"),
    ],
)  # fmt: skip
def test_settings_and_plans_that_do_not_work(
    tmp_path: Path,
    settings: dict[str, Any],
    change: Callable[[FeaturePlan], FeaturePlan] | None,
    message: str,
) -> None:
    plan, _ = write_rows(tmp_path, 1)
    with pytest.raises(ConfigError, match=message):
        Config(requester="cpu", **settings).check_feature_rows(change(plan) if change else plan, [])


def test_without_a_gpu_the_cpu_is_named(tmp_path: Path) -> None:
    plan, _ = write_rows(tmp_path, 1)
    config = Config()
    assert config.fills_gpu
    with pytest.raises(NoGpuError, match=r"loader\.requester=cpu runs"):
        config.check_feature_rows(plan, [])
