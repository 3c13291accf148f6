"""A sample of single operations, spread evenly over all of a loader's operations."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import TRACE_DTYPE, Extent, IOKind, TracedFile, TracedOperations

ROWS_LIMIT = 1 << 16
"""The highest limit that a log accepts."""

_PLAN_ROWS = 1 << 10
"""About how many operations of one plan the engine traces, to keep some of them."""


@dataclass(frozen=True, slots=True)
class OperationRange:
    """The operations of one plan: the number of the first, and which are traced.

    ``trace_every`` goes into the plan; ``None`` means no trace.
    """

    first: int
    trace_every: int | None


class OperationLog:
    """Keeps at most ``limit`` operations of one kind: every first, second, fourth, eighth...

    Operations are numbered over all plans. When plans have more than ``limit``, every second kept
    operation is dropped. The sample is thus spread evenly over all of them, and the same operations
    are kept each time. Each plan reads or writes files from their start, in order.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._step = 1
        self._count = 0
        self._files: dict[Path, int] = {}
        self._sizes: list[int] = []
        self._numbers = np.empty(0, dtype=np.uint64)
        self._rows = np.empty(0, dtype=TRACE_DTYPE)
        self._lock = threading.Lock()

    def begin(self, operation_count: int) -> OperationRange:
        """Return the numbers of a plan with that many operations, before it runs."""
        if not self._limit:
            return OperationRange(0, None)
        with self._lock:
            first = self._count
            self._count += operation_count
            while -(-self._count // self._step) > self._limit:
                self._thin()  # operations that would be dropped are not traced
            step = self._step
        skip = -first % step
        if skip >= operation_count:
            return OperationRange(first, None)
        coarse = 1
        while coarse < step and operation_count // coarse > _PLAN_ROWS:
            coarse *= 2
        # The engine traces multiples only. In a long plan the first kept operation moves back by
        # under a thousandth of the plan, and takes the number of the one that it replaces.
        moved = skip % coarse
        return OperationRange(first + moved, math.gcd(skip - moved, step))  # of 0 it is the step

    def add(
        self,
        operations: OperationRange,
        trace: NDArray[np.void] | None,
        *,
        extents: Sequence[Extent],
        block_bytes: int,
    ) -> None:
        """Add the part of a plan's trace that belongs to the sample; ``None`` adds nothing."""
        if trace is None or operations.trace_every is None:
            return
        files = list({extent.path: extent for extent in extents}.values())
        blocks = [-(-file.length_bytes // block_bytes) for file in files]
        first = np.cumsum([operations.first, *blocks], dtype=np.uint64)
        numbers = first[trace["file"]] + trace["offset_bytes"] // np.uint64(block_bytes)
        with self._lock:
            kept = numbers % np.uint64(self._step) == 0
            rows = trace[kept]
            rows["file"] = [self._file(files[number]) for number in rows["file"]]
            self._numbers = np.concatenate((self._numbers, numbers[kept]))
            self._rows = np.concatenate((self._rows, rows))
            while self._rows.size > self._limit:
                self._thin()

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample, by time of submission; empty if nothing was traced."""
        with self._lock:
            if not self._rows.size:
                return ()
            files = [
                TracedFile(path=path, size_bytes=self._sizes[number])
                for path, number in self._files.items()
            ]
            rows = self._rows[np.argsort(self._rows["submit_ns"], kind="stable")]
        return (TracedOperations(phase=phase, kind=kind, rows=rows, files=tuple(files)),)

    def _file(self, file: Extent) -> int:
        number = self._files.setdefault(file.path, len(self._files))
        if number == len(self._sizes):
            self._sizes.append(file.length_bytes)
        self._sizes[number] = max(self._sizes[number], file.length_bytes)
        return number

    def _thin(self) -> None:
        self._step *= 2
        kept = self._numbers % np.uint64(self._step) == 0
        self._numbers, self._rows = self._numbers[kept], self._rows[kept]
