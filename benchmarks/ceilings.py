"""The engine without a drive: hot page cache, memory, and nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import engine, engine_child
from benchmarks.files import written_files
from benchmarks.measure import NotMeasuredError, Result, Verdict, rounds
from benchmarks.taken import Taken
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import GIB, KIB, MIB
from wattload.loaders.data.cold_cache import resident_fraction

FILE_BYTES = 256 * MIB
DEPTH = 128
HOT_GOAL = 1.5
NULL_GOAL = 10.0
RESIDENT_LEAST = 0.99
"""A kernel that reclaims idle memory (DAMON) takes a page here and there, which decides nothing."""
HOT = engine.Case(
    name="hot page cache, random 4 KiB read",
    kind=IOKind.READ,
    order=IOOrder.RANDOM,
    block_bytes=4 * KIB,
    depths=(32, 128),
    batches=(1, 16, 32),
    direct=False,
)


def seconds(pairs: int) -> float:
    runs = engine.TRIALS * HOT.job_count + 3 * (pairs + 1) + 2 * (pairs + 1)
    return 5 + runs * (engine.SECONDS + engine.SETUP_S)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield operations per second: of hot page cache per core, of memory, and of nothing."""
    with written_files(target, 1, FILE_BYTES) as files:
        for path in files:
            _load(path)
        yield _hot(files, pairs)
    yield _alone("memory", pairs, goal=None)
    yield _alone("null", pairs, goal=NULL_GOAL)


def _load(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(8 * MIB):
            pass


def _hot(files: Sequence[Path], pairs: int) -> Result:
    """Either of two will do: the goal in operations per second of one core, or fio's own figure.

    The absolute figure stands where it reaches its goal, else the ratio.
    """
    speed, cost = engine.compare(HOT, files, pairs)
    resident = resident_fraction(files)
    if resident is None or resident < RESIDENT_LEAST:
        reason = f"the file left the page cache while it was read (resident: {resident})"
        return replace(speed, values=(), missing=reason)
    if cost.missing is not None:
        return replace(speed, name=f"{HOT.name}, a core ÷ fio's", goal=1.0)
    figures = {way: [1 / value for value in values] for way, values in cost.figures.items()}
    absolute = replace(
        speed,
        name=f"{HOT.name}, a core",
        unit="M/CPU s",
        goal=HOT_GOAL,
        values=figures[engine.OURS],
        value_unit="M/CPU s",
        noise=(),
        figures=figures,
    )
    if absolute.reaches is Verdict.MET:
        return absolute
    return replace(
        absolute,
        name=f"{HOT.name}, a core ÷ fio's",
        goal=1.0,
        values=[1 / ratio for ratio in cost.values],
        value_unit="x",
        noise=[1 / ratio for ratio in cost.noise],
    )


def _alone(backend: str, pairs: int, *, goal: float | None) -> Result:
    """The engine's own speed, one thread, 4 KiB operations."""
    job = engine_child.Job(
        kind=IOKind.READ,
        order=IOOrder.RANDOM,
        files=[Path(f"/{backend}")],
        block_bytes=4 * KIB,
        depth=DEPTH,
        seconds=engine.SECONDS,
        backend=backend,
        nominal_bytes=GIB,
    )
    empty = Result(
        name=f"engine on {backend}, 4 KiB", unit="M/s", goal=goal, notes=[f"`{job.shown()}`"]
    )
    try:
        taken = rounds({backend: job.take}, pairs, warm=True)
    except NotMeasuredError as error:
        return replace(empty, missing=str(error))
    return replace(
        empty,
        values=taken.values(Taken.million_per_s)[backend],
        value_unit="M/s",
        raw=taken.as_json(Taken.as_json),
    )
