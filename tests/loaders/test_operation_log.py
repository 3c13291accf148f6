"""The sample of operations: spread evenly, bounded, and the same whatever the plans' sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.io import TRACE_DTYPE, Extent, IOKind
from wattload.loaders.direct.config import Config
from wattload.loaders.operation_log import OperationLog, OperationRange

BLOCK_BYTES = 4096


def _trace(
    operations: OperationRange, operation_count: int, submit_ns: int
) -> NDArray[np.void] | None:
    """Return what an engine traces of a plan: the operations whose number ``trace_every`` parts."""
    if operations.trace_every is None:
        return None
    numbers = np.arange(0, operation_count, operations.trace_every, dtype=np.uint64)
    rows = np.zeros(numbers.size, dtype=TRACE_DTYPE)
    rows["submit_ns"] = submit_ns + numbers
    rows["offset_bytes"] = numbers * np.uint64(BLOCK_BYTES)
    return rows


def _read(log: OperationLog, counts: list[int]) -> list[int]:
    """Read files of so many blocks one after another; return which operations were kept."""
    done = 0
    for place, count in enumerate(counts):
        operations = log.begin(count)
        trace = _trace(operations, count, done)
        path = Path(f"/data/{place}")
        size_bytes = count * BLOCK_BYTES
        log.add(operations, trace, extents=[Extent(path, 0, size_bytes)], block_bytes=BLOCK_BYTES)
        done += count
    found = log.traced(IOKind.READ, "read")
    return [int(moment) for each in found for moment in each.rows["submit_ns"]]


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 64))
def test_what_is_kept_is_every_so_manieth_operation_of_all(counts: list[int], limit: int) -> None:
    kept = _read(OperationLog(limit), counts)
    total = sum(counts)
    assert len(kept) <= limit
    step = 1
    while -(-total // step) > limit:
        step *= 2
    assert kept == list(range(0, total, step))


def test_a_short_log_holds_every_operation() -> None:
    assert _read(OperationLog(100), [3, 4, 5]) == list(range(12))


def test_a_long_file_after_an_odd_one_is_still_sampled_within_the_limit() -> None:
    kept = _read(OperationLog(64), [101, 500_000])
    assert 32 <= len(kept) <= 64
    steps = np.diff(kept[1:])
    assert steps.min() == steps.max()


@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=30), st.integers(16, 256))
@settings(deadline=None)
def test_what_is_kept_of_long_plans_lies_near_its_place(counts: list[int], limit: int) -> None:
    log, done, shift = OperationLog(limit), 0, 0
    for count in counts:
        operations = log.begin(count)
        trace = _trace(operations, count, done)
        log.add(operations, trace, extents=[Extent(Path("/d"), 0, 1)], block_bytes=BLOCK_BYTES)
        done, shift = done + count, max(shift, count // 512)
    (found,) = log.traced(IOKind.READ, "read")
    kept = found.rows["submit_ns"].astype(np.int64)
    assert len(kept) <= limit
    # One that moved back may lie at the end of its plan, and the next plan have its number too:
    # one more, for which a full log may be thinned once more.
    step = 1
    while -(-done // step) > limit:
        step *= 2
    even = min((step, 2 * step), key=lambda each: abs(kept.size - done / each))
    assert (-kept % even).max() <= shift
    numbers = np.unique(-(-kept // even))
    assert numbers.tolist() == list(range(numbers.size))
    assert abs(numbers.size - done / even) < 2


def test_once_a_log_is_sparse_the_engine_is_asked_for_little() -> None:
    log = OperationLog(64)
    sizes = []
    for place in range(40):
        operations = log.begin(10_001)
        trace = _trace(operations, 10_001, place * 10_001)
        log.add(operations, trace, extents=[Extent(Path("/d"), 0, 1)], block_bytes=BLOCK_BYTES)
        sizes.append(0 if trace is None else trace.size)
    assert max(sizes[5:]) <= 2049
    assert log.traced(IOKind.READ, "read")[0].rows.size >= 32


def test_of_a_long_plan_no_more_is_traced_than_is_kept() -> None:
    log = OperationLog(64)
    assert log.begin(10_000).trace_every == 256  # 128 would be 79 of them
    assert log.begin(30).trace_every is None
    assert log.begin(10_000).trace_every == 16  # 625 of them, the next one kept is one of these


def test_a_log_of_nothing_asks_for_no_trace() -> None:
    log = OperationLog(0)
    assert log.begin(10).trace_every is None
    assert log.traced(IOKind.READ, "read") == ()


def test_a_plan_that_was_not_traced_adds_nothing() -> None:
    log = OperationLog(8)
    log.add(log.begin(5), None, extents=[Extent(Path("/data/a"), 0, 5)], block_bytes=BLOCK_BYTES)
    assert log.traced(IOKind.READ, "read") == ()


def test_rows_say_which_file_they_lie_in_and_how_large_it_is() -> None:
    log = OperationLog(100)
    _read(log, [2, 3])
    (found,) = log.traced(IOKind.WRITE, "write")
    assert (found.kind, found.phase) == (IOKind.WRITE, "write")
    names = [(str(file.path), file.size_bytes) for file in found.files]
    assert names == [("/data/0", 2 * BLOCK_BYTES), ("/data/1", 3 * BLOCK_BYTES)]
    assert found.rows["file"].tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("count", [-1, 65537])
def test_a_limit_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"trace_operations must be 0 to 65536, got {count}"):
        Config(trace_operations=count).check()
