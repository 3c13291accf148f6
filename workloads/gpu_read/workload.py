"""The gpu_read workload: random reads into GPU memory, by the loader's way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, ClassVar

from wattload.core.errors import ConfigError, NoGpuError, RunError
from wattload.core.host.gpu_topology import Connection, connect
from wattload.core.host.memory_traffic import find_meter
from wattload.core.io import PathCounts
from wattload.core.record.results import Check
from wattload.core.storage.extents import written_extents_check
from wattload.core.units import format_bytes, format_seconds
from wattload.core.workload import (
    Accelerator,
    DataFacts,
    Outcome,
    Phase,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.data.stamped_files import REMEDY, WRITING_BYTES, StampedFiles
from wattload.loaders.gpu_reads import GpuFile, GpuReadLoaderConfig, GpuReadPlan, GpuReadResult
from wattload.workloads.gpu_read.checks import outcome_checks, still_cold
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.dataset import WORKLOAD, dataset_of
from wattload.workloads.gpu_read.metrics import PHASE, failed_reads, latencies, metrics


class GpuRead:
    """Threads with one random read in flight each, into the memory of the GPU of their target.

    The reader's threads and buffers are ready before the timed phase begins. It ends when its time
    is over; what was read is compared afterwards.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (GpuReadLoaderConfig,)

    def __init__(
        self, config: Config, loader: GpuReadLoaderConfig, accelerator: Accelerator
    ) -> None:
        self.config = config
        self._loader = loader
        self._dataset: StampedFiles | None = None
        self._connections: tuple[Connection, ...] = ()

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Without a GPU or its driver the plan has a ``refusal``.

        Raises:
            ConfigError: there are fewer threads than files, a GPU does not exist, or the settings
                do not fit this host.
            DataError: a finished file has another size than planned.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        config = self.config
        dataset = self._dataset = dataset_of(config, context.targets)
        if config.threads < len(context.targets):
            raise ConfigError(
                f"workload.threads must be at least the number of targets, {len(context.targets)}, "
                f"got {config.threads}: each target needs a thread that reads from it"
            )
        missing = dataset.missing()
        refusal = ""
        try:
            self._connections = connect(context.targets, config.named_gpus)
            self._loader.check_gpu_reads(self._reads(context), context.targets)
        except NoGpuError as error:
            self._connections, refusal = (), str(error)
        prepare_bytes = len(missing) * config.file_bytes
        return WorkloadPlan(
            data_bytes=dataset.data_bytes,
            prepare_bytes=prepare_bytes,
            run_bytes=0,
            peak_bytes=dataset.data_bytes,
            memory_bytes_per_rank=max(
                config.threads * config.block_bytes,
                WRITING_BYTES if missing else 0,
            ),
            needs_direct_io=True,
            reading_s=config.duration_s,
            lines=tuple(self._lines(dataset)),
            maximum_ranks=1,
            refusal=refusal,
        )

    def prepare(self, context: RunContext) -> DataFacts:
        """Write or reuse the files; see ``StampedFiles.prepare``."""
        dataset = self._planned()
        return dataset.facts(reused=dataset.prepare(context))

    def run(self, context: RunContext) -> Outcome:
        """Read for the configured time, from files that are not in the page cache.

        Raises:
            ConfigError: the GPU or the library behind the loader refuses.
            DataError: a file has another size than planned, or holes.
            OSError: a file can't be read.
            RunError: every read failed, or the reader's process ended.
        """
        dataset = self._planned()
        folder = context.output_folder(PHASE)
        folder.mkdir(parents=True, exist_ok=True)
        dataset.require_sizes()
        written = written_extents_check(dataset.paths, remedy=REMEDY)
        evict(dataset.paths)
        with closing(self._loader.gpu_reader(self._reads(context), folder)) as reader:
            cold = cold_cache_check(dataset.paths)
            context.progress.begin("reading into GPU memory")
            with ExitStack() as opened:
                watch = _Watch(context, opened)
                result = reader.run(watch)
            context.progress.end()
            path = reader.path()
        if not result.operations:
            reasons = "; ".join(f"{count:,}: {why}" for why, count in result.failures.items())
            raise RunError(
                f"no read ended in {format_seconds(self.config.duration_s)}"
                + (f"; failed reads: {reasons}" if reasons else "; use more workload.duration_s")
            )
        return Outcome(
            metrics=tuple(metrics(result)),
            paths=(path.model_copy(update={"counts": _with_memory(result, watch)}),),
            checks=(
                cold,
                still_cold(dataset.paths),
                written,
                *outcome_checks(self.config, result),
            ),
            details=self._details(dataset, result),
            remarks=tuple(self._remarks()),
            latencies=latencies(self.config, result),
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return nothing: the reader compared what it delivered while it was in GPU memory."""
        return ()

    def _reads(self, context: RunContext) -> GpuReadPlan:
        config, dataset = self.config, self._planned()
        return GpuReadPlan(
            files=tuple(
                GpuFile(
                    path=file.path,
                    size_bytes=file.size_bytes,
                    gpu=connection.gpu.address,
                    node=connection.gpu.node,
                    stamps=file.stamps,
                )
                for index, file in enumerate(dataset.files)
                for connection in (self._connections[index % len(self._connections)],)
            ),
            block_bytes=config.block_bytes,
            threads=config.threads,
            duration_s=config.duration_s,
            seed=context.seed,
        )

    def _lines(self, dataset: StampedFiles) -> Iterator[tuple[str, str]]:
        config, count = self.config, len(dataset.files)
        files = f"{count} files, each" if count > 1 else "a file"
        yield (
            "blocks",
            f"random, of {config.block_bytes} bytes, by {config.threads} threads from {files} of "
            f"{format_bytes(config.file_bytes)}",
        )
        for connection in self._connections:
            yield "gpu", connection.text()
        if not self._connections:
            yield "gpu", "unknown: no NVIDIA GPU with its driver here, which a run needs"

    def _details(self, dataset: StampedFiles, result: GpuReadResult) -> dict[str, Any]:
        config = self.config
        return {
            "block_bytes": config.block_bytes,
            "threads": config.threads,
            "duration_s": config.duration_s,
            "operations": result.operations,
            "seconds": result.seconds,
            "cpu_s": result.cpu_s,
            "reported_mean_latency_s": result.mean_latency_s,
            "file_bytes": config.file_bytes,
            "files": config.files.value,
            "file_count": len(dataset.files),
            "file_operations": list(result.file_operations),
            "failed_reads": failed_reads(result),
            "failures": dict(result.failures),
            "topology": [dict(connection.as_json()) for connection in self._connections],
            "must_be_direct": self._loader.gpu_path_must_be_direct,
            "software": dict(result.software),
            "compared_bytes": result.compared_bytes,
            "bad_blocks": result.bad_blocks,
            "reported": dict(result.reported),
        }

    def _remarks(self) -> Iterator[str]:
        for connection in self._connections:
            if connection.link == "another node":
                yield (
                    f"{connection.target.path} is on another NUMA node than its GPU "
                    f"{connection.gpu.address}: reads cross between processors."
                )

    def _planned(self) -> StampedFiles:
        if self._dataset is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._dataset


class _Watch:
    """A ``ReadsWatch`` that keeps the timed phase open during the timed stretch."""

    def __init__(self, context: RunContext, opened: ExitStack) -> None:
        self._context = context
        self._opened = opened
        self._phase: Phase | None = None
        self._meter = find_meter().meter
        self._from_bytes = 0.0
        if self._meter is not None:
            opened.callback(self._meter.close)
        self.memory_bytes: float | None = None

    def begin(self) -> None:
        self._phase = self._opened.enter_context(self._context.phase(PHASE))
        self._from_bytes = self._memory_bytes() or 0.0

    def moved(self, reads: int, read_bytes: int) -> None:
        if self._phase is None:
            raise RuntimeError("reads were counted before the timed stretch began")
        self._phase.moved(read_bytes=read_bytes, operations=reads)

    def end(self, start_ns: int, end_ns: int) -> None:
        """Close the phase, with the reader's own edges."""
        until_bytes = self._memory_bytes()
        self.memory_bytes = None if until_bytes is None else until_bytes - self._from_bytes
        if self._phase is not None:
            self._phase.set_edges(start_ns, end_ns)
        self._opened.close()

    def _memory_bytes(self) -> float | None:
        try:
            return None if self._meter is None else self._meter.read_bytes()
        except OSError:
            return None


def _with_memory(result: GpuReadResult, watch: _Watch) -> PathCounts:
    """Return the counts with what the host's memory moved for each byte read in time."""
    if watch.memory_bytes is None or not result.moved_bytes:
        return result.counts
    each = max(watch.memory_bytes, 0.0) / result.moved_bytes
    return result.counts.model_copy(update={"memory_bytes_per_byte": each})
