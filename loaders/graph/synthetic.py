"""Synthetic graphs: every degree, neighbour and feature is a function of a seed and a number.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.graph.shapes import WIDTH, GraphShape

VERSION = 1
"""Part of a graph's key: it changes whenever a seed gives other bytes."""

CLASSES = 19
_WORD = (1 << 64) - 1
_EXPONENT_BITS = 16
_EXPONENT_LIMIT = 6
"""Exponents are below 2^6, in steps of 2^-16."""
_GUIDE_BITS = 16
_NODES, _EDGES, _FEATURES, SAMPLES = range(4)
"""What a seed is derived for; samples are those that ``files`` compares."""


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
