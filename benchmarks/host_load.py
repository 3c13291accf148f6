"""load=busy itself: its peak against an independent copying program, its level, and its control.

The host has to be idle: other work is in the level, and takes from the peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.gpu import build_peers
from benchmarks.measure import NotMeasuredError, Result, rounds
from wattload.core.errors import WattloadError
from wattload.core.host.memory_traffic import find_meter
from wattload.core.record.load import LoadLevel
from wattload.run.host_load.busy import Config, thread_bytes
from wattload.run.host_load.client import LoadProcess
from wattload.run.host_load.meter import HostMeter
from wattload.run.host_load.settling import Settling, measure_peak

PEAK_GOAL = 0.95
BANDS = {"CPU": 0.02, "memory": 0.03}
CONTROL_GOAL = 0.01
WINDOW_S = 10.0
COPY_S, COPY_TIMES = 0.5, 5


def seconds(pairs: int) -> float:
    return 60 + pairs * (WINDOW_S + 3 * 8)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the peak ÷ the peer's, how far the held shares are from theirs, and the control."""
    del target  # nothing is read or written
    try:
        yield peak(pairs)
        yield from level(pairs)
    except (NotMeasuredError, WattloadError) as error:
        yield Result(name="load=busy", unit="", goal=PEAK_GOAL, missing=str(error))


def peak(pairs: int) -> Result:
    """Return our peak of memory traffic ÷ that of ``gpu_peers/copy.c``, copies as both count."""
    with tempfile.TemporaryDirectory(prefix="wattload-") as folder:
        peer = partial(_peer_traffic, build_peers(Path(folder))["copy"])
        ways: dict[str, Callable[[], float]] = {
            "load": _own_traffic,
            "peer": peer,
            "peer again": peer,
        }
        taken = rounds(ways, pairs)
    return Result(
        name="load's peak of memory traffic ÷ peer",
        unit="GB/s",
        goal=PEAK_GOAL,
        values=taken.ratios(float, "load", "peer"),
        noise=taken.ratios(float, "peer again", "peer"),
        figures=taken.values(float),
        order=taken.order,
    )


def level(windows: int) -> Iterator[Result]:
    """Settle, freeze the quotas, and yield how far windows of 10 s are from both shares."""
    cpus, config = sorted(os.sched_getaffinity(0)), Config()
    process, meter = _started(cpus)
    control: list[float] = []
    try:
        found = meter.peak = measure_peak(process, meter)

        def watch(length_s: float) -> LoadLevel:
            began_cpu_s, first = time.process_time(), meter.read()
            time.sleep(length_s)
            last = meter.read()
            control.append((time.process_time() - began_cpu_s) / length_s)
            return meter.level("alone", first, last, found.traffic_bytes_per_s)

        Settling(
            config,
            cpu_count=len(cpus),
            peak=found,
            reference_bytes_per_s=found.traffic_bytes_per_s,
            set_quotas=lambda copied, units: process.set("QUOTAS", copy_bytes=copied, units=units),
            measure=watch,
        ).settle()
        held = [watch(WINDOW_S) for _ in range(windows)]
    finally:
        meter.close()
        process.close()
    shares = [(each.cpu_share, each.memory_share) for each in held]
    known = [(cpu, memory) for cpu, memory in shares if cpu is not None and memory is not None]
    if len(known) < windows:
        raise NotMeasuredError("the CPUs' time or the memory traffic is not counted here")
    apart = {
        "CPU": [abs(cpu - config.cpu_share) for cpu, _ in known],
        "memory": [abs(memory - config.memory_share) for _, memory in known],
    }
    for name, values in apart.items():
        yield Result(
            name=f"load alone, {name} share apart from its target",
            unit="",
            goal=BANDS[name],
            sense="at_most",
            values=values,
            value_unit="of all",
            figures={"alone": values},
        )
    yield Result(
        name="load's control in the run's process",
        unit="cores",
        goal=CONTROL_GOAL,
        sense="at_most",
        values=control[-windows:],
        value_unit="cores",
    )


def _started(cpus: list[int]) -> tuple[LoadProcess, HostMeter]:
    process = LoadProcess(cpus, thread_bytes=thread_bytes(cpus))
    meter = HostMeter(process, host="", cpus=cpus, ranks=[os.getpid()], found=find_meter())
    return process, meter


def _own_traffic() -> float:
    process, meter = _started(sorted(os.sched_getaffinity(0)))
    try:
        return 2 * measure_peak(process, meter).copied_bytes_per_s / 1e9
    finally:
        meter.close()
        process.close()


def _peer_traffic(program: Path) -> float:
    size = thread_bytes(os.sched_getaffinity(0)) // 2
    command = [str(program), str(size), str(COPY_S), str(COPY_TIMES)]
    try:
        done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMeasuredError(f"the peer copy: {error}") from error
    return float(json.loads(done.stdout)["bytes_per_s"]) / 1e9
