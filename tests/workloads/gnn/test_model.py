"""The model against PyTorch Geometric, against loops by hand, and against what training must do."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from tests.loaders.graph.sampling import SMALL
from wattload.core.errors import ConfigError
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import Batch, SampledEdges, Sampler, largest_counts
from wattload.loaders.graph.synthetic import CLASSES, GraphShape, NodeType, Relation, SyntheticGraph
from wattload.workloads.gnn.model import GraphSage, Trainer
from wattload.workloads.gnn.model_size import ModelSize

FANOUTS = [[4, 3], [2, 9], [5, 6]]
SEEDS = np.arange(40, dtype=np.uint32)


@pytest.fixture(scope="module")
def graph() -> SyntheticGraph:
    return SyntheticGraph(SMALL, 5)


@pytest.fixture(scope="module")
def batch(graph: SyntheticGraph) -> Batch:
    indptr, indices = [], []
    for number, relation in enumerate(SMALL.relations):
        degrees = graph.degrees(number, 0, SMALL.node_types[relation.destination].count)
        indptr.append(np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint64))
        indices.append(graph.neighbours(number, 0, relation.edge_count))
    sampler = Sampler(Topology(SMALL, tuple(indptr), tuple(indices)), FANOUTS, threads=1, seed=3)
    drawn = sampler.draw(0, SEEDS)
    sampler.close()
    return drawn


@pytest.fixture(scope="module")
def pyg() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it calls torch.jit.script
        import torch_geometric.nn
    return torch_geometric.nn


def trainer(*, hidden: int = 32, seed: int = 7) -> Trainer:
    return Trainer(
        SMALL,
        layers=len(FANOUTS),
        hidden=hidden,
        classes=CLASSES,
        learning_rate=0.01,
        device="cpu",
        seed=seed,
    )


def size(*, hidden: int = 32) -> ModelSize:
    return ModelSize.of(SMALL, layers=len(FANOUTS), hidden=hidden, classes=CLASSES)


def test_the_size_is_that_of_the_model() -> None:
    weights = trainer().model.parameters()
    assert size().parameter_count == sum(each.numel() for each in weights)


def edges_of(batch: Batch) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    return [
        [
            (
                torch.from_numpy(each.offsets.view(np.int32)),
                torch.from_numpy(each.sources.view(np.int32)),
            )
            for each in layer
        ]
        for layer in batch.layers
    ]


def test_values_and_gradients_are_those_of_pyg(
    pyg: Any, graph: SyntheticGraph, batch: Batch
) -> None:
    model = trainer().model
    features = torch.from_numpy(graph.rows(batch.rows(SMALL)))
    found = model(features, batch.counts, edges_of(batch))

    names = [each.name for each in SMALL.node_types]
    titles = [(names[each.source], each.name, names[each.destination]) for each in SMALL.relations]
    values = dict(zip(names, torch.split(features, list(batch.counts[-1])), strict=True))
    firsts = []
    for number, convolutions in enumerate(model.layers):
        layer = len(FANOUTS) - 1 - number
        twins = {}
        for title, own in zip(titles, convolutions, strict=True):
            out_width, width = own.neighbours.weight.shape
            twin = pyg.SAGEConv((width, width), out_width, aggr="mean")
            twin.lin_l.load_state_dict(own.neighbours.state_dict())
            twin.lin_r.load_state_dict(own.own.state_dict())
            twins[title] = twin
        edges = {
            title: torch.from_numpy(
                np.stack(
                    [
                        each.sources,
                        np.repeat(np.arange(len(each.offsets) - 1), np.diff(each.offsets)),
                    ]
                ).astype(np.int64)
            )
            for title, each in zip(titles, batch.layers[layer], strict=True)
        }
        firsts.append(twins[titles[0]])
        # PyG computes all nodes of a layer; those that have no edges yet are left out here.
        values = pyg.HeteroConv(twins, aggr="sum")(values, edges)
        values = {
            name: values[name][: batch.counts[layer][place]].relu()
            if layer
            else values[name][: batch.counts[layer][place]]
            for place, name in enumerate(names)
        }
    expected = values[names[0]]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    torch.autograd.backward(found.square().sum())
    torch.autograd.backward(expected.square().sum())
    for convolutions, twin in zip(model.layers, firsts, strict=True):
        own_grad, twin_grad = convolutions[0].neighbours.weight.grad, twin.lin_l.weight.grad
        if twin_grad is not None:  # no edge of this relation leads to a seed
            scale = float(twin_grad.abs().max())
            torch.testing.assert_close(own_grad, twin_grad, rtol=1e-5, atol=1e-5 * scale)


def test_a_graph_by_hand() -> None:
    """Two papers, of which the second has no author; three authors, of which one wrote nothing."""
    shape = GraphShape(
        "hand",
        (NodeType("paper", 2), NodeType("author", 3)),
        (
            Relation(1, "wrote", 0, 2, 2, 1),
            Relation(0, "cites", 0, 1, 1, 1),
            Relation(0, "by", 1, 2, 1, 2),
        ),
    )

    def edges(offsets: list[int], sources: list[int]) -> SampledEdges:
        return SampledEdges(np.array(offsets, np.uint32), np.array(sources, np.uint32))

    first = (edges([0, 2], [0, 1]), edges([0, 1], [1]), edges([0], []))
    second = (edges([0, 2, 2], [1, 0]), edges([0, 0, 1], [0]), edges([0, 1, 1], [1]))
    batch = Batch(
        (np.array([0, 1], np.uint32), np.array([2, 0], np.uint32)),
        ((1, 0), (2, 2), (2, 2)),
        (first, second),
    )
    model = GraphSage(shape, layers=2, hidden=3, classes=2, width=4)
    features = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)

    values = {0: features[:2], 1: features[2:]}
    for layer, convolutions in zip((1, 0), model.layers, strict=True):
        made = {}
        for destination in (0, 1):
            rows = []
            for node in range(batch.counts[layer][destination]):
                total = 0
                for relation, convolution, of in zip(
                    shape.relations, convolutions, batch.layers[layer], strict=True
                ):
                    if relation.destination != destination:
                        continue
                    start, end = of.offsets[node : node + 2]
                    sources = [values[relation.source][place] for place in of.sources[start:end]]
                    mean = sum(sources) / len(sources) if sources else np.zeros_like(values[0][0])
                    weights = {k: v.numpy() for k, v in convolution.state_dict().items()}
                    total = total + weights["neighbours.weight"] @ mean + weights["neighbours.bias"]
                    total = total + weights["own.weight"] @ values[destination][node]
                rows.append(np.maximum(total, 0) if layer else total)
            made[destination] = np.array(rows)
        values = made
    found = model(torch.from_numpy(features), batch.counts, edges_of(batch))
    np.testing.assert_allclose(found.detach().numpy(), values[0], rtol=1e-5, atol=1e-6)


def test_the_loss_falls_and_is_the_same_for_the_same_seed(
    graph: SyntheticGraph, batch: Batch
) -> None:
    features = torch.from_numpy(graph.rows(batch.rows(SMALL)))
    labels = graph.classes(SEEDS.astype(np.uint64))
    first, second, other = trainer(), trainer(), trainer(seed=8)
    losses = [float(first.step(features, batch, labels)) for _ in range(8)]
    assert losses[0] == pytest.approx(np.log(CLASSES), rel=0.2)
    assert losses[-1] < losses[0] / 2
    assert losses == [float(second.step(features.clone(), batch, labels)) for _ in range(8)]
    assert float(other.step(features, batch, labels)) != losses[0]


def test_types_that_no_relation_leads_to_are_refused() -> None:
    shape = GraphShape(
        "half", (NodeType("paper", 3), NodeType("author", 2)), (Relation(1, "wrote", 0, 3, 2, 2),)
    )
    with pytest.raises(ConfigError, match="no relation of half leads to author"):
        GraphSage(shape, layers=1, hidden=1, classes=2)


def test_no_batch_is_larger_than_the_largest(batch: Batch) -> None:
    largest = largest_counts(SMALL, FANOUTS, len(SEEDS))
    assert largest == ((40, 0), (40, 37), (373, 37), (484, 37))
    assert all(
        a <= b
        for found, most in zip(batch.counts, largest, strict=True)
        for a, b in zip(found, most, strict=True)
    )
    larger, smaller = size(), size(hidden=16)
    assert larger.activation_bytes(largest) > larger.activation_bytes(batch.counts)
    assert larger.activation_bytes(largest) > smaller.activation_bytes(largest)
