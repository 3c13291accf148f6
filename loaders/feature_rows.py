"""Rows of features by their numbers, and the protocol of loaders that gather them.

A batch of graph training needs hundreds of thousands of rows, each at a place of its own somewhere
in the files. A gatherer copies the rows of a list to memory in the order of the list: every loader
fills the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, MemoryRegion
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig

BLOCK_BYTES = 4096
"""What readers past the page cache read multiples of; see ``aligned_io.PAGE_BYTES``."""

REMEDY = "delete the data with `wattload clean`, and the next run writes it again"
"""What to do about a damaged file that wattload has written."""

Memory = NDArray[np.uint8] | MemoryRegion
"""Contiguous memory of the host that starts at a multiple of 4096, or memory of a GPU."""


def host_array(memory: Memory) -> NDArray[np.uint8]:
    """Return memory of the host; raises ``TypeError`` for a GPU's."""
    if isinstance(memory, MemoryRegion):
        raise TypeError("this loader gathers into the memory of the host, not of a GPU")
    return memory


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFile:
    """A file of rows: rows ``first_row``, ``first_row + step``, ... follow each other in it.

    The first begins at ``offset_bytes``. A row that is no aligned block of its own, as behind the
    header of an ``.npy`` file, costs a reader of blocks two of them.
    """

    path: Path
    row_count: int
    first_row: int = 0
    step: int = 1
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeaturePlan:
    """Where rows are, and the memory that they are gathered into.

    Each row of ``row_count`` is in exactly one file. ``outstanding`` reads are in flight at most,
    where the loader decides that. No gather has more than ``batch_rows`` rows. ``memories`` are
    registered once; they are in the memory of the GPU with PCI address ``gpu`` if the loader
    ``fills_gpu``, else in the host's. ``most_drawn(n)`` returns the n rows that batches need most
    often, in falling order; it takes seconds to minutes, and only loaders that keep such rows call
    it. ``edge_count`` is that of the graph, which a loader that samples by itself may copy.
    ``remedy`` ends messages about a damaged file: what to do about it.
    """

    files: tuple[FeatureFile, ...]
    row_count: int
    row_bytes: int
    outstanding: int
    batch_rows: int
    memories: tuple[Memory, ...] = ()
    gpu: str | None = None
    most_drawn: Callable[[int], NDArray[np.uint64]] | None = None
    edge_count: int = 0
    remedy: str = REMEDY

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(file.path for file in self.files)

    @property
    def is_striped(self) -> bool:
        """Whether the rows go round the files, one after the other."""
        return {file.step for file in self.files} == {len(self.files)}

    def places(self, rows: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Return for each row the index of its file, and its number within that file."""
        if self.is_striped:
            numbers, files = np.divmod(rows, np.uint64(len(self.files)))
            return files.astype(np.intp), numbers
        firsts = np.array([file.first_row for file in self.files], dtype=np.uint64)
        found = np.searchsorted(firsts, rows, side="right") - 1
        return found, rows - firsts[found]

    def check_file(self, file: FeatureFile, found_bytes: int) -> None:
        """Raise ``DataError`` for a file that has another size than its rows."""
        planned_bytes = file.offset_bytes + file.row_count * self.row_bytes
        if found_bytes != planned_bytes:
            raise DataError(
                f"{file.path} has {found_bytes} bytes instead of the {planned_bytes} of its "
                f"{file.row_count} rows; {self.remedy}"
            )

    def check_files(self) -> None:
        """Raise ``DataError`` where a file has another size than its rows."""
        for file in self.files:
            self.check_file(file, file.path.stat().st_size)

    def check_rows(self, rows: NDArray[np.uint64]) -> None:
        """Raise ``ValueError`` for rows that do not exist, or for no list of numbers."""
        if rows.dtype != np.uint64 or rows.ndim != 1:
            raise ValueError(f"row numbers must be a list of uint64, got {rows.dtype} {rows.shape}")
        if len(rows) and int(rows.max()) >= self.row_count:
            raise ValueError(f"row {rows.max()} does not exist, there are {self.row_count}")

    def check_batch(self, rows: NDArray[np.uint64]) -> None:
        """Raise ``ValueError`` for rows that do not exist, or more than a gather may have."""
        self.check_rows(rows)
        if len(rows) > self.batch_rows:
            raise ValueError(f"{len(rows)} rows, at most {self.batch_rows} were planned")

    def check_gather(self, rows: NDArray[np.uint64], into: Memory) -> None:
        """Raise ``ValueError`` for rows that can't be gathered, or memory of another size."""
        self.check_batch(rows)
        size_bytes = into.size_bytes if isinstance(into, MemoryRegion) else into.nbytes
        if size_bytes != len(rows) * self.row_bytes:
            raise ValueError(
                f"{len(rows)} rows need {len(rows) * self.row_bytes} bytes, got {size_bytes}"
            )


def is_aligned(plan: FeaturePlan) -> bool:
    """Return whether each row is an aligned block of its file."""
    return all(file.offset_bytes % plan.row_bytes == 0 for file in plan.files)


def read_bytes_of(file: FeatureFile, row_bytes: int) -> int:
    """Return what a reader of aligned blocks reads for a row, at most: all that it touches.

    It is the same for all rows whose size is a multiple of a block's.
    """
    starts = ((file.offset_bytes + row * row_bytes) % BLOCK_BYTES for row in range(BLOCK_BYTES))
    return -(-(max(starts) + row_bytes) // BLOCK_BYTES) * BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherResult:
    """What one gather did, between ``start_ns`` and ``end_ns`` (CLOCK_MONOTONIC).

    Each of ``rows`` came from exactly one place: ``host_rows`` from a buffer in host memory,
    ``cache_rows`` from a cache of the GPU, ``merged_rows`` from a read that was under way for
    another one, ``storage_rows`` from a read of their own. The four are ``None`` where the page
    cache decides, and nothing counts rows. ``storage_bytes`` came from storage: the reader's own
    count, or through the page cache the kernel's for this process, with read-ahead.
    ``operations`` are the loader's own reads of storage, of ``operation_bytes`` each. Both are
    ``None`` through the page cache, and the latter where reads differ: some files have rows behind
    a header. ``major_faults`` waited for a drive; ``None`` without the page cache. ``cpu_s`` is the
    CPU time of this thread and of the reader's own ones, ``latency`` (ns) that of each read.
    """

    rows: int
    storage_rows: int | None
    host_rows: int | None
    cache_rows: int | None
    merged_rows: int | None
    storage_bytes: int
    start_ns: int
    end_ns: int
    cpu_s: float
    latency: Histogram | None = None
    major_faults: int | None = None
    operations: int | None = None
    operation_bytes: int | None = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class RowGatherer(Protocol):
    """Open files and registered memory, ready to gather; used by one thread at a time.

    A subclass inherits the methods that do nothing: those without counts, mapped files or a cache.
    """

    def path(self) -> DataPath:
        """Return the path of the bytes, what moves them, and the counts that prove it."""
        ...

    def count_anew(self) -> None:
        """Let the counts of ``path`` be those of the gathers from now on."""
        return

    def release_pages(self) -> None:
        """Let go of mapped pages of the page cache, which can't be evicted before."""
        return

    def expect(self, rows: NDArray[np.uint64]) -> None:
        """Hear of the rows of a later gather: of each gather once, in their order.

        A gatherer with a cache keeps rows that are needed again soon; the others ignore it.
        """
        return

    def gather(self, rows: NDArray[np.uint64], into: Memory) -> GatherResult:
        """Fill ``into`` with these rows, in their order; a number may come twice.

        ``into`` is in one of the plan's memories, from a multiple of 4096 on.

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

    @property
    def fills_gpu(self) -> bool:
        """Whether it gathers into the memory of a GPU; else into the host's."""
        ...

    @property
    def window_batches(self) -> int:
        """The later batches that a gatherer wants to hear of (``expect``); 0 for none."""
        ...

    def check_feature_rows(self, plan: FeaturePlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; creates nothing.

        ``plan.memories`` is empty then.

        Raises:
            ConfigError: the settings do not fit the plan or this host.
            MissingExtraError: a library behind the loader is not installed.
            NoGpuError: it needs a GPU.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def feature_bytes(self, plan: FeaturePlan) -> FeatureMemory:
        """Return the memory that a gatherer takes besides the plan's."""
        ...

    def row_gatherer(self, plan: FeaturePlan) -> RowGatherer:
        """Return the gatherer of files that exist; nothing is read but rows to keep.

        Raises:
            ConfigError: the kernel or the GPU refuses memory or threads.
            DataError: a file has another size than its rows.
            OSError: a file can't be opened.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMemory:
    """Memory of a gatherer in bytes: rows kept in host memory, other host memory, a GPU's cache."""

    host_rows_bytes: int = 0
    working_bytes: int = 0
    gpu_cache_bytes: int = 0
