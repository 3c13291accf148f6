"""How busy a host is: CPU time, memory, and how long work has waited for either."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from wattload.core.clock import anchor
from wattload.core.host.meminfo import read_meminfo
from wattload.core.record.host import HostState
from wattload.core.sysfs import LIVE, Observation, Roots, read_text

_US_PER_S = 1_000_000
_IDLE = slice(3, 5)
_STEAL = 7
_COUNTED = 8
"""Fields of the ``cpu`` line of ``/proc/stat``: user nice system idle iowait irq softirq steal;
guest time, after them, is part of user time already (proc_stat(5))."""


def host_state(roots: Roots = LIVE) -> HostState:
    """Return the host's counters now; takes well under a millisecond."""
    observation = Observation()
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    observation.read("cpu_total_s", lambda: sum(_cpu_ticks(roots)) / ticks_per_s)
    observation.read("cpu_busy_s", lambda: _busy_ticks(_cpu_ticks(roots)) / ticks_per_s)
    observation.read("steal_s", lambda: _cpu_ticks(roots)[_STEAL] / ticks_per_s)
    observation.read("load_1min", lambda: float(read_text(roots.proc / "loadavg").split()[0]))
    _read_memory(observation, roots)
    for resource in ("cpu", "io", "memory"):
        file = roots.proc / "pressure" / resource
        observation.read(f"pressure_{resource}_some_s", partial(_some_s, file))
    return observation.build(HostState, clock=anchor())


def _cpu_ticks(roots: Roots) -> list[int]:
    name, *fields = read_text(roots.proc / "stat").splitlines()[0].split()
    if name != "cpu" or len(fields) < _COUNTED:
        raise ValueError(f"{roots.proc / 'stat'} does not begin with the sum over CPUs")
    return [int(field) for field in fields[:_COUNTED]]


def _busy_ticks(ticks: list[int]) -> int:
    return sum(ticks) - sum(ticks[_IDLE]) - ticks[_STEAL]


def _read_memory(observation: Observation, roots: Roots) -> None:
    file = roots.proc / "meminfo"
    observation.read("memory_available_bytes", lambda: read_meminfo(file).get("MemAvailable"))
    observation.read("dirty_bytes", lambda: read_meminfo(file).get("Dirty"))
    observation.read("swap_used_bytes", lambda: _swap_used_bytes(file))


def _swap_used_bytes(file: Path) -> int:
    amounts = read_meminfo(file)
    return amounts.get("SwapTotal", 0) - amounts.get("SwapFree", 0)


def _some_s(file: Path) -> float:
    """Return the time in which some task waited (``Documentation/accounting/psi.rst``)."""
    for line in read_text(file).splitlines():
        kind, *pairs = line.split()
        if kind == "some":
            return int(dict(pair.split("=") for pair in pairs)["total"]) / _US_PER_S
    raise ValueError(f"{file} has no line of partial stalls")
