"""Training seeds by epoch, and the order of the rows that batches draw most."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.seeds import TrainingSeeds, most_drawn
from wattload.loaders.graph.shapes import GraphShape, NodeType, Relation


def test_each_epoch_has_each_training_node_once_in_another_order() -> None:
    seeds = TrainingSeeds(100, 0.6, seed=4)
    assert (seeds.count, seeds.steps_per_epoch(20), seeds.steps_per_epoch(7)) == (60, 3, 8)
    first, second = (
        np.concatenate([seeds.batch(number, 20) for number in range(start, start + 3)])
        for start in (0, 3)
    )
    assert first.dtype == np.uint32
    assert len(set(first.tolist())) == 60
    assert first.max() < 100
    assert set(first.tolist()) == set(second.tolist())
    assert first.tolist() != second.tolist()
    assert first.tolist() != sorted(first.tolist())
    assert (seeds.batch(4, 20) == second[20:40]).all()
    # The last 4 of an epoch fill no batch of 7.
    assert (seeds.batch(8, 7) == second[:7]).all()
    others = TrainingSeeds(100, 0.6, seed=5)
    assert set(others.batch(0, 60).tolist()) != set(first.tolist())
    assert sorted(TrainingSeeds(100, 1, seed=4).batch(0, 100).tolist()) == list(range(100))


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"60 training nodes, got 61"):
        TrainingSeeds(100, 0.6, seed=4).batch(0, 61)
    with pytest.raises(ConfigError, match=r"1 to 60 seeds.*got 0"):
        TrainingSeeds(100, 0.6, seed=4).steps_per_epoch(0)
    with pytest.raises(ConfigError, match="above 0 to 1, got 0"):
        TrainingSeeds(100, 0, seed=4)
    with pytest.raises(ConfigError, match=r"the least is 0\.5"):
        TrainingSeeds(2, 0.4, seed=4)


def edges(lists: list[list[int]]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    return indptr, np.array([node for each in lists for node in each], dtype=np.uint32)


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_ordered_by_the_edges_drawn_from_them(threads: int) -> None:
    shape = GraphShape(
        "hand",
        (NodeType("paper", 5), NodeType("author", 3)),
        (Relation(0, "cites", 0, 9, 4, 3), Relation(1, "wrote", 0, 4, 2, 2)),
    )
    cites = edges([[4, 1, 2, 3], [4], [4, 1], [], [2, 0]])
    wrote = edges([[0], [1, 2], [], [1], []])
    topology = Topology(shape, (cites[0], wrote[0]), (cites[1], wrote[1]))
    # Fan-outs 2 and 1: edges into paper 0 count 1/2 by cites, into paper 1 by wrote 1/2.
    scores = [1, 1.5, 1.5, 0.5, 2.5, 1, 1.5, 0.5]
    order = sorted(range(8), key=lambda row: (-scores[row], row))
    for count in (0, 1, 2, 3, 4, 5, 7, 8):
        found = most_drawn(topology, [[2, 1], [9, 9]], count, threads=threads)
        assert found.dtype == np.uint64
        assert found.tolist() == order[:count]
    assert len(most_drawn(topology, [[2, 1]], 100)) == 8


def test_rows_that_are_never_drawn_come_last() -> None:
    """Over several chunks of the search, of which the last is full of zeros."""
    count = (1 << 20) + 50
    shape = GraphShape("wide", (NodeType("paper", count),), (Relation(0, "cites", 0, 3, 3, 2),))
    indptr = np.full(count + 1, 3, dtype=np.uint64)
    indptr[0] = 0
    last = count - 1
    topology = Topology(shape, (indptr,), (np.array([last, 7, last], dtype=np.uint32),))
    assert most_drawn(topology, [[3]], 4).tolist() == [last, 7, 0, 1]
