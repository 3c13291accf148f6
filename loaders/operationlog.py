"""A sample of single operations, spread evenly over all that a loader does, of bounded size."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import TRACE_DTYPE, IOKind, TracedFile, TracedOperations

ROWS_LIMIT = 1 << 16
"""The most rows that a log may be asked to keep."""

_PLAN_ROWS = 1 << 10
"""About how many operations of one plan the engine is to trace, for those that are kept."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The operations of one plan among all: the number of its first, and which are to be traced.

    ``trace_every`` is what the plan asks of its engine, ``None`` for no trace.
    """

    first: int
    trace_every: int | None


class OperationLog:
    """Keeps at most ``limit`` operations of one kind: every first, second, fourth, eighth...

    Operations are numbered over all plans. As soon as plans have more than ``limit``, every second
    one that was kept is dropped, so that what is kept is spread evenly over the whole, and the same
    operations are kept each time. Plans read or write one file from its start, in order.
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

    def begin(self, operation_count: int) -> Stretch:
        """Return the place of a plan of so many operations, before it is run."""
        if not self._limit:
            return Stretch(0, None)
        with self._lock:
            first = self._count
            self._count += operation_count
            while -(-self._count // self._step) > self._limit:
                self._thin()  # what is to be dropped is not traced in the first place
            step = self._step
        skip = -first % step
        if skip >= operation_count:
            return Stretch(first, None)
        coarse = 1
        while coarse < step and operation_count // coarse > _PLAN_ROWS:
            coarse *= 2
        # The engine traces multiples only. In a long plan the first one that is kept moves back by
        # under a thousandth of it, and takes the number of the one whose place it takes.
        moved = skip % coarse
        return Stretch(first + moved, math.gcd(skip - moved, step))  # of 0 it is the step

    def add(
        self,
        stretch: Stretch,
        trace: NDArray[np.void] | None,
        *,
        path: Path,
        size_bytes: int,
        block_bytes: int,
    ) -> None:
        """Keep what belongs to the sample of a plan's trace; ``None`` and no rows add nothing."""
        if trace is None or stretch.trace_every is None:
            return
        numbers = np.uint64(stretch.first) + trace["offset_bytes"] // np.uint64(block_bytes)
        with self._lock:
            kept = numbers % np.uint64(self._step) == 0
            rows = trace[kept]
            rows["file"] = self._file(path, size_bytes)
            self._numbers = np.concatenate((self._numbers, numbers[kept]))
            self._rows = np.concatenate((self._rows, rows))
            while self._rows.size > self._limit:
                self._thin()

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample, by time of submission; empty where nothing was traced."""
        with self._lock:
            if not self._rows.size:
                return ()
            files = [
                TracedFile(path=path, size_bytes=self._sizes[number])
                for path, number in self._files.items()
            ]
            rows = self._rows[np.argsort(self._rows["submit_ns"], kind="stable")]
        return (TracedOperations(phase=phase, kind=kind, rows=rows, files=tuple(files)),)

    def _file(self, path: Path, size_bytes: int) -> int:
        number = self._files.setdefault(path, len(self._files))
        if number == len(self._sizes):
            self._sizes.append(size_bytes)
        self._sizes[number] = max(self._sizes[number], size_bytes)
        return number

    def _thin(self) -> None:
        self._step *= 2
        kept = self._numbers % np.uint64(self._step) == 0
        self._numbers, self._rows = self._numbers[kept], self._rows[kept]
