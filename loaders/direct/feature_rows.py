"""Rows of features by O_DIRECT, from the drive into registered memory without another copy."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import DataPath, Extent, IOKind, IOOrder, IOPlan
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.feature_rows import FeaturePlan, GatherResult, Memory, host_array


class DirectGatherer:
    """An engine that reads listed blocks; implements ``RowGatherer``."""

    def __init__(self, plan: FeaturePlan, *, backend: str, pollers: int) -> None:
        self._plan = plan
        self._depth = plan.outstanding // pollers
        self._extents = tuple(
            Extent(file.path, 0, file.row_count * plan.row_bytes) for file in plan.files
        )
        counts = [file.row_count for file in plan.files]
        self._first_blocks = np.cumsum([0, *counts[:-1]]).astype(np.uint64)
        self._engine = IOEngine(
            backend=backend,
            block_bytes=plan.row_bytes,
            depth=self._depth,
            pollers=pollers,
            regions=plan.memories,
        )

    def path(self) -> DataPath:
        """Return the path: O_DIRECT into the memory of the host, asked for by the CPU."""
        return self._engine.path()

    def expect(self, rows: NDArray[np.uint64]) -> None:
        """Do nothing: no row is kept."""

    def gather(self, rows: NDArray[np.uint64], into: Memory) -> GatherResult:
        """Read each row on its own; see ``RowGatherer.gather``."""
        self._plan.check_gather(rows, into)
        start_ns, start_cpu_s = time.monotonic_ns(), time.thread_time()
        result = self._engine.run(
            IOPlan(
                kind=IOKind.READ,
                extents=self._extents,
                block_bytes=self._plan.row_bytes,
                depth=self._depth,
                blocks=self._blocks(rows),
            ),
            destination=host_array(into),
            alignment_bytes=self._plan.row_bytes,
        )
        return GatherResult(
            rows=len(rows),
            storage_rows=result.operation_count,
            host_rows=0,
            cache_rows=0,
            joined_rows=0,
            storage_bytes=result.moved_bytes,
            start_ns=start_ns,
            end_ns=time.monotonic_ns(),
            cpu_s=time.thread_time() - start_cpu_s + result.cpu_s,
            latency=result.latency,
        )

    def close(self) -> None:
        """End the engine's threads; safe to call twice."""
        self._engine.close()

    def _blocks(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the numbers of the rows over the blocks of one file after the other."""
        if len(self._plan.files) == 1:
            return rows
        files, places = self._plan.places(rows)
        return places + self._first_blocks[files]


def random_rows_per_s(plan: FeaturePlan, *, pollers: int | None, seconds: float) -> float:
    """Return the rows a second that the engine reads at random from these files by itself.

    It is what gathering can reach at best: the same reads, without a list of them.
    """
    pollers = pollers or 1
    depth = max(plan.outstanding // pollers, 1)
    engine = IOEngine(block_bytes=plan.row_bytes, depth=depth, pollers=pollers)
    try:
        result = engine.run(
            IOPlan(
                kind=IOKind.READ,
                extents=tuple(
                    Extent(file.path, 0, file.row_count * plan.row_bytes) for file in plan.files
                ),
                block_bytes=plan.row_bytes,
                depth=depth,
                order=IOOrder.RANDOM,
                duration_s=seconds,
                seed=1,
            )
        )
    finally:
        engine.close()
    return result.operation_count / result.seconds
