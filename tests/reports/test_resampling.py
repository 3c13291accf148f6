"""The bootstrap is Efron's BCa, as scipy makes it of the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from wattload.reports import resampling
from wattload.reports.intervals import RESAMPLES, SEED
from wattload.reports.resampling import bca_ends


def values(count: int, seed: int) -> tuple[float, ...]:
    return tuple(np.random.default_rng(seed).lognormal(0, 0.1, count).tolist())


def by_scipy(samples: tuple[tuple[float, ...], ...], confidence: float) -> tuple[float, float]:
    def statistic(*data: Any, axis: int = -1) -> Any:  # noqa: ANN401 - arrays of any shape
        means = [np.mean(each, axis=axis) for each in data]
        return means[0] if len(means) == 1 else means[0] - means[1]

    found = stats.bootstrap(
        [np.array(sample) for sample in samples],
        statistic,
        n_resamples=RESAMPLES,
        batch=1000,
        vectorized=True,
        confidence_level=confidence,
        method="BCa",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


@pytest.mark.parametrize("confidence", [0.95, 0.9975])
@pytest.mark.parametrize("sizes", [(10,), (16,), (10, 10), (10, 23), (300, 7)])
def test_it_is_scipys(sizes: tuple[int, ...], confidence: float) -> None:
    samples = tuple(values(size, seed) for seed, size in enumerate(sizes))
    found = bca_ends(samples, confidence, resamples=RESAMPLES, seed=SEED)
    assert found == pytest.approx(by_scipy(samples, confidence), rel=1e-9)


def test_draws_that_are_not_kept_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = (values(12, 1), values(13, 2))
    kept = bca_ends(samples, 0.95, resamples=RESAMPLES, seed=SEED)
    resampling._means.cache_clear()
    monkeypatch.setattr(resampling, "_KEPT_DRAWS", 0)
    assert bca_ends(samples, 0.95, resamples=RESAMPLES, seed=SEED) == kept


def test_one_sample_that_does_not_vary_is_no_error() -> None:
    low, high = bca_ends(((1.0,) * 10, values(10, 3)), 0.95, resamples=RESAMPLES, seed=SEED)
    assert low < high
