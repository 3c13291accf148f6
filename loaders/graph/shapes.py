"""The shapes of the IGB graphs (Khatua et al., KDD'23, doi:10.1145/3580305.3599843).

Nodes, edges and largest degrees of the homogeneous graphs are IGB's. Of the relations of IGBH only
the edges are known, and the largest degree of ``cites`` at full size. The others are those of a
power law with about the exponent of ``igb_full``: 0.45 x edges ÷ nodes^0.45, and at most all nodes
of the other type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 1024
"""The float32 values of a node: one row of 4096 bytes."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """Nodes that are numbered from 0."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Relation:
    """Edges from nodes of type ``source`` to nodes of type ``destination`` (indices of types).

    ``largest_degree`` is the largest number of edges into one destination,
    ``largest_source_degree`` that of the relation the other way: how popular a source is.
    """

    source: int
    name: str
    destination: int
    edge_count: int
    largest_degree: int
    largest_source_degree: int


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Types of nodes and relations. Seeds and classes belong to the first type.

    The rows of all types are numbered together: those of the first type come first.
    """

    name: str
    node_types: tuple[NodeType, ...]
    relations: tuple[Relation, ...]

    @property
    def row_count(self) -> int:
        """All nodes: one row of features each."""
        return sum(each.count for each in self.node_types)

    @property
    def edge_count(self) -> int:
        return sum(each.edge_count for each in self.relations)

    def first_row(self, node_type: int) -> int:
        """Return the row number of node 0 of a type."""
        return sum(each.count for each in self.node_types[:node_type])

    def title(self, relation: Relation) -> str:
        """Return ``source-name-destination``."""
        names = [each.name for each in self.node_types]
        return f"{names[relation.source]}-{relation.name}-{names[relation.destination]}"


def _homogeneous(name: str, node_count: int, edge_count: int, largest_degree: int) -> GraphShape:
    cites = Relation(0, "cites", 0, edge_count, largest_degree, largest_degree)
    return GraphShape(name, (NodeType("paper", node_count),), (cites,))


def _heterogeneous(
    name: str, node_counts: Sequence[int], edges: Sequence[tuple[str, int, int, int, int, int]]
) -> GraphShape:
    """Return papers, authors, fields of study and institutes; each relation exists both ways."""
    relations = []
    for title, source, destination, edge_count, largest, largest_source in edges:
        there = Relation(source, title, destination, edge_count, largest, largest_source)
        back = Relation(destination, f"rev_{title}", source, edge_count, largest_source, largest)
        relations += [there, back]
    names = ("paper", "author", "fos", "institute")
    types = tuple(NodeType(*each) for each in zip(names, node_counts, strict=True))
    return GraphShape(name, types, tuple(relations))


_SHAPES = (
    _homogeneous("igb_tiny", 100_000, 547_416, 234),
    _homogeneous("igb_small", 1_000_000, 12_070_502, 4_292),
    _homogeneous("igb_medium", 10_000_000, 120_077_694, 22_315),
    _homogeneous("igb_large", 100_000_000, 1_223_571_364, 73_248),
    _homogeneous("igb_full", 269_346_174, 3_995_777_033, 277_194),
    _heterogeneous(
        "igbh_full",
        (269_346_174, 277_220_883, 712_960, 26_918),
        (
            ("cites", 0, 0, 3_996_442_004, 277_194, 277_194),
            ("written_by", 0, 1, 716_761_549, 51_205, 51_874),
            ("topic", 0, 2, 1_050_280_600, 1_098_092, 76_011),
            ("affiliated_to", 1, 3, 48_521_486, 221_629, 3_466),
        ),
    ),
    _heterogeneous(
        "igbh_1000th",
        (269_346, 277_221, 713, 27),
        (
            ("cites", 0, 0, 3_996_442, 6_475, 6_475),
            ("written_by", 0, 1, 716_762, 1_146, 1_161),
            ("topic", 0, 2, 1_050_281, 24_583, 713),
            ("affiliated_to", 1, 3, 48_521, 4_955, 27),
        ),
    ),
)
SHAPES: dict[str, GraphShape] = {shape.name: shape for shape in _SHAPES}
