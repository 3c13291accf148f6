from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.workloads.training.config import (
    Distribution,
    Shape,
    dlio_shapes,
    matched_shapes,
    payload_bytes,
)

MLPERF = Distribution(mean_bytes=146_600_628, stdev_bytes=68_341_808, minimum_bytes=2_097_152)
PER_MILLE = 1e-3


def sizes_of(shapes: tuple[Shape, ...]) -> NDArray[np.float64]:
    return np.array([payload_bytes(shape) for shape in shapes], dtype=np.float64)


def assert_matched(distribution: Distribution, count: int, seed: int) -> None:
    sizes = sizes_of(matched_shapes(distribution, count, seed))
    assert len(sizes) == count
    assert sizes.min() >= distribution.minimum_bytes
    assert sizes.mean() == pytest.approx(distribution.mean_bytes, rel=PER_MILLE)
    assert sizes.std() == pytest.approx(distribution.stdev_bytes, rel=PER_MILLE)


@pytest.mark.parametrize("seed", [0, 1, 10, 2**40])
@pytest.mark.parametrize("count", [8, 9, 10, 13, 16, 28, 56, 100, 168, 500, 1000, 2000])
def test_files_have_the_mean_and_stdev_asked_for(count: int, seed: int) -> None:
    assert_matched(MLPERF, count, seed)


@settings(deadline=None)  # the first call imports scipy
@given(
    count=st.integers(8, 2000),
    seed=st.integers(0, 2**32),
    divisor=st.integers(1, 1000),
    spread=st.floats(0.01, 0.6),
    minimum=st.floats(0.001, 0.2),
)
def test_any_count_and_shape_of_distribution_is_met(
    count: int, seed: int, divisor: int, spread: float, minimum: float
) -> None:
    mean = MLPERF.mean_bytes / divisor
    distribution = Distribution(
        mean_bytes=mean, stdev_bytes=spread * mean, minimum_bytes=max(int(minimum * mean), 1)
    )
    assert_matched(distribution, count, seed)


def test_every_count_of_a_small_data_set_is_met() -> None:
    for count in range(8, 130):
        assert_matched(MLPERF, count, seed=count)


def test_a_seed_deals_the_same_sizes_in_another_order() -> None:
    first, second = (matched_shapes(MLPERF, 50, seed) for seed in (1, 2))
    assert first != second
    assert sorted(first) == sorted(second)
    assert matched_shapes(MLPERF, 50, 1) == first


def test_sides_are_nearly_equal_as_dlios_are() -> None:
    for first, second, samples in matched_shapes(MLPERF, 168, 1):
        assert samples == 1
        assert 0.7 < first / second < 1.01


def test_no_stdev_means_equal_records() -> None:
    plain = Distribution(mean_bytes=1_000_000, stdev_bytes=0, minimum_bytes=10)
    assert set(sizes_of(matched_shapes(plain, 8, 1)).tolist()) == {1_000_000.0}


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_files_for_a_distribution_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"8 or more.*got {count}"):
        matched_shapes(MLPERF, count, 1)


def test_a_stdev_that_no_cut_normal_has_is_refused_with_the_largest_one() -> None:
    wide = Distribution(mean_bytes=1e6, stdev_bytes=2e6, minimum_bytes=1000)
    with pytest.raises(ConfigError, match=r"too large.*at most \d{6} is possible"):
        matched_shapes(wide, 100, 1)


@pytest.mark.parametrize(
    "distribution",
    [
        Distribution(mean_bytes=100, stdev_bytes=1, minimum_bytes=101),
        Distribution(mean_bytes=100, stdev_bytes=-1, minimum_bytes=10),
        Distribution(mean_bytes=100, stdev_bytes=1, minimum_bytes=0),
    ],
)
def test_impossible_records_are_refused(distribution: Distribution) -> None:
    with pytest.raises(ConfigError, match="1 <= minimum <= mean"):
        matched_shapes(distribution, 8, 1)


def test_dlio_sizes_are_those_that_dlio_draws() -> None:
    # The lines of its get_dimension and derive_configurations, with their seed.
    np.random.seed(10)
    dimension = int(np.sqrt(146_600_628))
    stdev = 68_341_808 / 2.0 / np.sqrt(146_600_628)
    drawn = [max(int(d), 1) for d in np.random.normal(dimension, stdev, 2 * 40)]
    assert dlio_shapes(MLPERF, 40) == tuple((drawn[2 * i], drawn[2 * i + 1], 1) for i in range(40))


def test_dlio_realises_a_smaller_stdev_than_it_was_asked_for() -> None:
    sizes = sizes_of(dlio_shapes(MLPERF, 20_000))
    assert sizes.mean() == pytest.approx(146.6e6, rel=0.005)
    assert sizes.std() == pytest.approx(48.9e6, rel=0.01)


def test_dlio_takes_any_count() -> None:
    assert len(dlio_shapes(MLPERF, 1)) == 1
