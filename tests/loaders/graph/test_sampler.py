"""The sampler against its definition in Python and what chance allows, and training seeds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.loaders.graph.sampling import SEED, SMALL, edges_of, homogeneous, reference, synthetic
from wattload.core.errors import ConfigError
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import Sampler, TrainingSeeds, most_drawn
from wattload.loaders.graph.synthetic import GraphShape, NodeType, Relation


def ids(*numbers: int) -> NDArray[np.uint32]:
    return np.array(numbers, dtype=np.uint32)


def test_ten_nodes_by_hand() -> None:
    lists = [[1, 2], [3], [3, 4, 1], [], [5], [0], [7], [8], [9], [6]]
    sampler = Sampler(homogeneous(lists), [[5], [5]], threads=1, seed=SEED)
    batch = sampler.draw(0, ids(2, 0))
    assert batch.nodes[0].tolist() == [2, 0, 3, 4, 1, 5]
    assert batch.counts == ((2,), (5,), (6,))
    first, second = batch.layers[0][0], batch.layers[1][0]
    assert (first.offsets.tolist(), first.sources.tolist()) == ([0, 3, 5], [2, 3, 4, 4, 0])
    assert second.offsets.tolist() == [0, 3, 5, 5, 6, 7]
    assert second.sources.tolist() == [2, 3, 4, 4, 0, 5, 2]
    sampler.close()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_batches_are_those_of_the_definition(threads: int) -> None:
    topology = synthetic()
    fanouts = [[4, 3], [2, 9], [5, 0], [3, 1]]
    sampler = Sampler(topology, fanouts, threads=threads, seed=SEED)
    for number in (0, 1, 2**40):
        seeds = np.random.default_rng(number).permutation(1000)[:20]
        batch = sampler.draw(number, seeds.astype(np.uint32))
        nodes, edges = reference(topology, fanouts, number, seeds.tolist())
        assert [each.tolist() for each in batch.nodes] == nodes
        assert edges_of(SMALL, batch) == edges
        assert batch.row_count == sum(map(len, nodes))
    sampler.close()


@pytest.mark.parametrize("fanout", [1, 3, 11])
def test_picks_are_uniform_and_without_replacement(fanout: int) -> None:
    topology = homogeneous([list(range(12))] * 12)
    sampler = Sampler(topology, [[fanout]], threads=1, seed=SEED)
    counts, pairs = np.zeros(12), np.zeros((12, 12))
    rounds = 2000
    for number in range(rounds):
        batch = sampler.draw(number, ids(*range(12)))
        for own in np.split(batch.nodes[0][batch.layers[0][0].sources], 12):
            assert len(set(own.tolist())) == fanout
            counts[own] += 1
            pairs[np.ix_(own, own)] += 1
    sampler.close()
    draws = rounds * 12
    # Counts of picks without replacement have equal covariances, which add up to -variance.
    variance = draws * (fanout / 12) * (1 - fanout / 12)
    assert ((counts - draws * fanout / 12) ** 2).sum() / variance * 11 / 12 < stats.chi2.ppf(
        0.9999, 11
    )
    if fanout > 1:
        together = pairs[np.triu_indices(12, 1)] / draws
        assert abs(together / (fanout * (fanout - 1) / (12 * 11)) - 1).max() < 0.1


def test_a_batch_has_as_many_rows_as_dgl_draws() -> None:
    """DGL 1.1.3 has 293 k rows for 1024 seeds of a uniform graph of degree 12, fan-outs 10,5,5."""
    count, degree = 1_000_000, 12
    shape = GraphShape(
        "uniform", (NodeType("paper", count),), (Relation(0, "cites", 0, count * 12, 12, 12),)
    )
    generator = np.random.default_rng(SEED)
    topology = Topology(
        shape,
        (np.arange(0, count * degree + 1, degree, dtype=np.uint64),),
        (generator.integers(0, count, count * degree, dtype=np.uint32),),
    )
    sampler = Sampler(topology, [[10], [5], [5]], threads=2, seed=SEED)
    rows = [
        sampler.draw(number, generator.permutation(count)[:1024].astype(np.uint32)).row_count
        for number in range(3)
    ]
    sampler.close()
    assert np.mean(rows) == pytest.approx(293_000, rel=0.005)


@pytest.mark.parametrize(
    ("seeds", "message"), [((0, 10), "seed 1 is node 10"), ((3, 4, 3), "node 3 is twice")]
)
@pytest.mark.parametrize("threads", [1, 4])
def test_bad_seeds_are_refused_and_the_next_batch_is_right(
    seeds: tuple[int, ...], message: str, threads: int
) -> None:
    sampler = Sampler(homogeneous([[1]] * 10), [[2]], threads=threads, seed=SEED)
    for _ in range(50):
        with pytest.raises(ConfigError, match=message):
            sampler.draw(0, ids(*seeds))
        assert sampler.draw(0, ids(0)).nodes[0].tolist() == [0, 1]
    sampler.close()
    sampler.close()
    with pytest.raises(RuntimeError, match="closed"):
        sampler.draw(0, ids(0))


@pytest.mark.parametrize(
    ("fanouts", "threads", "message"),
    [
        ([[1, 2]], 1, "1 relations, got fan-outs for 2"),
        ([[1025]], 1, "0 to 1024, got 1025"),
        ([[1]], 0, "1 to 256 threads, got 0"),
        ([], 1, "a layer"),
    ],
)
def test_impossible_samplers_are_refused(
    fanouts: list[list[int]], threads: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampler(homogeneous([[0]]), fanouts, threads=threads, seed=SEED)


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
