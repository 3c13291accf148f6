"""Latencies of a record: percentiles that stand for something, and rows that merge exactly."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wattload.core.histogram import BUCKET_COUNT, Histogram, bucket_of
from wattload.core.record.results import (
    SHARES,
    Latency,
    latencies_of,
    least_count,
    merge_latencies,
)

VALUES = st.lists(st.integers(1, 10**12), min_size=1, max_size=50)


def latency(values_ns: list[int], *, phase: str = "read", size: int = 4096) -> Latency:
    (row,) = latencies_of(Histogram.of(values_ns), phase=phase, kind="read", operation_bytes=size)
    return row


def test_percentiles_are_those_of_a_known_ramp() -> None:
    row = latency([1000 * value for value in range(1, 10_001)])
    assert row.count == 10_000
    assert row.mean_s == pytest.approx(5.0005e-3)
    assert (row.min_s, row.max_s) == (1e-6, 1e-2)
    for name, share in SHARES.items():
        if row.count < least_count(share):
            continue
        exact = share * 1e-2
        assert exact <= (row.percentiles_s[name] or 0) + 1e-12
        assert (row.percentiles_s[name] or 0) <= exact * (1 + 1 / 64) + 1e-9


def test_a_percentile_of_too_few_operations_is_missing_with_the_reason() -> None:
    row = latency([5] * 150)
    assert row.percentiles_s["p99_s"] == 5e-9
    assert row.percentiles_s["p999_s"] is None
    assert row.why_missing("p999_s") == "it needs at least 1000 operations; there were 150"
    missing = {name for name, value in row.percentiles_s.items() if value is None}
    assert missing == {"p999_s", "p9999_s", "p99999_s"}
    counts = [least_count(share) for share in SHARES.values()]
    assert counts == [2, 10, 20, 100, 1000, 10_000, 1_000_000]


def test_p99_999_is_of_a_million_operations_or_more() -> None:
    counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
    counts[bucket_of(1000)], counts[bucket_of(9000)] = 999_980, 20
    histogram = Histogram(counts, 999_980_000 + 180_000, 1000, 9000)
    (row,) = latencies_of(histogram, phase="write", kind="write", operation_bytes=4096)
    assert row.percentiles_s["p9999_s"] == pytest.approx(1e-6, rel=1 / 64)
    assert row.percentiles_s["p99999_s"] == pytest.approx(9e-6, rel=1 / 64)
    counts[bucket_of(1000)] -= np.uint64(1)
    fewer = Histogram(counts, histogram.sum_ns - 1000, 1000, 9000)
    (row,) = latencies_of(fewer, phase="write", kind="write", operation_bytes=4096)
    assert row.why_missing("p99999_s") == "it needs at least 1000000 operations; there were 999999"


def test_nothing_has_no_row() -> None:
    for histogram in (None, Histogram.of(())):
        assert latencies_of(histogram, phase="read", kind="read", operation_bytes=1) == ()


@given(values=VALUES)
def test_a_row_gives_its_histogram_back(values: list[int]) -> None:
    before, after = Histogram.of(values), latency(values).histogram()
    assert list(before.counts) == list(after.counts)
    assert (before.minimum_ns, before.maximum_ns) == (after.minimum_ns, after.maximum_ns)
    assert after.sum_ns == pytest.approx(before.sum_ns)


@given(first=VALUES, second=VALUES)
def test_ranks_merge_to_what_one_would_have_counted(first: list[int], second: list[int]) -> None:
    ranks = [
        latency(values).model_copy(update={"hosts": ("here",), "ranks": (rank,)})
        for rank, values in enumerate((first, second))
    ]
    (whole,) = merge_latencies(ranks)
    expected = latency([*first, *second])
    assert whole.buckets == expected.buckets
    assert whole.mean_s == pytest.approx(expected.mean_s)
    assert (whole.hosts, whole.ranks) == (("here",), (0, 1))
    for name in ("count", "min_s", "max_s", "percentiles_s"):
        assert getattr(whole, name) == getattr(expected, name)


def test_phases_kinds_and_sizes_stay_apart() -> None:
    values = [random.Random(1).randrange(1, 10**6) for _ in range(20)]
    rows = [latency(values, phase=phase, size=size) for phase in "ab" for size in (1, 2)]
    found = merge_latencies(rows)
    assert [(row.phase, row.operation_bytes) for row in found] == [
        ("a", 1), ("a", 2), ("b", 1), ("b", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"max_s": 1e308},
        {"sum_s": 1e308},
        {"buckets": ((BUCKET_COUNT, 1),)},
        {"buckets": ((-1, 1),)},
        {"buckets": ((1, 0),)},
        {"buckets": ((1, 10**400),)},
    ],
)
def test_latencies_that_no_histogram_can_have_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Latency.model_validate(latency([1000]).model_dump() | changes)
