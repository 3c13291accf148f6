"""Rows of features by O_DIRECT, from the drive into registered memory without another copy.

Rows that are no aligned blocks of their own, as behind the header of an ``.npy`` file, are copied
out of the blocks that hold them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, Extent, IOKind, IOOrder, IOPlan, IOResult
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import AUTO
from wattload.loaders.feature_rows import (
    BLOCK_BYTES,
    FeaturePlan,
    GatherResult,
    Memory,
    RowGatherer,
    host_array,
    is_aligned,
    read_bytes_of,
)

STAGED_ROWS = 16_384
"""Unaligned rows that are read at a time."""


def staging_bytes(plan: FeaturePlan) -> int:
    """Return the memory that unaligned rows pass through; 0 if all are aligned."""
    if is_aligned(plan):
        return 0
    most_bytes = max(read_bytes_of(file, plan.row_bytes) for file in plan.files)
    return min(plan.batch_rows, STAGED_ROWS) * most_bytes


class DirectGatherer(RowGatherer):
    """An engine that reads listed blocks."""

    def __init__(self, plan: FeaturePlan, *, backend: str, pollers: int) -> None:
        plan.check_files()
        self._plan = plan
        self._depth = plan.outstanding // pollers
        self._is_aligned = is_aligned(plan)
        self._block_bytes = plan.row_bytes if self._is_aligned else BLOCK_BYTES
        self._extents = tuple(
            Extent(file.path, file.offset_bytes, file.row_count * plan.row_bytes)
            if self._is_aligned
            else Extent(file.path, 0, file.offset_bytes + file.row_count * plan.row_bytes)
            for file in plan.files
        )
        counts = [-(-extent.length_bytes // self._block_bytes) for extent in self._extents]
        self._first_blocks = np.cumsum([0, *counts[:-1]]).astype(np.uint64)
        self._staging = (
            None if self._is_aligned else aligned_buffer(max(staging_bytes(plan), BLOCK_BYTES))
        )
        self._engine = IOEngine(
            backend=backend,
            block_bytes=self._block_bytes,
            depth=self._depth,
            pollers=pollers,
            regions=[self._staging]
            if self._staging is not None
            else list(map(host_array, plan.memories)),
        )

    def path(self) -> DataPath:
        """Return the path: O_DIRECT into the memory of the host, asked for by the CPU."""
        return self._engine.path()

    def gather(self, rows: NDArray[np.uint64], into: Memory) -> GatherResult:
        """Read each row on its own; see ``RowGatherer.gather``."""
        self._plan.check_gather(rows, into)
        start_ns, start_cpu_s = time.monotonic_ns(), time.thread_time()
        memory = host_array(into)
        if self._staging is None:
            results = [self._read(self._row_blocks(rows), memory)]
        else:
            results = list(self._gather_staged(rows, memory, self._staging))
        operations = sum(result.operation_count for result in results)
        latency = Histogram.of(())
        for result in results:
            latency = latency.merged(result.latency or Histogram.of(()))
        return GatherResult(
            rows=len(rows),
            storage_rows=len(rows),
            host_rows=0,
            cache_rows=0,
            merged_rows=0,
            storage_bytes=operations * self._block_bytes,
            operations=operations,
            operation_bytes=self._block_bytes,
            start_ns=start_ns,
            end_ns=time.monotonic_ns(),
            cpu_s=time.thread_time() - start_cpu_s + sum(result.cpu_s for result in results),
            latency=latency,
        )

    def close(self) -> None:
        """End the engine's threads; safe to call twice."""
        self._engine.close()

    def _read(self, blocks: NDArray[np.uint64], into: NDArray[np.uint8]) -> IOResult:
        try:
            return self._engine.run(
                IOPlan(
                    kind=IOKind.READ,
                    extents=self._extents,
                    block_bytes=self._block_bytes,
                    depth=self._depth,
                    blocks=blocks,
                ),
                destination=into,
                alignment_bytes=self._block_bytes,
            )
        except DataError:
            # The engine does not know whose the files are, and what to do about a short one.
            self._plan.check_files()
            raise

    def _row_blocks(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the numbers of the rows over the blocks of one file after the other."""
        if len(self._plan.files) == 1:
            return rows
        files, places = self._plan.places(rows)
        return places + self._first_blocks[files]

    def _gather_staged(
        self, rows: NDArray[np.uint64], into: NDArray[np.uint8], staging: NDArray[np.uint8]
    ) -> Iterator[IOResult]:
        """Read the blocks that rows touch, a part of the list at a time, and copy the rows out."""
        plan, row_bytes = self._plan, self._plan.row_bytes
        offsets = np.array([file.offset_bytes for file in plan.files], dtype=np.uint64)
        found = into.reshape(-1, row_bytes)
        for first in range(0, len(rows), STAGED_ROWS):
            part = rows[first : first + STAGED_ROWS]
            files, places = plan.places(part)
            starts = offsets[files] + places * np.uint64(row_bytes)
            heads = starts // np.uint64(BLOCK_BYTES)
            inner = (starts % np.uint64(BLOCK_BYTES)).astype(np.intp)
            counts = -(-(inner + row_bytes) // BLOCK_BYTES)
            positions = np.cumsum(counts) - counts
            total = int(counts.sum())
            steps = np.arange(total) - np.repeat(positions, counts)
            blocks = np.repeat(heads + self._first_blocks[files], counts) + steps.astype(np.uint64)
            yield self._read(blocks, staging[: total * BLOCK_BYTES])
            # A view of the rows that would begin at each block, by where in the block they begin.
            for begin in np.unique(inner):
                those = np.flatnonzero(inner == begin)
                room = (total * BLOCK_BYTES - begin - row_bytes) // BLOCK_BYTES + 1
                rows_at = as_strided(staging[begin:], (room, row_bytes), (BLOCK_BYTES, 1))
                found[first + those] = rows_at[positions[those]]


def random_rows_per_s(
    plan: FeaturePlan, *, pollers: int | None, seconds: float, backend: str = AUTO
) -> float:
    """Return the rows a second that the engine reads at random from these files by itself.

    It is what gathering can reach at best: the same reads, without a list of them. Where rows are
    behind a header, blocks are read, and their rate is divided by the blocks that a row touches on
    average, two for rows of a block's size. A reader that reads both at once can be faster. With
    the backend ``memory`` no drive takes part, and it is what the host can do.
    """
    pollers = pollers or 1
    block_bytes, blocks_per_row = plan.row_bytes, 1.0
    if not is_aligned(plan):
        block_bytes = BLOCK_BYTES
        read_bytes = sum(
            file.row_count * read_bytes_of(file, plan.row_bytes) for file in plan.files
        )
        blocks_per_row = read_bytes / BLOCK_BYTES / plan.row_count
    depth = max(plan.outstanding // pollers, 1)
    engine = IOEngine(backend=backend, block_bytes=block_bytes, depth=depth, pollers=pollers)
    try:
        result = engine.run(
            IOPlan(
                kind=IOKind.READ,
                extents=tuple(
                    Extent(file.path, 0, file.row_count * plan.row_bytes) for file in plan.files
                ),
                block_bytes=block_bytes,
                depth=depth,
                order=IOOrder.RANDOM,
                duration_s=seconds,
                seed=1,
            )
        )
    finally:
        engine.close()
    return result.operation_count / result.seconds / blocks_per_row
