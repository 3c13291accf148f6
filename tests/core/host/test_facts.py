"""Facts and states of this machine and of recorded ones, their nodes, and software versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.data.sysfs.tree import expand, write
from wattload import __version__
from wattload.core.host import facts
from wattload.core.host.cgroups import cpu_limit, memory_limit_bytes, usable_memory_bytes
from wattload.core.host.counters import format_cpus, host_state, rank_facts
from wattload.core.host.facts import (
    NodeCpus,
    find_container,
    find_hypervisor,
    host_facts,
    nodes_of,
    software_facts,
)
from wattload.core.record.host import NOT_RECORDED, HostFacts
from wattload.core.storage.targets import resolve_targets
from wattload.core.sysfs import Roots

STAT = "cpu  100 20 30 1000 50 6 4 10 70 0\ncpu0 100 20 30 1000 50 6 4 10 70 0\n"
MEMINFO = (
    "MemTotal: 1000 kB\nMemAvailable: 600 kB\nDirty: 8 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host of two nodes with cpufreq, cpuidle and no hypervisor."""
    cpu = "sys/devices/system/cpu"
    files = {
        "proc/cmdline": "root=/dev/sda2 ro quiet\n",
        "proc/cpuinfo": "processor: 0\nmodel name\t: Xeon X\nmicrocode\t: 0x2b\nflags\t: fpu\n"
        "\nprocessor: 1\nmodel name\t: Other\n",
        "proc/meminfo": MEMINFO,
        "proc/stat": STAT,
        "proc/loadavg": "0.25 0.10 0.05 1/200 4711\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n",
        "proc/interrupts": "  CPU0 CPU1\n  9:  1  2  IO-APIC acpi\nNMI: 0 0 Non-maskable\n",
        "proc/pressure/io": "some avg10=0.00 total=2500000\nfull avg10=0.00 total=1\n",
        "proc/pressure/cpu": "full avg10=0.00 total=1\n",
        "etc/os-release": 'NAME=Fancy\nPRETTY_NAME="Fancy Linux 9"\n',
        f"{cpu}/online": "0-2,4\n",
        f"{cpu}/smt/active": "1\n",
        f"{cpu}/cpu0/cpufreq/scaling_governor": "performance\n",
        f"{cpu}/cpu1/cpufreq/scaling_governor": "powersave\n",
        f"{cpu}/cpu0/cpuidle/state0/name": "POLL\n",
        f"{cpu}/cpu0/cpuidle/state0/disable": "0\n",
        f"{cpu}/cpu0/cpuidle/state10/name": "C6\n",
        f"{cpu}/cpu0/cpuidle/state10/disable": "1\n",
        f"{cpu}/cpu0/cpuidle/state2/name": "C1E\n",
        f"{cpu}/cpu0/cpuidle/state2/disable": "0\n",
        "sys/devices/system/node/node0/cpulist": "0-1\n",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:   600 kB\n",
        "sys/devices/system/node/node1/cpulist": "2,4\n",
        "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:   400 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/iommu_groups/0/type": "DMA\n",
        "sys/kernel/iommu_groups/1/type": "DMA\n",
    }
    for name, text in files.items():
        write(tmp_path / name, text)
    return Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path)


def test_facts_come_from_the_kernels_files(roots: Roots) -> None:
    facts = host_facts([], roots)
    own = {"missing", "name", "machine", "kernel"}
    assert facts.model_dump(exclude=own) == {
        "os": "Fancy Linux 9",
        "kernel_command_line": "root=/dev/sda2 ro quiet",
        "cpu_model": "Xeon X",
        "cpu_count": 4,
        "microcode": "0x2b",
        "governor": "performance, powersave",
        "c_states": ("POLL", "C1E", "C6 (disabled)"),
        "smt_active": True,
        "numa_nodes": (
            {"node": 0, "cpus": "0-1", "memory_bytes": 614_400},
            {"node": 1, "cpus": "2,4", "memory_bytes": 409_600},
        ),
        "interrupt_affinity": {},
        "memory_bytes": 1_024_000,
        "swap_bytes": 102_400,
        "transparent_huge_pages": "madvise",
        "iommu_groups": 2,
        "hypervisor": "none",
        "container": "none",
        "cgroup_cpu_limit": None,
        "cgroup_memory_limit_bytes": None,
        "cgroup_memory_high_bytes": None,
        "cgroup_io_limits": None,
    }
    assert facts.missing == {
        "cgroup_cpu_limit": "no control group of this process is visible",
        "cgroup_memory_limit_bytes": "no control group of this process is visible",
        "cgroup_memory_high_bytes": "no control group of this process is visible",
        "cgroup_io_limits": "no file of a group shows one",
    }


def test_a_host_that_shows_nothing_has_a_reason_for_all(tmp_path: Path) -> None:
    facts = host_facts(["vda"], Roots(sys=tmp_path, proc=tmp_path, top=tmp_path))
    known = {"name", "machine", "kernel", "cpu_count", "hypervisor", "missing"}
    assert {name for name, value in facts if value is not None} == known
    assert facts.missing["microcode"] == "cpuinfo has no microcode revision"
    assert facts.missing["os"] == "the kernel does not show os-release"


def test_a_host_without_os_name_or_nodes_reports_it(roots: Roots) -> None:
    write(roots.top / "etc/os-release", "NAME=x\n")
    (roots.sys / "devices/system/node").rename(roots.sys / "devices/system/away")
    missing = host_facts([], roots).missing
    assert missing["os"] == "os-release has no PRETTY_NAME"
    assert missing["numa_nodes"] == "the kernel shows no NUMA node"


def test_this_machine_has_facts_and_states(tmp_path: Path) -> None:
    (target,) = resolve_targets([tmp_path], host="box")
    facts = host_facts(target.facts.devices)
    assert facts.kernel == platform.release()
    assert facts.cpu_count >= len(os.sched_getaffinity(0))
    assert facts.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    state = host_state()
    assert state.cpu_total_s is not None
    assert state.cpu_busy_s is not None
    assert 0 < state.cpu_busy_s < state.cpu_total_s


def test_busy_time_is_neither_idle_nor_stolen(roots: Roots) -> None:
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    state = host_state(roots)
    assert state.cpu_total_s == 1220 / ticks_per_s  # guest time is in user time already
    assert state.cpu_busy_s == 160 / ticks_per_s
    assert state.steal_s == 10 / ticks_per_s


def test_memory_and_pressure_are_in_bytes_and_seconds(roots: Roots) -> None:
    state = host_state(roots)
    assert state.load_1min == 0.25
    assert state.memory_available_bytes == 614_400
    assert state.swap_used_bytes == 60 * 1024
    assert state.dirty_bytes == 8192
    assert state.pressure_io_some_s == 2.5
    assert state.missing["pressure_memory_some_s"] == "the kernel does not show memory"
    assert "has no 'some' line" in state.missing["pressure_cpu_some_s"]


def test_counters_of_another_form_are_no_value(roots: Roots) -> None:
    write(roots.proc / "stat", "intr 5\n")
    assert "does not start with the sum over CPUs" in host_state(roots).missing["cpu_busy_s"]


def test_the_kernel_says_how_well_it_keeps_the_wall_clock_or_that_it_does_not() -> None:
    state = host_state()
    figures = (state.ntp_offset_s, state.ntp_error_s, state.ntp_max_error_s)
    if None in figures:
        assert set(figures) == {None}
        assert state.missing["ntp_offset_s"] in {
            "the kernel's clock is not synchronised (no NTP)",
            "adjtimex: Operation not permitted",  # a container's filter of system calls
        }
    else:
        assert state.ntp_offset_s is not None
        assert abs(state.ntp_offset_s) < 0.5  # beyond that, the kernel steps the clock
        assert 0 <= (state.ntp_error_s or 0) <= 16
        assert 0 < (state.ntp_max_error_s or 0) <= 16


def test_two_states_show_what_the_host_did() -> None:
    before = host_state()
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    after = host_state()
    assert after.clock.monotonic_ns > before.clock.monotonic_ns
    assert before.cpu_busy_s is not None
    assert after.cpu_busy_s is not None
    assert after.cpu_busy_s > before.cpu_busy_s


@pytest.mark.parametrize(
    ("cpus", "text"), [({0}, "0"), ({0, 1, 2, 3}, "0-3"), ({0, 1, 8, 10, 11}, "0-1,8,10-11")]
)
def test_cpu_sets_are_written_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert format_cpus(cpus) == text


def test_a_rank_reports_where_it_runs_and_what_it_took() -> None:
    facts = rank_facts(3, "box")
    assert (facts.rank, facts.host, facts.pid) == (3, "box", os.getpid())
    assert facts.cpu_affinity == format_cpus(os.sched_getaffinity(0))
    assert facts.cpu_s is not None
    assert facts.cpu_s > 0
    assert facts.peak_memory_bytes is not None
    assert facts.peak_memory_bytes > 1_000_000


def test_a_better_count_of_cpu_time_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "self/status", "Name: x\n")
    facts = rank_facts(0, "box", 12.5, Roots(proc=tmp_path))
    assert facts.cpu_s == 12.5
    assert facts.missing["peak_memory_bytes"] == "no VmHWM in status"


def test_interrupts_of_the_targets_drive_are_found(tmp_path: Path) -> None:
    roots = expand("gen5_in_gen4_slot", tmp_path, tmp_path / "target")
    function = (roots.sys / "class/nvme/nvme0/device").resolve()
    for number in (101, 99, 100):
        write(function / f"msi_irqs/{number}", "msix\n")
        write(roots.proc / f"irq/{number}/smp_affinity_list", f"{number - 99}\n")
    write(
        roots.proc / "interrupts",
        "      CPU0 CPU1\n  99: 5 0 PCI-MSIX-0000:c1:00.0 0-edge nvme0q0\n"
        " 101: 5 0 PCI-MSIX-0000:c1:00.0 2-edge nvme0q2\n",
    )
    affinity = host_facts(["nvme0n1", "no-disk"], roots).interrupt_affinity
    assert affinity == {"99 nvme0q0": "0", "101 nvme0q2": "2"}


def test_a_single_line_interrupt_is_found(tmp_path: Path) -> None:
    roots = expand("gen5_in_gen4_slot", tmp_path, tmp_path / "target")
    write((roots.sys / "class/nvme/nvme0/device").resolve() / "irq", "17\n")
    write(roots.proc / "interrupts", "      CPU0\n  17: 5 IO-APIC 17-fasteoi nvme0q0, ahci\n")
    write(roots.proc / "irq/17/smp_affinity_list", "0-3\n")
    assert host_facts(["nvme0n1"], roots).interrupt_affinity == {"17 ahci": "0-3"}


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
            "proc/meminfo": "MemAvailable: 2097152 kB\n",
            "proc/self/mountinfo": MOUNT_V2,
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
        },
    )
    assert cpu_limit(roots)[0] == 1.5
    assert memory_limit_bytes(roots)[0] == usable_memory_bytes(roots) == 1_073_741_824


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
    assert cpu_limit(roots) == (None, "no limit in the control groups that are visible here")
    assert memory_limit_bytes(roots) == cpu_limit(roots)


def test_limits_that_an_older_version_did_not_record_say_so(tmp_path: Path) -> None:
    facts = host_facts([], machine(tmp_path, {})).model_dump(mode="json")
    for name in ("cgroup_io_limits", "cgroup_memory_high_bytes"):
        del facts[name], facts["missing"][name]
    found = HostFacts.model_validate(facts)
    assert found.cgroup_io_limits is None
    assert found.missing["cgroup_io_limits"] == NOT_RECORDED


def test_groups_that_can_not_be_read_are_a_reason(tmp_path: Path) -> None:
    assert cpu_limit(Roots(sys=tmp_path, proc=tmp_path)) == (
        None,
        "the kernel does not show mountinfo",
    )


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_versions_are_those_of_the_environment() -> None:
    facts = software_facts()
    assert facts.wattload == __version__
    assert facts.libraries["numpy"] == version("numpy")
    assert "no-such-library" not in facts.libraries


def test_a_clean_checkout_gives_its_commit(checkout: Path) -> None:
    facts = software_facts(checkout)
    assert facts.git_commit == git(checkout, "rev-parse", "HEAD")
    assert facts.git_dirty is False


def test_a_changed_file_makes_a_checkout_dirty(checkout: Path) -> None:
    (checkout / "file").write_text("two")
    assert software_facts(checkout).git_dirty is True


@pytest.mark.parametrize(("suffix", "is_dirty"), [("", False), ("-dirty", True)])
def test_an_image_has_the_commit_that_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, is_dirty: bool
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setenv("WATTLOAD_REVISION", commit + suffix)
    monkeypatch.setenv("WATTLOAD_IMAGE", "sha256:ab")
    facts = software_facts(tmp_path)
    assert (facts.git_commit, facts.git_dirty) == (commit, is_dirty)
    assert (facts.image.id, facts.image.evidence) == ("sha256:ab", "declared")


def test_an_image_that_nobody_declares_is_unknown(tmp_path: Path) -> None:
    image = software_facts(tmp_path).image
    assert image.missing == {"id": "WATTLOAD_IMAGE is not set, which declares a container's image"}


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    facts = software_facts(tmp_path)
    assert facts.git_commit is None
    assert facts.missing["git_dirty"] == "wattload does not run from a git checkout"


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert software_facts(checkout).missing["git_commit"] == "git is not installed"


def test_a_git_that_can_not_be_started_is_a_reason(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_bytes(b"\x7fELF broken")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(fake.parent))
    assert software_facts(checkout).missing["git_commit"].startswith("git: ")


def test_a_git_that_hangs_is_a_reason(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(facts, "_GIT_TIMEOUT_S", 0.05)
    assert "timed out" in software_facts(checkout).missing["git_commit"]


def test_a_shared_cache_counts_once_per_node(tmp_path: Path) -> None:
    for node, cpus in enumerate(("0-3", "4-7")):
        write(tmp_path / f"devices/system/node/node{node}/cpulist", f"{cpus}\n")
    for cpu in range(8):
        shared = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        for index, (level, size) in enumerate((("1", "32K"), ("3", "16M"))):
            folder = tmp_path / f"devices/system/cpu/cpu{cpu}/cache/index{index}"
            write(folder / "level", f"{level}\n")
            write(folder / "size", f"{size}\n")
            write(folder / "shared_cpu_list", f"{shared}\n")
    assert nodes_of([0, 1, 2, 5], Roots(sys=tmp_path)) == (
        NodeCpus(node=0, cpus=(0, 1, 2), l3_bytes=32 << 20),
        NodeCpus(node=1, cpus=(5,), l3_bytes=16 << 20),
    )


def test_without_numa_and_caches_all_are_on_node_0(tmp_path: Path) -> None:
    found = nodes_of([3, 1], Roots(sys=tmp_path))
    assert found == (NodeCpus(node=0, cpus=(1, 3), l3_bytes=None),)
