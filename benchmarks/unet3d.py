"""Unet3D with the direct loader: against the engine below it, DLIO, DataLoader and DALI."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks import engine_job
from benchmarks.child import scratch
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row
from benchmarks.wattload_run import Run
from wattload.core.io import IOKind, IOOrder

ENGINE_SECONDS = 1.5
OURS = "direct"
WORKERS = 4

_rate = partial(Row, figure="read_bytes_per_s", unit="GB/s", scale=1e-9)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare the rate of the direct loader, and with DLIO also its CPU time."""
    with scratch(target) as folder:
        yield _against_engine(folder)
        cpu = Row(
            name="unet3d direct, CPU ÷ dlio's, npz, CRC on both",
            figure="read_cpu_s_per_byte",
            unit="CPU s per GB",
            scale=1e9,
            goal=1 / 3,
            sense="at_most",
        )
        dlio = _rate(name="unet3d direct ÷ dlio, npz, CRC on both", goal=2.0)
        yield _against("dlio", _options(folder, "npz", crc=True), dlio, cpu)
        name = f"unet3d direct ÷ DataLoader, {WORKERS} workers each, CRC on both"
        options = [*_options(folder, "npz", crc=True), f"loader.workers={WORKERS}"]
        yield _against("torch", options, _rate(name=name, goal=1.5))
    with scratch(target) as folder:
        name = "unet3d direct ÷ DALI, npy"
        yield _against("dali", _options(folder, "npy", crc=False), _rate(name=name))


def _options(
    target: Path, record_format: str, *, crc: bool, files: int = 28, epochs: int = 2
) -> list[str]:
    return [
        *("workload=unet3d", "scale=quick", f"workload.record_format={record_format}"),
        *(f"workload.file_count={files}", f"workload.epochs={epochs}"),
        *("accelerator=unpaced", f"workload.check_crc={str(crc).lower()}"),
        *("power=none", f"target.path={target}"),
    ]


def _against(other: str, options: list[str], *rows: Row) -> Comparison:
    """Compare with another loader on the same files; the other runs first, as it may be missing."""
    runs = {name: Run([*options, f"loader={name}"]) for name in (OURS, other)}
    notes = [run.shown() for run in runs.values()]
    return Comparison(rows=rows, ways=runs, warm=True, noise=False, notes=notes)


def _against_engine(folder: Path) -> Comparison:
    """Compare with a plain sequential read of the same files in the same blocks.

    The loader's first epoch is its warm pass, and nothing overlaps its first file: the engine reads
    into 32 MiB, a loader holds whole files, and a virtual machine's memory is slow when a device
    writes to it for the first time.
    """
    options = _options(folder, "npz", crc=False, files=56, epochs=3)
    run = Run([*options, f"loader={OURS}"])
    jobs: list[engine_job.Job] = []

    def read() -> Figures:
        if not jobs:
            jobs.append(_same_read(run))
        rate = jobs[0]()["bytes_per_s"]
        return {"later_epochs_bytes_per_s": rate, "read_bytes_per_s": rate}

    name = "unet3d direct, CRC off, {} ÷ the engine's read"
    return Comparison(
        rows=(
            _rate(
                name=name.format("epochs 2 and on"), figure="later_epochs_bytes_per_s", goal=0.95
            ),
            _rate(name=name.format("all epochs")),
        ),
        ways={OURS: run, "engine": read},
        notes=[run.shown()],
    )


def _same_read(run: Run) -> engine_job.Job:
    """Return the engine's read of a run's files, in the blocks and the depth of its loader."""
    work = run.record().workload
    if work.data is None or work.block_bytes_asked is None or work.queue_depth_asked is None:
        raise NotMeasuredError("the record does not state what was read, and how")
    return engine_job.Job(
        kind=IOKind.READ,
        order=IOOrder.SEQUENTIAL,
        files=sorted(Path(work.data.folder).rglob("*.npz")),
        block_bytes=work.block_bytes_asked,
        depth=work.queue_depth_asked,
        seconds=ENGINE_SECONDS,
    )
