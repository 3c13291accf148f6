"""Hypervisors, containers and control groups by what they leave in the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.host.cgroup import cpu_limit, memory_limit_bytes
from wattload.core.host.guest import find_container, find_hypervisor
from wattload.core.sysfs import Roots

GUEST = {"proc/cpuinfo": "flags : fpu hypervisor sse\n"}
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
MOUNT_V2 = (
    "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
)
MOUNT_HOSTS = "9 1 8:2 /var/lib/docker/x/hosts /etc/hosts rw - ext4 /dev/sda rw\n"
MOUNT_V1 = (
    "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n"
    "32 1 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 1 0:30 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def machine(tmp_path: Path, files: dict[str, str]) -> Roots:
    for name, text in {"proc/self/cgroup": "0::/\n", **files}.items():
        write(tmp_path / name, text)
    return Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path)


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"proc/cpuinfo": "flags : fpu\n"}, "none"),
        (GUEST, "unnamed"),
        ({**GUEST, CLOCKS: "kvm-clock tsc acpi_pm\n"}, "kvm"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        (
            {**GUEST, "sys/class/dmi/id/sys_vendor": "QEMU\n", CLOCKS: "kvm-clock\n"},
            "kvm, QEMU",
        ),
        (
            {"proc/cpuinfo": "flags : fpu\n", "sys/class/dmi/id/sys_vendor": "Dell Inc.\n"},
            "none",
        ),
    ],
)
def test_a_hypervisor_is_named_by_what_it_leaves(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    assert find_hypervisor(machine(tmp_path, files)) == name


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({}, "none"),
        ({".dockerenv": "", "proc/self/mountinfo": MOUNT_HOSTS}, "docker"),
        ({".dockerenv": "", "proc/self/mountinfo": MOUNT_V2}, "none"),
        ({"run/.containerenv": ""}, "podman"),
        ({"proc/1/environ": "HOME=/\0container=systemd-nspawn\0"}, "systemd-nspawn"),
        ({"proc/1/environ": "HOME=/\0", "proc/self/cgroup": "0::/kubepods/pod1/x\n"}, "kubepods"),
    ],
)
def test_a_container_is_named_by_what_it_leaves(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    assert find_container(machine(tmp_path, files)) == name


def test_the_least_limit_on_the_way_down_holds(tmp_path: Path) -> None:
    roots = machine(
        tmp_path,
        {
            "proc/self/mountinfo": MOUNT_V2,
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
        },
    )
    assert cpu_limit(roots)[0] == 1.5
    assert memory_limit_bytes(roots)[0] == 1_073_741_824


@pytest.mark.parametrize(
    ("root", "group", "folder"), [("/", "/jobs/7", "/jobs/7"), ("/docker/x", "/docker/x", "")]
)
def test_version_1_limits_are_found_inside_and_outside_containers(
    tmp_path: Path, root: str, group: str, folder: str
) -> None:
    roots = machine(
        tmp_path,
        {
            "proc/self/mountinfo": MOUNT_V1.format(root=root),
            "proc/self/cgroup": f"5:memory:{group}\n4:cpu,cpuacct:{group}\n3:pids:/\n0::/\n",
            f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.cfs_quota_us": "50000\n",
            f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.cfs_period_us": "100000\n",
            f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes": "4096000\n",
        },
    )
    assert cpu_limit(roots)[0] == 0.5
    assert memory_limit_bytes(roots)[0] == 4_096_000


def test_no_limit_is_a_reason_and_not_a_large_number(tmp_path: Path) -> None:
    roots = machine(
        tmp_path,
        {
            "proc/self/mountinfo": MOUNT_V1.format(root="/"),
            "proc/self/cgroup": "5:memory:/\n4:cpu,cpuacct:/\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert cpu_limit(roots) == (None, "no limit is set")
    assert memory_limit_bytes(roots) == (None, "no limit is set")


def test_groups_that_can_not_be_read_are_a_reason(tmp_path: Path) -> None:
    assert cpu_limit(Roots(sys=tmp_path, proc=tmp_path)) == (
        None,
        "the kernel does not show mountinfo",
    )
