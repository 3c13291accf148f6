"""The synthetic graph against a reference in Python's integers and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.loaders.graph.sampling import SMALL, draw
from wattload.core.errors import ConfigError
from wattload.loaders.graph.synthetic import SHAPES, SyntheticGraph, degree_steps

SEED = 7


def node_of(rank: int, seed: int, count: int) -> int:
    bits = (count - 1).bit_length()
    mask, shift = (1 << bits) - 1, (bits + 1) // 2
    while True:
        for turn in range(4):
            rank = (rank + draw(seed, 2 * turn)) & mask
            rank = rank * (draw(seed, 2 * turn + 1) | 1) & mask
            rank ^= rank >> shift
        if rank < count:
            return rank


def degrees_by_rank(node_count: int, edge_count: int, largest: int) -> NDArray[np.int64]:
    steps = degree_steps(node_count, edge_count, largest)
    ranks = steps.first_ranks.astype(np.int64)
    return np.repeat(steps.degrees.astype(np.int64), ranks[1:] - ranks[:-1])


def seed_for(purpose: int, number: int) -> int:
    return draw(draw(SEED, purpose), number)


@pytest.mark.parametrize("name", SHAPES)
def test_degrees_have_the_exact_edges_and_the_largest_degree(name: str) -> None:
    shape = SHAPES[name]
    for relation in shape.relations:
        count = shape.node_types[relation.destination].count
        steps = degree_steps(count, relation.edge_count, relation.largest_degree)
        assert int(steps.first_edges[-1]) == relation.edge_count
        assert int(steps.first_ranks[-1]) == count
        assert steps.degrees[0] == relation.largest_degree
        assert (np.diff(steps.degrees.astype(int)) < 0).all()


def test_degrees_fall_as_a_power_of_the_rank() -> None:
    degrees = degrees_by_rank(1_000_000, 12_070_502, 4_292)
    ranks = np.geomspace(10, 10_000, 20).astype(int)
    slope, _ = np.polyfit(np.log(ranks + 1), np.log(degrees[ranks]), 1)
    fitted = degrees[0] * (ranks + 1.0) ** slope
    assert -1 < slope < -0.3
    assert np.allclose(degrees[ranks], fitted, rtol=0.1)


@pytest.mark.parametrize(("nodes", "edges", "largest"), [(10, 120, 12), (1, 5, 5), (10, 3, 3)])
def test_degrees_at_the_limits(nodes: int, edges: int, largest: int) -> None:
    found = degrees_by_rank(nodes, edges, largest)
    assert (len(found), found.sum(), found[0]) == (nodes, edges, largest)


@pytest.mark.parametrize(("nodes", "edges", "largest"), [(10, 121, 12), (10, 3, 4), (10, 1, 0)])
def test_impossible_degrees_are_refused(nodes: int, edges: int, largest: int) -> None:
    with pytest.raises(ConfigError, match=f"{edges} edges into {nodes} nodes"):
        degree_steps(nodes, edges, largest)


def test_degrees_are_those_of_the_permuted_ranks() -> None:
    graph = SyntheticGraph(SMALL, SEED)
    for number, relation in enumerate(SMALL.relations):
        count = SMALL.node_types[relation.destination].count
        seed = seed_for(0, relation.destination)
        expected = np.zeros(count, dtype=np.int64)
        by_rank = degrees_by_rank(count, relation.edge_count, relation.largest_degree)
        for rank, degree in enumerate(by_rank):
            expected[node_of(rank, seed, count)] = degree
        assert np.array_equal(graph.degrees(number, 0, count), expected)
        assert np.array_equal(graph.degrees(number, 5, 9), expected[5:14])


def test_neighbours_are_those_of_the_reference() -> None:
    graph = SyntheticGraph(SMALL, SEED)
    for number, relation in enumerate(SMALL.relations):
        count = SMALL.node_types[relation.source].count
        by_rank = degrees_by_rank(count, relation.edge_count, relation.largest_source_degree)
        owners = np.repeat(np.arange(count), by_rank)
        edge_seed, node_seed = seed_for(1, number), seed_for(0, relation.source)
        expected = [
            node_of(int(owners[draw(edge_seed, edge) * len(owners) >> 64]), node_seed, count)
            for edge in range(relation.edge_count)
        ]
        found = graph.neighbours(number, 0, relation.edge_count)
        assert found.tolist() == expected
        assert graph.neighbours(number, 100, 50).tolist() == expected[100:150]


def test_rows_are_those_of_the_reference_and_show_their_class() -> None:
    graph = SyntheticGraph(SMALL, SEED)
    numbers = np.array([0, 1, 999, 1036, 2**40], dtype=np.uint64)
    found, classes = graph.rows(numbers), graph.classes(numbers)
    seed = seed_for(2, 0)
    row_seed, class_seed, sign_seed = (draw(seed, number) for number in range(3))
    for place, number in enumerate(map(int, numbers)):
        own = draw(class_seed, number) * 19 >> 64
        words = [draw(draw(row_seed, number), word) for word in range(512)]
        whole = np.array([part for word in words for part in (word & 0xFFFFFF, word >> 40)])
        signs = np.array(
            [draw(sign_seed, own * 16 + at // 64) >> at % 64 & 1 for at in range(1024)]
        )
        values = (whole - (1 << 23) + np.where(signs, 1 << 21, -(1 << 21))) / (1 << 23)
        assert classes[place] == own
        assert np.array_equal(found[place], values.astype(np.float32))


def test_classes_follow_from_features() -> None:
    graph = SyntheticGraph(SMALL, SEED)
    numbers = np.arange(2000, dtype=np.uint64)
    rows, classes = graph.rows(numbers), graph.classes(numbers)
    means = np.stack([rows[classes == each].mean(0) for each in range(19)])
    assert np.array_equal((rows @ means.T).argmax(1), classes)


def test_a_changed_row_is_found() -> None:
    graph = SyntheticGraph(SMALL, SEED)
    numbers = np.arange(64, dtype=np.uint64)
    rows = graph.rows(numbers)
    assert graph.wrong_row(numbers, rows) is None
    rows[32, 1023] = np.nextafter(rows[32, 1023], np.float32(2))
    assert graph.wrong_row(numbers, rows) == 32
    assert graph.wrong_row(numbers, rows, every=16) == 32
    rows[[2, 5]] = rows[[5, 2]]
    assert graph.wrong_row(numbers, rows) == 2


def test_popular_nodes_are_spread() -> None:
    graph = SyntheticGraph(SHAPES["igb_tiny"], SEED)
    degrees = graph.degrees(0, 0, 100_000)
    shares = degrees.reshape(10, -1).sum(1) / degrees.sum()
    assert abs(shares - 0.1).max() < 0.005
    assert degrees.max() == 234
