"""Shapes of graphs, and synthetic graphs: all of them follows from a seed and a number.

The shapes are those of the IGB graphs (Khatua et al., KDD'23, doi:10.1145/3580305.3599843).
Nodes, edges and largest degrees of the homogeneous graphs are IGB's. Of the relations of IGBH only
the edges are known, and the largest degree of ``cites`` at full size. The others are those of a
power law with about the exponent of ``igb_full``: 0.45 x edges ÷ nodes^0.45, and at most all nodes
of the other type.

A relation's degrees follow a power law by rank, with the exact number of edges and the exact
largest degree. A permutation of each node type spreads the ranks over its nodes. An edge's source
is drawn independently of all others, with a probability that is proportional to the source's degree
in the relation the other way. So neighbours have no locality, a list may hold a node twice, and the
edges of the two ways do not match each other. Only integers, and operations that IEEE 754 rounds
exactly, are used: a seed gives the same bytes on any machine. The formulas of draws are in
``src/wattload_engine.h`` and ``src/graph.c`` of the engine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct

WIDTH = 1024
"""The float32 values of a node: one row of 4096 bytes."""

VERSION = 1
"""Part of a graph's key: it changes whenever a seed gives other bytes."""

CLASSES = 19
_WORD = (1 << 64) - 1
_EXPONENT_BITS = 16
_EXPONENT_LIMIT = 6
"""Exponents are below 2^6, in steps of 2^-16."""
_GUIDE_BITS = 16
_NODES, _EDGES, _FEATURES = range(3)
"""What a seed is derived for."""


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


@dataclass(frozen=True, eq=False)
class DegreeSteps:
    """Degrees by rank, in steps of equal degree, falling.

    ``first_ranks`` and ``first_edges`` have one more element: the numbers of nodes and of edges.
    """

    first_ranks: NDArray[np.uint64]
    first_edges: NDArray[np.uint64]
    degrees: NDArray[np.uint32]


@cache
def degree_steps(node_count: int, edge_count: int, largest_degree: int) -> DegreeSteps:
    """Return degrees that fall as a power of the rank, with these exact sums and maximum.

    The number of nodes with at least k edges is ``(largest_degree / (k - 0.5)) ** b``, rounded
    down and at most all nodes. b is the largest multiple of 2^-16 that gives no more than
    ``edge_count`` edges; the few that are left lift the lowest degrees.

    Raises:
        ConfigError: no degrees have these sums and this maximum.
    """
    if not largest_degree <= edge_count <= node_count * largest_degree or largest_degree < 1:
        raise ConfigError(
            f"{edge_count} edges into {node_count} nodes can't have a largest degree of "
            f"{largest_degree}; it must be {-(-edge_count // node_count)} to {edge_count}"
        )
    at_least = _power_law(node_count, edge_count, largest_degree)
    left = edge_count - int(at_least.sum())
    for degree in range(largest_degree):
        if not left:
            break
        added = min(left, node_count - int(at_least[degree]))
        at_least[degree] += added
        left -= added
    return _steps(at_least, node_count)


def _power_law(node_count: int, edge_count: int, largest_degree: int) -> NDArray[np.int64]:
    """Return the number of nodes with at least 1, 2, ... ``largest_degree`` edges."""
    ratio = largest_degree / (np.arange(largest_degree) + 0.5)
    squares = [ratio]
    with np.errstate(over="ignore"):
        for _ in range(_EXPONENT_LIMIT - 1):
            squares.append(squares[-1] * squares[-1])
    root, power = ratio, np.ones_like(ratio)
    for _ in range(_EXPONENT_LIMIT + _EXPONENT_BITS):
        if squares:
            factor = squares.pop()
        else:
            factor = root = np.sqrt(root)
        with np.errstate(over="ignore"):
            larger = power * factor
        if np.minimum(larger, node_count).astype(np.int64).sum() <= edge_count:
            power = larger
    return np.minimum(power, node_count).astype(np.int64)


def _steps(at_least: NDArray[np.int64], node_count: int) -> DegreeSteps:
    ends = np.concatenate([[node_count], at_least])  # of the ranks with degrees 0, 1, ...
    starts = np.append(at_least, 0)
    degrees = np.flatnonzero(starts < ends)[::-1]
    ranks = np.append(starts[degrees], node_count)
    edges = np.concatenate([[0], np.cumsum(np.diff(ranks) * degrees)])
    return DegreeSteps(ranks.astype(np.uint64), edges.astype(np.uint64), degrees.astype(np.uint32))


def derived_seed(seed: int, purpose: int, number: int) -> int:
    """Return a seed of 64 bits for one purpose: ``wl_draw`` of ``wl_draw``."""
    return draw_number(draw_number(seed & _WORD, purpose), number)


def draw_number(seed: int, number: int) -> int:
    """Return output ``number`` of splitmix64 from the state ``seed``, as ``wl_draw``."""
    x = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return x ^ x >> 31


class SyntheticGraph:
    """The graph of a shape and a seed; nothing of it is stored. Safe for several threads."""

    def __init__(self, shape: GraphShape, seed: int) -> None:
        self.shape = shape
        self._library = library.load()
        self._kept: list[NDArray[Any]] = []
        types = range(len(shape.node_types))
        self._node_seeds = [derived_seed(seed, _NODES, each) for each in types]
        relations = shape.relations
        self._edge_seeds = [derived_seed(seed, _EDGES, each) for each in range(len(relations))]
        self._feature_seed = derived_seed(seed, _FEATURES, 0)
        counts = [each.count for each in shape.node_types]
        self._steps = [
            self._struct(counts[each.destination], each.edge_count, each.largest_degree)
            for each in relations
        ]
        self._popularity = [
            self._struct(counts[each.source], each.edge_count, each.largest_source_degree)
            for each in relations
        ]

    def degrees(self, relation: int, first_node: int, count: int) -> NDArray[np.uint32]:
        """Return the number of edges into each of ``count`` nodes of the destination type."""
        found = np.empty(count, dtype=np.uint32)
        seed = self._node_seeds[self.shape.relations[relation].destination]
        self._library.wl_graph_degrees(
            ctypes.byref(self._steps[relation]), seed, first_node, count, found.ctypes.data
        )
        return found

    def neighbours(
        self, relation: int, first_edge: int, count: int, *, into: NDArray[np.uint32] | None = None
    ) -> NDArray[np.uint32]:
        """Return the sources of ``count`` edges; a node's edges follow those of the node before."""
        found = np.empty(count, dtype=np.uint32) if into is None else into[:count]
        self._library.wl_graph_neighbours(
            ctypes.byref(self._popularity[relation]),
            self._node_seeds[self.shape.relations[relation].source],
            self._edge_seeds[relation],
            first_edge,
            count,
            found.ctypes.data,
        )
        return found

    def rows(
        self, numbers: NDArray[np.uint64], *, into: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the features of rows by their numbers, shape ``(n, 1024)``."""
        found = np.empty((len(numbers), WIDTH), dtype=np.float32) if into is None else into
        self._of_rows(self._library.wl_graph_rows, numbers, found)
        return found

    def classes(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the class of rows by their numbers, 0 to 18; it shows in their features."""
        found = np.empty(len(numbers), dtype=np.int64)
        self._of_rows(self._library.wl_graph_classes, numbers, found)
        return found

    def wrong_row(
        self, numbers: NDArray[np.uint64], values: NDArray[np.float32], *, every: int = 1
    ) -> int | None:
        """Return the place of the first row with other bits than its number has, ``None`` if none.

        One row in ``every`` is compared. ``values`` are contiguous, a row for each number.
        """
        _require_rows(numbers, values)
        count = len(numbers)
        place = self._library.wl_graph_wrong_row(
            self._feature_seed, numbers.ctypes.data, count, every, values.ctypes.data
        )
        return None if place == count else int(place)

    def _of_rows(
        self, function: Callable[..., Any], numbers: NDArray[np.uint64], found: NDArray[Any]
    ) -> None:
        _require_rows(numbers, found)
        function(self._feature_seed, numbers.ctypes.data, len(numbers), found.ctypes.data)

    def _struct(self, node_count: int, edge_count: int, largest_degree: int) -> ctypes.Structure:
        steps = degree_steps(node_count, edge_count, largest_degree)
        shift = max(edge_count.bit_length() - _GUIDE_BITS, 0)
        buckets = np.arange((edge_count >> shift) + 2, dtype=np.uint64) << np.uint64(shift)
        found = np.searchsorted(steps.first_edges[:-1], buckets, side="right") - 1
        guide = found.astype(np.uint32)
        self._kept += [steps.first_ranks, steps.first_edges, steps.degrees, guide]
        addresses = (each.ctypes.data for each in self._kept[-4:])
        return struct("wl_degree_steps")(*addresses, len(steps.degrees), shift)


def _require_rows(numbers: NDArray[np.uint64], values: NDArray[Any]) -> None:
    """Raise ``ValueError`` for arrays that C can't read as rows and their numbers."""
    is_flat = numbers.flags.c_contiguous and values.flags.c_contiguous
    if numbers.dtype != np.uint64 or not is_flat or len(values) < len(numbers):
        raise ValueError(
            f"row numbers must be contiguous uint64 with a row for each, got {numbers.dtype} of "
            f"shape {numbers.shape} for rows of shape {values.shape}"
        )
