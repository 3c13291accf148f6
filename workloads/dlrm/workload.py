"""The dlrm workload: plan, data, timed phases, verification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from wattload.core.accelerator import Accelerator
from wattload.core.errors import RunError
from wattload.core.io import DataPath
from wattload.core.record.check import Check
from wattload.core.workload import DataFacts, Outcome, RunContext, WorkloadPlan
from wattload.loaders.coldcache import worst_of
from wattload.loaders.criteo.columnar import ColumnarSettings
from wattload.loaders.criteo.files import Part, balanced_count, cut, head
from wattload.loaders.criteo.schema import ROW_BYTES
from wattload.workloads.dlrm import sample
from wattload.workloads.dlrm.config import Config
from wattload.workloads.dlrm.convert import (
    TO_BINARY,
    TO_PARQUET,
    Conversion,
    Converted,
)
from wattload.workloads.dlrm.dataset import DayFiles, RealDays, SyntheticDays
from wattload.workloads.dlrm.measure import Measured, total
from wattload.workloads.dlrm.outputs import Outputs
from wattload.workloads.dlrm.pool import WorkerPool
from wattload.workloads.dlrm.tasks import CeilingTask, against_memory

PARQUET_SHARE = 0.75
"""Parquet bytes per TSV byte, at most; measured 0.26 (zstd) to 0.63 (none, 6000 synthetic rows)."""

PATH = DataPath(data_path="page_cache", path_requested="page_cache")


class Dlrm:
    """Criteo TSV to Parquet to packed binary with worker processes, as DLRM's users prepare data.

    Both phases are pyarrow's and go through the page cache, whatever loader is chosen: input is put
    out of the cache before each phase, output is durable when the phase ends.
    """

    name = "dlrm"

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        del accelerator  # nothing is trained here
        self._config = config
        self._loader = type(loader).__module__.rpartition(".")[2]
        self._days: DayFiles | None = None
        self._parts: Sequence[Part] = ()
        self._outputs: Outputs | None = None
        self._converted = Converted()

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will write; raises ``ConfigError`` or ``DataError`` for bad input."""
        self._config.check()
        expected = self._source(context).expected()
        output_bytes = round(expected.size_bytes * PARQUET_SHARE) + expected.row_count * ROW_BYTES
        data_bytes = 0 if self._config.source else expected.size_bytes
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=expected.missing_bytes,
            run_bytes=output_bytes * self._config.rounds,
            peak_bytes=data_bytes + output_bytes,
            memory_bytes_per_rank=self._workers(context) * self._config.memory_bytes,
            needs_direct_io=False,
        )

    def prepare(self, context: RunContext) -> DataFacts:
        """Make or find the day files, and cut them into this rank's parts."""
        self._days, facts = self._source(context).prepare(context)
        world = context.communicator
        count = balanced_count(
            file_count=len(self._days.paths),
            worker_count=self._workers(context) * world.world_size,
            size_bytes=self._days.size_bytes,
            part_bytes=self._config.part_bytes,
        )
        parts = cut(self._days.paths, count)
        self._parts = parts[world.rank :: world.world_size]
        world.barrier()
        return facts

    def run(self, context: RunContext) -> Outcome:
        """Convert, round after round; what was written goes if that fails or is interrupted."""
        days = self._prepared()
        world, settings = context.communicator, self._settings()
        parameters = {"data": days.key, "compression": settings.compression}
        outputs = Outputs.claim(context, parameters, self._parts)
        self._outputs = outputs
        try:
            with WorkerPool(self._workers(context)) as pool:
                with context.phase("harness_ceiling", timed=False):
                    ceiling = self._ceiling(pool, settings)
                conversion = Conversion(context, pool, self._parts, outputs, settings)
                self._converted = conversion.run(self._config.rounds)
        except BaseException:
            outputs.remove()
            outputs.close()
            raise
        return self._outcome(context, days, sum(world.gather(ceiling)))

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare rows in with rows out, and sampled rows with a reference; remove the output."""
        days, outputs, world = self._prepared(), self._outputs, context.communicator
        if outputs is None:
            raise RunError("dlrm: nothing was converted that could be verified")
        try:
            counts = sample.count_rows(self._converted, outputs.parquet, outputs.binary)
            found = sample.sample(
                self._parts,
                self._converted.columnar,
                outputs.binary,
                row_count=-(-self._config.sample_rows // world.world_size),
                seed=context.seed,
            )
        finally:
            self._finish(context, outputs)
        read_bytes = sum(s.read_bytes for s in self._converted.steps if s.name == TO_PARQUET)
        return [
            sample.rows_check(world.gather(counts)),
            sample.sample_check(world.gather(found)),
            sample.bytes_check(sum(world.gather(read_bytes)), days.size_bytes, self._config.rounds),
        ]

    def _finish(self, context: RunContext, outputs: Outputs) -> None:
        """Keep or remove the output, on every rank before rank 0 removes the emptied folders."""
        if self._config.keep_output:
            outputs.keep()
        else:
            outputs.remove()
        context.communicator.barrier()
        if context.communicator.rank == 0 and not self._config.keep_output:
            for folder in outputs.folders:
                folder.remove()
        outputs.close()

    def _source(self, context: RunContext) -> RealDays | SyntheticDays:
        if self._config.source:
            return RealDays(Path(self._config.source))
        return SyntheticDays(self._config, context.targets)

    def _prepared(self) -> DayFiles:
        if self._days is None:
            raise RunError("dlrm: prepare has to come before run")
        return self._days

    def _workers(self, context: RunContext) -> int:
        return self._config.workers_per_rank(context.communicator.world_size)

    def _settings(self) -> ColumnarSettings:
        return ColumnarSettings(
            compression=self._config.compression.value, block_bytes=self._config.block_bytes
        )

    def _ceiling(self, pool: WorkerPool, settings: ColumnarSettings) -> float:
        """Return the TSV bytes per second of all workers of this rank against memory."""
        if not self._parts:
            return 0.0
        tasks = [CeilingTask(head(self._parts[0], settings.block_bytes), settings)] * pool.count
        return sum(done.result for done in pool.run(against_memory, tasks, lambda *_: None))

    def _outcome(self, context: RunContext, days: DayFiles, ceiling_bytes_per_s: float) -> Outcome:
        world, converted = context.communicator, self._converted
        ranks = world.gather(converted.steps)
        rows = world.gather(sum(found.row_count for found in converted.columnar))
        cold = [check for checks in world.gather(converted.cold) for check in checks]
        names = dict.fromkeys(check.name for check in cold)
        part_count = sum(world.gather(len(self._parts)))
        measured = Measured(
            phases=(total(TO_PARQUET, ranks), total(TO_BINARY, ranks)),
            tsv_bytes=days.size_bytes,
            row_count=sum(rows),
            workers=self._workers(context) * world.world_size,
            ceiling_bytes_per_s=ceiling_bytes_per_s,
        )
        return Outcome(
            metrics=measured.metrics(),
            paths=[PATH],
            checks=[worst_of(c for c in cold if c.name == name) for name in names],
            details={**self._details(days, part_count), **measured.details()},
            remarks=[measured.bottleneck(), *self._remarks(context, days)],
        )

    def _details(self, days: DayFiles, part_count: int) -> dict[str, object]:
        return {
            "source": self._config.source or "synthetic",
            "day_file_count": len(days.paths),
            "part_count": part_count,
            "compression": self._config.compression.value,
            "block_bytes": self._config.block_bytes,
        }

    def _remarks(self, context: RunContext, days: DayFiles) -> Iterator[str]:
        yield (
            f"loader={self._loader} has no part in dlrm: pyarrow reads and writes through the page "
            "cache; input is put out of it before each phase, output is fsynced within it."
        )
        if not self._config.source:
            yield (
                "The rows are synthetic in the shape of Criteo's; real ones compress differently, "
                "workload.source= takes them."
            )
        elif not self._on_target(context, days):
            yield (
                f"{self._config.source} lies on another file system than the target: the reads of "
                f"{TO_PARQUET} did not come from the target."
            )

    def _on_target(self, context: RunContext, days: DayFiles) -> bool:
        paths = [target.data_folder.parent for target in context.targets]
        devices = {path.stat().st_dev for path in paths}
        return all(path.stat().st_dev in devices for path in days.paths)
