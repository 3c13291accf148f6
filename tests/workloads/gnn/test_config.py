from __future__ import annotations

from typing import Any

import pytest

from wattload.core.errors import ConfigError
from wattload.loaders.graph.synthetic import SHAPES
from wattload.workloads.gnn.config import Config
from wattload.workloads.gnn.dataset import expected_counts


def config(**changed: Any) -> Config:
    return Config(**changed)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fanouts": [10, 5]}, "2 numbers for workload.layers=3"),
        ({"layers": 2}, "3 numbers for workload.layers=2"),
        ({"fanouts": "10,5,5"}, "must be a list such as"),
        ({"fanouts": [10, 5, -1]}, "from 0 to 1024, got -1"),
        ({"fanouts": [10, 5, 5.5]}, "got 5.5"),
        ({"fanouts": [[10, True], 5, 5]}, "got True"),
        ({"batch_seeds": 0}, "batch_seeds"),
        ({"memory_share": 0}, "memory_share"),
        ({"graph": "igb_huge"}, "igb_huge"),
        ({"overlap": "twice"}, "serial"),
        ({"gpus": [0, 1]}, "names 2 GPUs"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**changed).check("quick")


def test_fanouts_by_relation() -> None:
    shape = SHAPES["igbh_1000th"]
    relations = len(shape.relations)
    assert config().fanouts_of(shape) == [[10] * relations, [5] * relations, [5] * relations]
    own = list(range(relations))
    assert config(fanouts=[own, 5, 5]).fanouts_of(shape)[0] == own
    with pytest.raises(
        ConfigError, match=f"layer 1 .* has 2 numbers, and igbh_1000th has {relations}"
    ):
        config(fanouts=[10, [5, 5], 5]).fanouts_of(shape)


def test_expected_nodes_are_no_fewer_than_a_uniform_graph_gives() -> None:
    """DGL draws 293,000 nodes for 1024 seeds in a graph of a million nodes of degree 12."""
    [*_, last] = expected_counts(SHAPES["igb_small"], [[10], [5], [5]], 1024)
    assert 293_000 < last[0] < 1.15 * 293_000
    assert expected_counts(SHAPES["igb_small"], [[0]], 10) == [[10.0], [10.0]]
