"""The nearest vectors against plain numpy: ties, duplicates, far from zero, bytes exactly."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from wattload.loaders.vectors.build import encode, train_codes
from wattload.loaders.vectors.native_search import NO_NODE
from wattload.workloads.vector_search import truth
from wattload.workloads.vector_search.truth import (
    code_order,
    digest,
    hits,
    intrinsic_dimension,
    nearest,
)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "TILE", 300)
    monkeypatch.setattr(truth, "QUERIES", 13)
    monkeypatch.setattr(truth, "PAIRS", 64)


def exact(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    apart = queries[:, np.newaxis].astype(np.float64) - vectors.astype(np.float64)
    return np.asarray(np.sqrt((apart**2).sum(axis=2)))


def in_blocks(vectors: np.ndarray, size: int = 700) -> list[np.ndarray]:
    return [vectors[first : first + size] for first in range(0, len(vectors), size)]


def ordered(queries: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Return the ids of the nearest, earlier ones first among equals."""
    return np.argsort(exact(queries, vectors), axis=1, kind="stable")[:, :k].astype(np.uint32)


def floats(count: int, seed: int, shift: float = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 24))
    return (drawn + shift).astype(np.float32)


def bytes_of(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 24), dtype=np.uint8)


def few_values(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (count, 5)).astype(np.float32)


CASES = {
    "floats": (floats(40, 1), floats(2000, 2)),
    "far-from-zero": (floats(40, 1, 3e4), floats(2000, 2, 3e4)),
    "one-of-them-far-from-the-others": (
        floats(40, 1),
        np.vstack([floats(1500, 2), floats(9, 3, 1e5)]),
    ),
    "two-clusters-farther-apart-than-float32-is-exact": (
        floats(40, 1, 1e3),
        np.hstack([floats(1000, 2, -1e3), floats(1000, 3, 1e3)]).reshape(2000, 24),
    ),
    "duplicates": (floats(40, 1), np.repeat(floats(150, 2), 10, axis=0)),
    "ties": (few_values(40, 1), few_values(2000, 2)),
    "stored-queries": (floats(2000, 2)[:40], floats(2000, 2)),
    "bytes": (bytes_of(40, 1), bytes_of(2000, 2)),
    "fewer-than-a-tile": (floats(40, 1), floats(60, 2)),
    "as-many-as-are-asked-for": (floats(40, 1), floats(10, 2)),
}


@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize(("queries", "vectors"), CASES.values(), ids=CASES)
def test_the_nearest_are_those_of_float64(queries: np.ndarray, vectors: np.ndarray, k: int) -> None:
    found = nearest(queries, in_blocks(vectors), k)
    assert np.array_equal(found, np.sort(exact(queries, vectors), axis=1)[:, :k])


def test_distances_of_bytes_are_whole_numbers() -> None:
    queries, vectors = bytes_of(40, 1), bytes_of(500, 2)
    apart = queries[:, np.newaxis].astype(np.int64) - vectors
    found = nearest(queries, in_blocks(vectors), 3)
    assert np.array_equal(np.sqrt(np.sort((apart**2).sum(axis=2), axis=1)[:, :3]), found)


def test_answers_as_near_as_the_true_ones_are_hits() -> None:
    vectors = np.repeat(floats(200, 2), 3, axis=0)  # 3i, 3i + 1 and 3i + 2 are equal
    queries = floats(40, 1)
    ids = ordered(queries, vectors, 4)
    kth = nearest(queries, in_blocks(vectors), 4)[:, -1]
    assert hits(ids, vectors.__getitem__, queries, kth).tolist() == [4] * 40
    # The first three are one vector's copies, the fourth is the next one's, of which any is right.
    ids[:, 3] = ids[:, 3] // 3 * 3 + 2
    assert hits(ids, vectors.__getitem__, queries, kth).tolist() == [4] * 40
    farther = exact(queries, vectors).argmax(axis=1)
    ids[::2, 3] = farther[::2]
    ids[1::2, 2] = ids[1::2, 1]  # twice the same
    ids[0, :] = NO_NODE
    ids[1, 1:] = NO_NODE
    assert hits(ids, vectors.__getitem__, queries, kth).tolist() == [0, 1] + [3] * 38


def test_a_distance_is_the_same_alone_and_among_others() -> None:
    vectors = floats(900, 2, 100)
    queries = floats(30, 1, 100)
    found, ids = nearest(queries, in_blocks(vectors), 10), ordered(queries, vectors, 10)
    for row in range(30):
        alone = hits(
            ids[row : row + 1, 9:], vectors.__getitem__, queries[row : row + 1], found[row:, 9]
        )
        assert alone.tolist() == [1]


def test_the_order_of_codes_is_that_of_decoded_vectors() -> None:
    vectors, queries = floats(3000, 2), floats(30, 1)
    quantizer = train_codes(vectors, 6, seed=1, threads=1)
    codes = encode(vectors, quantizer, threads=1)
    chunks = np.searchsorted(quantizer.offsets[1:], np.arange(24), side="right")
    decoded = quantizer.pivots[codes[:, chunks], np.arange(24)] + quantizer.centroid
    expected = exact(queries, decoded)
    for threads in (1, 2):
        ids = code_order(queries, quantizer, codes, 10, threads)
        apart = np.sort(np.take_along_axis(expected, ids.astype(int), axis=1), axis=1)
        assert np.allclose(apart, np.sort(expected, axis=1)[:, :10], rtol=1e-5)


@pytest.mark.parametrize("dimensions", [2, 6])
def test_the_intrinsic_dimension_of_a_cube_is_its_own(dimensions: int) -> None:
    draw = np.random.default_rng(3)
    plane = np.linalg.qr(draw.normal(size=(20, dimensions)))[0].T
    cube = (draw.random((4000, dimensions)) @ plane).astype(np.float32)
    queries = ((0.2 + 0.6 * draw.random((100, dimensions))) @ plane).astype(np.float32)
    apart = nearest(queries, in_blocks(cube), 50)
    found = intrinsic_dimension(apart)
    assert found is not None
    assert found == pytest.approx(dimensions, rel=0.25)


def test_equal_distances_have_no_dimension() -> None:
    assert intrinsic_dimension(np.full((5, 10), 2.0)) is None
    assert intrinsic_dimension(np.zeros((5, 10))) is None


def test_the_digest_is_of_queries_and_distances() -> None:
    content = struct.pack("<f2d", 3, 1.5, 2)
    found = digest(np.array([[3]], np.float32), np.array([1.5, 2.0]))
    assert found == hashlib.sha256(content).hexdigest()
