"""The timed part: the two phases of a conversion, round after round, on one rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from wattload.core.record.check import Check
from wattload.core.units import NS_PER_S
from wattload.core.workload import RunContext
from wattload.loaders.coldcache import cold_cache_check, evict
from wattload.loaders.criteo.columnar import Columnar, ColumnarSettings
from wattload.loaders.criteo.files import Part
from wattload.workloads.dlrm.outputs import Outputs
from wattload.workloads.dlrm.pool import Done, MovedCallback, WorkerPool
from wattload.workloads.dlrm.tasks import ColumnarTask, PackTask, to_binary, to_parquet
from wattload.workloads.dlrm.worker import Cost

TO_PARQUET = "tsv_to_parquet"
TO_BINARY = "parquet_to_binary"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class Step:
    """One phase of one round on one rank: its seconds, its bytes and what its tasks cost."""

    name: str
    seconds: float
    read_bytes: int
    written_bytes: int
    costs: Sequence[Cost]


@dataclass(slots=True)
class Converted:
    """What a rank converted: every phase of every round, and the last round's rows."""

    steps: list[Step] = field(default_factory=list)
    cold: list[Check] = field(default_factory=list)
    columnar: Sequence[Columnar] = ()


class Conversion:
    """Converts a rank's parts with its pool of workers; every rank takes part in every phase."""

    def __init__(
        self,
        context: RunContext,
        pool: WorkerPool,
        parts: Sequence[Part],
        outputs: Outputs,
        settings: ColumnarSettings,
    ) -> None:
        self._context = context
        self._pool = pool
        self._parts = parts
        self._outputs = outputs
        self._settings = settings

    def run(self, rounds: int) -> Converted:
        """Do the conversion ``rounds`` times; the last round's output stays."""
        found = Converted()
        sources = sorted({part.source for part in self._parts})
        parquet = self._outputs.parquet
        for number in range(1, rounds + 1):
            self._outputs.begin()
            found.cold.append(self._cold(TO_PARQUET, sources))
            columnar = self._step(
                found,
                to_parquet,
                self._columnar_tasks(),
                name=TO_PARQUET,
                label=f"TSV to Parquet, round {number} of {rounds}",
                input_bytes=sum(part.size_bytes for part in self._parts),
            )
            found.cold.append(self._cold(TO_BINARY, parquet))
            self._step(
                found,
                to_binary,
                self._pack_tasks(),
                name=TO_BINARY,
                label=f"Parquet to binary, round {number} of {rounds}",
                input_bytes=sum(path.stat().st_size for path in parquet),
            )
            found.columnar = [done.result for done in columnar]
        return found

    def _columnar_tasks(self) -> list[ColumnarTask]:
        return [
            ColumnarTask(part, path, self._settings)
            for part, path in zip(self._parts, self._outputs.parquet, strict=True)
        ]

    def _pack_tasks(self) -> list[PackTask]:
        outputs = self._outputs
        return [
            PackTask(part, source, path)
            for part, source, path in zip(self._parts, outputs.parquet, outputs.binary, strict=True)
        ]

    def _cold(self, name: str, paths: Sequence[Path]) -> Check:
        """Put the next phase's input out of the page cache, on all ranks before any looks."""
        evict(paths)
        self._context.communicator.barrier()
        check = cold_cache_check(paths, name=f"cold_cache_{name}")
        self._context.communicator.barrier()
        return check

    def _step(
        self,
        found: Converted,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        *,
        name: str,
        label: str,
        input_bytes: int,
    ) -> list[Done[R]]:
        """Run one phase; it ends when this rank's files and their names are durable."""
        counted = [0, 0]
        progress = self._context.progress
        progress.begin(label, input_bytes)
        with self._context.phase(name) as phase:
            start_ns = time.monotonic_ns()

            def moved(read_bytes: int, written_bytes: int, operations: int) -> None:
                counted[0] += read_bytes
                counted[1] += written_bytes
                phase.moved(
                    read_bytes=read_bytes, written_bytes=written_bytes, operations=operations
                )
                progress.advance(read_bytes)

            done = self._pool.run(function, tasks, moved)
            self._outputs.sync()
            seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        progress.end()
        found.steps.append(
            Step(
                name=name,
                seconds=seconds,
                read_bytes=counted[0],
                written_bytes=counted[1],
                costs=[item.cost for item in done],
            )
        )
        return done
