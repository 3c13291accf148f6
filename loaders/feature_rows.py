"""Rows of features by their numbers, and the protocol of loaders that gather them.

A batch of graph training needs hundreds of thousands of rows, each a block of its own somewhere in
the files. A gatherer copies the rows of a list to memory in the order of the list: every loader
fills the same bytes. Files have nothing but rows; row r of all is in file r modulo the number of
files, at row r ÷ that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, MemoryRegion
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeaturePlan:
    """Where rows are, and the memory that they are gathered into.

    ``outstanding`` reads are in flight at most, where the loader decides that. ``memories`` are
    registered once: contiguous uint8 that starts at a multiple of 4096, or host regions.
    """

    paths: tuple[Path, ...]
    row_count: int
    row_bytes: int
    outstanding: int
    memories: tuple[NDArray[np.uint8] | MemoryRegion, ...]

    def rows_in(self, file: int) -> int:
        """Return the number of rows in a file."""
        return len(range(file, self.row_count, len(self.paths)))

    def check_gather(self, rows: NDArray[np.uint64], into: NDArray[np.uint8]) -> None:
        """Raise ``ValueError`` for a row that does not exist, or memory of another size."""
        if rows.dtype != np.uint64 or rows.ndim != 1:
            raise ValueError(f"row numbers must be a list of uint64, got {rows.dtype} {rows.shape}")
        if into.nbytes != len(rows) * self.row_bytes:
            raise ValueError(
                f"{len(rows)} rows need {len(rows) * self.row_bytes} bytes, got {into.nbytes}"
            )
        if len(rows) and int(rows.max()) >= self.row_count:
            raise ValueError(f"row {rows.max()} does not exist, there are {self.row_count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherResult:
    """What one gather did, between ``start_ns`` and ``end_ns`` (CLOCK_MONOTONIC).

    Each of ``rows`` came from exactly one place: ``host_rows`` from a buffer in host memory,
    ``cache_rows`` from a cache of the GPU, ``joined_rows`` from a read that was under way for
    another one, ``storage_rows`` from a read of their own. The four are ``None`` where the page
    cache decides, and nothing counts rows. ``storage_bytes`` came from storage: the reader's own
    count, or through the page cache the kernel's for this process, with read-ahead.
    ``major_faults`` waited for a drive; ``None`` without the page cache. ``cpu_s`` is the CPU time
    of this thread and of the reader's own ones, ``latency`` (ns) that of each read.
    """

    rows: int
    storage_rows: int | None
    host_rows: int | None
    cache_rows: int | None
    joined_rows: int | None
    storage_bytes: int
    start_ns: int
    end_ns: int
    cpu_s: float
    latency: Histogram | None = None
    major_faults: int | None = None

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return (self.end_ns - self.start_ns) / 1e9


class RowGatherer(Protocol):
    """Open files and registered memory, ready to gather; used by one thread at a time."""

    def path(self) -> DataPath:
        """Return the path of the bytes, and what moves them."""
        ...

    def gather(self, rows: NDArray[np.uint64], into: NDArray[np.uint8]) -> GatherResult:
        """Fill ``into`` with these rows, in their order; a number may come twice.

        ``into`` is contiguous, in one of the plan's memories, from a multiple of 4096 on.

        Raises:
            ValueError: a row does not exist, or the memory has another size.
            OSError: a read failed; ``into`` must not be used.
            DataError: a file is short, or changed meanwhile.
        """
        ...

    def close(self) -> None:
        """Release files and memory; safe to call twice."""
        ...


@runtime_checkable
class FeatureLoaderConfig(LoaderConfig, Protocol):
    """The configuration of a loader that gathers rows of features."""

    def check_feature_rows(self, plan: FeaturePlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; creates nothing.

        Raises:
            ConfigError: the settings do not fit the plan or this host.
            MissingExtraError: a library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def feature_bytes(self, plan: FeaturePlan) -> int:
        """Return the host memory that a gatherer takes besides the plan's."""
        ...

    def row_gatherer(self, plan: FeaturePlan) -> RowGatherer:
        """Return the gatherer of files that exist; nothing is read yet.

        Raises:
            ConfigError: the kernel refuses memory or threads.
            DataError: a file has another size than its rows.
            OSError: a file can't be opened.
        """
        ...
