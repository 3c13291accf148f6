"""The numbers of categorical ids, column by column: those of torchrec's ``sparse_to_contiguous``.

An id that appears at least ``threshold`` times in a column gets the next number, from 2 on, in the
order of first appearance; all others get 1. An empty field is id 0 there, and counted as one.

A column is read twice: to count its ids, and to number them. The table of ids has a fixed size. Ids
that appear when it is full are spilled, in their order, and numbered after it in the same way, so
that neither memory nor workers change any number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.io import Extent
from wattload.loaders.converters import FIRST_NUMBER, RARE_NUMBER, NumberedColumn
from wattload.loaders.data.criteo_day_files import Bytes, Moved, Span
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.native.direct_files import FileSink, Machine, divided, new_files

ID_BYTES = 4
STEP_BYTES = 4 << 20
"""Ids read at a time."""
Ids = NDArray[np.uint32]
Numbers = NDArray[np.int32]


def number_column(
    machine: Machine,
    sources: Sequence[Path],
    targets: Sequence[Path],
    spills: Sequence[Path],
    *,
    threshold: int,
    table_limit: int,
    moved: Moved,
) -> NumberedColumn:
    """Write the numbers of the ids in ``sources``, uint32 in the order of the rows.

    They become one file per source, of the smallest type that NVIDIA's ``split_dataset.py`` takes
    for the column. Two of ``spills`` are used whenever a table is full.

    Raises:
        DataError: the ids need more spills, or larger ones than the column.
        OSError: the target is full or failed.
    """
    row_count = sum(path.stat().st_size for path in sources) // ID_BYTES
    table = _Table(max(min(row_count, table_limit), 1))
    column = _Column(
        machine, table, spills, row_count, name=str(sources[0]), threshold=threshold, moved=moved
    )
    column.number(sources, targets, FIRST_NUMBER)
    return NumberedColumn(
        known_count=column.known_count,
        rare_count=column.rare_count,
        spilled_bytes=column.spilled_bytes,
        read=tuple(tuple(column.read.get(path, ())) for path in sources),
        written=tuple(column.written[path] for path in targets),
    )


def number_type(size: int) -> np.dtype[np.signedinteger]:
    """Return the type of numbers below ``size``, as NVIDIA's ``get_categorical_feature_type``."""
    kinds = (np.dtype("<i1"), np.dtype("<i2"), np.dtype("<i4"))
    return next(kind for kind in kinds if size < np.iinfo(kind).max)


class _Table:
    """Ids in the order of their first appearance, with their counts."""

    def __init__(self, limit: int) -> None:
        self._library = library.load()
        self._slots = np.zeros(limit * 4 // 3 + 1, np.uint32)
        self._ids, self._counts = np.empty(limit, np.uint32), np.empty(limit, np.uint32)
        self._left = np.empty(STEP_BYTES // ID_BYTES, np.uint32)
        self._numbered = np.empty(STEP_BYTES // ID_BYTES, np.int32)
        self._table = struct("wl_id_table")(
            slots=self._slots.ctypes.data,
            ids=self._ids.ctypes.data,
            counts=self._counts.ctypes.data,
            slot_count=self._slots.size,
            limit=limit,
        )

    def clear(self) -> None:
        self._slots[:] = 0
        self._table.used = 0

    def count(self, ids: Ids) -> Ids:
        """Count ids and return those that there is no room for."""
        left_count = self._library.wl_ids_count(
            ctypes.byref(self._table), ids.ctypes.data, ids.size, self._left.ctypes.data
        )
        return self._left[:left_count]

    def end_count(self, threshold: int, first: int) -> tuple[int, int]:
        """Replace the counts by numbers from ``first`` on; return how many are known and rare."""
        counts = self._counts[: self._table.used]
        is_known = counts >= threshold
        numbers = counts.view(np.int32)
        np.cumsum(is_known, dtype=np.int32, out=numbers)
        known_count = int(numbers[-1]) if numbers.size else 0
        numbers += first - 1
        numbers[~is_known] = RARE_NUMBER
        return known_count, numbers.size - known_count

    def number(self, ids: Ids, left_numbers: Numbers) -> Numbers:
        """Return the numbers of counted ids; those that were left take ``left_numbers``."""
        numbered = self._numbered[: ids.size]
        self._library.wl_ids_number(
            ctypes.byref(self._table),
            self._counts.ctypes.data,
            left_numbers.ctypes.data,
            ids.ctypes.data,
            ids.size,
            numbered.ctypes.data,
        )
        return numbered


class _Column:
    """Numbers one column, level by level: the ids that a full table left are the next level's."""

    def __init__(
        self,
        machine: Machine,
        table: _Table,
        spills: Sequence[Path],
        row_count: int,
        *,
        name: str,
        threshold: int,
        moved: Moved,
    ) -> None:
        self._machine = machine
        self._table = table
        self._spills = iter(spills)
        self._row_count = row_count
        self._name = name
        self._threshold = threshold
        self._moved = moved
        self.known_count = self.rare_count = self.spilled_bytes = 0
        self.read: dict[Path, list[Span]] = {}
        self.written: dict[Path, Span] = {}

    def number(
        self, sources: Sequence[Path], targets: Sequence[Path], first: int, level: int = 0
    ) -> None:
        """Number the ids of ``sources``, the first of them with ``first``."""
        spills = list(islice(self._spills, 2))
        left_counts = self._count(sources, spills[:1])
        known_count, rare_count = self._table.end_count(self._threshold, first)
        self.known_count += known_count
        self.rare_count += rare_count
        if any(left_counts):
            self._require_room(sum(left_counts) * ID_BYTES, spills)
            self._table.clear()
            self.number(spills[:1], spills[1:], first + known_count, level + 1)
            self._table.clear()
            self._count(sources, ())  # again: memory has room for one table
            self._table.end_count(self._threshold, first)
        kind = np.dtype("<i4") if level else number_type(FIRST_NUMBER + self.known_count)
        self._write(sources, targets, left_counts, spills[1:], kind)

    def _require_room(self, left_bytes: int, spills: Sequence[Path]) -> None:
        """Raise ``DataError`` if there are more ids than the spills, or their space, are for."""
        self.spilled_bytes += left_bytes
        if not spills or self.spilled_bytes > self._row_count * ID_BYTES:
            raise DataError(
                f"{self._name} and the other files of its column have too many different ids to "
                "be numbered in this memory; set a higher workload.worker_memory_bytes"
            )

    def _count(self, sources: Sequence[Path], spills: Sequence[Path]) -> list[int]:
        """Count the ids of files; return how many the table left of each step of them.

        They are written to the first of ``spills``, if there is one.
        """
        left_counts = []
        with ExitStack() as opened:
            sinks: list[FileSink] = []
            if spills:
                sinks = opened.enter_context(new_files(self._machine, spills, self._moved))
            for memory in self._read(self._steps(sources)):
                left = self._table.count(memory.view("<u4"))
                left_counts.append(left.size)
                for sink in sinks:
                    sink.write(left.view(np.uint8))
        return left_counts

    def _write(
        self,
        sources: Sequence[Path],
        targets: Sequence[Path],
        left_counts: Sequence[int],
        spills: Sequence[Path],
        kind: np.dtype[np.signedinteger],
    ) -> None:
        numbered = self._numbered(sources, left_counts, spills)
        for source, target in zip(sources, targets, strict=True):
            with new_files(self._machine, [target], self._moved) as (sink,):
                for _ in self._steps([source]):
                    sink.write(next(numbered).astype(kind, copy=False).view(np.uint8))
            self.written[target] = sink.span

    def _numbered(
        self, sources: Sequence[Path], left_counts: Sequence[int], spills: Sequence[Path]
    ) -> Iterator[Numbers]:
        extents, taken_bytes = [], 0
        for step, left_count in zip(self._steps(sources), left_counts, strict=True):
            extents.append(step)
            if left_count:
                extents.append(Extent(spills[0], taken_bytes, left_count * ID_BYTES))
                taken_bytes += left_count * ID_BYTES
        found = self._read(extents)
        for left_count in left_counts:
            ids = next(found).view("<u4")
            if left_count:
                ids = ids.copy()  # the read after the next one has its memory
                yield self._table.number(ids, next(found).view("<i4"))
            else:
                yield self._table.number(ids, np.empty(0, np.int32))

    def _steps(self, sources: Sequence[Path]) -> list[Extent]:
        step = min(STEP_BYTES, self._machine.block_bytes // 2)
        return divided([Extent(source, 0, source.stat().st_size) for source in sources], step)

    def _read(self, extents: Sequence[Extent]) -> Iterator[Bytes]:
        """Yield the bytes of extents, and note the checksum of each file from its start on."""
        for extent, found in zip(extents, self._machine.read(extents, self._moved), strict=True):
            spans = self.read.setdefault(extent.path, [])
            last = spans.pop() if extent.offset_bytes else Span(0)
            spans.append(last.followed_by(found))
            yield found
