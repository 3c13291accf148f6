"""The gpu_read workload: random reads of blocks, into the memory of GPUs or asked for by a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import ConfigError, NoGpuError, RunError
from wattload.core.host.gpus import Connection as GpuConnection
from wattload.core.host.gpus import Gpu, connect, gpu_of_process
from wattload.core.host.memory_traffic import find_meter
from wattload.core.io import TRACE_DTYPE, IOKind, TracedFile, TracedOperations
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.targets import Target
from wattload.core.units import format_bytes, format_seconds
from wattload.core.workload import (
    Accelerator,
    Communicator,
    Outcome,
    OverHosts,
    Phase,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.block_reads import (
    WARP,
    Ability,
    BlockReadConfig,
    Pattern,
    ReadFile,
    ReadPlan,
    ReadResult,
)
from wattload.loaders.data.cold_cache import cold_cache_check, evict, worst_over_hosts
from wattload.loaders.data.stamped_files import REMEDY, WRITING_BYTES, StampedFiles
from wattload.results.gpu_read.facts import (
    BY_REQUESTERS,
    STORAGE,
    Connection,
    Engine,
    ReadFacts,
    ReadSettings,
)
from wattload.workloads.gpu_read.checks import still_cold
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.dataset import WORKLOAD, dataset_of, part_of, unfinished
from wattload.workloads.gpu_read.reads import RankOutcome, latencies, path_of

MOST_ASKED_BYTES = 65_536
"""The largest block that a requester asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What the run reads: the files of all ranks, those of this one, and its GPUs.

    ``connections`` are those of the targets to their GPUs, for loaders with threads; ``gpu`` is the
    one that asks, for the others.
    """

    dataset: StampedFiles
    own: StampedFiles
    connections: tuple[GpuConnection, ...]
    gpu: Gpu | None
    host: str
    read_bytes: int


class GpuRead:
    """Random reads of blocks with many in flight, on all targets at once.

    The reader's threads and memory are ready before the timed phase begins. What is delivered is
    compared where it is delivered. With several processes each has a GPU of its own, and the
    targets are dealt out in order to the processes that see them. Runs by threads are named after
    the workload, those by requesters ``gpu_random_read``: pages show them differently.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (BlockReadConfig,)
    over_hosts: ClassVar[OverHosts] = "replicate"
    """Each host reads the files on its own drives, with its own GPUs, for the same time. With
    targets in a shared folder they are dealt out to the processes of all hosts instead."""

    def __init__(self, config: Config, loader: BlockReadConfig, accelerator: Accelerator) -> None:
        self.config = config
        self._loader = loader
        self._job: _Job | None = None
        self._has_threads = Ability.THREADS in loader.abilities
        self._reads_files = Ability.FILES in loader.abilities
        if not self._has_threads:
            self.name = BY_REQUESTERS  # type: ignore[misc]  # of this run

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Without a GPU or its driver the plan has a ``refusal``.

        Raises:
            ConfigError: there are fewer threads than targets, more processes than targets or GPUs,
                a GPU does not exist, or the settings do not fit the loader or this host.
            DataError: a finished file has another size than planned.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        sharers = context.sharers
        config, targets = self.config, context.targets
        self._check_counts(sharers.world_size, len(targets))
        dataset = dataset_of(config, targets)
        own = part_of(dataset, sharers.rank, sharers.world_size)
        # Loaders with threads read whole multiples of what any target takes.
        least = [] if self._has_threads else list(map(_least_read_bytes, targets))
        read_bytes = max(config.block_bytes, *least) if least else config.block_bytes
        self._require_regions(dataset, read_bytes)
        self._job = _Job(
            dataset=dataset,
            own=own,
            connections=(),
            gpu=None,
            host=os.uname().nodename,
            read_bytes=read_bytes,
        )
        refusal = ""
        try:
            self._job = replace(self._job, **self._gpus(context.local))
            self._loader.check_block_reads(self._reads(context), own.targets)
        except NoGpuError as error:
            refusal = str(error)
        missing = dataset.missing() if self._reads_files else []
        data_bytes = dataset.data_bytes if self._reads_files else 0
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=sum(file.size_bytes for file in missing),
            run_bytes=0,
            peak_bytes=data_bytes,
            present_bytes=unfinished(dataset) if missing else 0,
            memory_bytes_per_rank=max(
                self._loader.block_read_bytes(self._reads(context)),
                WRITING_BYTES if missing else 0,
            ),
            needs_direct_io=self._reads_files,
            reading_s=config.duration_s,
            lines=tuple(self._lines()),
            maximum_ranks=1 if self._has_threads else None,
            refusal=refusal,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Write or reuse the files of this rank's targets; nothing is written without storage."""
        job = self._planned()
        if not self._reads_files:
            return None
        reused = context.communicator.all_gather(job.own.prepare(context))
        return job.dataset.facts(reused=all(reused))

    def run(self, context: RunContext) -> Outcome:
        """Read for the configured time, from files that are not in the page cache.

        Raises:
            ConfigError: the GPU, a library or the kernel refuses.
            DataError: a file has another size than planned, or holes.
            OSError: a file can't be read.
            RunError: every read failed, reads were not answered, or the reader's process ended.
        """
        config, world = self.config, context.communicator
        own = self._read(context)
        rows = latencies(
            own.result,
            self.name,
            block_bytes=config.block_bytes,
            read_bytes=self._moved_bytes,
            by_threads=self._has_threads,
        )
        operations = self._traced(own.result)
        # Rank 0 needs no rows of the others: each keeps its own.
        slim = replace(own, result=replace(own.result, trace=np.empty(0, dtype=TRACE_DTYPE)))
        ranks = world.gather(slim)
        if world.rank:
            return Outcome(latencies=rows, operations=operations)
        facts = self._facts(ranks)
        # Of the requests in flight drives see only those that the cache has not met.
        is_whole = self._reads_files and not facts.has_cache
        return Outcome(
            facts=facts,
            paths=(path_of(ranks, facts.drive_bytes),),
            checks=tuple(worst_over_hosts((each.host, each.checks) for each in ranks)),
            remarks=tuple(self._remarks(context.targets)),
            latencies=rows,
            operations=operations,
            queue_depth=facts.in_flight if is_whole else None,
            block_bytes=None if facts.is_mapped else self._moved_bytes or None,
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return nothing: blocks were compared where they were delivered."""
        return ()

    def _check_counts(self, world_size: int, target_count: int) -> None:
        """Raise ``ConfigError`` for processes, threads or requesters that do not fit."""
        config = self.config
        if self._has_threads:
            if config.threads < target_count:
                raise ConfigError(
                    f"workload.threads must be at least the number of targets, {target_count}, got "
                    f"{config.threads}: each target needs a thread that reads from it"
                )
            return
        if world_size > target_count:
            raise ConfigError(
                f"{world_size} processes, but target.path names {target_count}: each process "
                f"needs a target of its own; use at most {target_count}, or more targets"
            )
        if config.requesters % WARP:
            following = (config.requesters // WARP + 1) * WARP
            raise ConfigError(
                f"workload.requesters must be a multiple of {WARP}, the threads of a warp, got "
                f"{config.requesters}; use {following}"
            )
        block_bytes = config.block_bytes
        if block_bytes & (block_bytes - 1) or block_bytes > MOST_ASKED_BYTES:
            following = min(1 << block_bytes.bit_length(), MOST_ASKED_BYTES)
            raise ConfigError(
                f"with loader={self._loader.name} workload.block_bytes must be a power of two, "
                f"up to {MOST_ASKED_BYTES}, got {block_bytes}; use {following}"
            )

    def _gpus(self, local: Communicator) -> dict[str, Any]:
        """Return the GPU of each target, or the one of this process, if the loader needs any."""
        if Ability.GPU not in self._loader.abilities:
            return {}
        named = self.config.named_gpus
        if self._has_threads:
            return {"connections": connect(self._planned().own.targets, named)}
        return {"gpu": gpu_of_process(local.rank, local.world_size, named)}

    def _require_regions(self, dataset: StampedFiles, read_bytes: int) -> None:
        regions = self.config.requesters // WARP
        least = min(file.size_bytes for file in dataset.files) // read_bytes
        if self.config.pattern == Pattern.REGIONS and least < regions:
            raise ConfigError(
                f"workload.pattern=regions needs a block for each of {regions} warps, and the "
                f"file has {least} of {read_bytes} bytes; use a larger workload.file_bytes or "
                "fewer workload.requesters"
            )

    def _read(self, context: RunContext) -> RankOutcome:
        job, rank = self._planned(), context.communicator.rank
        paths = job.own.paths
        checks: list[Check] = []
        if self._reads_files:
            job.own.require_sizes()
            checks.append(written_extents_check(paths, remedy=REMEDY))
            evict(paths)
        is_alone = context.communicator.world_size == 1
        folder = context.output_folder(self.name if is_alone else f"{self.name}-{rank}")
        with closing(self._loader.block_reader(self._reads(context), folder)) as reader:
            if self._reads_files:
                checks.append(cold_cache_check(paths))
            context.progress.begin("reading at random")
            context.communicator.barrier()  # ceilings of all ranks are measured at once
            with ExitStack() as opened:
                watch = _Watch(context, opened, self.name, meters=self._has_threads)
                result = reader.run(watch)
            context.progress.end()
            path = reader.path()
        if not result.operations:
            reasons = "; ".join(f"{each.count:,}: {each.reason}" for each in result.failures)
            raise RunError(
                f"no read succeeded in {format_seconds(self.config.duration_s)}"
                + (f"; failed reads: {reasons}" if reasons else "; use more workload.duration_s")
            )
        if self._has_threads:
            checks.append(still_cold(paths))
        return RankOutcome(
            rank=rank,
            host=job.host,
            gpu=job.gpu,
            targets=tuple(file.target.index for file in job.own.files),
            paths=paths,
            in_flight=self._in_flight,
            result=result,
            path=path,
            checks=tuple(checks),
            memory_bytes=watch.memory_bytes,
        )

    def _reads(self, context: RunContext) -> ReadPlan:
        config, job = self.config, self._planned()
        files, targets = job.own.files, job.own.targets
        gpus = {
            target.index: connection.gpu
            for target, connection in zip(targets, job.connections, strict=False)
        }
        asking = [gpus.get(file.target.index, job.gpu) for file in files]
        return ReadPlan(
            files=tuple(
                ReadFile(
                    path=file.path,
                    size_bytes=file.size_bytes,
                    stamps=file.stamps,
                    gpu=gpu.address if gpu else None,
                    node=gpu.node if gpu else None,
                )
                for file, gpu in zip(files, asking, strict=True)
            ),
            block_bytes=config.block_bytes,
            read_bytes=job.read_bytes,
            in_flight=self._in_flight,
            duration_s=config.duration_s,
            seed=context.seed + context.communicator.rank,
            pattern=Pattern(config.pattern),
            queue_pairs=config.queue_pairs,
            queue_size=config.queue_size,
            drive_count=len({drive for target in targets for drive in _drives(target)}),
        )

    def _lines(self) -> Iterator[tuple[str, str]]:
        config, job = self.config, self._planned()
        count = len(job.dataset.files)
        files = f"{count} files, each" if count > 1 else "a file"
        more = f", {job.read_bytes} read for each" if job.read_bytes > config.block_bytes else ""
        who = (
            f"by {config.threads} threads "
            if self._has_threads
            else f"{config.requesters} in flight per target, "
        )
        source = (
            f"from {files} of {format_bytes(job.dataset.files[0].size_bytes)}"
            if self._reads_files
            else f"from no storage (loader.engine={self._engine})"
        )
        yield "blocks", f"random, of {config.block_bytes} bytes{more}, {who}{source}"
        for connection in job.connections:
            yield "gpu", connection.text()
        if job.gpu is not None:
            name = f" ({job.gpu.name})" if job.gpu.name else ""
            cache = (
                f", with a cache of {format_bytes(self._cache_bytes)}" if self._cache_bytes else ""
            )
            yield "gpu", f"GPU {job.gpu.address}{name} asks{cache}"
        elif Ability.GPU in self._loader.abilities and not job.connections:
            yield "gpu", "unknown: no NVIDIA GPU with its driver here, which a run needs"

    def _facts(self, ranks: Sequence[RankOutcome]) -> ReadFacts:
        job, first = self._planned(), ranks[0].result
        return ReadFacts(
            settings=ReadSettings.model_validate(self.config),
            by_threads=self._has_threads,
            must_be_direct=Ability.ONLY_DIRECT in self._loader.abilities,
            engine=self._engine,
            read_bytes=job.read_bytes,
            file_bytes=job.dataset.files[0].size_bytes,
            table_bytes=int(getattr(self._loader, "table_bytes", 0)),
            cache_bytes=self._cache_bytes,
            shared_targets=len(_sharing(job.dataset.targets)),
            connections=tuple(Connection(**each.as_json()) for each in job.connections),
            reported_latency_s=first.mean_latency_s,
            latency_missing=next(filter(None, (e.result.latency_missing for e in ranks)), ""),
            reported=dict(first.reported),
            software=dict(first.software),
            ranks=tuple(each.facts() for each in ranks),
        )

    def _remarks(self, targets: Sequence[Target]) -> Iterator[str]:
        config, job = self.config, self._planned()
        for connection in job.connections:
            if connection.link == "another node":
                yield (
                    f"{connection.target.path} is on another NUMA node than its GPU "
                    f"{connection.gpu.address}: reads cross between processors."
                )
        if self._has_threads or not self._reads_files:
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

    def _traced(self, result: ReadResult) -> tuple[TracedOperations, ...]:
        files = self._planned().own.files
        if not len(result.trace):
            return ()
        traced = tuple(TracedFile(file.path, file.size_bytes) for file in files)
        return (
            TracedOperations(phase=self.name, kind=IOKind.READ, rows=result.trace, files=traced),
        )

    @property
    def _engine(self) -> Engine:
        """What answers requests; a loader that reads storage may call its engine anything."""
        engine: Engine = getattr(self._loader, "engine", STORAGE)
        return STORAGE if self._reads_files else engine

    @property
    def _in_flight(self) -> int:
        """The reads that this process asks for at once."""
        files = len(self._planned().own.files)
        return self.config.threads if self._has_threads else self.config.requesters * files

    @property
    def _moved_bytes(self) -> int:
        """The bytes that a drive reads for one block; 0 without storage."""
        return self._planned().read_bytes if self._reads_files else 0

    @property
    def _cache_bytes(self) -> int:
        """The size of the cache in the memory of each GPU; 0 without one."""
        return int(getattr(self._loader, "cache_bytes", 0))

    def _planned(self) -> _Job:
        if self._job is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._job


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
    """A ``ReadsWatch`` that keeps the timed phase open during the timed window of all ranks.

    If it ``meters``, it reads what the host's memory moves meanwhile, where hardware counts it.
    """

    def __init__(self, context: RunContext, opened: ExitStack, name: str, *, meters: bool) -> None:
        self._context = context
        self._opened = opened
        self._name = name
        self._phase: Phase | None = None
        self._meter = find_meter().meter if meters else None
        self._from_bytes = 0.0
        if self._meter is not None:
            opened.callback(self._meter.close)
        self.memory_bytes: float | None = None

    def begin(self) -> None:
        """Open the phase, when every rank is ready."""
        self._context.communicator.barrier()
        self._phase = self._opened.enter_context(self._context.phase(self._name))
        self._from_bytes = self._memory_bytes() or 0.0

    def moved(self, reads: int, read_bytes: int) -> None:
        if self._phase is None:
            raise RuntimeError("reads were counted before the timed window began")
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
