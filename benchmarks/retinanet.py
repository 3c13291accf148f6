"""RetinaNet with the direct loader: against the engine below it, DLIO and DataLoader.

Files of 323 kB show what opening costs beside reading, and 4 KiB files in memory what it costs
alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import engine_job
from benchmarks.child import scratch, written_files
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row
from benchmarks.wattload_run import Run
from wattload.core.io import IOKind, IOOrder
from wattload.loaders.aligned_io import round_up
from wattload.loaders.direct.config import SLOT_ALIGN_BYTES

OURS = "direct"
MEMORY = Path("/dev/shm")
SMALL_FILES = 20_000
SMALL_BYTES = 4096
SMALL_DEPTH = 32


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare rates and CPU time of the direct loader, and measure what an open costs."""
    with scratch(target) as folder:
        yield _against_engine(folder)
        rate = _rate("retinanet direct ÷ dlio", goal=1.5)
        cpu = Row(
            name="retinanet direct, CPU ÷ dlio's",
            figure="read_cpu_s_per_byte",
            unit="CPU s per GB",
            scale=1e9,
            goal=1 / 2,
            sense="at_most",
        )
        yield _against("dlio", folder, rate, cpu)
        yield _against("torch", folder, _rate("retinanet direct ÷ DataLoader"))
    with written_files(MEMORY, SMALL_FILES, SMALL_BYTES) as files:
        yield _opens(files)


def _rate(name: str, goal: float | None = None) -> Row:
    return Row(name=name, figure="read_bytes_per_s", unit="GB/s", scale=1e-9, goal=goal)


def _run(target: Path, loader: str, *, files: int, epochs: int) -> Run:
    return Run(
        [
            *("workload=retinanet", "scale=quick", f"workload.file_count={files}"),
            *(f"workload.epochs={epochs}", "accelerator=unpaced", "power=none"),
            *(f"target.path={target}", f"loader={loader}"),
        ]
    )


def _against(other: str, target: Path, *rows: Row) -> Comparison:
    runs = {name: _run(target, name, files=2400, epochs=2) for name in (OURS, other)}
    notes = [run.shown() for run in runs.values()]
    return Comparison(rows=rows, ways=runs, warm=True, noise=False, notes=notes)


def _against_engine(target: Path) -> Comparison:
    """Compare with one plan that opens, reads and closes the same files, in any order.

    The plan has the loader's depth and does nothing with what it reads. The run has emptied the
    page cache, and neither fills it.
    """
    run = _run(target, OURS, files=9600, epochs=1)
    jobs: list[engine_job.Job] = []

    def read() -> Figures:
        if not jobs:
            jobs.append(_same_files(run))
        return {"read_bytes_per_s": engine_job.run(jobs[0])["bytes_per_s"]}

    row = _rate("retinanet direct ÷ the engine's open, read and close", goal=0.8)
    return Comparison(rows=(row,), ways={OURS: run, "engine": read}, notes=[run.shown()])


def _same_files(run: Run) -> engine_job.Job:
    work = run.record().workload
    if work.data is None or work.queue_depth_asked is None:
        raise NotMeasuredError("the record does not state what was read, and how")
    files = sorted(Path(work.data.folder).rglob("*.jpeg"))
    random.Random(0).shuffle(files)
    return engine_job.Job(
        kind=IOKind.READ,
        order=IOOrder.SEQUENTIAL,
        files=files,
        block_bytes=round_up(max(path.stat().st_size for path in files), SLOT_ALIGN_BYTES),
        depth=work.queue_depth_asked,
        seconds=0.0,
    )


def _opens(files: Sequence[Path]) -> Comparison:
    job = engine_job.Job(
        kind=IOKind.READ,
        order=IOOrder.SEQUENTIAL,
        files=files,
        block_bytes=SMALL_BYTES,
        depth=SMALL_DEPTH,
        seconds=0.0,
        direct=False,
    )
    row = Row(
        name="open, read and close of a 4 KiB file in memory, CPU",
        figure="cpu_s_per_operation",
        unit="CPU µs",
        scale=1e6,
        goal=20.0,
        sense="at_most",
    )
    return Comparison(rows=(row,), ways={"engine": lambda: engine_job.run(job)}, warm=True)
