"""The sampler against its definition in Python, and against what chance allows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.loaders.graph.sampling import SEED, edges_of, homogeneous, reference, synthetic
from tests.loaders.graph.shapes import SMALL
from wattload.core.errors import ConfigError
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import Sampler
from wattload.loaders.graph.shapes import GraphShape, NodeType, Relation


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
