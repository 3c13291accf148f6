"""Codes and graphs of vectors against numpy, and the same from any number of threads."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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
    each, other = points.astype(np.float64), centroids.astype(np.float64)
    lengths = np.square(each).sum(1)[:, None] + np.square(other).sum(1)
    return np.asarray(np.maximum(lengths - 2 * each @ other.T, 0))


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


def test_centroids_are_as_near_as_those_of_lloyd_in_numpy() -> None:
    sample = clustered(2500, 21)
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
        assert np.all(coded <= apart.min(1) * (1 + 1e-5) + 1e-5)


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
            assert np.allclose(table[chunk], exact, rtol=1e-4)
        added = table.astype(np.float64)[np.arange(chunks), codes].sum(1)
        assert np.allclose(build.code_distances(table, codes), added, rtol=1e-5)
        assert np.allclose(build.code_distances(table, codes, ids), added[ids], rtol=1e-5)


def test_the_medoid_is_the_vector_nearest_to_the_mean() -> None:
    vectors = clustered(2 * build.BLOCK + 100, 8)
    apart = squared(vectors, vectors.mean(0, dtype=np.float64)[None])
    assert build.medoid_of(vectors) == apart[:, 0].argmin()


def test_sums_of_rows_are_those_of_each_row() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (9, 100), dtype=np.uint8)
    own = [library.load().wl_sum(row[:77].copy().ctypes.data, 77) for row in rows]
    assert build.node_sums(rows[:, :77]).tolist() == own


def graph_of(vectors: build.Vectors, **changed: int) -> NDArray[np.uint32]:
    options: dict[str, Any] = {"degree": 24, "build_list": 48, "seed": 1, "threads": 2} | changed
    return build.build_graph(vectors, start=build.medoid_of(vectors), **options)


def reached_from(graph: NDArray[np.uint32], start: int) -> set[int]:
    reached = {start}
    front = [start]
    while front:
        found = {int(to) for node in front for to in graph[node, 1 : 1 + graph[node, 0]]}
        front = sorted(found - reached)
        reached |= found
    return reached


def found_by(graph: NDArray[np.uint32], vectors: Floats, query: Floats, start: int) -> set[int]:
    """Return the 10 nearest of a greedy search with a list of 64."""
    nearest = {start: float(np.square(vectors[start] - query).sum())}
    seen, expanded = {start}, set[int]()
    while left := [node for node in nearest if node not in expanded]:
        node = min(left, key=nearest.__getitem__)
        expanded.add(node)
        fresh = [int(to) for to in graph[node, 1 : 1 + graph[node, 0]] if int(to) not in seen]
        seen.update(fresh)
        apart = np.square(vectors[fresh] - query).sum(1)
        nearest.update(zip(fresh, apart.tolist(), strict=True))
        nearest = dict(sorted(nearest.items(), key=lambda each: each[1])[:64])
    return set(list(nearest)[:10])


def check_edges(graph: NDArray[np.uint32], degree: int) -> None:
    assert graph.shape[1] == 1 + degree
    for node, (count, *neighbours) in enumerate(graph.tolist()):
        assert count <= degree
        assert not any(neighbours[count:])
        assert len({*neighbours[:count], node}) == count + 1
        assert all(each < len(graph) for each in neighbours[:count])


@pytest.mark.parametrize("is_bytes", [False, True])
def test_a_search_finds_the_nearest_vectors_and_every_node_is_reached(is_bytes: bool) -> None:
    vectors, queries = clustered(5000, 32), clustered(50, 32, seed=2)
    stored: build.Vectors = vectors
    if is_bytes:
        stored = np.clip(vectors * 5 + 128, 0, 255).astype(np.uint8)
        vectors, queries = stored.astype(np.float32), queries * 5 + 128
    graph = graph_of(stored)
    check_edges(graph, 24)
    start = build.medoid_of(stored)
    assert len(reached_from(graph, start)) > 0.999 * len(vectors)
    hits = 0
    for query in queries:
        true = np.argsort(np.square(vectors - query).sum(1))[:10]
        hits += len(found_by(graph, vectors, query, start) & set(true.tolist()))
    assert hits >= 0.95 * 10 * len(queries)


def test_a_graph_follows_from_the_seed_at_any_number_of_threads() -> None:
    vectors = clustered(2000, 20)
    graphs = [graph_of(vectors, threads=threads) for threads in (1, 2, 3)]
    assert all(np.array_equal(each, graphs[0]) for each in graphs)
    assert not np.array_equal(graph_of(vectors, seed=2), graphs[0])


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_few_vectors_are_neighbours_of_each_other(count: int) -> None:
    graph = graph_of(clustered(count, 6), degree=30)
    check_edges(graph, 30)
    assert np.all(graph[:, 0] == count - 1)


def test_equal_vectors_do_not_hide_the_others() -> None:
    vectors = clustered(600, 8)
    vectors[100:400] = vectors[100]
    graph = graph_of(vectors, degree=8)
    check_edges(graph, 8)
    reached = reached_from(graph, build.medoid_of(vectors))
    assert len(np.unique(vectors[sorted(reached)], axis=0)) > 0.99 * 301


def test_memory_that_is_not_there_is_refused_with_its_bytes() -> None:
    program = """if True:
        import resource
        import numpy as np
        from wattload.loaders.vectors import build
        vectors = np.ones((100000, 4), np.uint8)
        options = dict(degree=500, build_list=9, start=0, seed=1, threads=1)
        build.build_graph(vectors[:10], **options)
        graph_bytes = 501 * 4 * len(vectors)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + graph_bytes + (20 << 20),) * 2)
        build.build_graph(vectors, **options)
    """
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert re.search("allocating [0-9]{8,} bytes to build a graph failed", ran.stderr), ran.stderr


def test_progress_ends_a_build() -> None:
    heard = []

    def listen(done: int, total: int) -> None:
        heard.append((done, total))
        if len(heard) > 1:
            raise KeyboardInterrupt

    vectors = clustered(100000, 32)
    with pytest.raises(KeyboardInterrupt):
        build.build_graph(
            vectors, degree=32, build_list=200, start=0, seed=1, threads=2, progress=listen
        )
    assert heard[0][0] <= heard[1][0] < heard[1][1] == 2 * len(vectors)
