"""What does not change of a host during a run."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from pathlib import Path

from wattload.core.host.cgroup import cpu_limit, memory_limit_bytes
from wattload.core.host.cpu import read_cpu
from wattload.core.host.guest import find_container, find_hypervisor
from wattload.core.host.interrupts import interrupt_affinity
from wattload.core.host.meminfo import read_meminfo
from wattload.core.record.host import HostFacts, NumaNode
from wattload.core.sysfs import LIVE, Observation, Roots, bracketed, read_text


def host_facts(devices: Sequence[str], roots: Roots = LIVE) -> HostFacts:
    """Return what the host is.

    Args:
        devices: kernel names of the targets' block devices, whose interrupts are looked up.
        roots: where sysfs and proc are.
    """
    observation = Observation()
    uname = platform.uname()
    observation.put("machine", uname.machine or None, "uname names none")
    observation.read("os", lambda: _os_name(roots), "os-release has no PRETTY_NAME")
    observation.read("kernel_command_line", lambda: read_text(roots.proc / "cmdline"))
    read_cpu(observation, roots)
    observation.read("numa_nodes", lambda: _numa_nodes(roots), "the kernel shows no NUMA node")
    _read_memory(observation, roots)
    observation.read("iommu_groups", lambda: _count(roots.sys / "kernel/iommu_groups"))
    observation.read("hypervisor", lambda: find_hypervisor(roots))
    observation.read("container", lambda: find_container(roots))
    observation.put("cgroup_cpu_limit", *cpu_limit(roots))
    observation.put("cgroup_memory_limit_bytes", *memory_limit_bytes(roots))
    observation.read("interrupt_affinity", lambda: interrupt_affinity(devices, roots))
    return observation.build(
        HostFacts, name=socket.gethostname(), kernel=uname.release, cpu_count=_cpu_count(roots)
    )


def _os_name(roots: Roots) -> str | None:
    for line in read_text(roots.top / "etc/os-release").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
    return None


def _cpu_count(roots: Roots) -> int:
    online = roots.sys / "devices/system/cpu/online"
    try:
        return sum(_range_length(part) for part in read_text(online).split(","))
    except (OSError, ValueError):
        return os.cpu_count() or 1


def _range_length(part: str) -> int:
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1


def _numa_nodes(roots: Roots) -> tuple[NumaNode, ...] | None:
    folders = (roots.sys / "devices/system/node").glob("node[0-9]*")
    nodes = [
        NumaNode(
            node=int(folder.name.removeprefix("node")),
            cpus=read_text(folder / "cpulist"),
            memory_bytes=read_meminfo(folder / "meminfo")["MemTotal"],
        )
        for folder in folders
    ]
    return tuple(sorted(nodes, key=lambda node: node.node)) or None


def _read_memory(observation: Observation, roots: Roots) -> None:
    memory = roots.proc / "meminfo"
    observation.read("memory_bytes", lambda: read_meminfo(memory).get("MemTotal"))
    observation.read("swap_bytes", lambda: read_meminfo(memory).get("SwapTotal"))
    huge = roots.sys / "kernel/mm/transparent_hugepage/enabled"
    observation.read("transparent_huge_pages", lambda: bracketed(read_text(huge)))


def _count(folder: Path) -> int:
    return len(list(folder.iterdir()))
