"""Random writes of 16 KiB at queue depth 32 against fio: on a file, a loop device and zram.

Neither side keeps a map of the blocks that it has written: both draw each block uniformly. The mean
depth of the device's queue shows whether 32 operations are in flight; of a device that completes an
operation before it takes the next, such as zram, it shows nothing.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import engine_child, fio
from benchmarks.devices import QueueWatch, loop_device, zram_device
from benchmarks.files import written_files
from benchmarks.measure import NotMeasuredError, Result, Rounds, rounds
from benchmarks.taken import Taken
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import KIB, MIB

BLOCK_BYTES = 16 * KIB
DEPTH = 32
FILE_BYTES = 2048 * MIB
ZRAM_BYTES = 512 * MIB
SECONDS = 1.5
READINGS_S = 1.0
"""The seconds between two readings of a plan under way, in the runs of the engine."""
READ_SECONDS = 3.0
"""The length of the runs that show what readings cost: several readings each."""
SETUP_S = 0.6
SPEED_GOAL, DEPTH_GOAL, READINGS_GOAL = 0.98, 0.97, 0.99
LEAST_QUEUE = 2.0
"""A mean depth of fio's queue below which there is none to judge."""
OURS, FIO, AGAIN = "wattload", "fio", "fio again"
READ, UNREAD, UNREAD_AGAIN = "with readings", "without", "without again"

Job = engine_child.Job | fio.Job


@dataclass(frozen=True, slots=True)
class Watched:
    """One run, and the mean depth of the device's queue meanwhile; 0 where none is counted."""

    taken: Taken
    depth: float

    def million_per_s(self) -> float:
        return self.taken.million_per_s()

    def cpu_s_per_million(self) -> float:
        return self.taken.cpu_s_per_million()

    def queue_depth(self) -> float:
        return self.depth

    def as_json(self) -> dict[str, float]:
        return self.taken.as_json() | {"queue_depth": self.depth}


def seconds(pairs: int) -> float:
    return 20 + 3 * 3 * pairs * (SECONDS + SETUP_S) + 3 * pairs * (READ_SECONDS + SETUP_S)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield speed, CPU time and queue depth on each kind of target, and what readings cost."""
    with written_files(target, 1, FILE_BYTES) as (file,):
        yield from compare("file", file, pairs)
        yield from readings(file, pairs)
        yield from on_device("loop device", lambda: loop_device(file), pairs)
        yield from on_device("zram", _filled_zram, pairs, by_workers=True)


def on_device(
    name: str,
    opened: Callable[[], AbstractContextManager[Path]],
    pairs: int,
    *,
    by_workers: bool = False,
) -> list[Result]:
    """Return what ``compare`` does on a device that is there meanwhile."""
    with ExitStack() as stack:
        try:
            device = stack.enter_context(opened())
        except NotMeasuredError as error:
            return _missing(name, str(error))
        return compare(name, device, pairs, by_workers=by_workers)


def compare(name: str, path: Path, pairs: int, *, by_workers: bool = False) -> list[Result]:
    """Return ratios to fio's speed and CPU time, and the depth of both queues.

    Our CPU time has that of the kernel's workers, fio's own figure has not. Where they write
    (``by_workers``), fio's is that of its whole process, its start included.
    """
    yardstick = _fio(path)
    measured = _watched(yardstick, whole=by_workers)
    ours = _watched(_ours(path, readings_s=READINGS_S))
    try:
        taken = rounds({OURS: ours, FIO: measured, AGAIN: measured}, pairs)
        speed = taken.ratios(Watched.million_per_s, OURS, FIO)
        cost = taken.ratios(Watched.cpu_s_per_million, OURS, FIO)
        speed_noise = taken.ratios(Watched.million_per_s, AGAIN, FIO)
        cost_noise = taken.ratios(Watched.cpu_s_per_million, AGAIN, FIO)
    except NotMeasuredError as error:
        return _missing(name, str(error))
    speed_name, cost_name, depth_name = _names(name)
    return [
        Result(
            name=speed_name,
            unit="M/s",
            goal=SPEED_GOAL,
            values=speed,
            noise=speed_noise,
            figures=taken.values(Watched.million_per_s),
            order=taken.order,
            raw=taken.as_json(Watched.as_json),
            notes=[f"random 16 KiB write, {name}: `{yardstick.shown()}`"],
        ),
        Result(
            name=cost_name,
            unit="CPU s per million",
            goal=1.0,
            sense="at_most",
            values=cost,
            noise=cost_noise,
            figures=taken.values(Watched.cpu_s_per_million),
            order=taken.order,
        ),
        _depth(depth_name, taken),
    ]


def readings(file: Path, pairs: int) -> list[Result]:
    read = _watched(_ours(file, READ_SECONDS, readings_s=READINGS_S))
    unread = _watched(_ours(file, READ_SECONDS))
    name = "random 16 KiB write, a reading a second ÷ none"
    try:
        taken = rounds({READ: read, UNREAD: unread, UNREAD_AGAIN: unread}, pairs)
    except NotMeasuredError as error:
        return [Result(name=name, unit="", goal=READINGS_GOAL, missing=str(error))]
    return [
        Result(
            name=name,
            unit="M/s",
            goal=READINGS_GOAL,
            values=taken.ratios(Watched.million_per_s, READ, UNREAD),
            noise=taken.ratios(Watched.million_per_s, UNREAD_AGAIN, UNREAD),
            figures=taken.values(Watched.million_per_s),
            order=taken.order,
            raw=taken.as_json(Watched.as_json),
        )
    ]


def _ours(
    path: Path, seconds: float = SECONDS, *, readings_s: float | None = None
) -> engine_child.Job:
    return engine_child.Job(
        kind=IOKind.WRITE,
        order=IOOrder.RANDOM,
        files=[path],
        block_bytes=BLOCK_BYTES,
        depth=DEPTH,
        seconds=seconds,
        readings_s=readings_s,
    )


def _fio(path: Path) -> fio.Job:
    return fio.Job(
        kind=IOKind.WRITE,
        order=IOOrder.RANDOM,
        files=[path],
        block_bytes=BLOCK_BYTES,
        depth=DEPTH,
        seconds=SECONDS,
    )


def _watched(job: Job, *, whole: bool = False) -> Callable[[], Watched]:
    def take() -> Watched:
        with QueueWatch(job.files[0]) as watch:
            taken = job.take()
        if whole:
            taken = replace(taken, cpu_s=taken.process_cpu_s)
        return Watched(taken, watch.mean_depth() or 0.0)

    return take


def _depth(name: str, taken: Rounds[Watched]) -> Result:
    """Return our depth ÷ what was asked, judged only where fio's shows that there is a queue."""
    figures = taken.values(Watched.queue_depth)
    if statistics.median(figures[FIO]) < LEAST_QUEUE:
        reason = "operations complete as they are handed over: there is no queue"
        return Result(name=name, unit="", goal=DEPTH_GOAL, missing=reason)
    return Result(
        name=name,
        unit="in flight",
        goal=DEPTH_GOAL,
        values=[depth / DEPTH for depth in figures[OURS]],
        figures=figures,
        order=taken.order,
    )


def _names(name: str) -> tuple[str, str, str]:
    what = f"random 16 KiB write, QD {DEPTH}, {name}"
    return f"{what} ÷ fio", f"{what}, CPU ÷ fio's", f"{what}, queue depth ÷ {DEPTH}"


def _missing(name: str, reason: str) -> list[Result]:
    speed, cost, depth = _names(name)
    return [
        Result(name=speed, unit="", goal=SPEED_GOAL, missing=reason),
        Result(name=cost, unit="", goal=1.0, sense="at_most", missing=reason),
        Result(name=depth, unit="", goal=DEPTH_GOAL, missing=reason),
    ]


@contextmanager
def _filled_zram() -> Iterator[Path]:
    """Hold a zram device that is fully written: its first writes would allocate memory."""
    with zram_device(ZRAM_BYTES) as device:
        random = np.random.default_rng(0)
        with device.open("r+b", buffering=0) as whole:
            for _ in range(ZRAM_BYTES // MIB):
                whole.write(random.bytes(MIB))
            os.fsync(whole.fileno())
        yield device
