"""The gpu_random_read workload: how many small random reads a second drives give a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from wattload.core.errors import ConfigError, NoGpuError, RunError
from wattload.core.host.gpu_topology import gpu_of_process
from wattload.core.host.gpus import Gpu
from wattload.core.io import TRACE_DTYPE, IOKind, TracedFile, TracedOperations
from wattload.core.record.results import Check
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.extents import written_extents_check
from wattload.core.storage.targets import Target
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
from wattload.loaders.random_reads import (
    WARP,
    CacheCounts,
    Pattern,
    RandomReadFile,
    RandomReadLoaderConfig,
    RandomReadPlan,
    RandomReadResult,
)
from wattload.workloads.gpu_random_read.checks import outcome_checks
from wattload.workloads.gpu_random_read.config import Config
from wattload.workloads.gpu_random_read.dataset import WORKLOAD, dataset_of, part_of, unfinished
from wattload.workloads.gpu_random_read.metrics import PHASE, latencies, metrics
from wattload.workloads.gpu_random_read.reads import (
    RankReads,
    Reads,
    failure_rows,
    file_rows,
    gpu_rows,
    poller_rows,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What the run reads: the files of all ranks, those of this one, and its GPU."""

    dataset: StampedFiles
    own: StampedFiles
    gpu: Gpu | None
    host: str
    read_bytes: int


class GpuRandomRead:
    """Threads with one random read in flight each, on all targets at once.

    Requesters and their memory are ready before the timed phase begins. It ends when its time is
    over and the last request is answered. Every block is proved where it is delivered. With several
    processes each has a GPU of its own, and the targets are dealt out in order.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (RandomReadLoaderConfig,)

    def __init__(
        self, config: Config, loader: RandomReadLoaderConfig, accelerator: Accelerator
    ) -> None:
        self.config = config
        self._loader = loader
        self._job: _Job | None = None

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Without a GPU or its driver the plan has a ``refusal``.

        Raises:
            ConfigError: there are more processes than targets or GPUs, a GPU does not exist, or
                the settings do not fit this host.
            DataError: a finished file has another size than planned.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        world = context.communicator
        hosts = world.all_gather(os.uname().nodename)  # before anything that can fail on one rank
        config, targets = self.config, context.targets
        if world.world_size > len(targets):
            raise ConfigError(
                f"{world.world_size} processes, but target.path names {len(targets)}: each process "
                f"needs a target of its own; use at most {len(targets)}, or more targets"
            )
        dataset = dataset_of(config, targets)
        read_bytes = max(config.block_bytes, *map(_least_read_bytes, targets))
        self._require_regions(dataset, read_bytes)
        job = self._job = _Job(
            dataset=dataset,
            own=part_of(dataset, world.rank, world.world_size),
            gpu=self._gpu(hosts, world.rank),
            host=hosts[world.rank],
            read_bytes=read_bytes,
        )
        reads, refusal = self._reads(context), ""
        try:
            self._loader.check_random_reads(reads, job.own.targets)
        except NoGpuError as error:
            refusal = str(error)
        reads_storage = self._loader.reads_storage
        missing = dataset.missing() if reads_storage else []
        return WorkloadPlan(
            data_bytes=dataset.data_bytes if reads_storage else 0,
            prepare_bytes=sum(file.size_bytes for file in missing),
            run_bytes=0,
            peak_bytes=dataset.data_bytes if reads_storage else 0,
            present_bytes=unfinished(dataset) if missing else 0,
            memory_bytes_per_rank=max(
                self._loader.memory_bytes(reads), WRITING_BYTES if missing else 0
            ),
            needs_direct_io=reads_storage,
            reading_s=config.duration_s,
            lines=tuple(self._lines(job)),
            refusal=refusal,
        )

    def prepare(self, context: RunContext) -> DataFacts | None:
        """Write or reuse the files of this rank's targets; nothing is written without storage."""
        job = self._planned()
        if not self._loader.reads_storage:
            return None
        reused = context.communicator.all_gather(job.own.prepare(context))
        return job.dataset.facts(reused=all(reused))

    def run(self, context: RunContext) -> Outcome:
        """Read for the configured time, from files that are not in the page cache.

        Raises:
            ConfigError: the GPU or the kernel refuses.
            DataError: a file has another size than planned, or holes.
            OSError: a file can't be read.
            RunError: every read failed, requests were not answered, or the reader's process ended.
        """
        config, world = self.config, context.communicator
        own = self._read(context)
        rows = latencies(own.result, block_bytes=config.block_bytes, read_bytes=self._moved_bytes)
        operations = self._traced(own.result)
        # Rank 0 needs no rows of the others: each keeps its own.
        slim = replace(own, result=replace(own.result, trace=np.empty(0, dtype=TRACE_DTYPE)))
        ranks = world.gather(slim)
        if world.rank:
            return Outcome(latencies=rows, operations=operations)
        reads = Reads(
            ranks=tuple(ranks),
            engine=self._engine,
            block_bytes=config.block_bytes,
            read_bytes=self._moved_bytes,
            outstanding=sum(each.outstanding(config.requesters) for each in ranks),
        )
        return Outcome(
            metrics=tuple(metrics(reads)),
            paths=(reads.path(),),
            checks=tuple(outcome_checks(reads)),
            details=self._details(reads),
            remarks=tuple(self._remarks(context.targets)),
            latencies=rows,
            operations=operations,
            # Of the requests in flight drives see only those that the cache has not met.
            queue_depth=reads.outstanding if self._moved_bytes and not self._cache_bytes else None,
            block_bytes=self._moved_bytes or None if reads.total("drive_bytes") is None else None,
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return nothing: each block was proved where it was delivered."""
        return ()

    def _read(self, context: RunContext) -> RankReads:
        job, loader = self._planned(), self._loader
        paths = job.own.paths
        checks: list[Check] = []
        if loader.reads_storage:
            job.own.require_sizes()
            checks.append(written_extents_check(paths, remedy=REMEDY))
            evict(paths)
        folder = context.output_folder(f"{WORKLOAD}-{context.communicator.rank}")
        with closing(loader.random_reader(self._reads(context), folder)) as reader:
            if loader.reads_storage:
                checks.append(cold_cache_check(paths))
            context.progress.begin("reading at random")
            context.communicator.barrier()  # ceilings of all ranks are measured at once
            with ExitStack() as opened:
                result = reader.run(_Watch(context, opened))
            context.progress.end()
            path = reader.path()
        _require_reads(result, self.config.duration_s)
        return RankReads(
            rank=context.communicator.rank,
            host=job.host,
            gpu=job.gpu,
            targets=tuple(file.target.index for file in job.own.files),
            paths=paths,
            result=result,
            path=path,
            checks=tuple(checks),
        )

    def _reads(self, context: RunContext) -> RandomReadPlan:
        config, job = self.config, self._planned()
        return RandomReadPlan(
            files=tuple(
                RandomReadFile(
                    path=file.path,
                    size_bytes=file.size_bytes,
                    stamps=file.stamps,
                    read_bytes=job.read_bytes,
                )
                for file in job.own.files
            ),
            block_bytes=config.block_bytes,
            requesters=config.requesters,
            queue_pairs=config.queue_pairs,
            queue_size=config.queue_size,
            pattern=Pattern(config.pattern),
            duration_s=config.duration_s,
            seed=context.seed + context.communicator.rank,
            gpu=job.gpu.address if job.gpu else None,
            node=job.gpu.node if job.gpu else None,
            drive_count=len({drive for target in job.own.targets for drive in _drives(target)}),
        )

    def _gpu(self, hosts: Sequence[str], rank: int) -> Gpu | None:
        """Return the GPU of this rank, if the loader needs one and there is any."""
        if not self._loader.needs_gpu:
            return None
        place = hosts[:rank].count(hosts[rank])
        return gpu_of_process(place, hosts.count(hosts[rank]), self.config.named_gpus)

    def _require_regions(self, dataset: StampedFiles, read_bytes: int) -> None:
        regions = self.config.requesters // WARP
        least = min(file.size_bytes for file in dataset.files) // read_bytes
        if self.config.pattern == Pattern.REGIONS and least < regions:
            raise ConfigError(
                f"workload.pattern=regions needs a block for each of {regions} warps, and the "
                f"file has {least} of {read_bytes} bytes; use a larger workload.file_bytes or "
                "fewer workload.requesters"
            )

    def _lines(self, job: _Job) -> Iterator[tuple[str, str]]:
        config, count = self.config, len(job.dataset.files)
        files = f"{count} files, each" if count > 1 else "a file"
        more = f", {job.read_bytes} read for each" if job.read_bytes > config.block_bytes else ""
        source = (
            f"from {files} of {format_bytes(job.dataset.files[0].size_bytes)}"
            if self._loader.reads_storage
            else f"from no storage (loader.engine={self._engine})"
        )
        yield (
            "blocks",
            f"random, of {config.block_bytes} bytes{more}, {config.requesters} in flight per "
            f"target, {source}",
        )
        if job.gpu is not None:
            name = f" ({job.gpu.name})" if job.gpu.name else ""
            cache = (
                f", with a cache of {format_bytes(self._cache_bytes)}" if self._cache_bytes else ""
            )
            yield "gpu", f"GPU {job.gpu.address}{name} asks{cache}"
        elif self._loader.needs_gpu:
            yield "gpu", "unknown: no NVIDIA GPU with its driver here, which a run needs"

    def _details(self, reads: Reads) -> dict[str, Any]:
        config, job = self.config, self._planned()
        bottleneck, reason = reads.bottleneck()
        own, cache = reads.results[0], reads.cache
        return {
            "block_bytes": config.block_bytes,
            "read_bytes": job.read_bytes,
            "read_amplification": job.read_bytes / config.block_bytes,
            "drive_bytes": reads.total("drive_bytes"),
            "resident_fraction": reads.resident_fraction,
            "queue_pairs": config.queue_pairs,
            "queue_size": config.queue_size,
            "requesters": config.requesters,
            "pattern": config.pattern,
            "duration_s": config.duration_s,
            "engine": reads.engine,
            "requester": "gpu" if self._loader.needs_gpu else "cpu",
            "pollers": poller_rows(reads),
            "files": file_rows(reads),
            "gpus": gpu_rows(reads),
            "outstanding_asked": reads.outstanding,
            "outstanding_seen": reads.in_flight,
            "pull_per_s": reads.ceiling("pull_per_s"),
            "queue_per_s": reads.ceiling("queue_per_s"),
            "table_bytes": self._table_bytes or None,
            "cache_bytes": self._cache_bytes or None,
            "bottleneck": bottleneck,
            "bottleneck_reason": reason,
            "failures": failure_rows(reads),
            "wrong_blocks": reads.total("wrong_blocks"),
            "compared_bytes": reads.total("compared_bytes"),
            "bad_blocks": reads.total("bad_blocks"),
            "requests": reads.total("requests"),
            "taken": reads.total("taken"),
            "answered": reads.total("answered"),
            "delivered": reads.total("delivered"),
            **{
                each.name: None if cache is None else getattr(cache, each.name)
                for each in fields(CacheCounts)
            },
            "operations": reads.operations,
            "seconds": reads.seconds,
            "cpu_s": reads.cpu_s,
            "clock_step_s": reads.clock_step_s,
            "one_drive_targets": len(_sharing(job.dataset.targets)),
            "software": dict(own.software),
        }

    def _remarks(self, targets: Sequence[Target]) -> Iterator[str]:
        config, job = self.config, self._planned()
        if not self._loader.reads_storage:
            return
        if job.read_bytes > config.block_bytes:
            block_bytes = config.block_bytes
            coarse = [str(each.path) for each in targets if _least_read_bytes(each) > block_bytes]
            everywhere = " on every target" if len(coarse) < len(targets) else ""
            yield (
                f"{job.read_bytes} bytes were read for each block of {config.block_bytes}"
                f"{everywhere}: {job.read_bytes // config.block_bytes} bytes read for each one "
                f"delivered, as O_DIRECT on {', '.join(coarse)} takes no less."
            )
        shared = _sharing(targets)
        if shared:
            paths = ", ".join(str(target.path) for target in shared)
            yield f"{len(shared)} targets share a drive and count as one drive: {paths}."

    def _traced(self, result: RandomReadResult) -> tuple[TracedOperations, ...]:
        files = self._planned().own.files
        if not len(result.trace):
            return ()
        traced = tuple(TracedFile(file.path, file.size_bytes) for file in files)
        return (TracedOperations(phase=PHASE, kind=IOKind.READ, rows=result.trace, files=traced),)

    @property
    def _engine(self) -> str:
        """What answers requests; a loader that reads storage may call its engine anything."""
        return "storage" if self._loader.reads_storage else str(getattr(self._loader, "engine", ""))

    @property
    def _moved_bytes(self) -> int:
        """The bytes that a drive reads for one block; 0 without storage."""
        return self._planned().read_bytes if self._loader.reads_storage else 0

    @property
    def _table_bytes(self) -> int:
        return int(getattr(self._loader, "table_bytes", 0))

    @property
    def _cache_bytes(self) -> int:
        """The size of the cache in the memory of each GPU; 0 without one."""
        return int(getattr(self._loader, "cache_bytes", 0))

    def _planned(self) -> _Job:
        if self._job is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._job


def _require_reads(result: RandomReadResult, duration_s: float) -> None:
    if result.operations:
        return
    reasons = "; ".join(f"{each.count:,}: {each.reason}" for each in result.failures)
    raise RunError(
        f"no read succeeded in {format_seconds(duration_s)}"
        + (f"; failed reads: {reasons}" if reasons else "; use more workload.duration_s")
    )


def _least_read_bytes(target: Target) -> int:
    """Return the least that O_DIRECT reads on a target, 1 if it has none."""
    needs = target.direct_io
    return 1 if needs is None else max(needs.offset_align_bytes, needs.memory_align_bytes)


def _drives(target: Target) -> frozenset[str]:
    """Return the physical drives under a target, or itself if they are unknown."""
    known = controllers_under(target) or target.facts.devices
    return frozenset(known) or frozenset([str(target.path)])


def _sharing(targets: Sequence[Target]) -> list[Target]:
    """Return the targets that share a drive with another one."""
    return [
        target
        for target in targets
        if any(target is not other and _drives(target) & _drives(other) for other in targets)
    ]


class _Watch:
    """A ``ReadsWatch`` that keeps the timed phase open during the timed stretch of all ranks."""

    def __init__(self, context: RunContext, opened: ExitStack) -> None:
        self._context = context
        self._opened = opened
        self._phase: Phase | None = None

    def begin(self) -> None:
        """Open the phase, when every rank is ready."""
        self._context.communicator.barrier()
        self._phase = self._opened.enter_context(self._context.phase(PHASE))

    def moved(self, reads: int, read_bytes: int) -> None:
        if self._phase is None:
            raise RuntimeError("reads were counted before the timed stretch began")
        self._phase.moved(read_bytes=read_bytes, operations=reads)

    def end(self, start_ns: int, end_ns: int) -> None:
        """Close the phase, with the reader's own edges."""
        if self._phase is not None:
            self._phase.set_edges(start_ns, end_ns)
        self._opened.close()
