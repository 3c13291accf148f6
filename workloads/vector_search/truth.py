"""The true nearest vectors, and how hard they are to find: by brute force over stored vectors.

A product of matrices in float32 excludes vectors that are too far by more than its error. The
distances to the others are computed in float64, exactly for bytes, by the one function that also
judges answers: equal vectors have equal distances.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.vectors.build import Quantizer, code_distances, distance_tables
from wattload.loaders.vectors.native_search import NO_NODE

NEIGHBOURS = 100
"""Neighbours whose distances give the intrinsic dimension."""
TILE = 8192
QUERIES = 1024
PAIRS = 4096
_EPSILON = 2.0**-24

Array = NDArray[Any]


def nearest(queries: Array, blocks: Iterable[Array], k: int) -> NDArray[np.float64]:
    """Return the distances to the ``k`` nearest vectors of all blocks, rising, (queries, k).

    There must be ``k`` vectors or more.
    """
    best = np.full((len(queries), k), np.inf)
    centre: Array | None = None
    for block in blocks:
        if centre is None:
            centre = block.mean(axis=0, dtype=np.float64)
            lengths = np.linalg.norm(queries - centre, axis=1)
            left = np.column_stack([queries - centre, np.ones(len(queries))]).astype(np.float32)
        for start in range(0, len(block), TILE):
            tile = block[start : start + TILE]
            halves = np.square(tile - centre).sum(axis=1) / 2
            right = np.column_stack([tile - centre, -halves]).astype(np.float32).T
            for part in range(0, len(queries), QUERIES):
                rows = slice(part, part + QUERIES)
                # query . vector - vector^2 / 2: the larger, the nearer.
                scores = left[rows] @ right
                sums = np.square(lengths[rows] + np.sqrt(2 * halves.max()))
                slack = 2 * (queries.shape[1] + 8) * _EPSILON * sums
                least = (np.square(lengths[rows]) - np.square(best[rows, -1])) / 2 - slack
                if not np.isfinite(least).all() and len(tile) > k:
                    least = np.partition(scores, -k, axis=1)[:, -k] - 2 * slack
                found = np.flatnonzero(scores >= least[:, np.newaxis].astype(np.float32))
                pairs = divmod(found, len(tile))
                apart = distances(queries[rows], tile, *pairs)
                _merge(best[rows], pairs[0], apart)
    return best


def distances(queries: Array, vectors: Array, rows: Array, columns: Array) -> Array:
    """Return the distances of pairs of queries (by ``rows``) and vectors (by ``columns``)."""
    found = np.empty(len(rows))
    for start in range(0, len(rows), PAIRS):
        some = slice(start, start + PAIRS)
        apart = queries[rows[some]].astype(np.float64) - vectors[columns[some]]
        found[some] = np.sqrt(np.square(apart, out=apart).sum(axis=1))
    return found


def hits(
    answers: Array, vectors_of: Callable[[Array], Array], queries: Array, kth: Array
) -> NDArray[np.int64]:
    """Return of each query how many distinct answers are no farther than its k-th nearest vector.

    ``answers`` (queries, k) are ids, or ``NO_NODE``; ``kth`` are distances of ``nearest``.
    """
    found = np.zeros(len(answers), np.int64)
    for part in range(0, len(answers), QUERIES):
        some = slice(part, part + QUERIES)
        ids = np.sort(answers[some], axis=1)
        is_new = np.diff(ids, axis=1, prepend=NO_NODE).astype(bool) & (ids != NO_NODE)
        rows = np.nonzero(is_new)[0]
        apart = distances(queries[some], vectors_of(ids[is_new]), rows, np.arange(len(rows)))
        found[some] = np.bincount(rows[apart <= kth[some][rows]], minlength=len(ids))
    return found


def code_order(
    queries: Array, quantizer: Quantizer, codes: NDArray[np.uint8], k: int, threads: int
) -> NDArray[np.uint32]:
    """Return the ids of each query's ``k`` nearest vectors by the distances of codes."""

    def first(table: Array) -> Array:
        # Copied: a view would keep the order of all vectors in memory.
        return np.argpartition(code_distances(table, codes), k - 1)[:k].copy()

    found: list[Array] = []
    with ThreadPoolExecutor(threads) as pool:
        for part in range(0, len(queries), QUERIES):
            some = queries[part : part + QUERIES].astype(np.float32)
            found += pool.map(first, distance_tables(some, quantizer))
    return np.array(found, np.uint32)


def intrinsic_dimension(apart: NDArray[np.float64]) -> float | None:
    """Return the mean over queries of 1 / mean(log(d_n / d_i)), for distances (queries, n).

    Queries with a distance of 0, or equal ones only, have none: ``None`` if all are such.
    """
    apart = apart[(apart[:, 0] > 0) & (apart[:, 0] < apart[:, -1])]
    logarithms = np.log(apart[:, -1:] / apart[:, :-1]).mean(axis=1)
    return float(np.mean(1 / logarithms)) if len(apart) else None


def digest(queries: Array, kth: NDArray[np.float64]) -> str:
    return hashlib.sha256(queries.tobytes() + kth.astype("<f8").tobytes()).hexdigest()


def _merge(best: Array, rows: Array, apart: Array) -> None:
    """Put new distances, by rising row, among the best ones of their rows."""
    touched, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    added = np.full((len(touched), counts.max(initial=0)), np.inf)
    lines = np.repeat(np.arange(len(touched)), counts)
    added[lines, np.arange(len(rows)) - starts[lines]] = apart
    every = np.sort(np.hstack([best[touched], added]), axis=1)
    best[touched] = every[:, : best.shape[1]]
