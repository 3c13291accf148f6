"""Training on a graph: gathers against the engine's own reads, sampling against DGL, and stages.

Gathers read random rows of a file of 512 MiB, each row once, by the same depth from the same number
of submitting threads. ``loader=mmap`` is compared without a goal, from a cold page cache that a
memory limit keeps below 45 % of the file, as a graph larger than memory does. Stages are those that
whole runs on ``igb_tiny`` record, each in a new folder, so that each run also writes the graph.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks import jobs
from benchmarks.files import written_files
from benchmarks.gpu import gpus
from benchmarks.measure import NotMeasuredError, Result, Rounds, rounds
from benchmarks.taken import Taken
from wattload.core.errors import WattloadError
from wattload.core.host.memory_limit import limited_memory
from wattload.core.io import Extent, IOKind, IOOrder, IOPlan, MemoryKind, MemoryRegion
from wattload.core.record.run import RunRecord
from wattload.core.units import KIB, MIB
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import AUTO
from wattload.loaders.feature_rows import (
    FeatureFile,
    FeatureLoaderConfig,
    FeaturePlan,
    Memory,
    RowGatherer,
)
from wattload.loaders.gpu_queue.config import Config as Queue
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import BatchSampler, Sampler
from wattload.loaders.graph.seeds import TrainingSeeds
from wattload.loaders.graph.shapes import SHAPES
from wattload.loaders.graph.synthetic import SyntheticGraph
from wattload.loaders.mmap.config import Config as Mmap

if TYPE_CHECKING:
    import torch

ROW_BYTES = 4 * KIB
FILE_BYTES = 512 * MIB
OUTSTANDING = 128
SECONDS = 1.0
MAPPED_ROWS = 4096
"""Rows of a gather beside mmap, which is slow with read-ahead."""
MEMORY_SHARE = 0.45
OWN_BYTES = 256 * MIB
"""What a limited process may need besides the page cache."""
GRAPH = "igb_small"
FANOUTS = (10, 5, 5)
SEEDS = 1024
BATCHES = 8
"""Batches that a sampler draws in one go."""
EDGES = 1 << 22
RUN = (
    "workload=gnn",
    "workload.graph=igb_tiny",
    "workload.batch_seeds=256",
    "workload.hidden=64",
    "workload.steps=20",
    "workload.warmup_steps=2",
    "workload.profile_steps=0",
    "workload.memory_share=2",
    "loader=direct",
    "power=none",
)
RUN_S = 20.0
"""About the seconds of a run, with writing its graph."""

GATHER_GOAL, CPU_GOAL, QUEUE_GOAL, PULL_GOAL, COPY_GOAL = 0.90, 1.1, 0.95, 0.95, 0.95
SAMPLER_GOAL, GPU_SAMPLER_GOAL_MS = 2.0, 10.0
SERIAL_GOAL, AHEAD_GOAL, WRITING_GOAL, EDGES_GOAL = 0.98, 1.10, 1.0, 20.0

STAGES = ("sampling_s", "aggregation_s", "transfer_s", "training_s", "verification_s")

Take = Callable[[], Taken]
Sense = Literal["at_least", "at_most"]


def seconds(pairs: int) -> float:
    """Return about how long the group takes, on a machine with a GPU."""
    gathers = 3 * 6
    return 30 + pairs * (gathers * (SECONDS + 0.5) + 2 * RUN_S + 10)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield gathers, sampling, then what runs record."""
    gpu, reason = _gpu()
    try:
        with written_files(target, 1, FILE_BYTES) as (path,), ExitStack() as opened:
            yield from _gathers(Files(path, opened), gpu, reason, pairs)
    except (NotMeasuredError, WattloadError, OSError) as error:
        yield _missing("direct ÷ engine", GATHER_GOAL, str(error))
    yield from _sampling(gpu, reason, pairs)
    yield from _runs(target, pairs)


@dataclass(frozen=True, slots=True)
class Files:
    """The file of rows, and what closes the gatherers that were opened over it."""

    path: Path
    opened: ExitStack

    def plan(self, *memories: Memory, gpu: str | None = None, **more: Any) -> FeaturePlan:
        count = FILE_BYTES // ROW_BYTES
        return FeaturePlan(
            files=(FeatureFile(path=self.path, row_count=count),),
            row_count=count,
            row_bytes=ROW_BYTES,
            outstanding=OUTSTANDING,
            batch_rows=count,
            memories=memories,
            gpu=gpu,
            **more,
        )

    def gatherer(self, config: FeatureLoaderConfig, plan: FeaturePlan) -> RowGatherer:
        """Return an open gatherer.

        Raises:
            NotMeasuredError: it does not work here.
        """
        try:
            config.check_feature_rows(plan, [])
            gatherer = config.row_gatherer(plan)
        except (WattloadError, OSError) as error:
            raise NotMeasuredError(str(error)) from error
        self.opened.callback(gatherer.close)
        return gatherer


@dataclass(slots=True)
class Gathering:
    """Gathers of rows in a random order, ``batch`` rows at a time, until ``SECONDS`` are over.

    With ``is_cold`` the file leaves the page cache first, and a memory limit bounds what of it
    comes back. ``method`` is the limit's, or why there is none.
    """

    gatherer: RowGatherer
    path: Path
    memory: Memory
    batch: int
    is_cold: bool = False
    storage_bytes: int = 0
    rows: int = 0
    method: str = ""

    def __call__(self) -> Taken:
        if not self.is_cold:
            return self._gather()
        self.gatherer.release_pages()
        evict([self.path])
        with limited_memory(int(MEMORY_SHARE * FILE_BYTES) + OWN_BYTES) as memory:
            self.method = memory.method or f"the page cache was not limited: {memory.reason}"
            return self._gather()

    def _gather(self) -> Taken:
        order = np.random.default_rng(self.rows).permutation(FILE_BYTES // ROW_BYTES)
        listed, at = order.astype(np.uint64), 0
        taken_s = cpu_s = 0.0
        rows = 0
        while taken_s < SECONDS:
            if at + self.batch > len(listed):
                at = 0
            part, into = listed[at : at + self.batch], _first(self.memory, self.batch)
            try:
                result = self.gatherer.gather(part, into)
            except (WattloadError, OSError) as error:
                raise NotMeasuredError(str(error)) from error
            at += self.batch
            rows += result.rows
            taken_s += result.seconds
            cpu_s += result.cpu_s
            self.storage_bytes += result.storage_bytes
        self.rows += rows
        return Taken(
            moved_bytes=rows * ROW_BYTES,
            operation_count=rows,
            seconds=taken_s,
            cpu_s=cpu_s,
            process_cpu_s=cpu_s,
        )


def _first(memory: Memory, rows: int) -> Memory:
    if isinstance(memory, MemoryRegion):
        return replace(memory, size_bytes=rows * ROW_BYTES)
    return memory[: rows * ROW_BYTES]


def _gathers(files: Files, gpu: str | None, reason: str, pairs: int) -> Iterator[Result]:
    count = FILE_BYTES // ROW_BYTES
    memory = aligned_buffer(FILE_BYTES)
    direct = files.gatherer(Direct(pollers=1), files.plan(memory))
    whole = Gathering(direct, files.path, memory, count)
    yield from _against_engine(files, whole, pairs)
    for advice in ("normal", "random"):
        yield _beside_mmap(files.path, advice, memory, pairs)

    def queue(config: Queue, plan: FeaturePlan) -> Callable[[], Gathering]:
        into = plan.memories[0]
        return lambda: Gathering(files.gatherer(config, plan), files.path, into, count)

    by_cpu = queue(Queue(requester="cpu", pollers=1, host_share=0.0), files.plan(memory))
    yield _queue("gpu_queue ÷ direct, CPU threads ask", by_cpu, whole, pairs)
    names = (
        "gpu_queue ÷ direct, a GPU asks",
        "gpu_queue from host memory ÷ pull ceiling",
        "transfer of a batch ÷ pinned copy",
    )
    if gpu is None:
        for name, goal in zip(names, (QUEUE_GOAL, PULL_GOAL, COPY_GOAL), strict=True):
            yield _missing(name, goal, f"needs a GPU: {reason}")
        return
    region = _on_gpu(gpu)
    of_gpu = Queue(pollers=1, host_share=0.0, cache_share=0.0)
    yield _queue(names[0], queue(of_gpu, files.plan(region, gpu=gpu)), whole, pairs)
    yield _pulls(names[1], files, gpu, region, pairs)
    yield _copies(names[2], memory, region, pairs)


def _against_engine(files: Files, whole: Gathering, pairs: int) -> Iterator[Result]:
    """Yield speed and CPU time per row against random reads that the engine draws itself."""
    engine = IOEngine(backend=AUTO, block_bytes=ROW_BYTES, depth=OUTSTANDING, pollers=1)
    files.opened.callback(engine.close)
    plan = IOPlan(
        kind=IOKind.READ,
        extents=(Extent(files.path, 0, FILE_BYTES),),
        block_bytes=ROW_BYTES,
        depth=OUTSTANDING,
        order=IOOrder.RANDOM,
        duration_s=SECONDS,
    )

    def read() -> Taken:
        start_s = time.thread_time()
        result = engine.run(plan)
        cpu_s = time.thread_time() - start_s + result.cpu_s
        return Taken(
            moved_bytes=result.moved_bytes,
            operation_count=result.operation_count,
            seconds=result.seconds,
            cpu_s=cpu_s,
            process_cpu_s=cpu_s,
        )

    ways: dict[str, Take] = {"direct": whole, "engine": read, "engine again": read}
    taken = rounds(ways, pairs)
    yield _ratio("direct ÷ engine", taken, goal=GATHER_GOAL)
    name = "direct ÷ engine, CPU per row"
    of = Taken.cpu_s_per_million
    yield _ratio(name, taken, of=of, unit="CPU s per M", goal=CPU_GOAL, sense="at_most")


def _beside_mmap(path: Path, advice: str, memory: Memory, pairs: int) -> Result:
    """Return direct beside mmap with all cores, both by small gathers from a cold page cache.

    Its gatherers close at the end: what they map of the file could not be evicted.
    """
    name = f"direct ÷ mmap {advice}, cold"
    lower = f"mmap {advice}, cold"
    try:
        with ExitStack() as opened:
            files = Files(path, opened)
            mapped, direct = (
                Gathering(
                    files.gatherer(config, files.plan(memory)),
                    path,
                    memory,
                    MAPPED_ROWS,
                    is_cold=True,
                )
                for config in (Mmap(advice=advice), Direct(pollers=1))
            )
            ways: dict[str, Take] = {"direct": direct, lower: mapped, f"{lower} again": mapped}
            taken = rounds(ways, pairs)
    except NotMeasuredError as error:
        return _missing(name, None, str(error))
    remarks = [each for each in mapped.gatherer.path().remarks if "read-ahead" in each]
    amplification = mapped.storage_bytes / (mapped.rows * ROW_BYTES)
    note = f"{name}: storage gave mmap {amplification:.2f} times the bytes of its rows"
    notes = [". ".join([note, f"limit of memory: {mapped.method}", *remarks])]
    return _ratio(name, taken, notes=notes)


def _queue(name: str, gather: Callable[[], Gathering], direct: Gathering, pairs: int) -> Result:
    try:
        ways: dict[str, Take]
        ways = {"gpu_queue": gather(), "direct": direct, "direct again": direct}
        return _ratio(name, rounds(ways, pairs), goal=QUEUE_GOAL)
    except NotMeasuredError as error:
        return _missing(name, QUEUE_GOAL, str(error))


def _pulls(name: str, files: Files, gpu: str, region: MemoryRegion, pairs: int) -> Result:
    """Return rows a second that are all in pinned host memory ÷ what the GPU pulls at most."""
    plan = files.plan(region, gpu=gpu, most_drawn=lambda count: np.arange(count, dtype=np.uint64))
    config = Queue(pollers=1, host_share=1.0, cache_share=0.0)

    def take() -> tuple[float, float]:
        """Open a queue, which measures the ceiling, and gather from host memory."""
        with ExitStack() as opened:
            gatherer = Files(files.path, opened).gatherer(config, plan)
            taken = Gathering(gatherer, files.path, region, plan.row_count)()
            ceiling: float | None = getattr(gatherer, "pull_rows_per_s", None)
        if not ceiling:
            raise NotMeasuredError("the queue did not measure what the GPU pulls without it")
        return taken.million_per_s(), ceiling / 1e6

    try:
        found = [take() for _ in range(pairs)]
    except NotMeasuredError as error:
        return _missing(name, PULL_GOAL, str(error))
    return Result(
        name=name,
        unit="M/s",
        goal=PULL_GOAL,
        values=[rate / ceiling for rate, ceiling in found],
        figures={
            "gpu_queue": [rate for rate, _ in found],
            "pull ceiling": [ceiling for _, ceiling in found],
        },
    )


def _copies(name: str, memory: NDArray[np.uint8], region: MemoryRegion, pairs: int) -> Result:
    """Return copies out of memory that was pinned later, as training does, ÷ CUDA's own memory."""
    import torch

    from wattload.workloads.gnn.places import pinned

    target = region.owner
    assert isinstance(target, torch.Tensor)
    own = torch.empty(len(memory), dtype=torch.uint8, pin_memory=True)

    def copied(source: torch.Tensor) -> Take:
        def take() -> Taken:
            start_s, start_cpu_s, count = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - start_s < SECONDS:
                target.copy_(source, non_blocking=True)
                torch.cuda.current_stream(target.device).synchronize()
                count += 1
            cpu_s = time.process_time() - start_cpu_s
            return Taken(
                moved_bytes=count * len(memory),
                operation_count=count,
                seconds=time.perf_counter() - start_s,
                cpu_s=cpu_s,
                process_cpu_s=cpu_s,
            )

        return take

    try:
        with pinned([memory], target.device):
            batch, yardstick = copied(torch.from_numpy(memory)), copied(own)
            ways = {"batch": batch, "pinned copy": yardstick, "pinned copy again": yardstick}
            taken = rounds(ways, pairs)
    except WattloadError as error:
        return _missing(name, COPY_GOAL, str(error))
    return _ratio(name, taken, of=Taken.gb_per_s, unit="GB/s", goal=COPY_GOAL)


def _sampling(gpu: str | None, reason: str, pairs: int) -> Iterator[Result]:
    """Yield edges a second, sampling on a core against DGL, and on a GPU."""
    shape = SHAPES[GRAPH]
    graph = SyntheticGraph(shape, 1)
    yield _edges(graph, pairs)
    (relation,) = shape.relations
    degrees = graph.degrees(0, 0, shape.node_types[0].count)
    indptr = np.concatenate(([0], np.cumsum(degrees, dtype=np.uint64))).astype(np.uint64)
    topology = Topology(shape, (indptr,), (graph.neighbours(0, 0, relation.edge_count),))
    seeds = TrainingSeeds(shape.node_types[0].count, 0.6, 1)
    fanouts = [[each] for each in FANOUTS]
    ours = Sampler(topology, fanouts, threads=1, seed=1)
    try:
        name = "C sampler ÷ DGL, one core each"
        try:
            peer = dgl_sampling(topology, seeds)
        except NotMeasuredError as error:
            yield _missing(name, SAMPLER_GOAL, str(error))
        else:
            ways = {"C sampler": sampling(ours, seeds), "DGL": peer, "DGL again": peer}
            taken = rounds(ways, pairs, warm=True)
            of = _batches_per_cpu_s
            yield _ratio(name, taken, of=of, unit="batches/CPU s", goal=SAMPLER_GOAL)
    finally:
        ours.close()
    yield _gpu_sampling(topology, seeds, gpu, reason, pairs)


def _edges(graph: SyntheticGraph, pairs: int) -> Result:
    into = np.empty(EDGES, dtype=np.uint32)

    def take() -> float:
        start_s = time.thread_time()
        graph.neighbours(0, 0, EDGES, into=into)
        return EDGES / (time.thread_time() - start_s) / 1e6

    taken = rounds({"edges": take}, pairs, warm=True)
    return Result(
        name="edges made, a core",
        unit="M/s",
        goal=EDGES_GOAL,
        values=taken.figures["edges"],
        value_unit="M/s",
    )


def sampling(sampler: BatchSampler, seeds: TrainingSeeds) -> Take:
    """Return a way that draws ``BATCHES`` batches."""

    def draw(number: int) -> int:
        return sampler.draw(number, seeds.batch(number, SEEDS)).row_count

    return _drawing(draw)


def dgl_sampling(topology: Topology, seeds: TrainingSeeds) -> Take:
    """Return the same by DGL, with one thread.

    Raises:
        NotMeasuredError: it is not installed, or does not work beside this PyTorch.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else it asks, and writes to the home folder
    try:
        import dgl
        import torch
    except (ImportError, OSError) as error:
        raise NotMeasuredError(
            f"DGL can't be imported ({error}); pip install 'dgl==1.1.3' on Python 3.11 or older"
        ) from error
    dgl.utils.set_num_threads(1)
    lists = [torch.from_numpy(each.astype(np.int64)) for each in
             (topology.indptr[0], topology.indices[0])]  # fmt: skip
    graph = dgl.graph(("csc", (*lists, torch.empty(0, dtype=torch.int64))))
    sampler = dgl.dataloading.NeighborSampler(list(FANOUTS))

    def draw(number: int) -> int:
        chosen = torch.from_numpy(seeds.batch(number, SEEDS).astype(np.int64))
        inputs, _, _ = sampler.sample_blocks(graph, chosen)
        return len(inputs)

    return _drawing(draw)


def _drawing(draw: Callable[[int], int]) -> Take:
    def take() -> Taken:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        rows = sum(map(draw, range(BATCHES)))
        cpu_s = time.process_time() - start_cpu_s
        return Taken(
            moved_bytes=rows * ROW_BYTES,
            operation_count=BATCHES,
            seconds=time.perf_counter() - start_s,
            cpu_s=cpu_s,
            process_cpu_s=cpu_s,
        )

    return take


def _batches_per_cpu_s(taken: Taken) -> float:
    return taken.operation_count / taken.cpu_s


def _batches_per_s(taken: Taken) -> float:
    return taken.operation_count / taken.seconds


def _gpu_sampling(
    topology: Topology, seeds: TrainingSeeds, gpu: str | None, reason: str, pairs: int
) -> Result:
    name, unit = "torch sampler on a GPU, a batch", "ms"
    if gpu is None:
        return _missing(name, GPU_SAMPLER_GOAL_MS, f"needs a GPU: {reason}", unit, "at_most")
    import torch

    from wattload.loaders.graph.torch_sampler import TorchSampler

    device = _device(gpu)
    sampler = TorchSampler(topology, [[each] for each in FANOUTS], seed=1, device=device)
    rows: list[int] = []

    def draw(number: int) -> int:
        rows.append(sampler.draw(number, seeds.batch(number, SEEDS)).row_count)
        torch.cuda.synchronize(device)
        return rows[-1]

    try:
        taken = rounds({"batch": _drawing(draw)}, pairs, warm=True)
    finally:
        sampler.close()
    return Result(
        name=name,
        unit=unit,
        goal=GPU_SAMPLER_GOAL_MS,
        sense="at_most",
        values=[1e3 / _batches_per_s(each) for each in taken.figures["batch"]],
        value_unit=unit,
        notes=[f"{name}: {statistics.mean(rows):.0f} rows of {GRAPH}"],
    )


def _runs(target: Path, pairs: int) -> Iterator[Result]:
    """Yield what whole runs record: the sum of stages, overlap, and writing of the graph."""
    names: dict[str, tuple[str, float, Sense]] = {
        "serial stages ÷ wall": ("x", SERIAL_GOAL, "at_least"),
        "overlapped step ÷ longest stage": ("x", AHEAD_GOAL, "at_most"),
        "writing of the graph": ("GB/s", WRITING_GOAL, "at_least"),
    }
    ways = {way: partial(_run, target, way) for way in ("serial", "ahead")}
    try:
        taken = rounds(ways, pairs)
    except (NotMeasuredError, WattloadError, OSError) as error:
        for name, (unit, goal, sense) in names.items():
            yield _missing(name, goal, str(error), unit, sense)
        return
    serial, ahead = (taken.figures[way] for way in ways)
    values = (
        [sum(each.stages.values()) / each.wall_s for each in serial],
        [each.wall_s / max(each.stages.values()) for each in ahead],
        [each.written_gb_per_s for each in (*serial, *ahead)],
    )
    longest = [max(each.stages, key=each.stages.__getitem__) for each in ahead]
    for (name, (unit, goal, sense)), found in zip(names.items(), values, strict=True):
        yield Result(
            name=name,
            unit=unit,
            goal=goal,
            sense=sense,
            values=found,
            value_unit=unit,
            order=taken.order,
            raw=taken.as_json(asdict),
            notes=[f"overlapped step: the longest stage was {', '.join(dict.fromkeys(longest))}"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Seconds of each stage, of all steps, and the speed at which the graph was written."""

    stages: Mapping[str, float]
    wall_s: float
    written_gb_per_s: float


def _run(target: Path, overlap: str) -> Recorded:
    with tempfile.TemporaryDirectory(prefix="gnn-", dir=target) as folder:
        record = jobs.run([*RUN, f"workload.overlap={overlap}", f"target.path={folder}"])
    return recorded(record)


def recorded(record: RunRecord) -> Recorded:
    """Return the figures of a run that made its graph.

    Raises:
        NotMeasuredError: the record lacks some.
    """
    found = jobs.figures(record)
    if "wall_s" not in found:
        raise NotMeasuredError("the record has no wall_s")
    made = next(window for window in record.windows if window.name == "generate")
    return Recorded(
        stages={name: found[name] for name in STAGES if name in found},
        wall_s=found["wall_s"],
        written_gb_per_s=made.written_bytes / made.seconds / 1e9,
    )


def _gpu() -> tuple[str | None, str]:
    """Return the address of the first GPU, or ``None`` and why."""
    found, reason = gpus()
    return (found[0].address, "") if found else (None, reason)


def _device(gpu: str) -> torch.device:
    """Return PyTorch's device of a GPU; raises ``NotMeasuredError`` if it sees none such."""
    import torch

    for number in range(torch.cuda.device_count()):
        found: Any = torch.cuda.get_device_properties(number)
        parts = (found.pci_domain_id, found.pci_bus_id, found.pci_device_id)
        if "{:04x}:{:02x}:{:02x}.0".format(*parts) == gpu.lower():
            torch.cuda.set_device(number)
            return torch.device("cuda", number)
    raise NotMeasuredError(f"PyTorch does not see GPU {gpu}; install it with CUDA")


def _on_gpu(gpu: str) -> MemoryRegion:
    import torch

    owner = torch.empty(FILE_BYTES, dtype=torch.uint8, device=_device(gpu))
    return MemoryRegion(
        address=owner.data_ptr(), size_bytes=FILE_BYTES, kind=MemoryKind.DEVICE, owner=owner
    )


def _ratio(
    name: str,
    taken: Rounds[Taken],
    *,
    of: Callable[[Taken], float] = Taken.million_per_s,
    unit: str = "M/s",
    goal: float | None = None,
    sense: Sense = "at_least",
    notes: Sequence[str] = (),
) -> Result:
    """Return the ratio of the first way to the second; the third is the second again."""
    upper, lower, again = taken.figures
    return Result(
        name=name,
        unit=unit,
        goal=goal,
        sense=sense,
        values=taken.ratios(of, upper, lower),
        noise=taken.ratios(of, again, lower),
        figures=taken.values(of),
        order=taken.order,
        raw=taken.as_json(Taken.as_json),
        notes=notes,
    )


def _missing(
    name: str, goal: float | None, reason: str, unit: str = "x", sense: Sense = "at_least"
) -> Result:
    return Result(name=name, unit="", goal=goal, sense=sense, value_unit=unit, missing=reason)
