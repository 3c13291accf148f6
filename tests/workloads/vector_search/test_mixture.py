"""Drawn vectors follow from settings and seed; their distribution; metrics as l2."""

from __future__ import annotations

import numpy as np
import pytest

from wattload.core.errors import DataError
from wattload.loaders.vectors.layout import VectorType
from wattload.results.vector_search.facts import Metric
from wattload.workloads.vector_search.config import Config
from wattload.workloads.vector_search.mixture import (
    BLOCK,
    QUERIES,
    VECTORS,
    mixture,
    planted,
    prepared,
)

DRAW = np.random.default_rng(2)


def drawn(config: Config, count: int, part: int = VECTORS, seed: int = 1) -> np.ndarray:
    return np.concatenate(list(mixture(config, seed, count, part)))


def small(**settings: float) -> Config:
    return Config(dim=16, latent_dim=4, clusters=3, **settings)  # type: ignore[arg-type]


def test_more_vectors_begin_with_the_same_ones() -> None:
    few, many = drawn(small(), 100), drawn(small(), 2 * BLOCK + 5)
    assert len(many) == 2 * BLOCK + 5
    assert many.dtype == np.float32
    assert np.array_equal(few, many[:100])
    assert len(np.unique(many, axis=0)) == len(many)


def test_queries_are_not_stored_and_another_seed_is_another_set() -> None:
    vectors = drawn(small(), BLOCK)
    for others in (drawn(small(), BLOCK, QUERIES), drawn(small(), BLOCK, seed=2)):
        together = np.unique(np.concatenate([vectors, others]), axis=0)
        assert len(together) == 2 * BLOCK


def test_the_parts_of_a_vector_are_as_long_as_the_settings_say() -> None:
    count = 2 * BLOCK
    noise = drawn(small(separation=0, noise=1000), count)
    assert np.linalg.norm(noise, axis=1).mean() == pytest.approx(1000, rel=0.05)
    flat = drawn(small(separation=0, noise=0), count)
    assert np.linalg.matrix_rank(flat.astype(np.float64), tol=1e-3) == 4
    wide = drawn(small(separation=1000, noise=0), count)
    centres = np.unique(np.rint(wide / 60), axis=0)
    assert len(centres) < 100  # three clusters, and the borders of rounding


def test_bytes_use_their_range_and_clip_little() -> None:
    found = drawn(Config(dtype=VectorType.u8), BLOCK)
    assert found.dtype == np.uint8
    assert 100 < found.mean() < 156
    assert 20 < found.std() < 45
    assert np.isin(found, (0, 255)).mean() < 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_planted_queries_are_as_far_as_stated(dtype: type) -> None:
    stored: np.ndarray = (DRAW.random((500, 64)) * 100).astype(dtype)
    assert np.array_equal(planted(stored, 0, seed=1), stored)
    queries = planted(stored, 0.1, seed=1)
    assert queries.dtype == dtype
    assert np.array_equal(queries, planted(stored, 0.1, seed=1))
    apart = np.linalg.norm(queries.astype(float) - stored, axis=1)
    shares = apart / np.linalg.norm(stored.astype(float), axis=1)
    assert shares.mean() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("metric", [Metric.cosine, Metric.ip])
def test_l2_finds_what_the_metric_finds(metric: Metric) -> None:
    stored = DRAW.normal(size=(300, 8)).astype(np.float32) * DRAW.random((300, 1), np.float32)
    queries = DRAW.normal(size=(50, 8)).astype(np.float32) * 7
    lengths = np.linalg.norm(stored.astype(np.float64), axis=1)
    products = queries.astype(np.float64) @ stored.T
    nearest = (products / lengths if metric is Metric.cosine else products).argmax(axis=1)
    base = prepared(stored, metric, float(lengths.max()))
    asked = prepared(queries, metric, None)
    assert base.dtype == asked.dtype == np.float32
    assert base.shape[1] == 8 + (metric is Metric.ip)
    for each in (base, asked):
        assert np.allclose(np.linalg.norm(each, axis=1), 1, atol=1e-6)
    apart = np.linalg.norm(asked[:, np.newaxis].astype(np.float64) - base, axis=2)
    assert np.array_equal(apart.argmin(axis=1), nearest)


def test_l2_leaves_vectors_as_they_are() -> None:
    stored = DRAW.integers(0, 255, (5, 3), dtype=np.uint8)
    assert prepared(stored, Metric.l2, 1.0) is stored


@pytest.mark.parametrize(
    ("metric", "longest", "words"),
    [
        (Metric.cosine, 1.0, "vector 107 has length 0"),
        (Metric.cosine, None, "query 107 has length 0"),
        (Metric.ip, None, "query 107 has length 0"),
    ],
)
def test_a_vector_without_direction_is_named(
    metric: Metric, longest: float | None, words: str
) -> None:
    vectors = np.ones((9, 3), np.float32)
    vectors[7] = 0
    with pytest.raises(DataError, match=f"{words}.*workload.metric=l2"):
        prepared(vectors, metric, longest, first=100)


def test_a_stored_zero_has_an_inner_product() -> None:
    base = prepared(np.array([[0, 0], [3, 4]], np.float32), Metric.ip, 5.0)
    assert base.tolist() == [[0, 0, 1], [pytest.approx(0.6), pytest.approx(0.8), 0]]
