"""Drawn vectors, a Gaussian mixture in few dimensions with noise in all; and metrics as l2.

z = centre + N(0, I) in ``latent_dim`` dimensions, with centres of ``separation`` x N(0, I);
x = z A + ``noise`` x N(0, I) / sqrt(dim), where A is N(0, 1) / sqrt(dim). Bytes are 32 of x's
standard deviations, + 128. A block follows from the settings, the seed and its number alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.loaders.vectors.layout import VectorType
from wattload.results.vector_search.facts import Metric
from wattload.workloads.vector_search.config import Config

VERSION = 1
BLOCK = 4096
VECTORS, QUERIES, _SHAPE, _PLANTED = range(4)

Array = NDArray[Any]


def mixture(config: Config, seed: int, count: int, part: int = VECTORS) -> Iterator[Array]:
    """Yield ``count`` vectors by blocks; those of ``QUERIES`` are others than ``VECTORS``."""
    scale, latent = np.float32(1 / math.sqrt(config.dim)), config.latent_dim
    draw = _generator(seed, _SHAPE)
    rows = draw.standard_normal((latent, config.dim), np.float32) * scale
    centres = draw.standard_normal((config.clusters, latent), np.float32)
    centres *= np.float32(config.separation)
    variance = (latent * (1 + config.separation**2) + config.noise**2) / config.dim
    for first in range(0, count, BLOCK):
        draw = _generator(seed, part, first // BLOCK)
        z = centres[draw.integers(0, config.clusters, BLOCK)]
        z += draw.standard_normal(z.shape, np.float32)
        found = draw.standard_normal((BLOCK, config.dim), np.float32)
        found *= np.float32(config.noise) * scale
        for row, column in zip(rows, z.T, strict=True):  # BLAS would sum in an order of the CPU's
            found += column[:, np.newaxis] * row
        is_bytes = config.dtype is VectorType.u8
        block = _bytes(found / math.sqrt(variance) * 32 + 128) if is_bytes else found
        yield block[: count - first]


def planted(vectors: Array, share: float, seed: int) -> Array:
    """Return vectors with noise of ``share`` of their length, in the same type."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    noise = _generator(seed, _PLANTED).standard_normal(vectors.shape)
    found = vectors + noise * lengths * (share / math.sqrt(vectors.shape[1]))
    return _bytes(found) if vectors.dtype == np.uint8 else found.astype(np.float32)


def prepared(vectors: Array, metric: Metric, longest: float | None, first: int = 0) -> Array:
    """Return vectors, or without ``longest`` queries, among which l2 finds what is near.

    cosine normalises. ip divides vectors by the length of the ``longest`` one and adds a number
    that makes each of length 1; queries are normalised and get a 0. ``first`` is the first number.

    Raises:
        DataError: a vector of length 0 has no direction.
    """
    if metric is Metric.l2:
        return vectors
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if metric is Metric.ip and longest is not None:
        rest = np.sqrt(np.maximum(1 - (lengths / longest) ** 2, 0))
        return np.hstack([vectors / longest, rest]).astype(np.float32)
    for row in np.flatnonzero(lengths == 0)[:1].tolist():
        raise DataError(
            f"{'query' if longest is None else 'vector'} {first + row} has length 0, and so no "
            f"direction for workload.metric={metric.value}; remove it, or set workload.metric=l2"
        )
    added = np.zeros((len(vectors), int(metric is Metric.ip)))
    return np.hstack([vectors / lengths, added]).astype(np.float32)


def _generator(seed: int, *place: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *place])))


def _bytes(numbers: Array) -> Array:
    return np.clip(np.rint(numbers), 0, 255).astype(np.uint8)
