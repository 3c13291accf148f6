"""Synthetic day files like Criteo's, made in C.

Each column's values are Zipf-distributed with exponent 1 in its continuous form: value ``floor((n +
1) ** u)`` of a uniform ``u`` has rank k with probability ``ln((k + 1) / k) / ln(n + 1)``. The
categorical cardinalities ``n`` are those of Criteo 1TB that pytorch/torchrec's DLRM inference
example names; an id is a bijective hash of its rank, so that ids look like Criteo's and distinct
ranks stay distinct. The shares of gaps and the integers' ranges are round figures in the manner of
Criteo's Kaggle set: they give a row its size, some 246 B.
"""

from __future__ import annotations

import ctypes
import io
import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, constants, struct

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

VERSION = 2
"""Part of a data set's key: it changes whenever a seed gives other bytes."""

MEAN_ROW_BYTES = 246

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

_DRAWS = 1 << 31


class SyntheticDay(io.RawIOBase):
    """One day file as a stream of bytes. The same seed and day always give the same ones.

    Args:
        seed: 0 or more.
        day: 0 or more.
        row_count: the number of lines.
    """

    def __init__(self, seed: int, day: int, row_count: int) -> None:
        lanes = constants()["WL_SYNTHETIC_LANES"]
        states = np.random.SeedSequence((seed, day)).generate_state(4 * lanes)
        self._library = library.load()
        self._integers = _integer_texts()
        self._made = struct("wl_synthetic")(
            columns=_columns(),
            integers=self._integers.ctypes.data,
            row_count=row_count,
            ones=round(LABEL_SHARE * _DRAWS),
        )
        ctypes.memmove(self._made.streams, states.ctypes.data, states.nbytes)

    def readable(self) -> bool:
        """Return ``True``."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer and return the number of bytes, less than its size only at the end."""
        memory = np.frombuffer(memoryview(buffer), np.uint8)
        return int(
            self._library.wl_synthetic_read(
                ctypes.byref(self._made), memory.ctypes.data, memory.size
            )
        )


def _columns() -> ctypes.Array[ctypes.Structure]:
    count = len(INTEGER_RANGES)
    columns = []
    for place, (most, share) in enumerate(
        zip(INTEGER_RANGES + CARDINALITIES, INTEGER_GAPS + CATEGORICAL_GAPS, strict=True)
    ):
        gap = round(share * _DRAWS)
        # Rank 1 is the lowest value; text 0 is the empty one, and text 1 that of LOWEST.
        first = -LOWEST if place < count and place != NEGATIVE_COLUMN else 0
        octaves = math.log2(most + 1) / (_DRAWS - gap)
        columns.append((gap, most, first, octaves))
    return array_of("wl_synthetic_column", columns)


@cache
def _integer_texts() -> NDArray[np.uint64]:
    """Return a tab, then the texts of ``LOWEST`` and of what follows it, each with a tab."""
    values = range(LOWEST, max(INTEGER_RANGES))
    texts = ("\t", *(f"{value}\t" for value in values))
    return np.frombuffer(b"".join(text.encode().ljust(8, b"\0") for text in texts), "<u8")
