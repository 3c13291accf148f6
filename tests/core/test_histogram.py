"""Latency histograms: bounded error, exact merging, nothing from nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.core.histogram import (
    BUCKET_COUNT,
    Histogram,
    bucket_of,
    lower_end_ns,
    upper_end_ns,
)

LATENCIES = st.lists(st.integers(0, 1 << 41), min_size=1, max_size=200)


def test_buckets_cover_all_values_without_gap() -> None:
    for bucket in range(BUCKET_COUNT - 1):
        assert bucket_of(lower_end_ns(bucket)) == bucket_of(upper_end_ns(bucket)) == bucket
        assert bucket_of(upper_end_ns(bucket) + 1) == bucket + 1


def test_what_is_longer_than_the_last_bucket_is_counted_there_and_its_maximum_kept() -> None:
    histogram = Histogram.of([1 << 50])
    assert histogram.count == 1
    assert histogram.counts[BUCKET_COUNT - 1] == 1
    assert histogram.maximum_ns == 1 << 50


@given(LATENCIES, st.floats(0, 1))
def test_a_quantile_is_never_too_low_and_at_most_one_bucket_too_high(
    values: list[int], share: float
) -> None:
    rank = max(int(np.ceil(share * len(values))), 1)
    exact = sorted(values)[rank - 1]
    found = Histogram.of(values).quantile_ns(share)
    assert found is not None
    assert exact <= found <= exact + exact // 64 + 1


@given(LATENCIES, LATENCIES)
def test_merging_is_the_same_as_counting_together(first: list[int], second: list[int]) -> None:
    merged = Histogram.of(first).merged(Histogram.of(second))
    together = Histogram.of([*first, *second])
    assert np.array_equal(merged.counts, together.counts)
    assert (merged.sum_ns, merged.minimum_ns, merged.maximum_ns) == (
        together.sum_ns,
        together.minimum_ns,
        together.maximum_ns,
    )


@given(st.lists(st.integers(0, 1 << 50), max_size=50), st.lists(st.integers(0, 1 << 50)))
def test_what_came_after_a_reading_is_what_was_added_to_it(
    before: list[int], after: list[int]
) -> None:
    since = Histogram.of([*before, *after]).since(Histogram.of(before))
    expected = Histogram.of(after)
    assert np.array_equal(since.counts, expected.counts)
    assert since.sum_ns == expected.sum_ns
    if not after:
        assert (since.minimum_ns, since.maximum_ns) == (None, None)
        return
    assert since.minimum_ns is not None
    assert since.maximum_ns is not None
    lowest, highest = min(after), max(after)
    assert min(lowest - lowest / 64, lower_end_ns(BUCKET_COUNT - 1)) <= since.minimum_ns <= lowest
    is_open = highest >= lower_end_ns(BUCKET_COUNT - 1)
    longest = max([*before, *after]) if is_open else highest * 65 / 64
    assert highest <= since.maximum_ns <= longest


def test_a_reading_of_other_values_is_refused() -> None:
    with pytest.raises(ValueError, match="earlier"):
        Histogram.of([5]).since(Histogram.of([6]))


def test_of_nothing_there_is_no_latency() -> None:
    empty = Histogram.of([])
    assert (empty.count, empty.mean_ns, empty.quantile_ns(0.5)) == (0, None, None)
    assert empty.merged(Histogram.of([7])).minimum_ns == 7
