"""What sampling costs: the sampler's share of a core, and the speed of I/O with it and without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import engine_child
from benchmarks.files import written_files
from benchmarks.harness import cpu_share
from benchmarks.measure import Result, rounds
from benchmarks.taken import Taken
from tests.power.model_drive import Model
from tests.power.model_power import Meter
from tests.power.sampler_bench import Bench
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import KIB, MIB
from wattload.power.client import SamplerClient
from wattload.power.config import PowerConfig

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

SAMPLED, ALONE, AGAIN = "sampled at 10 Hz", "not sampled", "not sampled again"

NOTES = ["sampler: the drive is a model that reads a file for each answer; an ioctl costs less"]


def seconds(pairs: int) -> float:
    """Return about how long the group takes."""
    return 15 + pairs * (WINDOW_S + 3 * (SECONDS + SETUP_S))


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
    with written_files(target, 1, FILE_BYTES) as files:
        yield _speeds(files, pairs)


def _shares(window_count: int) -> list[float]:
    with _sampling() as (_, pid):
        return [cpu_share(pid, WINDOW_S) * 100 for _ in range(window_count)]


def _speeds(files: Sequence[Path], pairs: int) -> Result:
    """Return the speed of random 4 KiB reads, sampled ÷ not sampled."""
    job = engine_child.Job(
        kind=IOKind.READ,
        order=IOOrder.RANDOM,
        files=files,
        block_bytes=4 * KIB,
        depth=32,
        seconds=SECONDS,
        direct=True,
    )
    ways = {SAMPLED: _sampled(job.take), ALONE: job.take, AGAIN: job.take}
    taken = rounds(ways, pairs, warm=True)
    return Result(
        name="random 4 KiB read, sampled ÷ not",
        unit="M/s",
        goal=SPEED_GOAL,
        values=taken.ratios(Taken.million_per_s, SAMPLED, ALONE),
        noise=taken.ratios(Taken.million_per_s, AGAIN, ALONE),
        figures=taken.values(Taken.million_per_s),
        order=taken.order,
        raw=taken.as_json(Taken.as_json),
        notes=NOTES,
    )


def _sampled(take: Callable[[], Taken]) -> Callable[[], Taken]:
    """Return the same with a sampler beside it."""

    def run() -> Taken:
        with _sampling():
            return take()

    return run


@contextmanager
def _sampling() -> Iterator[tuple[SamplerClient, int]]:
    """Sample a model drive in a process of its own until the block ends; gives client and pid."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
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
