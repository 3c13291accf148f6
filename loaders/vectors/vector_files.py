"""Files of vectors: the fvecs and bvecs of TEXMEX, and the fbin and u8bin of big-ann-benchmarks.

In the former each vector has its dim as int32 before it, in the latter int32 count and dim are at
the start. All is little-endian.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.loaders.vectors.layout import MAX_NUMBER, VectorType

FORMATS = {
    ".fvecs": (VectorType.f32, True),
    ".bvecs": (VectorType.u8, True),
    ".fbin": (VectorType.f32, False),
    ".u8bin": (VectorType.u8, False),
}
"""By suffix: the type of numbers, and whether each vector has its dim before it."""


class VectorFile:
    """A file of ``count`` vectors of ``dim`` numbers of ``vector_type``.

    Raises:
        DataError: the file is missing, has no vectors, or another size than they need.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.vector_type, self._has_dims = FORMATS[path.suffix]
        if not path.is_file():
            raise DataError(f"{path} does not exist, or is no regular file; name a file of vectors")
        size_bytes, head = path.stat().st_size, np.fromfile(path, "<u4", 2).tolist()
        self.dim = head[not self._has_dims] if len(head) > 1 else 0
        self._start = 0 if self._has_dims else 8
        self._row_bytes = self.dim * self.vector_type.dtype.itemsize + 4 * self._has_dims
        self.count, rest = divmod(size_bytes - self._start, self._row_bytes or 1)
        if rest or not self.dim or not self.count or not (self._has_dims or self.count == head[0]):
            stated = "" if self._has_dims or not head else f"{head[0]} "
            raise DataError(
                f"{path} has {size_bytes} bytes, which are not {stated}vectors of {self.dim} "
                f"{self.vector_type.value}; copy it again, or correct its suffix"
            )

    def read(self, first: int, count: int) -> NDArray[Any]:
        """Return vectors first to before first + count, shape (count, dim).

        Raises:
            DataError: a vector has another dim, NaN or too large a number, or the file is cut.
        """
        offset, size_bytes = self._start + first * self._row_bytes, count * self._row_bytes
        rows = np.fromfile(self.path, np.uint8, size_bytes, offset=offset)
        if rows.size != size_bytes:
            raise DataError(f"{self.path} ends before vector {first + count}; copy it again")
        rows = rows.reshape(count, self._row_bytes)
        if self._has_dims:
            dims = rows[:, :4].copy().view("<u4")[:, 0]
            for row in np.flatnonzero(dims != self.dim)[:1].tolist():
                raise DataError(
                    f"{self.path} has a vector {first + row} of dim {dims[row]} after others of "
                    f"{self.dim}; all must have the same, so copy it again"
                )
            rows = rows[:, 4:]
        vectors = np.ascontiguousarray(rows).view(self.vector_type.dtype)
        for row in np.flatnonzero(~(np.abs(vectors) <= MAX_NUMBER).all(axis=1))[:1].tolist():
            raise DataError(
                f"{self.path} has NaN or a number above {MAX_NUMBER:g} in vector {first + row}; "
                "remove such vectors"
            )
        return vectors
