"""One process of a run: where it may run, and what it has used."""

from __future__ import annotations

import os
import time
from itertools import groupby

from wattload.core.record.host import RankRecord
from wattload.core.sysfs import LIVE, Observation, Roots


def rank_facts(rank: int, host: str, cpu_s: float | None = None, roots: Roots = LIVE) -> RankRecord:
    """Return what this process may use and has used.

    Args:
        rank: its number in the run.
        host: the host's name in the record.
        cpu_s: CPU seconds where the caller has counted better, living children included; else user
            and system time of this process and of the children that have ended.
        roots: where proc is.
    """
    observation = Observation()
    observation.read("cpu_affinity", lambda: format_cpus(os.sched_getaffinity(0)))
    observation.put("cpu_s", _cpu_s() if cpu_s is None else cpu_s, "")
    observation.read("peak_memory_bytes", lambda: _peak_memory_bytes(roots), "no VmHWM in status")
    return observation.build(RankRecord, rank=rank, host=host, pid=os.getpid())


def format_cpus(cpus: set[int]) -> str:
    """Return CPU numbers as the kernel lists them: ``0-3,8``."""
    # In a run of consecutive numbers the difference to the position in the list stays the same.
    runs = groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0])
    spans = [[cpu for _, cpu in run] for _, run in runs]
    return ",".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else f"{s[0]}" for s in spans)


def _cpu_s() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _peak_memory_bytes(roots: Roots) -> int | None:
    status = roots.proc / "self/status"
    lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else None
