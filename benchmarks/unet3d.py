"""Unet3D with the direct loader: against the engine below it, DLIO, DataLoader and DALI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import engine_child, jobs
from benchmarks.measure import NotMeasuredError, Result, rounds
from wattload.core.io import IOKind, IOOrder
from wattload.core.record.run import RunRecord
from wattload.loaders.data.data_folder import DataFolder

FILE_COUNT = 28
EPOCHS = 2
ENGINE_FILE_COUNT = 56
ENGINE_EPOCHS = 3
"""Against the engine: an epoch long enough to forget its first file, which nothing overlaps."""
SCALE = "quick"
ENGINE_SECONDS = 1.5
INFORMATION_PAIRS = 3
RUN_S = 6.0
"""About how long a run takes, its start included, for the estimate."""

OURS, ENGINE, AGAIN = "direct", "engine", "engine again"
RATE = jobs.of("read_bytes_per_s", 1e-9)
LATER_RATE = jobs.of(jobs.LATER_EPOCHS, 1e-9)
CPU = jobs.of("read_cpu_s_per_byte", 1e9)
WORKERS = 4


def seconds(pairs: int) -> float:
    engine_runs = 2 * pairs
    runs = 5 * pairs + 2 * INFORMATION_PAIRS + 6
    return 20 + engine_runs * (ENGINE_SECONDS + 0.6) + runs * RUN_S


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the ratios of the direct loader to each of the others."""
    yield from _against_engine(target, pairs)
    with _data(_options(target, "npz", crc=False), OURS):
        yield from _against_dlio(target, pairs)
        yield _against_torch(target, pairs)
    yield _against_dali(target, min(pairs, INFORMATION_PAIRS))


def _options(
    target: Path,
    record_format: str,
    *,
    crc: bool,
    file_count: int = FILE_COUNT,
    epochs: int = EPOCHS,
) -> list[str]:
    return [
        *("workload=unet3d", f"scale={SCALE}", f"workload.record_format={record_format}"),
        *(f"workload.file_count={file_count}", f"workload.epochs={epochs}"),
        *("accelerator=unpaced", f"workload.check_crc={str(crc).lower()}"),
        *("power=none", f"target.path={target}"),
    ]


@contextmanager
def _data(options: Sequence[str], loader: str) -> Iterator[RunRecord | NotMeasuredError]:
    """Hold the files of the runs; yields the record of the run that made them, or why it failed.

    Files that a run before had made stay; what is made here is removed.
    """
    try:
        record = jobs.run([*options, f"loader={loader}"])
    except NotMeasuredError as error:
        yield error
        return
    try:
        yield record
    finally:
        data = record.workload.data
        if data is not None and not data.reused:
            DataFolder(Path(data.folder), data.key).remove()


def _against_engine(target: Path, pairs: int) -> list[Result]:
    """The loader ÷ a plain sequential read of the same files in the same blocks.

    The loader's first epoch is its warm pass: what the engine reads into is 32 MiB, a loader holds
    whole files, and a virtual machine's memory is slow when a device writes to it for the first
    time.
    """
    name = "unet3d direct, CRC off, {} ÷ the engine's read"
    empties = [
        Result(name=name.format("epochs 2 and on"), unit="GB/s", goal=0.95),
        Result(name=name.format("all epochs"), unit="GB/s"),
    ]
    counts = {"file_count": ENGINE_FILE_COUNT, "epochs": ENGINE_EPOCHS}
    options = _options(target, "npz", crc=False, **counts)
    with _data(options, OURS) as found:
        if isinstance(found, NotMeasuredError):
            return [replace(empty, missing=str(found)) for empty in empties]
        return _loader_and_engine([*options, f"loader={OURS}"], _engine_job(found), pairs, empties)


def _loader_and_engine(
    options: Sequence[str], job: engine_child.Job, pairs: int, empties: Sequence[Result]
) -> list[Result]:
    def engine_rate() -> jobs.Figures:
        rate = job.take().bytes_per_s()
        return {jobs.LATER_EPOCHS: rate, "read_bytes_per_s": rate}

    ways: dict[str, jobs.Take] = {
        OURS: partial(jobs.take, options),
        ENGINE: engine_rate,
        AGAIN: engine_rate,
    }
    try:
        taken = rounds(ways, pairs)
    except NotMeasuredError as error:
        return [replace(empty, missing=str(error)) for empty in empties]
    note = (
        f"`wattload run {' '.join(options)}` against the engine alone, {len(job.files)} files in "
        f"blocks of {job.block_bytes} at QD {job.depth}"
    )
    return [
        jobs.ratio(taken, rate, (OURS, ENGINE), replace(empty, notes=[note]), AGAIN)
        for rate, empty in zip((LATER_RATE, RATE), empties, strict=True)
    ]


def _engine_job(record: RunRecord) -> engine_child.Job:
    """Return the engine's read of a run's files, in the blocks and the depth of its loader."""
    work = record.workload
    if work.data is None or work.block_bytes_asked is None or work.queue_depth_asked is None:
        raise NotMeasuredError(f"the record of {record.run_id} does not say what it read, and how")
    return engine_child.Job(
        kind=IOKind.READ,
        order=IOOrder.SEQUENTIAL,
        files=sorted(Path(work.data.folder).rglob("*.npz")),
        block_bytes=work.block_bytes_asked,
        depth=work.queue_depth_asked,
        seconds=ENGINE_SECONDS,
    )


def _against_dlio(target: Path, pairs: int) -> list[Result]:
    """The loader ÷ dlio-benchmark itself on the same files, CRC computed on both sides."""
    empties = [
        Result(name="unet3d direct ÷ dlio, npz, CRC on both", unit="GB/s", goal=2.0),
        Result(
            name="unet3d direct, CPU ÷ dlio's, npz, CRC on both",
            unit="CPU s per GB",
            goal=1 / 3,
            sense="at_most",
        ),
    ]
    asked = [(RATE, empties[0]), (CPU, empties[1])]
    return _pairwise((OURS, "dlio"), _options(target, "npz", crc=True), pairs, asked)


def _against_torch(target: Path, pairs: int) -> Result:
    options = [*_options(target, "npz", crc=True), f"loader.workers={WORKERS}"]
    name = f"unet3d direct ÷ DataLoader, {WORKERS} workers each, CRC on both"
    empty = Result(name=name, unit="GB/s", goal=1.5)
    return _pairwise((OURS, "torch"), options, pairs, [(RATE, empty)])[0]


def _against_dali(target: Path, pairs: int) -> Result:
    empty = Result(name=f"unet3d direct ÷ DALI, npy, {pairs} rounds", unit="GB/s")
    options = _options(target, "npy", crc=False)
    with _data(options, "dali") as found:
        if isinstance(found, NotMeasuredError):
            return replace(empty, missing=str(found))
        return _pairwise((OURS, "dali"), options, pairs, [(RATE, empty)])[0]


def _pairwise(
    loaders: Sequence[str],
    options: Sequence[str],
    pairs: int,
    asked: Sequence[tuple[Callable[[jobs.Figures], float], Result]],
) -> list[Result]:
    """Return a result for each requested figure, from the same rounds."""
    note = f"`wattload run {' '.join(options)} loader={'|'.join(loaders)}`"
    try:
        taken = jobs.versus(loaders, options, pairs)
        return [
            jobs.ratio(taken, measured, loaders, replace(empty, notes=[note]))
            for measured, empty in asked
        ]
    except NotMeasuredError as error:
        return [replace(empty, missing=str(error)) for _, empty in asked]
