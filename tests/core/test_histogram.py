"""Latency histograms: bounded error, exact merging, nothing from nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wattload.core.histogram import BUCKET_COUNT, Histogram, bucket_of, upper_end_ns

LATENCIES = st.lists(st.integers(0, 1 << 41), min_size=1, max_size=200)


def test_buckets_cover_all_values_without_gap() -> None:
    for bucket in range(BUCKET_COUNT - 1):
        assert bucket_of(upper_end_ns(bucket)) == bucket
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


def test_of_nothing_there_is_no_latency() -> None:
    empty = Histogram.of([])
    assert (empty.count, empty.mean_ns, empty.quantile_ns(0.5)) == (0, None, None)
    assert empty.merged(Histogram.of([7])).minimum_ns == 7
