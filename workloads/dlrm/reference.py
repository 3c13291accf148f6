"""A reference conversion in plain Python, which shares no code with the one that is timed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.data.criteo_day_files import (
    CATEGORICALS,
    COLUMNS,
    ID_MODULUS,
)


@dataclass(frozen=True, slots=True)
class ReferenceRows:
    """Rows as Parquet must hold them, by column, and as packed int32, shape (rows, columns)."""

    columns: dict[str, list[int | str | None]]
    packed: NDArray[np.int32]


def reference_rows(text: bytes) -> ReferenceRows:
    """Convert whole lines of TSV.

    Raises:
        ValueError: a line is not a Criteo row.
    """
    lines = text.removesuffix(b"\n").split(b"\n")
    fields = [line.removesuffix(b"\r").decode("ascii").split("\t") for line in lines]
    if any(len(row) != len(COLUMNS) for row in fields):
        raise ValueError(f"a line does not have {len(COLUMNS)} columns")
    columns: dict[str, list[int | str | None]] = {}
    packed = np.empty((len(fields), len(COLUMNS)), dtype="<i4")
    for place, (name, texts) in enumerate(zip(COLUMNS, zip(*fields, strict=True), strict=True)):
        if name in CATEGORICALS:
            columns[name] = [text or None for text in texts]
            packed[:, place] = [int(text, 16) % ID_MODULUS if text else 0 for text in texts]
        else:
            numbers = [int(text) if text else None for text in texts]
            columns[name] = list(numbers)
            packed[:, place] = [max(number or 0, 0) for number in numbers]
    return ReferenceRows(columns, packed)
