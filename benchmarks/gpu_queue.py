"""The queue of small random reads against a bare ring, fio, and the arms without a queue.

The bare rings in ``gpu_peers`` use nothing of wattload: requesters write requests, and pollers
answer them at once. fio and ``loader=direct`` read the same file in blocks of the same size, with
as many reads in flight from as many submitting threads. ``loader=mmap`` is compared without a goal:
the ratio is as much one of read-ahead and of the page cache as of paths. Rows of the CPU have CPU
threads as requesters; the others need a GPU.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks import fio
from benchmarks.files import stamped_files
from benchmarks.gpu import SOURCES, Unwatched, gpus
from benchmarks.measure import NotMeasuredError, Result, Rounds, rounds
from benchmarks.taken import Taken, children_cpu_s
from wattload.core.errors import WattloadError
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import KIB, MIB, format_percent
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.gpu_queue.config import Config as Queue
from wattload.loaders.mmap.config import Config as Mmap
from wattload.loaders.random_reads import (
    Pattern,
    RandomReadFile,
    RandomReadLoaderConfig,
    RandomReadPlan,
    RandomReadResult,
)

SECTOR_BYTES = 512
FILE_BYTES = 512 * MIB
SECONDS = 1.0
SETUP_S = 1.0
"""The seconds that a run takes besides, on average: ceilings of the queue included."""
RING_GOAL, PULL_GOAL, LARGE_PULL_GOAL, STORAGE_GOAL = 0.95, 0.93, 0.95, 0.95
POLLER_GOAL = 100.0
"""Million requests a second that a poller core serves for a GPU."""
FIO_BATCHES = (1, 32)
TRIALS = 2
_TIMEOUT_S = 60.0

CPU, GPU = "CPU", "GPU"

Take = Callable[[], Taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many ask, through how many rings, and how many pollers answer."""

    requesters: int
    queue_pairs: int
    queue_size: int
    pollers: int = 1


PAPER = Shape(requesters=512, queue_pairs=8, queue_size=1024)
NULL_OF_GPU = Shape(requesters=16_384, queue_pairs=1, queue_size=16_384)
MEMORY_OF_GPU = Shape(requesters=4096, queue_pairs=8, queue_size=4096, pollers=4)


@dataclass(slots=True)
class Reading:
    """Random reads by one of our loaders; ``results`` has what each call found."""

    config: RandomReadLoaderConfig
    plan: RandomReadPlan
    results: list[RandomReadResult] = field(default_factory=list)
    remarks: Sequence[str] = ()
    others: threading.Barrier | None = None
    """Readers that begin together."""

    def __call__(self) -> Taken:
        """Read once, from a cold page cache.

        Raises:
            NotMeasuredError: it can't read here, or some of its reads failed or were wrong.
        """
        before_s = children_cpu_s()
        with tempfile.TemporaryDirectory(prefix="wattload-") as folder:
            try:
                self.config.check_random_reads(self.plan, [])
                if self.config.reads_storage:
                    evict(file.path for file in self.plan.files)
                reader = self.config.random_reader(self.plan, Path(folder))
                try:
                    if self.others is not None:
                        self.others.wait(_TIMEOUT_S)
                    result = reader.run(Unwatched())
                finally:
                    reader.close()
            except (WattloadError, OSError, threading.BrokenBarrierError) as error:
                raise NotMeasuredError(str(error) or "another reader did not begin") from error
        if result.failed or result.wrong_blocks or result.bad_blocks or not result.operations:
            raise NotMeasuredError(
                f"loader={self.config.name}: of {result.operations} reads {result.failed} failed, "
                f"and {result.wrong_blocks + result.bad_blocks} blocks were wrong"
            )
        self.results.append(replace(result, trace=result.trace[:0]))
        self.remarks = reader.path().remarks
        return Taken(
            moved_bytes=result.operations * self.plan.block_bytes,
            operation_count=result.operations,
            seconds=result.seconds,
            cpu_s=result.cpu_s,
            process_cpu_s=max(children_cpu_s() - before_s, result.cpu_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The file that is read, and who asks for it."""

    file: RandomReadFile
    side: str
    gpu: str | None
    node: int | None = None

    def plan(self, shape: Shape, block_bytes: int = SECTOR_BYTES) -> RandomReadPlan:
        return RandomReadPlan(
            files=(replace(self.file, read_bytes=max(self.file.read_bytes, block_bytes)),),
            block_bytes=block_bytes,
            requesters=shape.requesters,
            queue_pairs=shape.queue_pairs,
            queue_size=shape.queue_size,
            pattern=Pattern.UNIFORM,
            duration_s=SECONDS,
            seed=1,
            gpu=self.gpu,
            node=self.node,
        )

    def queue(self, engine: str, shape: Shape, block_bytes: int = SECTOR_BYTES) -> Reading:
        config = Queue(engine=engine, requester=self.side.lower(), pollers=shape.pollers)
        return Reading(config, self.plan(shape, block_bytes))


def seconds(pairs: int) -> float:
    """Return about how long the group takes, on a machine with a GPU."""
    runs_per_side = 3 + 3 + 3 + 3 + 3
    return 20 + (2 * runs_per_side + len(_PULLS) + 1) * pairs * (SECONDS + SETUP_S)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the ratios with requesters on the CPU, then those of a GPU."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattload-")))
            [(path, stamps)] = stack.enter_context(
                stamped_files(target, 1, FILE_BYTES, unit_bytes=SECTOR_BYTES)
            )
        except (NotMeasuredError, WattloadError, OSError) as error:
            yield Result(name="random reads", unit="", goal=STORAGE_GOAL, missing=str(error))
            return
        file = RandomReadFile(
            path=path, size_bytes=FILE_BYTES, stamps=stamps, read_bytes=SECTOR_BYTES
        )
        yield from _side(Place(file=file, side=CPU, gpu=None), folder, pairs, PAPER)
        found, reason = gpus()
        if not found:
            yield from _without_gpu(reason)
            return
        places = [Place(file=file, side=GPU, gpu=gpu.address, node=gpu.node) for gpu in found]
        yield from _side(places[0], folder, pairs, NULL_OF_GPU)
        yield from _pulls(places[0], pairs)
        yield _pulls_of_all(places, pairs)


def _side(place: Place, folder: Path, pairs: int, null: Shape) -> Iterator[Result]:
    """Yield what is measured alike with requesters on the CPU and on a GPU."""
    side, storage = place.side, partial(place.queue, "storage", PAPER)
    program = partial(build_ring, folder, side)
    yield from _null(place, program, null, pairs)
    yield ratio(
        f"{side}: storage ÷ fio", storage(), _fio(place.file.path), pairs, goal=STORAGE_GOAL
    )
    direct = Reading(Direct(), place.plan(PAPER))
    yield ratio(f"{side}: storage ÷ direct", storage(), direct, pairs, goal=STORAGE_GOAL)
    for advice in ("normal", "random"):
        mapped = Reading(Mmap(advice=advice), place.plan(PAPER))
        yield ratio(f"{side}: mmap {advice} ÷ storage", mapped, storage(), pairs)


def _null(place: Place, build: Callable[[], Path], shape: Shape, pairs: int) -> Iterator[Result]:
    """Yield the empty queue against a bare ring, and what a poller core serves."""
    side, queue = place.side, place.queue("null", shape)
    name, core = f"{side}: null ÷ bare ring", f"{side}: null, per poller core"
    goal = POLLER_GOAL if side == GPU else None
    try:
        ring = partial(bare_ring, build(), shape)
        ways: dict[str, Take] = {"null": queue, "bare ring": ring, "bare ring again": ring}
        taken = rounds(ways, pairs)
    except NotMeasuredError as error:
        yield Result(name=name, unit="", goal=RING_GOAL, missing=str(error))
        yield Result(name=core, unit="", goal=goal, value_unit="M/s", missing=str(error))
        return
    yield _result(name, taken, "null", "bare ring", goal=RING_GOAL)
    yield Result(
        name=core,
        unit="M/s",
        goal=goal,
        values=[each.million_per_s() / shape.pollers for each in taken.figures["null"]],
        value_unit="M/s",
        order=taken.order,
    )


def _pulls(place: Place, pairs: int) -> Iterator[Result]:
    """Yield what the queue keeps of what a GPU pulls without one, measured in the same run."""
    for size, block_bytes, goal in _PULLS:
        queue = place.queue("memory", MEMORY_OF_GPU, block_bytes)
        yield _of_pulls(_pull_name(size), queue, [queue], pairs, goal)


def _pulls_of_all(places: Sequence[Place], pairs: int) -> Result:
    """Return the same of all GPUs at once, a process each."""
    if len(places) == 1:
        return Result(name=_ALL_PULLS, unit="", goal=PULL_GOAL, missing="needs two GPUs or more")
    barrier = threading.Barrier(len(places))
    queues = [replace(place.queue("memory", MEMORY_OF_GPU), others=barrier) for place in places]

    def take() -> Taken:
        barrier.reset()
        with ThreadPoolExecutor(len(queues)) as pool:
            parts = [each.result() for each in [pool.submit(queue) for queue in queues]]
        return Taken(
            moved_bytes=sum(part.moved_bytes for part in parts),
            operation_count=sum(part.operation_count for part in parts),
            seconds=max(part.seconds for part in parts),
            cpu_s=sum(part.cpu_s for part in parts),
            process_cpu_s=max(part.process_cpu_s for part in parts),
        )

    return _of_pulls(_ALL_PULLS, take, queues, pairs, PULL_GOAL)


def _of_pulls(name: str, take: Take, queues: Sequence[Reading], pairs: int, goal: float) -> Result:
    """Return what queues deliver ÷ what their GPUs pulled just before without a queue."""
    try:
        taken = rounds({"memory": take}, pairs)
        bare = [
            sum(map(_pulled, results)) / 1e6
            for results in zip(*(queue.results for queue in queues), strict=True)
        ]
    except NotMeasuredError as error:
        return Result(name=name, unit="", goal=goal, missing=str(error))
    rates = [each.million_per_s() for each in taken.figures["memory"]]
    return Result(
        name=name,
        unit="M/s",
        goal=goal,
        values=[rate / ceiling for rate, ceiling in zip(rates, bare, strict=True)],
        figures={"memory": rates, "bare pull": bare},
        order=taken.order,
    )


_ALL_PULLS = f"{GPU}: memory ÷ bare pull, all GPUs at once"
_PULLS = (("512 B", SECTOR_BYTES, PULL_GOAL), ("4 KiB", 4 * KIB, LARGE_PULL_GOAL))


def _pulled(result: RandomReadResult) -> float:
    """Return what the GPU pulled without a queue just before, per second."""
    if not result.pull_per_s:
        raise NotMeasuredError("the queue did not measure what the GPU pulls without it")
    return result.pull_per_s


def _pull_name(size: str) -> str:
    return f"{GPU}: memory ÷ bare pull, {size}"


def _without_gpu(reason: str) -> Iterator[Result]:
    """Yield the rows that need a GPU, with the reason why there is none."""
    goals: dict[str, float | None] = {
        f"{GPU}: null ÷ bare ring": RING_GOAL,
        f"{GPU}: null, per poller core": POLLER_GOAL,
        f"{GPU}: storage ÷ fio": STORAGE_GOAL,
        f"{GPU}: storage ÷ direct": STORAGE_GOAL,
        **{f"{GPU}: mmap {advice} ÷ storage": None for advice in ("normal", "random")},
        **{_pull_name(size): goal for size, _, goal in _PULLS},
        _ALL_PULLS: PULL_GOAL,
    }
    for name, goal in goals.items():
        unit = "M/s" if "core" in name else "x"
        missing = f"needs a GPU: {reason}"
        yield Result(name=name, unit="", goal=goal, value_unit=unit, missing=missing)


def ratio(name: str, upper: Take, lower: Take, pairs: int, *, goal: float | None = None) -> Result:
    """Return the ratio of two rates of reads, named ``SIDE: UPPER ÷ LOWER``."""
    above, below = name.partition(": ")[2].split(" ÷ ")
    ways = {above: upper, below: lower, f"{below} again": lower}
    try:
        taken = rounds(ways, pairs)
    except NotMeasuredError as error:
        return Result(name=name, unit="", goal=goal, missing=str(error))
    return _result(name, taken, above, below, goal=goal, notes=_served(name, upper))


def _result(
    name: str,
    taken: Rounds[Taken],
    upper: str,
    lower: str,
    *,
    goal: float | None,
    notes: Sequence[str] = (),
) -> Result:
    of = Taken.million_per_s
    return Result(
        name=name,
        unit="M/s",
        goal=goal,
        values=taken.ratios(of, upper, lower),
        noise=taken.ratios(of, f"{lower} again", lower),
        figures=taken.values(of),
        order=taken.order,
        raw=taken.as_json(Taken.as_json),
        notes=notes,
    )


def _served(name: str, take: Take) -> list[str]:
    """Return what the page cache served of mapped files, and the read-ahead."""
    if not isinstance(take, Reading):
        return []
    shares = [each.resident_fraction for each in take.results]
    known = [share for share in shares if share is not None]
    if not known:
        return []
    read_ahead = next((said for said in take.remarks if "read-ahead" in said), "")
    served = format_percent(statistics.median(known), 1)
    return [f"{name}: the page cache served {served} of the pages. {read_ahead}".strip()]


def _fio(path: Path) -> Take:
    """Return fio with the batch that is fastest here, chosen at its first run."""
    jobs = [
        fio.Job(
            kind=IOKind.READ,
            order=IOOrder.RANDOM,
            files=[path],
            block_bytes=SECTOR_BYTES,
            depth=PAPER.requesters,
            seconds=SECONDS,
            batch=batch,
        )
        for batch in FIO_BATCHES
    ]
    chosen: list[fio.Job] = []

    def take() -> Taken:
        if not chosen:
            trials = rounds({str(job.batch): job.take for job in jobs}, TRIALS)
            speed = trials.values(Taken.million_per_s)
            chosen.append(max(jobs, key=lambda job: statistics.median(speed[str(job.batch)])))
        return chosen[0].take()

    return take


def bare_ring(program: Path, shape: Shape) -> Taken:
    """Run a bare ring.

    Raises:
        NotMeasuredError: it failed.
    """
    sizes = (shape.requesters, shape.queue_pairs, shape.queue_size, shape.pollers)
    numbers = (*sizes, 1, FILE_BYTES // SECTOR_BYTES, SECONDS)
    before_s = children_cpu_s()
    try:
        done = subprocess.run(
            [str(program), *map(str, numbers)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasuredError(f"{program.name}: {error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise NotMeasuredError(f"the peer {program.name}: {lines[-1]}")
    said: Mapping[str, float] = json.loads(done.stdout)
    if not said["requests"]:
        raise NotMeasuredError(f"the peer {program.name}: no request was answered")
    return Taken(
        moved_bytes=0,
        operation_count=int(said["requests"]),
        seconds=said["seconds"],
        cpu_s=said["cpu_s"],
        process_cpu_s=children_cpu_s() - before_s,
    )


def build_ring(folder: Path, side: str, architecture: str = "native") -> Path:
    """Compile the bare ring of the CPU or of a GPU into a folder, and return the program.

    Raises:
        NotMeasuredError: there is no C compiler, or no nvcc, or it fails.
    """
    program = folder / f"ring-{side.lower()}"
    if side == CPU:
        build = ["cc", "-O2", "-std=gnu11", "-pthread", "-o", str(program), str(SOURCES / "ring.c")]
    else:
        build = ["nvcc", "-O3", "-std=c++17", f"-arch={architecture}", "-o", str(program)]
        build.append(str(SOURCES / "ring.cu"))
    if shutil.which(build[0]) is None:
        raise NotMeasuredError(f"{build[0]} is not installed")
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise NotMeasuredError(f"{build[0]} can't build {build[-1]}: {lines[-1]}")
    return program
