"""Version 2 of control groups and traced requests of an NVMe drive, for real.

In the guest nothing but the tests uses either.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.host.test_memory_limit import check_limit
from tests.lab.virtual_runs import VIRTUAL
from wattload.core.host.counters import read_block_stat
from wattload.core.host.io_profile import profile
from wattload.core.host.memory_group import memory_group, probe

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

ROW = 4096


@pytest.fixture(scope="module", autouse=True)
def mounts() -> None:
    """Mount what an ordinary system has mounted."""
    for kind, at in (("cgroup2", "/sys/fs/cgroup"), ("tracefs", "/sys/kernel/tracing")):
        if not os.path.ismount(at):
            subprocess.run(["mount", "-t", kind, kind, at], check=True)


def drive(serial: str) -> str:
    """Return the name of the namespace of a controller."""
    for found in Path("/sys/class/nvme").iterdir():
        if (found / "serial").read_text().strip() == serial:
            return next(each.name for each in found.glob("nvme*n1"))
    raise AssertionError(f"no controller {serial}")


def test_version_2_limits_and_tells_of_a_killed_run() -> None:
    found = probe()
    assert found.place is not None, found.reason
    assert found.place.method == "cgroup2"
    path = Path("/dev") / drive("QEMU0001")
    with path.open("rb") as device:
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    check_limit(found, path)
    enabled = Path("/sys/fs/cgroup/cgroup.subtree_control")
    enabled.write_text("-memory")  # which the killed run has left on
    with memory_group() as memory:
        assert memory.method == "cgroup2"
        assert "memory" in enabled.read_text()
    assert "memory" not in enabled.read_text()


LIMITED = """
import json, os, sys, time
from pathlib import Path
from wattload.core.host.cgroups import (
    cpu_limit, group_state, io_limits, memory_high_bytes, memory_limit_bytes, usable_cpus,
)
from wattload.core.sysfs import LIVE
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
before = group_state()
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
after = group_state()
print(json.dumps({
    "cpus": cpu_limit(LIVE)[0], "usable": usable_cpus(), "io": io_limits(LIVE),
    "memory": [memory_limit_bytes(LIVE)[0], memory_high_bytes(LIVE)[0]],
    "throttled_s": after.throttled_s - before.throttled_s,
    "pressure": after.pressure_cpu_some_s is not None, "missing": sorted(after.missing),
}))
"""


def test_version_2_shows_its_limits_and_counts_what_they_stopped() -> None:
    """A process in a group with limits, as a container is; its quota of 0.3 CPUs stops it."""
    top = Path("/sys/fs/cgroup")
    group = top / "limited"
    (top / "cgroup.subtree_control").write_text("+cpu +memory +io")
    group.mkdir()
    device = (Path("/dev") / drive("QEMU0001")).stat().st_rdev
    number = f"{os.major(device)}:{os.minor(device)}"
    limits = {
        "cpu.max": "3000 10000",
        "memory.max": str(512 << 20),
        "memory.high": str(256 << 20),
        "io.max": f"{number} wbps=1048576",
    }
    try:
        for name, value in limits.items():
            (group / name).write_text(value)
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(group)], capture_output=True, text=True, check=True
        )
    finally:
        group.rmdir()
        (top / "cgroup.subtree_control").write_text("-cpu -memory -io")
    found = json.loads(done.stdout)
    assert (found["cpus"], found["usable"]) == (0.3, 1)
    assert found["memory"] == [512 << 20, 256 << 20]
    assert found["io"] == {f"{number} wbps": 1048576}
    assert found["throttled_s"] > 0
    assert found["pressure"] or "pressure_cpu_some_s" in found["missing"]


def test_trace_of_an_nvme_drive_agrees_with_its_counters() -> None:
    name = drive("QEMU0001")
    before = read_block_stat(name)
    with profile([name]) as traced, mmap.mmap(-1, 4 * ROW) as memory:
        descriptor = os.open(f"/dev/{name}", os.O_RDONLY | os.O_DIRECT)
        for row in range(200):
            whole = memoryview(memory)[: ROW * (1 + row % 4)]
            os.preadv(descriptor, [whole], row * 4 * ROW)
            whole.release()
        os.close(descriptor)
    counted = read_block_stat(name).since(before)
    assert counted is not None
    said = traced.result
    assert said is not None
    assert said.source == "tracefs", said.reason
    assert said.lost_events == 0
    assert said.reads == counted.read_operations == 200
    assert said.read_bytes == counted.read_bytes == 50 * 10 * ROW
    assert [(each.bytes, each.count) for each in said.sizes or ()] == [
        (ROW * size, 50) for size in (1, 2, 3, 4)
    ]
    assert said.peak_depth == 1
    assert said.mean_depth == 1.0
