"""The definition of batches in plain Python, and graphs to draw them from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import Batch
from wattload.loaders.graph.synthetic import GraphShape, NodeType, Relation, SyntheticGraph

WORD = (1 << 64) - 1
SEED = 11
SMALL = GraphShape(
    "small",
    (NodeType("paper", 1000), NodeType("author", 37)),
    (Relation(1, "writes", 0, 5003, 90, 700), Relation(0, "rev_writes", 1, 5003, 700, 90)),
)
"""A graph of two types that is written in a moment."""


def draw(seed: int, number: int) -> int:
    x = (seed + (number + 1) * 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def reference(
    topology: Topology, fanouts: Sequence[Sequence[int]], batch: int, seeds: Sequence[int]
) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Return nodes by type, and by layer and relation the edges as (source, destination) nodes."""
    shape = topology.shape
    nodes: list[list[int]] = [list(seeds), *([] for _ in shape.node_types[1:])]
    layers: list[list[tuple[int, int]]] = []
    for layer, row in enumerate(reversed(fanouts)):
        counts = [len(each) for each in nodes]
        for number, (relation, fanout) in enumerate(zip(shape.relations, row, strict=True)):
            key = draw(draw(SEED, batch), layer * len(shape.relations) + number)
            edges = []
            for node in nodes[relation.destination][: counts[relation.destination]]:
                start, end = map(int, topology.indptr[number][node : node + 2])
                places = list(range(end - start))
                if len(places) > fanout:
                    places = []
                    for j in range(fanout):
                        limit = end - start - fanout + j + 1
                        place = draw(draw(key, node), j) * limit >> 64
                        places.append(limit - 1 if place in places else place)
                for place in places:
                    source = int(topology.indices[number][start + place])
                    edges.append((source, node))
                    if source not in nodes[relation.source]:
                        nodes[relation.source].append(source)
            layers.append(edges)
    return nodes, layers


def edges_of(shape: GraphShape, batch: Batch) -> list[list[tuple[int, int]]]:
    found = []
    for layer in batch.layers:
        for relation, edges in zip(shape.relations, layer, strict=True):
            destinations = np.repeat(
                batch.nodes[relation.destination][: len(edges.offsets) - 1],
                np.diff(edges.offsets),
            )
            sources = batch.nodes[relation.source][edges.sources]
            found.append(list(zip(sources.tolist(), destinations.tolist(), strict=True)))
    return found


def homogeneous(lists: Sequence[Sequence[int]]) -> Topology:
    edges = sum(map(len, lists))
    most = max(map(len, lists))
    shape = GraphShape(
        "hand", (NodeType("paper", len(lists)),), (Relation(0, "cites", 0, edges, most, most),)
    )
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    return Topology(
        shape, (indptr,), (np.array([node for each in lists for node in each], dtype=np.uint32),)
    )


def synthetic(shape: GraphShape = SMALL) -> Topology:
    graph = SyntheticGraph(shape, SEED)
    indptr, indices = [], []
    for number, relation in enumerate(shape.relations):
        degrees = graph.degrees(number, 0, shape.node_types[relation.destination].count)
        indptr.append(np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint64))
        indices.append(graph.neighbours(number, 0, relation.edge_count))
    return Topology(shape, tuple(indptr), tuple(indices))
