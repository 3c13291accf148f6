"""The model_load workload: seconds and joules from a cold drive to the last tensor of a model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.host.cgroups import usable_memory_bytes
from wattload.core.io import KEPT_PAGES, Extent
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.sysfs import named_values, read_text
from wattload.core.units import MIB, compared_bytes, format_bytes
from wattload.core.workload import Accelerator, Outcome, OverHosts, RunContext, WorkloadPlan
from wattload.loaders.data.cold_cache import cold_cache_check, evict, residency, worst_of_each
from wattload.loaders.direct.extent_reads import EngineReads
from wattload.loaders.engine.library import AUTO
from wattload.loaders.tensor_loads import LoadPlan, TensorLoadConfig
from wattload.results.model_load import facts
from wattload.results.model_load.figures import LEAST_BYTES
from wattload.results.quantity import counted
from wattload.workloads.model_load.config import Config
from wattload.workloads.model_load.dataset import (
    WORKLOAD,
    WRITING_BYTES,
    Dataset,
    dataset_of,
    one_target,
    outline,
)
from wattload.workloads.model_load.gpu import RankGpu, gpu_of

SAMPLE_S = 0.02
"""Time between two readings of a process's memory."""
CEILING_BLOCK_BYTES, CEILING_DEPTH, CEILING_S = 4 * MIB, 32, 3.0


class ModelLoad:
    """Loads of a model from safetensors files, by as many ranks as tensor parallelism has.

    Each load is a span of the timed phase ``load``. Before it files are evicted from the page
    cache, unless loads are to be warm. Afterwards every part is compared where it was delivered, in
    ``compare``; for the last load that is behind the job. A load that is not timed comes first, in
    ``warm_up``: a process has to get its memory, which on a virtual machine took three times as
    long as a load by any loader, and says nothing of drives and loaders.
    """

    name: ClassVar[str] = WORKLOAD
    outline = staticmethod(outline)
    needs: ClassVar[tuple[type, ...]] = (TensorLoadConfig,)
    over_hosts: ClassVar[OverHosts] = "one"
    """Tensor parallelism is inside of a server, which has the model on one drive."""
    _data: Dataset
    _plan: LoadPlan
    _gpu: RankGpu | None

    def __init__(self, config: Config, loader: TensorLoadConfig, accelerator: Accelerator) -> None:
        self.config, self._loader = config, loader

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Raises:
            ConfigError: the settings do not fit each other, the loader, the processes or this host.
            DataError: a file of the source can't be used.
            MissingExtraError: a library is not installed.
            TargetError: the loader can't read from the target.
        """
        config, loader, world = self.config, self._loader, context.communicator
        target = one_target(context.targets)
        if world.world_size > config.tp:
            raise ConfigError(
                f"{world.world_size} processes, but tensors are divided among {config.tp} ranks; "
                f"set workload.tp={world.world_size}, or start at most {config.tp}"
            )
        if config.temperature is facts.Temperature.warm and loader.tensors_bypass_cache:
            raise ConfigError(
                f"loader={loader.name} reads past the page cache, so no load is warm; use "
                "loader=mmap or loader=torch, or workload.temperature=cold"
            )
        gpu = self._gpu = gpu_of(config.destination, world.rank, world.world_size)
        data = self._data = dataset_of(config, context.seed, target, scale=context.scale)
        _require_on_target(config, data, target)
        plan = self._plan = data.plan_of(
            world.rank,
            config.tp,
            sliced=config.access is facts.Access.sliced,
            device=gpu.number if gpu else None,
        )
        loader.check_tensor_load(plan, context.targets)
        host_bytes, model = loader.tensor_load_bytes(plan), data.model
        size = f"{format_bytes(model.tensor_bytes)} in {counted(len(data.files), 'file')}"
        where = gpu.name if gpu else "host memory"
        needs = f"{format_bytes(plan.needed_bytes)} a rank at workload.tp={config.tp}, to {where}"
        missing, data_bytes = data.missing(), sum(data.sizes.values())
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=sum(missing.values()),
            prepare_files=len(missing),
            present_bytes=data.present_bytes(),
            run_bytes=0,
            peak_bytes=data_bytes,
            read_bytes=config.loads * world.world_size * _read_bytes(plan),
            memory_bytes_per_rank=max(host_bytes, WRITING_BYTES if missing else 0),
            needs_direct_io=loader.tensors_bypass_cache,
            lines=(("model", f"{model.name}, {model.tensors:,} tensors, {size}"), ("load", needs)),
            refusal=_refusal(plan, gpu, world.world_size * host_bytes),
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Write the files that are missing; those of a source are never changed."""
        is_first = context.communicator.rank == 0
        return context.communicator.broadcast(self._data.prepare(context) if is_first else None)

    def run(self, context: RunContext) -> Outcome:
        """Load the model several times, then measure what bounds a load.

        Raises:
            DataError: a file has changed, is short, or can't be read by the library.
            OSError: a file can't be opened or read.
            RunError: memory of the host or the GPU does not suffice.
        """
        loader, world, plan, cold = self._loader, context.communicator, self._plan, []
        is_cold = self.config.temperature is facts.Temperature.cold
        files = [path.resolve() for path in plan.files]  # links, in Hugging Face's cache
        own: list[facts.RankLoad] = []
        resident: list[int | None] = []
        with closing(loader.tensor_load(plan)) as tensors:
            with context.phase("warm_up", timed=False) as phase:
                tensors.load(phase.count_read)
            tensors.release()
            for number in range(self.config.loads):
                world.barrier()  # a file that a rank maps can't be evicted
                if world.rank == 0 and is_cold:
                    evict(files)
                    cold.append(cold_cache_check(files))
                world.barrier()
                task = f"load {number + 1} of {self.config.loads}"
                context.progress.begin(task, read_bytes=_read_bytes(plan))
                with peak_memory() as sampled, context.phase(facts.LOAD) as phase:
                    times = tensors.load(phase.count_read)
                if number == self.config.loads - 1:
                    context.end_job()
                world.barrier()
                resident.append(residency(files).resident_bytes)
                context.progress.begin("comparing the tensors")
                delivered = ((part, tensors.content(i)) for i, part in enumerate(plan.parts))
                with context.phase("compare", timed=False):
                    found = self._data.compared(delivered)
                found |= {
                    "start_ns": times.start_ns,
                    "first_layer_ns": times.first_layer_ns if plan.first_layer else None,
                    "end_ns": times.end_ns,
                    "delivered_bytes": times.delivered_bytes,
                    "peak_memory_bytes": max(sampled) - sampled[0] if sampled else None,
                }
                own.append(facts.RankLoad.model_validate(found))
                tensors.release()
            path = tensors.path()
        if not loader.tensors_bypass_cache and (world.world_size > 1 or not is_cold):
            path = path.model_copy(update={"path_requested": KEPT_PAGES})
        gpu = self._gpu
        by_rank = world.gather((own, plan, gpu.address if gpu else None))
        if world.rank:
            return Outcome()
        loads = zip(*(each for each, _, _ in by_rank), strict=True)
        parts = {part for _, each, _ in by_rank for part in each.parts}
        outcome = facts.LoadFacts(
            settings=facts.LoadSettings.model_validate(self.config),
            model=self._data.model,
            needed_bytes=tuple(each.needed_bytes for _, each, _ in by_rank),
            distinct_bytes=sum(part.needed_bytes for part in parts),
            loads=tuple(
                facts.Load(ranks=ranks, resident_bytes=each)
                for ranks, each in zip(loads, resident, strict=True)
            ),
            device=gpu.name if gpu else None,
            gpus=tuple((rank, each) for rank, (_, _, each) in enumerate(by_rank) if each),
            bypasses_cache=loader.tensors_bypass_cache,
            read_whole=plan.kinds_read_whole(reads_columns=loader.reads_columns),
            drive_ceiling_bytes_per_s=_drive_ceiling(context, files),
            copy_ceiling_bytes_per_s=gpu.copy_ceiling(context) if gpu else None,
        )
        return Outcome(
            facts=outcome,
            paths=(path,),
            checks=worst_of_each(cold),
            remarks=[
                f"{self._data.links} of {len(files)} files of {self.config.source} are links to "
                "files outside of it, which were read."
            ]
            if self._data.links
            else (),
            queue_depth=0 if plan.sliced else None,
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return nothing: every part was compared where it was delivered."""
        return ()


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Sample the memory of this process, in bytes, before, during and after a block of code.

    It is ``RssAnon`` + ``RssShmem`` of ``/proc/self/status``, without pages of mapped files, which
    the kernel can drop; its own peak, ``VmHWM``, has them. Without them no sample is taken.
    """
    samples: list[int] = []
    ended = threading.Event()

    def sample() -> None:
        values = named_values(read_text(Path("/proc/self/status")))
        if {"RssAnon", "RssShmem"} <= values.keys():
            kib = (int(values[name].split()[0]) for name in ("RssAnon", "RssShmem"))
            samples.append(1024 * sum(kib))

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            sample()

    sample()
    thread = threading.Thread(target=watch, name="peak-memory")
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
        sample()


def _require_on_target(config: Config, data: Dataset, target: Target) -> None:
    """Raise ``ConfigError`` for a source on another file system than the target."""
    device = target.path.stat().st_dev
    elsewhere = [path for path in data.files if config.source and path.stat().st_dev != device]
    if elsewhere:
        raise ConfigError(
            f"{elsewhere[0].resolve()} of workload.source is on another file system than "
            "target.path, whose drive is measured; set target.path to a folder on its file system"
        )


def _refusal(plan: LoadPlan, gpu: RankGpu | None, host_bytes: int) -> str:
    """Return what memory the ranks lack and what to set; empty if it suffices."""
    needed = [("host memory", host_bytes, usable_memory_bytes())]
    needed += [(gpu.name, gpu.ranks * plan.needed_bytes, gpu.free_bytes)] if gpu else []
    for where, needed_bytes, available_bytes in needed:
        if available_bytes is not None and needed_bytes > available_bytes:
            needs, available = compared_bytes(needed_bytes, available_bytes)
            return (
                f"this load needs {needs} of {where}, and {available} are available; set fewer "
                "workload.layers, a smaller workload.model, or a larger workload.tp with as many "
                "processes"
            )
    return ""


def _drive_ceiling(context: RunContext, files: Sequence[Path]) -> float | None:
    """Return the rate of the engine's sequential reads of files, in bytes/s.

    ``None`` if the target has no O_DIRECT, or for so small a model that no load is judged by it.
    """
    [target] = context.targets
    extents = [Extent(path, 0, path.stat().st_size) for path in files]
    if target.direct_io is None or sum(each.length_bytes for each in extents) < LEAST_BYTES:
        return None
    evict(files)
    block_bytes = CEILING_BLOCK_BYTES
    reads = EngineReads(
        *(block_bytes, target),
        backend=AUTO,
        block_bytes=block_bytes,
        depth=CEILING_DEPTH,
        pollers=1,
    )
    context.progress.begin("reading the files in order")
    with closing(reads), context.phase("drive_ceiling", timed=False) as phase:
        result = reads.repeat(extents, CEILING_S, phase.count_read)
    return result.moved_bytes / result.seconds


def _read_bytes(plan: LoadPlan) -> int:
    """Return about what a rank reads in a load."""
    return plan.needed_bytes if plan.sliced else plan.read_bytes
