"""What sampling costs: the sampler's share of a core, and the speed of I/O with it and without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import engine_child
from benchmarks.files import written_files
from benchmarks.harness import cpu_share
from benchmarks.measure import Result, rounds
from benchmarks.taken import Taken
from tools.model_host.drive import Model
from tools.model_host.host import ModelHost
from tools.model_host.power import Meter
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import GIB, KIB, MIB
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient

PERIOD_S = 0.1
WINDOW_S = 5.0
DRIVE = "nvme0"
INTERVAL_POWER = 2 << 16 | 1250
"""SMART's interval power, so that SMART is read every time: 12.50 W in steps of 10 mW."""
CPU_GOAL_PERCENT = 0.5
SPEED_GOAL = 0.99

FILE_BYTES = 512 * MIB
SECONDS = 3.0
SETUP_S = 0.6

MEMORY = engine_child.Job(
    kind=IOKind.READ,
    order=IOOrder.RANDOM,
    files=[Path("/memory")],
    block_bytes=4 * KIB,
    depth=32,
    seconds=SECONDS,
    backend="memory",
    nominal_bytes=GIB,
)
"""Reads that wait for no drive: what sampling takes from the host shows, and no drive's noise."""

SAMPLED, ALONE, AGAIN = "sampled at 10 Hz", "not sampled", "not sampled again"

NOTES = ["sampler: the drive is a model that reads a file for each answer; an ioctl costs less"]


def seconds(pairs: int) -> float:
    return 15 + pairs * (WINDOW_S + 2 * 3 * (SECONDS + SETUP_S))


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the sampler's share of a core and the ratio of speeds."""
    yield Result(
        name="sampler, 10 Hz, SMART + 02h of one drive",
        unit="% of a core",
        goal=CPU_GOAL_PERCENT,
        sense="at_most",
        values=_shares(pairs),
        value_unit="%",
        notes=NOTES,
    )
    yield _speeds(MEMORY, pairs)
    with written_files(target, 1, FILE_BYTES) as files:
        yield _speeds(replace(MEMORY, files=files, backend="auto", nominal_bytes=None), pairs)


def _shares(window_count: int) -> list[float]:
    with _sampling() as (_, pid):
        return [cpu_share(pid, WINDOW_S) * 100 for _ in range(window_count)]


def _speeds(job: engine_child.Job, pairs: int) -> Result:
    """Return the speed of a job's random 4 KiB reads, sampled ÷ not sampled."""
    ways = {SAMPLED: _sampled(job.take), ALONE: job.take, AGAIN: job.take}
    taken = rounds(ways, pairs, warm=True)
    return Result(
        name=f"random 4 KiB read of {_source(job)}, sampled ÷ not",
        unit="M/s",
        goal=SPEED_GOAL,
        values=taken.ratios(Taken.million_per_s, SAMPLED, ALONE),
        noise=taken.ratios(Taken.million_per_s, AGAIN, ALONE),
        figures=taken.values(Taken.million_per_s),
        order=taken.order,
        raw=taken.as_json(Taken.as_json),
        notes=NOTES,
    )


def _source(job: engine_child.Job) -> str:
    return "memory" if job.backend == "memory" else "a drive"


def _sampled(take: Callable[[], Taken]) -> Callable[[], Taken]:
    def run() -> Taken:
        with _sampling():
            return take()

    return run


@contextmanager
def _sampling() -> Iterator[tuple[SamplerClient, int]]:
    """Sample a model drive in a process of its own until the block ends; gives client and pid."""
    with tempfile.TemporaryDirectory() as folder:
        bench = ModelHost(Path(folder))
        bench.set_up(**{DRIVE: Model(meter=Meter(ipm=INTERVAL_POWER))})
        try:
            client = bench.opened(PowerConfig(period_s=PERIOD_S), DRIVE)
            client.start()
            if client.pid is None:
                raise RuntimeError("the sampler is not ours, so its CPU time is unknown")
            yield client, client.pid
            client.finish()
        finally:
            bench.clean()
