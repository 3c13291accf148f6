"""One run of training: what is opened in which order, the steps, and the outcome.

Everything that takes memory is there before time starts: the topology, the memory of batches and
the loader's own, all within the limit of the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import ConfigError
from wattload.core.host.io_profile import profile
from wattload.core.host.memory_group import memory_group
from wattload.core.record.results import latencies_of
from wattload.core.storage.targets import counting_devices
from wattload.core.units import NS_PER_S, format_bytes
from wattload.core.workload import Outcome, Phase, RunContext
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.direct.feature_rows import random_rows_per_s
from wattload.loaders.engine.library import MEMORY
from wattload.loaders.feature_rows import GatherResult, read_bytes_of
from wattload.loaders.feature_rows import Memory as RowMemory
from wattload.loaders.graph.files import ROW_BYTES, GraphFiles
from wattload.loaders.graph.sampler import BatchSampler, Sampler, SamplingLoaderConfig, most_drawn
from wattload.loaders.graph.torch_sampler import TorchSampler, fits
from wattload.results.gnn.facts import (
    PHASE,
    REQUESTS,
    STEPS,
    Ceilings,
    GraphFacts,
    GraphSettings,
    Memory,
    ProfiledSteps,
    TrainingGpu,
)
from wattload.workloads.gnn.config import CPU, EMULATED, GPU
from wattload.workloads.gnn.dataset import shape_facts
from wattload.workloads.gnn.facts import latency, read_bytes, summed, table
from wattload.workloads.gnn.job import Job
from wattload.workloads.gnn.places import Comparer, GpuSlot, HostSlot, PinnedSlot, pinned
from wattload.workloads.gnn.steps import Drawn, Sleeping, Step, Steps, Training
from wattload.workloads.gnn.training import CpuTraining, GpuTraining

_SPARE = 1.1
"""The limit is so much above what the process has after a step and the rest of the budget."""
N = TypeVar("N", int, float)

_STEP_BYTES = 64 << 20
"""What steps may allocate for a moment, such as lists of rows."""
_TRACED_BYTES = 200
"""Memory of the trace of a read."""
_SAMPLED = 64
"""Batches that are sampled beforehand to know their rows, which differ little."""
_CEILING_S, _HOST_CEILING_S = 0.5, 0.2
DROP_CACHE = "drop_cache"


def trained(job: Job, context: RunContext) -> Outcome:
    """Train, and return the outcome; see ``Gnn.run``."""
    with ExitStack() as opened:
        return _Run(job, context, opened).outcome()


@dataclass(frozen=True, slots=True)
class _Profiled:
    """What drives saw of some steps, and each request if there is a trace."""

    facts: ProfiledSteps
    requests: pa.Table | None


class _Run:
    """What is open during a run; ``opened`` closes it in reverse order."""

    def __init__(self, job: Job, context: RunContext, opened: ExitStack) -> None:
        self._job = job
        self._context = context
        dataset, shape, config = job.dataset, job.dataset.shape, job.config
        self._device = _device_of(job)
        self._trainer = None if job.trainer == EMULATED else job.make_trainer(str(self._device))
        self._stream = (
            torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch
        )
        self._activation_bytes = job.activation_bytes()
        self._paths = tuple(file.path for file in dataset.feature_files)
        self._written = (
            written_extents_check(self._paths, remedy=dataset.remedy)
            if isinstance(dataset, GraphFiles)
            else None
        )
        evict(self._paths)
        self._memory = opened.enter_context(memory_group())
        context.progress.begin("reading the topology")
        self._topology = dataset.load_topology()
        context.progress.end()
        self._seeds = job.seeds
        self.sampler_name, self._sampler = self._open_sampler()
        opened.callback(self._sampler.close)
        self._batch_rows = self._sample_beforehand()
        job.require_share(self._batch_rows)
        self._comparer = Comparer(
            shape,
            dataset.feature_files,
            dataset.graph if isinstance(dataset, GraphFiles) else None,
            every=config.compare_every,
            threads=job.sampler_threads,
            steps=job.step_count,
            remedy=dataset.remedy,
        )
        opened.callback(self._comparer.close)
        slots, memories = self._make_slots(opened)
        plan = job.plan(self._batch_rows, memories, self._most_drawn)
        self._gatherer = opened.enter_context(closing(job.loader.row_gatherer(plan)))
        self._plan = plan
        self._ceiling_reason = ""
        self._ceilings: dict[str, float | None] = {
            "engine_rows_per_s": None,
            "host_rows_per_s": None,
            "pull_rows_per_s": getattr(self._gatherer, "pull_rows_per_s", None),
        }
        self._measure_ceilings()
        self._phase: Phase | None = None
        self._steps = opened.enter_context(
            closing(
                Steps(
                    draw=self._draw,
                    gatherer=self._gatherer,
                    window=job.loader.window_batches,
                    slots=slots,
                    training=self._training(),
                    evict=self._evict,
                    gathered=self._gathered,
                    first=0,
                )
            )
        )

    def outcome(self) -> Outcome:
        """Run all steps, the timed ones in their phase."""
        job, context, config = self._job, self._context, self._job.config
        evict(self._paths)
        cold = cold_cache_check(self._paths)
        self._steps.prime()
        timed_from = config.warmup_steps
        profiled_from = timed_from + config.steps
        context.progress.begin("warming up")
        with context.phase("warmup", timed=False) as self._phase:
            self._run(range(1))
            own_bytes = self._limit_to_budget()
            self._run(range(1, timed_from))
        context.progress.end()
        self._gatherer.count_anew()
        before = self._memory.hits(), self._memory.stalled_s()
        context.progress.begin("training")
        with context.phase(PHASE) as phase:
            self._phase = phase
            steps = self._run(range(timed_from, profiled_from))
            phase.set_edges(steps[0].start_ns, steps[-1].end_ns)
        context.progress.end()
        self._phase = None
        path = self._gatherer.path()
        memory = self._memory_facts(own_bytes, *before)
        context.end_job()
        profiled = self._profile(range(profiled_from, profiled_from + config.profile_steps))
        self._memory.lift()
        self._gatherer.release_pages()
        evict(self._paths)
        self._comparer.finish()
        self._measure_ceilings()
        tables = {STEPS.name: table(steps)}
        if profiled is not None and profiled.requests is not None:
            tables[REQUESTS.name] = profiled.requests
        read = read_bytes(steps)
        return Outcome(
            facts=self._facts(steps, profiled, memory),
            paths=(path,),
            checks=tuple(filter(None, (cold, self._written))),
            remarks=tuple(self._remarks()),
            latencies=latencies_of(
                latency(steps), phase=PHASE, kind="read", operation_bytes=read or ROW_BYTES
            ),
            tables=tables,
            queue_depth=config.outstanding if job.loader.name == "direct" else None,
            block_bytes=read if job.loader.name == "direct" else None,
        )

    def _run(self, numbers: range) -> list[Step]:
        return list(self._steps.run(numbers))

    def _draw(self, number: int) -> Drawn:
        start_ns = time.monotonic_ns()
        seeds = self._seeds.batch(number, self._job.config.batch_seeds)
        # A stream of its own: sampling need not wait for a batch that trains. The rows are copied
        # to the host, so the batch is whole when it is handed over.
        with torch.cuda.stream(self._stream):
            batch = self._sampler.draw(number, seeds)
            rows = batch.rows(self._job.dataset.shape)
        labels = self._job.dataset.labels(seeds)
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        return Drawn(number=number, batch=batch, rows=rows, labels=labels, seconds=seconds)

    def _sample_beforehand(self) -> int:
        """Return the rows to make room for, by the largest of all batches or of some."""
        count = min(self._job.step_count, _SAMPLED)
        most = max(len(self._draw(number).rows) for number in range(count))
        # A loader that samples by itself may draw other rows for the same number the next time.
        is_exact = count == self._job.step_count and not isinstance(
            self._job.loader, SamplingLoaderConfig
        )
        return most if is_exact else self._job.room_for(most)

    def _open_sampler(self) -> tuple[str, BatchSampler]:
        job, loader = self._job, self._job.loader
        wanted = job.config.sampler
        if isinstance(loader, SamplingLoaderConfig):
            return loader.name, loader.batch_sampler(
                self._topology, job.fanouts, threads=job.sampler_threads, seed=self._context.seed
            )
        rows_bytes = job.expected_rows * ROW_BYTES * (2 if job.is_ahead else 1)
        cache_bytes = job.loader_memory(job.expected_rows).gpu_cache_bytes
        on_gpu = job.trainer == GPU and fits(
            job.dataset.shape, self._device, reserved_bytes=2 * rows_bytes + cache_bytes
        )
        if wanted == GPU and not on_gpu:
            raise ConfigError(
                "workload.sampler=gpu needs room on the GPU for the topology of "
                f"{format_bytes(job.dataset.topology_bytes)} beside batches; use "
                "workload.sampler=cpu"
            )
        if on_gpu and wanted != CPU:
            return "torch", TorchSampler(
                self._topology, job.fanouts, device=self._device, seed=self._context.seed
            )
        return "c", Sampler(
            self._topology, job.fanouts, threads=job.sampler_threads, seed=self._context.seed
        )

    def _make_slots(self, opened: ExitStack) -> tuple[Sequence[Any], tuple[RowMemory, ...]]:
        """Return the memory of one batch, or of two that alternate."""
        job, rows, comparer = self._job, self._batch_rows, self._comparer
        count = 2 if job.is_ahead else 1
        if job.loader.fills_gpu:
            on_gpu = [GpuSlot(rows, self._device, comparer) for _ in range(count)]
            return on_gpu, tuple(slot.region() for slot in on_gpu)
        if job.trainer != GPU:
            hosts = [HostSlot(rows, comparer) for _ in range(count)]
            return hosts, tuple(slot.buffer for slot in hosts)
        gpu = GpuSlot(rows, self._device, comparer)
        both = [PinnedSlot(rows, gpu, comparer) for _ in range(count)]
        memories = tuple(slot.host.buffer for slot in both)
        opened.enter_context(pinned(memories, self._device))
        return both, memories

    def _training(self) -> Training[Any]:
        if self._trainer is None:
            return Sleeping(self._job.step_s or 0.0)
        if self._job.trainer == GPU:
            return GpuTraining(self._trainer)
        return CpuTraining(self._trainer)

    def _most_drawn(self, count: int) -> NDArray[np.uint64]:
        job = self._job
        return most_drawn(self._topology, job.fanouts, count, threads=job.sampler_threads)

    def _measure_ceilings(self) -> None:
        """Measure what the engine reads at random by itself, with and without the drives.

        Before the steps and after them, and the larger counts: a busy host may slow one of them.
        The engine without drives bounds no reader of mapped files.
        """
        if any(target.direct_io is None for target in self._context.targets):
            self._ceiling_reason = "a target has no O_DIRECT"
            return
        measured = partial(
            random_rows_per_s, self._plan, pollers=getattr(self._job.loader, "pollers", None)
        )
        found = {"engine_rows_per_s": measured(seconds=_CEILING_S)}
        if self._gatherer.path().data_path != "page_cache":
            found["host_rows_per_s"] = measured(seconds=_HOST_CEILING_S, backend=MEMORY)
        for name, rate in found.items():
            self._ceilings[name] = max(rate, self._ceilings[name] or 0.0)

    def _limit_to_budget(self) -> int | None:
        """Limit memory to what the process has and the rest of the budget; return the former.

        A first step has allocated by now what it takes to train, in drivers and libraries too. So
        the rest of the budget is what the page cache gets, whatever the process has besides
        topology, batches and the loader's memory, or had before the group.
        """
        self._gatherer.release_pages()
        evict(self._paths)
        own_bytes = self._memory.own_bytes()
        if own_bytes is None:
            return None
        left_bytes = max(self._job.budget_bytes() - self._job.needed_bytes(self._batch_rows), 0)
        profile_bytes = self._job.config.profile_steps * self._batch_rows * _TRACED_BYTES
        # What a step takes for a moment, the page cache gives up, if it has as much.
        least_bytes = own_bytes + self._activation_bytes + profile_bytes + _STEP_BYTES
        self._memory.limit(max(int(_SPARE * (own_bytes + left_bytes)), least_bytes))
        return own_bytes

    def _evict(self) -> float:
        """Empty the page cache of features where nothing limits it; return the seconds."""
        if self._memory.method is not None:
            return 0.0
        start_ns = time.monotonic_ns()
        self._gatherer.release_pages()
        evict(self._paths)
        return (time.monotonic_ns() - start_ns) / NS_PER_S

    def _gathered(self, result: GatherResult) -> None:
        if self._phase is not None:
            reads = result.rows if result.operations is None else result.operations
            self._phase.moved(read_bytes=result.storage_bytes, operations=reads)

    def _profile(self, numbers: range) -> _Profiled | None:
        if not numbers:
            return None
        devices = sorted(
            {name for target in self._context.targets for name in counting_devices(target)}
        )
        self._context.progress.begin("tracing reads at the drive")
        with profile(devices) as traced:
            steps = self._run(numbers)
        self._context.progress.end()
        if traced.result is None:
            return None
        own = [step.gathered.operations for step in steps]
        facts = ProfiledSteps(
            seen=traced.result,
            steps=len(steps),
            own_reads=None if None in own else sum(own),
            own_read_bytes=sum(step.gathered.storage_bytes for step in steps),
        )
        return _Profiled(facts, traced.requests)

    @property
    def _read_bytes_per_row(self) -> int:
        """The bytes that a reader of blocks moves for a row."""
        return max(read_bytes_of(file, ROW_BYTES) for file in self._job.dataset.feature_files)

    def _facts(
        self, steps: Sequence[Step], profiled: _Profiled | None, memory: Memory
    ) -> GraphFacts:
        job = self._job
        gpu = job.gpu if self._device.type == "cuda" else None
        return GraphFacts(
            settings=GraphSettings.model_validate(job.config),
            **shape_facts(job.dataset),
            row_bytes=ROW_BYTES,
            training_seeds=self._seeds.count,
            trainer=job.trainer,
            emulated_step_s=job.step_s if job.trainer == EMULATED else None,
            gpu=TrainingGpu(address=gpu.address, name=gpu.name) if gpu else None,
            sampler=self.sampler_name,
            sampler_threads=None if self.sampler_name == "torch" else job.sampler_threads,
            torch=torch.__version__,
            memory=memory,
            **summed(steps),
            read_bytes_per_row=self._read_bytes_per_row,
            ceilings=Ceilings(**self._ceilings),
            ceiling_reason=self._ceiling_reason,
            profile=None if profiled is None else profiled.facts,
        )

    def _memory_facts(
        self, own_bytes: int | None, hits_before: int | None, stalled_before_s: float | None
    ) -> Memory:
        job, loader = self._job, self._job.loader_memory(self._batch_rows)
        limit_bytes = self._memory.limit_bytes
        on_gpu = self._device.type == "cuda"
        batch_bytes = self._batch_rows * ROW_BYTES
        return Memory(
            share=job.config.memory_share,
            budget_bytes=job.budget_bytes(),
            method=self._memory.method or DROP_CACHE,
            reason=self._memory.reason,
            limit_bytes=limit_bytes,
            peak_bytes=self._memory.peak_bytes(),
            own_bytes=own_bytes,
            page_cache_bytes=_difference(limit_bytes, own_bytes),
            limit_hits=_difference(self._memory.hits(), hits_before),
            stalled_s=_difference(self._memory.stalled_s(), stalled_before_s),
            topology_bytes=job.dataset.topology_bytes,
            batch_bytes=job.batch_bytes(self._batch_rows),
            **asdict(loader),
            gpu_batch_bytes=batch_bytes * (2 if job.loader.fills_gpu and job.is_ahead else 1)
            if on_gpu
            else 0,
            gpu_topology_bytes=job.dataset.topology_bytes if self.sampler_name == "torch" else 0,
        )

    def _remarks(self) -> Iterator[str]:
        job = self._job
        if self._memory.method is None:
            yield (
                "No memory limit could be set, so the page cache of features was dropped before "
                f"each step instead: {self._memory.reason}."
            )
        if job.trainer == EMULATED:
            yield (
                f"Training was emulated by {job.step_s} s a step, whatever its rows; the steps of "
                "h100 were measured on batches of 347,000 rows."
            )
        if isinstance(job.dataset, GraphFiles):
            yield (
                "The graph is synthetic: neighbours have no locality, so do not compare hit rates "
                "with those of real graphs."
            )
        else:
            yield (
                f"No digest of {job.config.source} exists, so nothing proves that its edges are "
                "IGB's; they all name existing nodes. The topology in memory has the CRC-32 "
                f"{self._topology.crc32:08x}: runs on the same files have the same one."
            )
        if self._context.scale == "demo":
            yield f"scale=demo trains on batches of {job.config.batch_seeds} seeds."
        if isinstance(job.loader, SamplingLoaderConfig):
            yield f"loader={job.loader.name} samples its own batches, not those of other loaders."


def _difference(more: N | None, less: N | None) -> N | None:
    return None if more is None or less is None else more - less


def _device_of(job: Job) -> torch.device:
    """Return the device of the GPU that trains or is filled, else the CPU."""
    if job.gpu is None:
        return torch.device("cpu")
    for number in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(number)
        parts = (found.pci_domain_id, found.pci_bus_id, found.pci_device_id)  # type: ignore[attr-defined]  # torch
        if "{:04x}:{:02x}:{:02x}.0".format(*parts) == job.gpu.address.lower():
            torch.cuda.set_device(number)
            return torch.device("cuda", number)
    raise ConfigError(
        f"PyTorch does not see GPU {job.gpu.address}; check CUDA_VISIBLE_DEVICES, or name another "
        "with workload.gpus"
    )
