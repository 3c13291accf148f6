"""The level between readings: what of its quotas a load did, and what the gaps leave out."""

from __future__ import annotations

import os

import pytest

from wattload.core.host.counters import CpuTime
from wattload.core.host.memory_traffic import find_meter
from wattload.core.units import MIB, NS_PER_S
from wattload.loaders.engine.load import LoadCounts
from wattload.run.host_load.process import LoadProcess
from wattload.run.host_load.settling import HostMeter, Peak, Reading, work_fraction

PEAK = Peak(traffic_bytes_per_s=200.0, copied_bytes_per_s=100.0, units_per_s=10.0)


def counts(copied: int, due_bytes: int, units: int, due_units: int) -> LoadCounts:
    return LoadCounts(
        time_ns=0, copied_bytes=copied, due_bytes=due_bytes, units=units, due_units=due_units
    )


@pytest.mark.parametrize(
    ("last", "fraction"),
    [
        (counts(150, 300, 10, 10), 2.5 / 4),  # 1.5 s of 3 s of copies, 1 s of 1 s of arithmetic
        (counts(150, 300, 0, 0), 0.5),
        (counts(0, 0, 4, 10), 0.4),
        (counts(0, 0, 0, 0), None),
    ],
)
def test_work_is_weighted_by_its_time_at_the_peak(last: LoadCounts, fraction: float | None) -> None:
    assert work_fraction(counts(0, 0, 0, 0), last, PEAK) == (
        fraction if fraction is None else pytest.approx(fraction)
    )


def reading(seconds: float, copied: int, idle_s: float, io_s: float | str = 0.0) -> Reading:
    """Return the counters of one CPU, on which 100 bytes are due per second."""
    return Reading(
        cpu=CpuTime(time_ns=round(seconds * NS_PER_S), cpu_count=1, idle_s=idle_s, steal_s=0.0),
        load_cpu_s=seconds - idle_s,
        run_cpu_s=0.0,
        traffic_bytes=2.0 * copied,
        counts=counts(copied, round(seconds * 100), 0, 0),
        waiting_s={"cpu": 0.0, "io": io_s, "memory": "not counted"},
    )


def test_gaps_are_in_none_of_the_figures() -> None:
    load = LoadProcess([min(os.sched_getaffinity(0))], thread_bytes=MIB)
    meter = HostMeter(load, host="box", cpus=[0], ranks=[], found=find_meter())
    meter.peak = PEAK
    # Half of the work and of the CPU in 2 s, all of it in a gap of 8 s, and half in 2 s again.
    edges = [reading(0, 0, 0), reading(2, 100, 1, 1.0), reading(10, 900, 1, 9.0)]
    last = reading(12, 1000, 2, 9.0)
    level = meter.level("during", edges[0], last, 400.0, gaps=[(edges[1], edges[2])])
    meter.close()
    load.close()
    assert (level.start_ns, level.end_ns) == (0, 12 * NS_PER_S)
    assert (level.cpu_share, level.load_cpu_share) == (0.5, 0.5)
    assert (level.copied_bytes_per_s, level.memory_bytes_per_s) == (50.0, 100.0)
    assert (level.memory_share, level.work_fraction) == (0.25, 0.5)
    assert level.pressure_io_share == 0.25
    assert level.missing["pressure_memory_share"] == "not counted"
