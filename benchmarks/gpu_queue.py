"""The queue of small random reads against a bare ring, a bare pull, fio, and reads without a queue.

The bare rings in ``gpu_peers`` use nothing of wattload: requesters write requests, and pollers
answer them at once. The bare pull is what the same GPU pulls without a queue, which each run
measures before it starts. fio and ``loader=direct`` read with as many reads in flight.
``loader=mmap`` has no goal: the ratio depends as much on read-ahead and the page cache as on paths.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.child import output, scratch, written_files
from benchmarks.engine import BATCHES
from benchmarks.fio import Job
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row, Way, fastest
from benchmarks.wattload_run import Run
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import KIB, MIB

SOURCES = Path(__file__).parent / "gpu_peers"
SECTOR_BYTES = 512
FILE_BYTES = 512 * MIB
SECONDS = 1.0
CPU, GPU = "CPU", "GPU"
ADVICES = ("normal", "random")
PULLS = {SECTOR_BYTES: 0.93, 4 * KIB: 0.95}
"""The share of the bare pull that is the goal, by the size of a block."""
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")

_rate = partial(Row, figure="reads_per_s", unit="M/s", scale=1e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many ask, through how many rings, and how many pollers answer."""

    requesters: int
    queue_pairs: int
    queue_size: int
    pollers: int = 1


PAPER = Shape(requesters=512, queue_pairs=8, queue_size=1024)
NULL = {CPU: PAPER, GPU: Shape(requesters=16_384, queue_pairs=1, queue_size=16_384)}
MEMORY_OF_GPU = Shape(requesters=4096, queue_pairs=8, queue_size=4096, pollers=4)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare with requesters on the CPU, then with those of a GPU."""
    with scratch(target) as folder, written_files(target, 1, FILE_BYTES) as files:
        for side in (CPU, GPU):
            yield from _side(side, folder, files)
        for advice in ADVICES:
            cached = Row(
                name=f"mmap {advice}, pages in the page cache before their read",
                figure="resident_fraction",
                unit="of all",
            )
            yield Comparison(rows=(cached,), ways={advice: _mapped(folder, advice)})
        for block_bytes, goal in PULLS.items():
            yield _pull(f"{block_bytes} B", folder, goal, block_bytes)
        gpu_count = len(list(NVIDIA_DEVICES.glob("*")))
        if gpu_count > 1:
            yield _pull(f"{gpu_count} GPUs at once", folder, PULLS[SECTOR_BYTES], ranks=gpu_count)


def _side(side: str, folder: Path, files: Sequence[Path]) -> Iterator[Comparison]:
    """Compare what requesters on the CPU and on a GPU have in common."""
    run = partial(_queue, folder, side=side)
    null = NULL[side]
    yield Comparison(
        rows=(_rate(name=f"{side}: null ÷ bare ring", goal=0.95),),
        ways={"null": run("null", null), "bare ring": _ring(folder, side, null)},
    )
    storage = run("storage", PAPER)
    notes: list[str] = []
    jobs = [
        Job(
            kind=IOKind.READ,
            order=IOOrder.RANDOM,
            files=files,
            block_bytes=SECTOR_BYTES,
            depth=PAPER.requesters,
            seconds=SECONDS,
            batch=batch,
        )
        for batch in BATCHES
    ]
    tried = {job.shown(): _reads(job) for job in jobs}
    others: dict[str, Way] = {
        "fio": fastest(tried, "reads_per_s", notes),
        "direct": Run(_options(folder, PAPER, "loader=direct")),
    }
    for name, way in others.items():
        yield Comparison(
            rows=(_rate(name=f"{side}: storage ÷ {name}", goal=0.95),),
            ways={"storage": storage, name: way},
            notes=notes,
        )
    for advice in ADVICES:
        yield Comparison(
            rows=(_rate(name=f"{side}: mmap {advice} ÷ storage"),),
            ways={f"mmap {advice}": _mapped(folder, advice), "storage": storage},
        )


def _mapped(folder: Path, advice: str) -> Run:
    return Run(_options(folder, PAPER, "loader=mmap", f"loader.advice={advice}"))


def _pull(
    name: str, folder: Path, goal: float, block_bytes: int = SECTOR_BYTES, ranks: int = 1
) -> Comparison:
    """Compare what the queue delivers from memory with what the GPUs pull without it."""
    row = Row(
        name=f"{GPU}: memory ÷ bare pull, {name}",
        figure="reads_per_s",
        per="pull_per_s",
        unit="x",
        goal=goal,
    )
    queue = _queue(folder, "memory", MEMORY_OF_GPU, side=GPU, block_bytes=block_bytes, ranks=ranks)
    return Comparison(rows=(_rate(name=f"{row.name}, rate"), row), ways={"memory": queue})


def _queue(
    folder: Path,
    engine: str,
    shape: Shape,
    *,
    side: str,
    block_bytes: int = SECTOR_BYTES,
    ranks: int = 1,
) -> Run:
    loader = ("loader=gpu_queue", f"loader.engine={engine}", f"loader.pollers={shape.pollers}")
    options = _options(folder, shape, *loader, f"loader.requester={side.lower()}")
    launcher = ("mpirun", "-n", str(ranks)) if ranks > 1 else ()
    return Run([*options, f"workload.block_bytes={block_bytes}"], launcher)


def _options(folder: Path, shape: Shape, *loader: str) -> list[str]:
    return [
        *("workload=gpu_random_read", f"workload.file_bytes={FILE_BYTES}"),
        *(f"workload.duration_s={SECONDS}", f"workload.requesters={shape.requesters}"),
        f"workload.queue_pairs={shape.queue_pairs}",
        f"workload.queue_size={shape.queue_size}",
        *loader,
        *("power=none", f"target.path={folder}"),
    ]


def _reads(way: Way) -> Way:
    """Return a way with the name of the workload's figure."""

    def run() -> Figures:
        return {"reads_per_s": way()["operations_per_s"]}

    return run


def _ring(folder: Path, side: str, shape: Shape) -> Callable[[], Figures]:
    """Return the bare ring of a side, compiled at its first call."""

    def run() -> Figures:
        program = folder / f"ring-{side.lower()}"
        return bare_ring(program if program.exists() else build_ring(folder, side), shape)

    return run


def bare_ring(program: Path, shape: Shape) -> Figures:
    """Run a bare ring.

    Raises:
        NotMeasuredError: it failed, or no request was answered.
    """
    sizes = (shape.requesters, shape.queue_pairs, shape.queue_size, shape.pollers)
    numbers = (*sizes, 1, FILE_BYTES // SECTOR_BYTES, SECONDS)
    printed = json.loads(output([str(program), *map(str, numbers)]))
    if not printed["requests"]:
        raise NotMeasuredError(f"{program.name}: no request was answered")
    return {"reads_per_s": printed["requests"] / printed["seconds"]}


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
    output(build)
    return program
