"""What the suite itself costs: the sampler's share of a core, and the time to start and to run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measure import Result
from tools.model_host.drive import Model
from tools.model_host.host import ModelHost
from wattload.power.config import PowerConfig

WATTLOAD = (sys.executable, "-m", "wattload")
SAMPLER_PERIOD_S = 0.1
SAMPLER_WINDOW_S = 5.0
DRIVES = ("nvme0", "nvme1", "nvme2")


def seconds(pairs: int) -> float:
    return 5 + pairs * (SAMPLER_WINDOW_S + 1.5)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the sampler's share of a core, the time of ``--help`` and that of a null run."""
    yield Result(
        name="sampler, 10 Hz, three sources",
        unit="% of a core",
        goal=1.0,
        sense="at_most",
        values=_sampler_shares(pairs),
        value_unit="%",
        notes=["sampler: the drives are models that answer from a file; an ioctl costs less"],
    )
    yield Result(
        name="wattload --help",
        unit="s",
        goal=0.3,
        sense="at_most",
        values=_seconds([*WATTLOAD, "--help"], pairs),
        value_unit="s",
    )
    yield Result(
        name="null run, power=none",
        unit="s",
        goal=2.0,
        sense="at_most",
        values=_null_run_seconds(target, pairs),
        value_unit="s",
        notes=["null run: from the start of the process to its end, record written"],
    )


def _sampler_shares(window_count: int) -> list[float]:
    """Return the sampler's CPU time in per cent of each of several windows."""
    with tempfile.TemporaryDirectory() as folder:
        bench = ModelHost(Path(folder))
        bench.set_up(**{name: Model(serial=f"MODEL-{name}") for name in DRIVES})
        try:
            client = bench.opened(PowerConfig(period_s=SAMPLER_PERIOD_S), *DRIVES)
            client.start()
            if client.pid is None:
                raise RuntimeError("the sampler is not ours, so its CPU time is unknown")
            shares = [cpu_share(client.pid, SAMPLER_WINDOW_S) * 100 for _ in range(window_count)]
            client.finish()
        finally:
            bench.clean()
    return shares


def cpu_share(pid: int, window_s: float) -> float:
    """Return the CPU time of a process's main thread in a window, divided by the window."""
    start_s, start_cpu_ns = time.monotonic(), _cpu_ns(pid)
    time.sleep(window_s)
    return (_cpu_ns(pid) - start_cpu_ns) / 1e9 / (time.monotonic() - start_s)


def _cpu_ns(pid: int) -> int:
    """Return nanoseconds on a CPU so far (``proc(5)``, schedstat: finer than the ticks in stat)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _null_run_seconds(target: Path, count: int) -> list[float]:
    with tempfile.TemporaryDirectory() as runs:
        options = ["workload=null", "power=none", f"target.path={target}", f"runs={runs}"]
        return _seconds([*WATTLOAD, "run", *options], count)


def _seconds(command: Sequence[str], count: int) -> list[float]:
    """Return the wall times of several runs of a command, after one that fills the caches."""
    seconds = []
    for _ in range(count + 1):
        start_s = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.monotonic() - start_s)
    return seconds[1:]
