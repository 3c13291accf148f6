"""The seeds of training batches, and the rows that batches draw most often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.engine import library
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.synthetic import derived_seed

_MEMBERS, _EPOCHS = 16, 17
"""What a seed is derived for; SyntheticGraph has the numbers below."""
_CHUNK = 1 << 20
_DIGIT_BITS = 16


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
