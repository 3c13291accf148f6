"""CPU time of some CPUs: iowait is idle, steal is apart, and time is the clock's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.host.cpu_time import CpuShares, CpuTime
from wattload.core.sysfs import Roots
from wattload.core.units import NS_PER_S

STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 100 0 50 800 50 0 0 10 0 0
cpu1 500 0 0 400 0 0 0 0 0 0
cpu10 9 9 9 999 9 9 9 9 9 9
intr 5
"""


def test_iowait_is_idle_and_other_cpus_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "stat", STAT)
    found = CpuTime.read([0, 1], Roots(proc=tmp_path))
    assert (found.cpu_count, found.idle_s, found.steal_s) == (2, 12.5, 0.1)


def test_cpus_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "stat", STAT)
    with pytest.raises(ValueError, match=r"none of the CPUs \[7\]"):
        CpuTime.read([7], Roots(proc=tmp_path))


def test_what_is_neither_idle_nor_stolen_is_busy() -> None:
    first = CpuTime(time_ns=0, cpu_count=2, idle_s=0.0, steal_s=0.0)
    last = CpuTime(time_ns=10 * NS_PER_S, cpu_count=2, idle_s=2.0, steal_s=1.0)
    shares = CpuShares.between(first, last)
    assert (shares.cpu_s, shares.busy, shares.steal) == (20.0, 0.85, 0.05)


def test_this_machine_has_idle_time() -> None:
    assert CpuTime.read([0]).idle_s > 0
