"""The direct engine against fio: O_DIRECT, 1 MiB, the same files, the better of two depths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import fio
from benchmarks.measure import Measure, NotMeasuredError, Result, best, ratios, rounds
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.core.units import MIB
from wattload.loaders.coldcache import evict
from wattload.loaders.datafolder import DataFolder
from wattload.loaders.direct import Config, DirectEngine

BLOCK_BYTES = MIB
DEPTHS = (8, 32)
FILE_COUNT = 4
FILE_BYTES = 512 * MIB
GOAL = 0.90


def measure(target: Path) -> Iterator[Result]:
    """Yield the results of reading and of writing."""
    with _files(target) as files:
        for kind in (IOKind.READ, IOKind.WRITE):
            yield _compare(kind, files)


def _compare(kind: IOKind, files: Sequence[Path]) -> Result:
    name = f"direct {kind} ÷ fio"
    commands = {
        f"fio QD {depth}": fio.command(kind, files, depth=depth, block_bytes=BLOCK_BYTES)
        for depth in DEPTHS
    }
    ways: dict[str, Measure] = {}
    for depth in DEPTHS:
        ways[f"direct QD {depth}"] = partial(_direct_rate, kind, files, depth)
        ways[f"fio QD {depth}"] = partial(_fio_rate, commands[f"fio QD {depth}"], files)
    try:
        figures = rounds(ways)
    except NotMeasuredError as error:
        return Result(name=name, unit="GB/s", goal=GOAL, sense="at_least", missing=str(error))
    ours = best(figures, [f"direct QD {depth}" for depth in DEPTHS])
    theirs = best(figures, [f"fio QD {depth}" for depth in DEPTHS])
    return Result(
        name=name,
        unit="GB/s",
        goal=GOAL,
        sense="at_least",
        values=ratios(ours, theirs),
        figures={way: [rate / 1e9 for rate in rates] for way, rates in figures.items()},
        notes=[
            f"`{fio.shown(commands['fio QD 8'])}`, and the same with --iodepth=32",
            "our buffers are huge pages by madvise; fio's are where --iomem=shmhuge stands above "
            "(sysctl vm.nr_hugepages=32 reserves what it needs), else pages of 4 KiB",
        ],
    )


def _direct_rate(kind: IOKind, files: Sequence[Path], depth: int) -> float:
    evict(files)
    return _move(kind, files, depth)


def _move(kind: IOKind, files: Sequence[Path], depth: int) -> float:
    """Read or write the files once; returns bytes per second."""
    engine = DirectEngine(Config(block_bytes=BLOCK_BYTES, queue_depth=depth))
    random = np.random.default_rng(depth)
    for buffer in engine.buffers:  # as fio does: no drive gets zeros, which it may not store
        buffer[:] = np.frombuffer(random.bytes(buffer.size), dtype=np.uint8)
    try:
        result = engine.run(_plan(kind, files, depth))
    finally:
        engine.close()
    return result.moved_bytes / result.seconds


def _fio_rate(command: Sequence[str], files: Sequence[Path]) -> float:
    evict(files)
    return fio.rate(command)


def _plan(kind: IOKind, files: Sequence[Path], depth: int) -> IOPlan:
    return IOPlan(
        kind=kind,
        extents=[Extent(path, 0, FILE_BYTES) for path in files],
        block_bytes=BLOCK_BYTES,
        depth=depth,
        fsync=kind is IOKind.WRITE,
    )


@contextmanager
def _files(target: Path) -> Iterator[Sequence[Path]]:
    """Hold fully written files on the target; they are removed by their manifest at the end."""
    parameters = {"file_count": FILE_COUNT, "file_bytes": FILE_BYTES}
    folder = DataFolder.claim(target, "bench", parameters, seed=0)
    try:
        names = [f"{number}.bin" for number in range(FILE_COUNT)]
        for name in names:
            folder.reserve(name)
        files = [folder.path / name for name in names]
        _move(IOKind.WRITE, files, DEPTHS[0])
        for name in names:
            folder.record(name, FILE_BYTES, None)
        yield files
    finally:
        folder.remove()
