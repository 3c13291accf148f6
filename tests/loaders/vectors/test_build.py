"""Codes of vectors against numpy, and the same from any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.engine import library
from wattload.loaders.vectors import build

Floats = NDArray[np.float32]


def clustered(count: int, dim: int, seed: int = 1) -> Floats:
    draws = np.random.default_rng(seed)
    centres = draws.standard_normal((20, 24)) * 2
    latent = centres[draws.integers(0, 20, count)] + draws.standard_normal((count, 24))
    vectors = latent @ np.random.default_rng(9).standard_normal((24, dim))
    return (vectors + draws.standard_normal((count, dim))).astype(np.float32)


def squared(points: Floats, centroids: Floats) -> NDArray[np.float64]:
    apart: NDArray[np.float64] = points[:, None].astype(np.float64) - centroids
    return np.asarray(np.square(apart).sum(2))


def by_lloyd(points: Floats, iterations: int) -> float:
    """Return the error of k-means whose seeds are drawn from the points."""
    draws = np.random.default_rng(5)
    centroids = points[draws.choice(len(points), build.CENTROIDS, replace=False)].copy()
    for _ in range(iterations):
        nearest = squared(points, centroids).argmin(1)
        for row in np.unique(nearest):
            centroids[row] = points[nearest == row].mean(0)
    return float(squared(points, centroids).min(1).mean())


@pytest.mark.parametrize(("dim", "chunks"), [(128, 32), (13, 4), (5, 5), (7, 1)])
def test_chunks_are_as_wide_as_each_other_or_wider_by_one(dim: int, chunks: int) -> None:
    widths = np.diff(build.chunk_offsets(dim, chunks).astype(int))
    assert widths.sum() == dim
    assert len(widths) == chunks
    assert set(widths) <= {dim // chunks, -(-dim // chunks)}


@pytest.mark.parametrize(("dim", "chunks"), [(4, 5), (4, 0), (0, 0)])
def test_chunks_need_a_number_each(dim: int, chunks: int) -> None:
    with pytest.raises(ConfigError, match=f"got {chunks}"):
        build.chunk_offsets(dim, chunks)


def test_centroids_are_as_near_as_those_of_lloyd_in_numpy() -> None:
    sample = clustered(4000, 21)
    trained = build.train_codes(sample, 5, seed=3, threads=2)
    assert np.allclose(trained.centroid, sample.mean(0), atol=1e-4)
    centred = sample - trained.centroid
    for start, end in zip(trained.offsets[:-1], trained.offsets[1:], strict=True):
        error = squared(centred[:, start:end], trained.pivots[:, start:end]).min(1).mean()
        assert error <= 1.05 * by_lloyd(centred[:, start:end], build.LLOYD_ITERATIONS)


def test_training_follows_from_the_seed_at_any_number_of_threads() -> None:
    sample = clustered(1000, 24)
    pivots = [build.train_codes(sample, 6, seed=3, threads=n).pivots for n in (1, 2, 3, 100)]
    assert all(np.array_equal(each, pivots[0]) for each in pivots)
    assert not np.array_equal(build.train_codes(sample, 6, seed=4, threads=1).pivots, pivots[0])


def test_fewer_vectors_than_centroids_are_coded_without_an_error() -> None:
    few = clustered(9, 12)
    trained = build.train_codes(few, 4, seed=1, threads=1)
    codes = build.encode(few, trained, threads=1)
    for chunk, start in enumerate(trained.offsets[:-1]):
        end = trained.offsets[chunk + 1]
        coded = trained.pivots[codes[:, chunk], start:end] + trained.centroid[start:end]
        assert np.allclose(coded, few[:, start:end], atol=1e-4)


@pytest.mark.parametrize("is_bytes", [False, True])
def test_a_code_is_the_nearest_centroid_of_a_chunk(is_bytes: bool) -> None:
    vectors: NDArray[np.float32] | NDArray[np.uint8] = clustered(3000, 30)
    if is_bytes:
        vectors = np.clip(vectors * 5 + 128, 0, 255).astype(np.uint8)
    trained = build.train_codes(vectors[:2000].astype(np.float32), 7, seed=1, threads=2)
    codes = build.encode(vectors, trained, threads=1)
    assert np.array_equal(codes, build.encode(vectors, trained, threads=3))
    centred = vectors - trained.centroid
    for chunk, start in enumerate(trained.offsets[:-1]):
        end = trained.offsets[chunk + 1]
        apart = squared(centred[:, start:end], trained.pivots[:, start:end])
        coded = apart[np.arange(len(vectors)), codes[:, chunk]]
        assert np.all(coded <= apart.min(1) * (1 + 1e-5))


@pytest.mark.parametrize(("dim", "chunks"), [(64, 16), (30, 11), (6, 1)])
def test_look_ups_add_up_the_tables_numbers(dim: int, chunks: int) -> None:
    vectors, queries = clustered(700, dim), clustered(3, dim, seed=2)
    trained = build.train_codes(vectors, chunks, seed=1, threads=2)
    codes = build.encode(vectors, trained, threads=2)
    tables = build.distance_tables(queries, trained)
    ids = np.random.default_rng(1).integers(0, 700, 65).astype(np.uint32)
    for query, table in zip(queries, tables, strict=True):
        for chunk, start in enumerate(trained.offsets[:-1]):
            part = slice(start, trained.offsets[chunk + 1])
            exact = squared((query - trained.centroid)[None, part], trained.pivots[:, part])[0]
            assert np.allclose(table[chunk], exact, rtol=1e-5)
        added = table.astype(np.float64)[np.arange(chunks), codes].sum(1)
        assert np.allclose(build.code_distances(table, codes), added, rtol=1e-5)
        assert np.allclose(build.code_distances(table, codes, ids), added[ids], rtol=1e-5)


def test_the_medoid_is_the_vector_nearest_to_the_mean() -> None:
    vectors = clustered(2 * build.ROWS_AT_ONCE + 100, 8)
    apart = squared(vectors, vectors.mean(0, dtype=np.float64)[None])
    assert build.medoid_of(vectors) == apart[:, 0].argmin()


def test_sums_of_rows_are_those_of_each_row() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (9, 100), dtype=np.uint8)
    own = [library.load().wl_sum(row[:77].copy().ctypes.data, 77) for row in rows]
    assert build.node_sums(rows[:, :77]).tolist() == own
