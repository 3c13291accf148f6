"""Properties of a host that do not change during a run.

Hardware, processors with their NUMA nodes and interrupts, hypervisor or container, and software
versions.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import wattload
from wattload import __version__
from wattload.core.host.cgroups import cpu_limit, io_limits, memory_high_bytes, memory_limit_bytes
from wattload.core.record.host import HostFacts, ImageFacts, NumaNode, SoftwareFacts
from wattload.core.storage.file_system import read_mounts
from wattload.core.sysfs import (
    LIVE,
    Observation,
    Roots,
    block_folder,
    bracketed,
    named_values,
    parse_cpus,
    read_int,
    read_meminfo,
    read_text,
    text_or_empty,
)

_CLOCKS = {"kvm-clock": "kvm", "xen": "xen", "hyperv_clocksource_tsc_page": "hyper-v"}
_CGROUP_WORDS = ("docker", "kubepods", "libpod", "containerd", "lxc", "garden")
_NONE = "none"
_ENGINE_MOUNTS = (Path("/etc/hosts"), Path("/etc/hostname"), Path("/etc/resolv.conf"))

LIBRARIES = (
    "dlio-benchmark",
    "hydra-core",
    "mpi4py",
    "mpich",
    "numpy",
    "nvidia-dali-cuda130",
    "nvidia-ml-py",
    "omegaconf",
    "pyarrow",
    "pydantic",
    "torch",
)
_GIT_TIMEOUT_S = 10.0
_REVISION, _IMAGE = "WATTLOAD_REVISION", "WATTLOAD_IMAGE"
"""Variables: the commit that an image was built from, ``-dirty`` if changed, and the image's ID."""
_CODE = Path(wattload.__file__).resolve().parent


def read_cpu(observation: Observation, roots: Roots) -> None:
    folder = roots.sys / "devices/system/cpu"
    info = cpuinfo(roots)
    model = info.get("model name") or info.get("Model") or info.get("cpu model")
    observation.put("cpu_model", model, "cpuinfo has no model")
    observation.put("microcode", info.get("microcode"), "cpuinfo has no microcode revision")
    governors = sorted(
        {read_text(path) for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    )
    observation.put(
        "governor",
        ", ".join(governors) or None,
        "no cpufreq: nothing on this host sets the frequency",
    )
    observation.read("c_states", lambda: _idle_states(folder), "no cpuidle: no idle states shown")
    observation.read("smt_active", lambda: read_int(folder / "smt/active") == 1)


def cpu_flags(roots: Roots) -> frozenset[str]:
    return frozenset(cpuinfo(roots).get("flags", "").split())


def cpuinfo(roots: Roots) -> dict[str, str]:
    """Return the first processor's part of ``/proc/cpuinfo``; empty if it can't be read."""
    text = text_or_empty(roots.proc / "cpuinfo")
    return named_values(text.partition("\n\n")[0])


def _idle_states(folder: Path) -> tuple[str, ...] | None:
    states = sorted((folder / "cpu0/cpuidle").glob("state*"), key=lambda path: int(path.name[5:]))
    return tuple(_idle_state(path) for path in states) or None


def _idle_state(folder: Path) -> str:
    name = read_text(folder / "name")
    return f"{name} (disabled)" if read_int(folder / "disable") else name


def interrupt_affinity(devices: Sequence[str], roots: Roots) -> dict[str, str]:
    """Return the CPU list of each interrupt of the PCI functions behind block devices.

    Empty if sysfs shows no interrupts for the devices, as for a software device. Keys are
    ``<number> <name>``: names alone may repeat.

    Raises:
        OSError: ``/proc/interrupts`` can't be read.
    """
    names = _interrupt_names(roots)
    affinity: dict[str, str] = {}
    for device in devices:
        for number in _numbers(device, roots):
            if number not in names:  # allocated but never requested
                continue
            file = roots.proc / "irq" / number / "smp_affinity_list"
            affinity[f"{number} {names[number]}"] = read_text(file)
    return affinity


def _interrupt_names(roots: Roots) -> dict[str, str]:
    names: dict[str, str] = {}
    for line in read_text(roots.proc / "interrupts").splitlines()[1:]:
        number, _, rest = line.strip().partition(":")
        if number.isdecimal() and rest.split():
            names[number] = rest.split()[-1]
    return names


def _numbers(device: str, roots: Roots) -> Iterator[str]:
    folder = block_folder(device, roots)
    if folder is None:
        return
    for parent in folder.parents:
        if (parent / "msi_irqs").is_dir():
            yield from sorted(_names(parent / "msi_irqs"), key=int)
            return
        if (parent / "config").exists() and (parent / "irq").exists():
            yield read_text(parent / "irq")
            return


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def find_hypervisor(roots: Roots) -> str:
    """Return the hypervisor's name, ``unnamed`` if only the processor's flag shows it, or ``none``.

    Names come from ``/sys/hypervisor``, clock sources that only guests have, and the firmware's
    product name. Without a hypervisor flag (ARM has none) only these count.
    """
    named = [*_hypervisor_folder(roots), *_paravirtual_clocks(roots), *_firmware_names(roots)]
    if named:
        return ", ".join(dict.fromkeys(named))
    return "unnamed" if "hypervisor" in cpu_flags(roots) else _NONE


def _hypervisor_folder(roots: Roots) -> list[str]:
    kind = text_or_empty(roots.sys / "hypervisor/type")
    return [kind] if kind else []


def _paravirtual_clocks(roots: Roots) -> list[str]:
    folder = roots.sys / "devices/system/clocksource/clocksource0"
    clocks = text_or_empty(folder / "available_clocksource").split()
    return [_CLOCKS[clock] for clock in clocks if clock in _CLOCKS]


def _firmware_names(roots: Roots) -> list[str]:
    if "hypervisor" not in cpu_flags(roots):
        return []
    folder = roots.sys / "class/dmi/id"
    words = [text_or_empty(folder / name) for name in ("sys_vendor", "product_name")]
    return [" ".join(word for word in words if word)] if any(words) else []


def find_container(roots: Roots) -> str:
    """Return the kind of container that this process runs in, or ``none``."""
    # A machine created from an image has the image's marker file but is not a container: only an
    # engine mounts its own files over /etc.
    if (roots.top / ".dockerenv").exists() and any(
        mount.mount_point in _ENGINE_MOUNTS for mount in read_mounts(roots)
    ):
        return "docker"
    if (roots.top / "run/.containerenv").exists():
        return "podman"
    named = _named_by_manager(roots)
    if named:
        return named
    cgroups = read_text(roots.proc / "self/cgroup")
    return next((word for word in _CGROUP_WORDS if word in cgroups), _NONE)


def _named_by_manager(roots: Roots) -> str:
    """Return the container manager's name from the environment of process 1 (systemd interface)."""
    try:
        environment = (roots.proc / "1/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    names = (entry[len(b"container=") :] for entry in environment if entry[:10] == b"container=")
    return next(names, b"").decode("utf-8", "replace")


def host_facts(devices: Sequence[str], roots: Roots = LIVE) -> HostFacts:
    """Return the host's hardware and system.

    Args:
        devices: kernel names of the targets' block devices, whose interrupts are looked up.
        roots: where sysfs and proc are.
    """
    observation = Observation()
    uname = platform.uname()
    observation.put("machine", uname.machine or None, "uname reports none")
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
    observation.put("cgroup_memory_high_bytes", *memory_high_bytes(roots))
    observation.read("cgroup_io_limits", lambda: io_limits(roots), "no file of a group shows one")
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
        return len(parse_cpus(read_text(online))) or os.cpu_count() or 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


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


@cache
def software_facts(checkout: Path = _CODE) -> SoftwareFacts:
    """Return versions, and the commit and dirty flag of a git checkout or of an image.

    They are read once per process: later changes are not in the code that runs.
    """
    observation = Observation()
    commit, reason = _git(checkout, "rev-parse", "HEAD")
    changes, why = (None, reason) if commit is None else _git(checkout, "status", "--porcelain")
    if commit is None and (built := os.environ.get(_REVISION)):
        commit, _, changes = built.partition("-")
    observation.put("git_commit", commit, reason)
    observation.put("git_dirty", None if changes is None else bool(changes), why)
    image = os.environ.get(_IMAGE) or None
    missing = {} if image else {"id": f"{_IMAGE} is not set, which declares a container's image"}
    return observation.build(
        SoftwareFacts,
        wattload=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libraries=dict(_versions()),
        image=ImageFacts(id=image, missing=missing),
    )


def _versions() -> list[tuple[str, str]]:
    found = []
    for name in LIBRARIES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *words: str) -> tuple[str | None, str]:
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None, "wattload does not run from a git checkout"
    git = shutil.which("git")
    if git is None:
        return None, "git is not installed"
    try:
        done = subprocess.run(
            [git, "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"git: {error}"
    if done.returncode:
        return None, f"git: {done.stderr.strip().splitlines()[0] if done.stderr else 'failed'}"
    return done.stdout.strip(), ""


_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_LAST_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCpus:
    """Some CPUs of one NUMA node; ``l3_bytes`` is the size of all their L3 caches together.

    ``l3_bytes`` is ``None`` where the kernel shows no L3 cache.
    """

    node: int
    cpus: tuple[int, ...]
    l3_bytes: int | None


def nodes_of(cpus: Collection[int], roots: Roots = LIVE) -> tuple[NodeCpus, ...]:
    """Return the NUMA nodes of some CPUs; without NUMA in the kernel all belong to node 0."""
    folders = sorted((roots.sys / "devices/system/node").glob("node[0-9]*"))
    members: dict[int, set[int]] = {}
    for folder in folders:
        node = int(folder.name.removeprefix("node"))
        own = parse_cpus(cpus_of_node(node, roots)) & set(cpus)
        if own:
            members[node] = own
    found = members or {0: set(cpus)}
    return tuple(
        NodeCpus(node=node, cpus=tuple(sorted(own)), l3_bytes=_l3_bytes(own, roots))
        for node, own in sorted(found.items())
    )


def cpus_of_node(node: int, roots: Roots = LIVE) -> str:
    """Return the CPUs of a NUMA node as the kernel lists them: ``0-7``; raises ``OSError``."""
    return read_text(roots.sys / f"devices/system/node/node{node}/cpulist")


def _l3_bytes(cpus: Collection[int], roots: Roots) -> int | None:
    caches: dict[str, int] = {}
    for cpu in cpus:
        folder = roots.sys / f"devices/system/cpu/cpu{cpu}/cache"
        for entry in folder.glob("index*"):
            if read_int(entry / "level") == _LAST_LEVEL:
                caches[read_text(entry / "shared_cpu_list")] = _size_bytes(entry / "size")
    return sum(caches.values()) or None


def _size_bytes(path: Path) -> int:
    """Return the bytes in a cache's ``size``, such as ``32768K``."""
    text = read_text(path)
    unit = _UNITS.get(text[-1:], 1)
    return int(text.rstrip("".join(_UNITS))) * unit
