"""The CPU time of some of a host's CPUs: idle, stolen, and the busy rest."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.core.units import NS_PER_S

_IDLE, _IOWAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Idle and stolen seconds of some CPUs since boot; idle time includes iowait.

    ``time_ns`` is CLOCK_MONOTONIC. ``cpu_count`` counts those that are online.
    """

    time_ns: int
    cpu_count: int
    idle_s: float
    steal_s: float

    @classmethod
    def read(cls, cpus: Collection[int], roots: Roots = LIVE) -> Self:
        """Read the counters of the given CPUs (``proc_stat(5)``).

        Raises:
            OSError: ``/proc/stat`` can't be read.
            ValueError: none of the CPUs is in it, or it has another form.
        """
        ticks_per_s, wanted = os.sysconf("SC_CLK_TCK"), {f"cpu{number}" for number in cpus}
        time_ns = time.monotonic_ns()
        idle = steal = count = 0
        for line in read_text(roots.proc / "stat").splitlines():
            name, *fields = line.split()
            if name in wanted:
                count += 1
                idle += int(fields[_IDLE]) + int(fields[_IOWAIT])
                steal += int(fields[_STEAL])
        if not count:
            raise ValueError(f"{roots.proc / 'stat'} has none of the CPUs {sorted(cpus)}")
        return cls(
            time_ns=time_ns,
            cpu_count=count,
            idle_s=idle / ticks_per_s,
            steal_s=steal / ticks_per_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShares:
    """Shares of the time of all CPUs between two readings: busy, and taken by a hypervisor.

    What is neither idle, waiting for I/O nor stolen is busy. The time that passed is the clock's:
    a kernel counts idle time exactly but busy time by ticks, whose sum differs from it.
    """

    cpu_s: float
    """The time of all CPUs: seconds times CPUs."""
    busy: float
    steal: float

    @classmethod
    def between(cls, first: CpuTime, last: CpuTime) -> Self:
        """Return the shares between two readings of the same CPUs."""
        cpu_s = max((last.time_ns - first.time_ns) / NS_PER_S * last.cpu_count, 1e-9)
        idle = (last.idle_s - first.idle_s) / cpu_s
        steal = min(max((last.steal_s - first.steal_s) / cpu_s, 0.0), 1.0)
        return cls(cpu_s=cpu_s, busy=min(max(1.0 - idle - steal, 0.0), 1.0), steal=steal)
