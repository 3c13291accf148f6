"""Seeds of training batches, and batches of neighbours that are sampled in C.

``wl_sampler_open`` of the engine's header defines these batches. The definition is in integers and
counts on nothing but the seed and the number of the batch, so any number of threads, and any other
implementation, gives the same lists.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, c_uint32, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, constants, setup_of
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.synthetic import GraphShape, derived_seed

FANOUT_LIMIT = constants()["WL_FANOUT_LIMIT"]
THREAD_LIMIT = constants()["WL_SAMPLER_THREADS"]
_LISTS = POINTER(c_uint32)
_MEMBERS, _EPOCHS = 16, 17
"""What a seed is derived for; SyntheticGraph has the numbers below."""
_CHUNK = 1 << 20
_DIGIT_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class SampledEdges:
    """The drawn edges of one relation in one layer.

    Those into destination i are ``sources[offsets[i] : offsets[i + 1]]``. Sources and destinations
    are places in the batch's nodes of their types. Both are arrays of uint32, or tensors of int32
    on the sampler's device.
    """

    offsets: Any
    sources: Any


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One batch: ``nodes`` by type, the seeds first, and ``layers``, that of the seeds first.

    The edges of layer l, by relation, lead from the first ``counts[l + 1][type]`` nodes of their
    source type to the first ``counts[l][type]`` of their destination type. Nodes are arrays or
    tensors as those of edges.
    """

    nodes: tuple[Any, ...]
    counts: tuple[tuple[int, ...], ...]
    layers: tuple[tuple[SampledEdges, ...], ...]

    @property
    def row_count(self) -> int:
        """The nodes of all types: each needs its row of features."""
        return sum(self.counts[-1])

    def rows(self, shape: GraphShape) -> NDArray[np.uint64]:
        """Return the rows of all nodes in host memory, one type after the other."""
        found = np.empty(self.row_count, dtype=np.uint64)
        start = 0
        for number, nodes in enumerate(self.nodes):
            end = start + len(nodes)
            np.add(nodes, np.uint64(shape.first_row(number)), out=found[start:end])
            start = end
        return found


class BatchSampler(Protocol):
    """Draws batches; used by one thread at a time."""

    def draw(self, batch: int, seeds: NDArray[np.uint32]) -> Batch:
        """Return the batch of this number, which starts with ``seeds``, nodes of the first type."""
        ...

    def close(self) -> None:
        """Release threads and memory; safe to call twice."""
        ...


@runtime_checkable
class SamplingLoaderConfig(Protocol):
    """The configuration of a loader that samples by itself: its batches are its own."""

    @property
    def name(self) -> str:
        """The name of the loader, and of its sampler."""
        ...

    def batch_sampler(
        self, topology: Topology, fanouts: Sequence[Sequence[int]], *, threads: int, seed: int
    ) -> BatchSampler:
        """Return the sampler of a graph; the arguments are those of ``Sampler``."""
        ...


def check_fanouts(shape: GraphShape, fanouts: Sequence[Sequence[int]]) -> None:
    """Raise ``ConfigError`` unless each layer has a possible fan-out for each relation."""
    if not fanouts:
        raise ConfigError("a sampler needs a layer of fan-outs, got none")
    for layer in fanouts:
        if len(layer) != len(shape.relations):
            raise ConfigError(
                f"{shape.name} has {len(shape.relations)} relations, got fan-outs for {len(layer)}"
            )
        for fanout in layer:
            if not 0 <= fanout <= FANOUT_LIMIT:
                raise ConfigError(f"a fan-out must be 0 to {FANOUT_LIMIT}, got {fanout}")


def largest_counts(
    shape: GraphShape, fanouts: Sequence[Sequence[int]], seed_count: int
) -> tuple[tuple[int, ...], ...]:
    """Return the most nodes that a batch can have, by layer and type as ``Batch.counts``.

    Each node draws all of its fan-outs, and all that are drawn are new, until a type has no more.
    """
    counts = [[0] * len(shape.node_types)]
    counts[0][0] = seed_count
    for layer in reversed(fanouts):
        found = list(counts[-1])
        for relation, fanout in zip(shape.relations, layer, strict=True):
            edges = min(counts[-1][relation.destination] * fanout, relation.edge_count)
            found[relation.source] += edges
        counts.append(
            [min(each, of.count) for each, of in zip(found, shape.node_types, strict=True)]
        )
    return tuple(map(tuple, counts))


class Sampler:
    """Draws batches of a graph in memory by ``threads`` threads; ``close`` ends them."""

    def __init__(
        self, topology: Topology, fanouts: Sequence[Sequence[int]], *, threads: int, seed: int
    ) -> None:
        """Start the threads.

        ``fanouts`` has a list per layer with a number per relation, in the order of the shape's
        relations. As in DGL, the seeds draw the last one.

        Raises:
            ConfigError: the fan-outs do not fit the graph, or a number is out of range.
            OSError: the host refuses a thread or memory.
        """
        shape = topology.shape
        check_fanouts(shape, fanouts)
        if not 1 <= threads <= THREAD_LIMIT:
            raise ConfigError(f"a sampler has 1 to {THREAD_LIMIT} threads, got {threads}")
        self._topology = topology
        self._layer_count = len(fanouts)
        self._library = library.load()
        flat = np.array([each for layer in reversed(fanouts) for each in layer], dtype=np.uint32)
        node_counts = np.array([each.count for each in shape.node_types], dtype=np.uint64)
        setup = setup_of(
            "wl_sampler_setup",
            threads=threads,
            type_count=len(shape.node_types),
            relation_count=len(shape.relations),
            layer_count=len(fanouts),
            seed=seed & (1 << 64) - 1,
            node_counts=node_counts.ctypes.data,
            relations=array_of(
                "wl_relation",
                (
                    (each.source, each.destination, indptr.ctypes.data, indices.ctypes.data)
                    for each, indptr, indices in zip(
                        shape.relations, topology.indptr, topology.indices, strict=True
                    )
                ),
            ),
            fanouts=flat.ctypes.data,
        )
        self._handle = library.open_handle("wl_sampler_open", setup)
        # The threads read the topology, which the arguments keep in memory until they have ended.
        self._end = weakref.finalize(self, _close, self._library, self._handle, topology)

    def draw(self, batch: int, seeds: NDArray[np.uint32]) -> Batch:
        """Return the batch of this number, which starts with ``seeds``, nodes of the first type.

        Raises:
            ConfigError: a seed is no node, or is given twice.
            OSError: the memory is too small.
            RuntimeError: the sampler is closed.
        """
        if not self._end.alive:
            raise RuntimeError("the sampler is closed")
        seeds = np.ascontiguousarray(seeds, dtype=np.uint32)
        library.invoke("wl_sampler_draw", self._handle, batch, seeds.ctypes.data, len(seeds))
        return self._read()

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._end()

    def _read(self) -> Batch:
        shape = self._topology.shape
        nodes, by_type = [], []
        for number in range(len(shape.node_types)):
            counts = _LISTS()
            found = self._library.wl_sampler_nodes(self._handle, number, ctypes.byref(counts))
            by_type.append(counts[: self._layer_count + 1])
            nodes.append(_copy(found, by_type[-1][-1]))
        layers = tuple(
            tuple(
                self._edges(layer, number, by_type[each.destination][layer])
                for number, each in enumerate(shape.relations)
            )
            for layer in range(self._layer_count)
        )
        return Batch(tuple(nodes), tuple(zip(*by_type, strict=True)), layers)

    def _edges(self, layer: int, relation: int, destinations: int) -> SampledEdges:
        found = _LISTS()
        sources = self._library.wl_sampler_edges(self._handle, layer, relation, ctypes.byref(found))
        offsets = _copy(found, destinations + 1)
        return SampledEdges(offsets, _copy(sources, int(offsets[-1])))


def _close(found: ctypes.CDLL, handle: c_void_p, _: Topology) -> None:
    found.wl_sampler_close(handle)


def _copy(numbers: Any, count: int) -> NDArray[np.uint32]:  # noqa: ANN401 - a pointer of ctypes
    if not count:
        return np.empty(0, dtype=np.uint32)
    return np.ctypeslib.as_array(numbers, shape=(count,)).copy()


class TrainingSeeds:
    """Which nodes of the first type are trained on, and in which order; nothing is stored.

    ``share`` of the nodes, rounded down, are training nodes: the first ones of a permutation of all
    nodes. Each epoch takes them in the order of another permutation. What is left at the end of an
    epoch and fills no batch is not trained on in that epoch.
    """

    def __init__(self, node_count: int, share: float, seed: int) -> None:
        """Choose ``int(share * node_count)`` nodes.

        Raises:
            ConfigError: the share is not above 0 and at most 1, or gives no node.
        """
        if not 0 < share <= 1:
            raise ConfigError(f"the share of training nodes must be above 0 to 1, got {share}")
        self.count = int(share * node_count)
        if not self.count:
            raise ConfigError(
                f"a share of {share} of {node_count} nodes leaves none to train on; the least is "
                f"{1 / node_count:.3g}"
            )
        self._node_count = node_count
        self._members = derived_seed(seed, _MEMBERS, 0)
        self._epochs = derived_seed(seed, _EPOCHS, 0)

    def steps_per_epoch(self, size: int) -> int:
        """Return the whole batches of ``size`` seeds in an epoch.

        Raises:
            ConfigError: there are fewer training nodes than one batch needs.
        """
        if not 1 <= size <= self.count:
            raise ConfigError(
                f"a batch must have 1 to {self.count} seeds, as there are {self.count} training "
                f"nodes, got {size}"
            )
        return self.count // size

    def batch(self, number: int, size: int) -> NDArray[np.uint32]:
        """Return the seeds of batch ``number`` of all epochs, counted from 0.

        Raises:
            ConfigError: there are fewer training nodes than one batch needs.
        """
        epoch, step = divmod(number, self.steps_per_epoch(size))
        numbers = np.arange(step * size, (step + 1) * size, dtype=np.uint64)
        _permute(derived_seed(self._epochs, epoch, 0), self.count, numbers)
        _permute(self._members, self._node_count, numbers)
        return numbers.astype(np.uint32)


def _permute(seed: int, count: int, numbers: NDArray[np.uint64]) -> None:
    """Replace numbers below ``count`` by those that a permutation takes them to."""
    library.load().wl_graph_permute(seed, count, numbers.ctypes.data, len(numbers))


def most_drawn(
    topology: Topology, fanouts: Sequence[Sequence[int]], count: int, *, threads: int = 1
) -> NDArray[np.uint64]:
    """Return the rows that batches draw most often, at most ``count``, in falling order.

    The score of a node is how many edges would be drawn from it if every node of the graph drew
    once: the sum over its edges of ``min(1, fan-out / degree of the destination)``, over all
    relations. The fan-outs are those of the layer that draws last and from most nodes, the first of
    ``fanouts``. This is one step of reverse propagation: that some destinations are in more batches
    than others is left out. Scores are kept as multiples of 2^-32 rounded down, so that any number
    of threads gives the same. Equal ones are ordered by row.

    It reads all edges once, and takes 8 bytes a row besides the result and its ordering.
    """
    scores = _scores(topology, fanouts[0], threads)
    count = min(count, len(scores))
    if not count:
        return np.empty(0, dtype=np.uint64)
    rows = _largest(scores, count)
    order = np.argsort(~scores[rows], kind="stable")
    return rows[order].astype(np.uint64)


def _scores(topology: Topology, fanouts: Sequence[int], threads: int) -> NDArray[np.uint64]:
    """Return the score of each row in multiples of 2^-32."""
    shape = topology.shape
    scores = np.zeros(shape.row_count, dtype=np.uint64)
    with ThreadPoolExecutor(threads) as pool:
        for relation, indptr, indices, fanout in zip(
            shape.relations, topology.indptr, topology.indices, fanouts, strict=True
        ):
            # Slices of about equal edges, so that popular nodes do not make one thread late.
            edges = np.linspace(0, relation.edge_count, threads + 1)[1:-1].astype(np.uint64)
            ends = [0, *np.searchsorted(indptr, edges).tolist(), len(indptr) - 1]
            into = scores[shape.first_row(relation.source) :].ctypes.data
            add = partial(
                library.load().wl_graph_scores,
                indptr.ctypes.data,
                indices.ctypes.data,
                fanout,
                into,
            )
            list(pool.map(add, ends[:-1], ends[1:]))
    return scores


def _largest(scores: NDArray[np.uint64], count: int) -> NDArray[np.intp]:
    """Return the rows of the ``count`` largest scores in rising order, the first of equals."""
    threshold, above = _threshold(scores, count)
    found, equal_left = [], count - above
    for start, chunk in _chunks(scores):
        chosen = chunk > threshold
        if equal_left:
            equal = np.flatnonzero(chunk == threshold)[:equal_left]
            chosen[equal] = True
            equal_left -= len(equal)
        found.append(np.flatnonzero(chosen) + start)
    return np.concatenate(found)


def _threshold(scores: NDArray[np.uint64], count: int) -> tuple[np.uint64, int]:
    """Return the ``count``-th largest score and how many are larger, digit by digit."""
    prefix, above = 0, 0
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        bins = np.zeros(1 << _DIGIT_BITS, dtype=np.int64)
        for _, chunk in _chunks(scores):
            digits = chunk >> np.uint64(shift)
            if shift + _DIGIT_BITS < 64:  # noqa: PLR2004 - bits of a score
                digits = digits[digits >> np.uint64(_DIGIT_BITS) == prefix]
            bins += np.bincount(
                (digits & np.uint64((1 << _DIGIT_BITS) - 1)).astype(np.intp), minlength=len(bins)
            )
        from_top = np.cumsum(bins[::-1])
        place = int(np.searchsorted(from_top, count - above))
        above += int(from_top[place - 1]) if place else 0
        prefix = prefix << _DIGIT_BITS | (len(bins) - 1 - place)
    return np.uint64(prefix), above


def _chunks(scores: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    for start in range(0, len(scores), _CHUNK):
        yield start, scores[start : start + _CHUNK]
