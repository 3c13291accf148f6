"""What control groups allow and count, from recordings of both versions and of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wattload.core.host import cgroups
from wattload.core.host.cgroups import (
    cpu_limit,
    group_state,
    io_limits,
    memory_high_bytes,
    memory_limit_bytes,
    read_throttled_s,
    throttling_files,
    usable_cpus,
)
from wattload.core.sysfs import Roots

VERSION_1 = {
    "proc/self/mountinfo": "".join(
        f"{number} 1 0:{number} /docker/x /sys/fs/cgroup/{name} ro - cgroup cgroup rw,{name}\n"
        for number, name in enumerate(("cpu", "memory", "blkio"), 30)
    ),
    "proc/self/cgroup": "3:blkio:/docker/x\n2:memory:/docker/x\n1:cpu:/docker/x\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "30000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/cpu.stat": "nr_periods 15\nnr_throttled 14\nthrottled_time 1940123456\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "72384512\n",
    "sys/fs/cgroup/memory/memory.failcnt": "3\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n",
    "sys/fs/cgroup/blkio/blkio.throttle.read_bps_device": "254:0 104857600\n",
    "sys/fs/cgroup/blkio/blkio.throttle.write_iops_device": "254:0 500\n254:16 40\n",
}
_NO_LIMIT = "no limit in the control groups that are visible here"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=7\n"
OUTER, OWN = "sys/fs/cgroup/system.slice", "sys/fs/cgroup/system.slice/docker-x.scope"
VERSION_2 = {
    "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/self/cgroup": "0::/system.slice/docker-x.scope\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 9000\n",
    f"{OUTER}/cpu.max": "300000 100000\n",
    f"{OUTER}/cpu.stat": "usage_usec 90\nnr_throttled 1\nthrottled_usec 250000\n",
    f"{OUTER}/memory.max": "8192000\n",
    f"{OUTER}/memory.events": "low 0\nhigh 0\nmax 17\noom 0\noom_kill 0\n",
    f"{OUTER}/memory.events.local": "low 0\nhigh 0\nmax 5\noom 0\noom_kill 0\n",
    f"{OUTER}/memory.high": "6144000\n",
    f"{OUTER}/io.max": "254:0 rbps=52428800 wbps=max riops=max wiops=max\n",
    f"{OWN}/cpu.max": "150000 100000\n",
    f"{OWN}/cpu.stat": "usage_usec 90\nnr_throttled 9\nthrottled_usec 1500000\n",
    f"{OWN}/memory.current": "4096000\n",
    f"{OWN}/memory.high": "max\n",
    f"{OWN}/memory.max": "max\n",
    f"{OWN}/memory.events": "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n",
    f"{OWN}/io.max": "254:0 rbps=104857600 wbps=max riops=max wiops=500\n",
    f"{OWN}/cpu.pressure": PRESSURE.format(2_500_000),
    f"{OWN}/io.pressure": PRESSURE.format(40_000),
}


def machine(folder: Path, files: dict[str, str]) -> Roots:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Roots(sys=folder / "sys", proc=folder / "proc", top=folder)


def test_version_1_counts_what_it_throttled_and_has_no_pressure(tmp_path: Path) -> None:
    found = group_state(machine(tmp_path, VERSION_1))
    assert found.throttled_s == 1.940123456
    assert (found.memory_bytes, found.memory_limit_hits) == (72_384_512, 3)
    pressures = {f"pressure_{name}_some_s" for name in ("cpu", "io", "memory")}
    assert found.missing == dict.fromkeys(pressures, "control groups of version 1 show no pressure")


def test_version_2_adds_what_outer_groups_throttled(tmp_path: Path) -> None:
    found = group_state(machine(tmp_path, VERSION_2))
    assert found.throttled_s == 1.75
    assert (found.memory_bytes, found.memory_limit_hits) == (4_096_000, 5)
    assert (found.pressure_cpu_some_s, found.pressure_io_some_s) == (2.5, 0.04)
    assert found.missing == {"pressure_memory_some_s": "the kernel does not show memory.pressure"}


def test_limits_of_io_are_the_least_of_each_device(tmp_path: Path) -> None:
    assert io_limits(machine(tmp_path / "1", VERSION_1)) == {
        "254:0 rbps": 104_857_600,
        "254:0 wiops": 500,
        "254:16 wiops": 40,
    }
    assert io_limits(machine(tmp_path / "2", VERSION_2)) == {
        "254:0 rbps": 52_428_800,
        "254:0 wiops": 500,
    }


def test_an_outer_limit_is_reached_by_its_own_count(tmp_path: Path) -> None:
    roots = machine(tmp_path, VERSION_2 | {f"{OWN}/memory.max": "4096000\n"})
    assert group_state(roots).memory_limit_hits == 5 + 12
    assert memory_high_bytes(roots) == (6_144_000, _NO_LIMIT)
    assert memory_limit_bytes(roots)[0] == 4_096_000


def test_a_hierarchy_that_is_mounted_twice_or_elsewhere_counts_once(tmp_path: Path) -> None:
    for name, files in {"1": VERSION_1, "2": VERSION_2}.items():
        lines = files["proc/self/mountinfo"].splitlines(keepends=True)
        elsewhere = [line.replace(" /sys/fs/cgroup", " /mnt/groups") for line in lines]
        twice = "".join([*elsewhere, *lines, *lines, *elsewhere])
        once = machine(tmp_path / name, files)
        expected = group_state(once), cpu_limit(once), memory_limit_bytes(once), io_limits(once)
        found = machine(tmp_path / f"{name}-twice", files | {"proc/self/mountinfo": twice})
        assert group_state(found).throttled_s == expected[0].throttled_s
        assert group_state(found).memory_limit_hits == expected[0].memory_limit_hits
        assert (cpu_limit(found), memory_limit_bytes(found), io_limits(found)) == expected[1:]


def test_no_limit_is_said_only_of_groups_that_are_visible(tmp_path: Path) -> None:
    hidden = machine(tmp_path / "hidden", VERSION_2 | {"proc/self/mountinfo": ""})
    assert cpu_limit(hidden) == (None, "no control group of this process is visible")
    assert memory_limit_bytes(hidden) == (None, "no control group of this process is visible")
    assert io_limits(hidden) is None
    top = machine(tmp_path / "top", VERSION_2 | {"proc/self/cgroup": "0::/\n"})
    assert cpu_limit(top) == (None, _NO_LIMIT)
    assert io_limits(top) is None, "the root has no io.max"


def test_without_groups_all_is_missing(tmp_path: Path) -> None:
    found = group_state(Roots(sys=tmp_path, proc=tmp_path, top=tmp_path))
    assert len(found.missing) == 6
    assert found.throttled_s is None
    assert throttling_files(Roots(sys=tmp_path, proc=tmp_path, top=tmp_path)) == ()
    assert read_throttled_s(()) is None


def test_the_root_of_version_2_counts_no_throttling(tmp_path: Path) -> None:
    files = VERSION_2 | {"proc/self/cgroup": "0::/\n"}
    assert throttling_files(machine(tmp_path, files)) == ()


@pytest.mark.parametrize(("quota", "cpus"), [("30000", 1), ("150000", 2), ("900000", 4), ("-1", 4)])
def test_a_quota_bounds_the_usable_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    files = VERSION_1 | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota}
    assert usable_cpus(machine(tmp_path, files)) == cpus


def test_a_quota_bounds_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    from wattload.workloads.dlrm.config import Config

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(cgroups, "cpu_limit", lambda _: (0.3, ""))
    assert Config().workers_per_rank(1) == 1
    assert Config(workers=3).workers_per_rank(1) == 3


def test_this_machines_groups_are_read() -> None:
    found = group_state()
    assert found.memory_bytes is None or found.memory_bytes > 0
    assert read_throttled_s(throttling_files()) is None or found.throttled_s is not None
