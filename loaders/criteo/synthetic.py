"""Synthetic day files in the shape of Criteo's: the same columns, gaps, cardinalities and row size.

Each column's values are Zipf-distributed with exponent 1 in its continuous form: value
``floor(exp(u * ln(n + 1)))`` of a uniform ``u`` has rank k with probability
``ln((k + 1) / k) / ln(n + 1)``. The categorical cardinalities ``n`` are those of Criteo 1TB that
pytorch/torchrec's DLRM inference example names; an id is a bijective hash of its rank, so that ids
look like Criteo's and distinct ranks stay distinct. The shares of gaps and the integers' ranges are
round figures in the manner of Criteo's Kaggle set: they give a row its size, some 246 B.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.criteo.schema import CATEGORICALS, COLUMNS, INTEGERS

MEAN_ROW_BYTES = 246

BLOCK_ROWS = 2048
"""Rows made at a time: a block and its temporaries stay within a core's cache."""

CARDINALITIES = (
    45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176, 345138, 10,
    2209, 11267, 128, 4, 974, 14, 48937457, 11316796, 40094537, 452104, 12606, 104, 35,
)  # fmt: skip
INTEGER_RANGES = (100, 5000, 1000, 50, 65000, 5000, 500, 100, 1000, 5, 50, 20, 500)
INTEGER_GAPS = (0.45, 0.0, 0.21, 0.22, 0.03, 0.22, 0.04, 0.0, 0.04, 0.45, 0.04, 0.76, 0.22)
CATEGORICAL_GAPS = (
    0.0, 0.0, 0.03, 0.03, 0.0, 0.12, 0.0, 0.0, 0.0, 0.0, 0.0, 0.03, 0.0,
    0.0, 0.0, 0.03, 0.0, 0.0, 0.44, 0.44, 0.03, 0.76, 0.0, 0.03, 0.44, 0.44,
)  # fmt: skip
LABEL_SHARE = 0.034
NEGATIVE_COLUMN, LOWEST = 1, -2
"""The second integer goes down to -2, as in Criteo's files; all others start at 0."""

_FIELD_BYTES = 9  # up to 8 characters and a tab or line end
_HIGHEST = 65533


def blocks(seed: int, day: int, row_count: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the text of one day file, a block of rows at a time; each block is uint8, shape (n,).

    The same seed and day give the same bytes, whatever made them before.
    """
    generator = np.random.Generator(np.random.SFC64((seed, day)))
    grid = np.empty((BLOCK_ROWS, len(COLUMNS), _FIELD_BYTES), dtype=np.uint8)
    grid[:, :, -1] = ord("\t")
    grid[:, -1, -1] = ord("\n")
    for first in range(0, row_count, BLOCK_ROWS):
        _fill(grid, generator)
        text = grid[: row_count - first].reshape(-1)
        yield text[text != 0]


def _fill(grid: NDArray[np.uint8], generator: np.random.Generator) -> None:
    """Draw one block of rows; a field is its text, padded with zero bytes that are cut later."""
    strides = grid.strides[:2]
    words = np.ndarray(grid.shape[:2], dtype="<u8", buffer=grid.data, strides=strides)
    split = len(INTEGERS)
    shape = (len(grid), split + len(CATEGORICALS))
    ranks = np.exp(generator.random(shape, dtype=np.float32) * _logarithms()).astype(np.int32)
    present = generator.random(shape, dtype=np.float32) < _shares()
    decimals = _decimal_words()
    labels = generator.random(len(grid), dtype=np.float32) < LABEL_SHARE
    words[:, 0] = decimals[labels.astype(np.int64) - LOWEST]
    integers = ranks[:, :split] + _lowest_index()
    words[:, 1 : 1 + split] = decimals.take(integers, mode="clip") * present[:, :split]
    ids = _hash(ranks[:, split:].view(np.uint32))
    hexes = _hex_words().take(ids.view(np.uint16), mode="clip").view("<u8")
    words[:, 1 + split :] = hexes * present[:, split:]


def _hash(ranks: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return a 32-bit id for each rank; per column a bijection, in each a different one."""
    salts = np.arange(ranks.shape[1], dtype=np.uint32) * np.uint32(0x85EBCA6B)
    ids = ranks * np.uint32(0x9E3779B1) + salts
    ids ^= ids >> np.uint32(15)
    ids *= np.uint32(0x2C1B3C6D)
    ids ^= ids >> np.uint32(12)
    return ids


@cache
def _logarithms() -> NDArray[np.float32]:
    sizes = np.array(INTEGER_RANGES + CARDINALITIES, dtype=np.float64)
    return np.log(sizes + 1).astype(np.float32)


@cache
def _shares() -> NDArray[np.float32]:
    return 1 - np.array(INTEGER_GAPS + CATEGORICAL_GAPS, dtype=np.float32)


@cache
def _lowest_index() -> NDArray[np.int32]:
    """Return what turns a rank, from 1, into an index of ``_decimal_words``, from ``LOWEST``."""
    index = np.full(len(INTEGERS), -1 - LOWEST, dtype=np.int32)
    index[NEGATIVE_COLUMN] += LOWEST
    return index


@cache
def _decimal_words() -> NDArray[np.uint64]:
    """Return the texts of ``LOWEST`` to 65533 as little-endian words, padded with zero bytes."""
    texts = (str(value).encode().ljust(8, b"\0") for value in range(LOWEST, _HIGHEST + 1))
    return np.frombuffer(b"".join(texts), dtype="<u8")


@cache
def _hex_words() -> NDArray[np.uint32]:
    """Return the four hex digits of each 16-bit number."""
    return np.frombuffer(b"".join(b"%04x" % value for value in range(1 << 16)), dtype="<u4")
