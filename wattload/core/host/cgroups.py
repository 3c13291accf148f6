"""The control groups of this process (cgroups(7)): limits and counts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from wattload.core.host.counters import PRESSURES, host_state, read_pressure_s
from wattload.core.record.host import GroupState
from wattload.core.storage.file_system import Mount, read_mounts
from wattload.core.sysfs import (
    LIVE,
    Observation,
    Roots,
    explain,
    read_int,
    read_text,
    text_or_empty,
)
from wattload.core.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """This process's group in one mounted hierarchy, whose root is ``top``."""

    folder: Path
    top: Path
    version: int

    def upwards(self) -> Iterator[Path]:
        """Yield the folders of the groups, from the own one to the top."""
        folder = self.folder
        while folder != self.top:
            yield folder
            folder = folder.parent
        yield self.top


def own_groups(controller: str, roots: Roots = LIVE) -> Iterator[Group]:
    """Yield this process's groups for a controller, one a hierarchy that is mounted below ``/sys``.

    A hierarchy of version 2 is included whether it has the controller or not.

    Raises:
        OSError: ``/proc`` can't be read.
        ValueError: a line of it has another form.
    """
    mounts = [each for each in read_mounts(roots) if each.mount_point.is_relative_to("/sys")]
    for line in read_text(roots.proc / "self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        version = 2 if number == "0" and not controllers else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        serving = [mount for mount in mounts if _serves(mount, controller, version)]
        if serving:  # the last mount hides others of the same place
            yield _group(serving[-1], PurePosixPath(path), version, roots)


def group_folders(controller: str, roots: Roots = LIVE) -> Iterator[Path]:
    """Yield the folders of this process's groups for a controller, from its own upwards.

    Errors as in ``own_groups``.
    """
    for group in own_groups(controller, roots):
        yield from group.upwards()


def _serves(mount: Mount, controller: str, version: int) -> bool:
    if version == 2:  # noqa: PLR2004 - of cgroups
        return mount.type == "cgroup2"
    return mount.type == "cgroup" and controller in mount.options


def _group(mount: Mount, path: PurePosixPath, version: int, roots: Roots) -> Group:
    # A container without a cgroup namespace sees the host's path but has its own group mounted.
    inside = path.relative_to(mount.root) if path.is_relative_to(mount.root) else PurePosixPath()
    top = roots.sys / mount.mount_point.relative_to("/sys")
    return Group(folder=top / inside, top=top, version=version)


_NO_LIMIT = "no limit in the control groups that are visible here"
_NO_GROUP = "no control group of this process is visible"
_UNLIMITED_V1_BYTES = 2**62
"""cgroup v1 shows "unlimited" as the largest page-aligned 63-bit number."""

_TASKS = ("pids.max", "pids.current")


def cpu_limit(roots: Roots) -> tuple[float | None, str]:
    """Return the smallest CPU quota of this process's groups, in CPUs, or ``None`` and why."""
    return _least(roots, "cpu", _cpu_quota)


def memory_limit_bytes(roots: Roots) -> tuple[int | None, str]:
    """Return the smallest memory limit of this process's groups, or ``None`` and why."""
    limit, reason = _least(roots, "memory", memory_limit)
    return (None if limit is None else int(limit)), reason


def memory_high_bytes(roots: Roots) -> tuple[int | None, str]:
    """Return the smallest ``memory.high``, above which processes are slowed, or ``None`` and why.

    Version 1 has no such limit.
    """
    limit, reason = _least(roots, "memory", partial(_read_limit, name="memory.high"))
    return (None if limit is None else int(limit)), reason


def usable_cpus(roots: Roots = LIVE) -> int:
    """Return how many threads of this process can run at once: its CPUs, or its quota if less."""
    cpus = len(os.sched_getaffinity(0))
    limit, _ = cpu_limit(roots)
    return cpus if limit is None else min(cpus, math.ceil(limit))


def usable_memory_bytes(roots: Roots = LIVE) -> int | None:
    """Return how much memory this process can take: what is available, or its limit if less.

    ``None`` if both are unknown.
    """
    known = (host_state(roots).memory_available_bytes, memory_limit_bytes(roots)[0])
    return min((each for each in known if each is not None), default=None)


_IO_KEYS = {
    "rbps": "throttle.read_bps_device",
    "wbps": "throttle.write_bps_device",
    "riops": "throttle.read_iops_device",
    "wiops": "throttle.write_iops_device",
}
"""Limits of a device by their keys in ``io.max``, with the files of ``blkio`` in version 1."""


def io_limits(roots: Roots) -> dict[str, int] | None:
    """Return the smallest limits of I/O of this process's groups, by ``MAJOR:MINOR KEY``.

    ``None`` if no file of a group would show one. Keys are those of ``io.max``: ``rbps`` and
    ``wbps`` in bytes, ``riops`` and ``wiops`` in operations per second.

    Raises:
        OSError: a file can't be read.
        ValueError: a file has another form.
    """
    found: dict[str, int] = {}
    shown = [*group_folders("io", roots), *group_folders("blkio", roots)]
    names = ("io.max", *(f"blkio.{name}" for name in _IO_KEYS.values()))
    if not any((folder / name).exists() for folder in shown for name in names):
        return None
    for name, value in _io_limits(roots):
        found[name] = min(value, found.get(name, value))
    return found


def _io_limits(roots: Roots) -> Iterator[tuple[str, int]]:
    for folder in group_folders("io", roots):
        if (folder / "io.max").exists():
            for device, *pairs in map(str.split, read_text(folder / "io.max").splitlines()):
                for key, _, value in (pair.partition("=") for pair in pairs):
                    if value != "max":
                        yield f"{device} {key}", int(value)
    for folder in group_folders("blkio", roots):
        for key, name in _IO_KEYS.items():
            for line in text_or_empty(folder / f"blkio.{name}").splitlines():
                device, value = line.split()
                yield f"{device} {key}", int(value)


def throttling_files(roots: Roots = LIVE) -> tuple[Path, ...]:
    """Return the files in which this process's groups count for how long a CPU quota stopped it."""
    try:
        return tuple(
            folder / "cpu.stat"
            for folder in group_folders("cpu", roots)
            if _throttled_s(folder / "cpu.stat") is not None
        )
    except (OSError, ValueError):
        return ()


def read_throttled_s(files: Sequence[Path]) -> float | None:
    """Return the CPU seconds for which quotas stopped a group, summed; ``None`` if none counts.

    A group that is stopped on two CPUs for a second counts two.
    """
    counts = [seconds for file in files if (seconds := _throttled_s(file)) is not None]
    return sum(counts) if counts else None


def _throttled_s(file: Path) -> float | None:
    amounts = read_amounts(file) or {}
    if "throttled_usec" in amounts:
        return amounts["throttled_usec"] / 1e6
    return amounts["throttled_time"] / NS_PER_S if "throttled_time" in amounts else None


def group_state(roots: Roots = LIVE) -> GroupState:
    """Return what this process's groups count now: memory and pressure of its own.

    CPU time is that of all groups, and hits of a limit are those of all that have one.
    In version 1 the limit of memory counts as reached only where reclaiming was not enough.
    """
    observation = Observation()
    throttled_s = read_throttled_s(throttling_files(roots))
    observation.put("throttled_s", throttled_s, "no control group of this process counts it")
    memory, unified = _own_folder("memory", roots), _own_folder("", roots)
    if memory is None:
        observation.lack("this process has no such group", "memory_bytes", "memory_limit_hits")
    else:
        is_1 = (memory / "memory.usage_in_bytes").exists()
        name = "memory.usage_in_bytes" if is_1 else "memory.current"
        observation.read("memory_bytes", lambda: read_int(memory / name))
        observation.read("memory_limit_hits", lambda: _limit_hits(roots), _NO_LIMIT)
    for resource in PRESSURES:
        name = f"pressure_{resource}_some_s"
        if unified is None:
            observation.lack("control groups of version 1 show no pressure", name)
        else:
            observation.read(name, partial(read_pressure_s, unified / f"{resource}.pressure"))
    return observation.build(GroupState)


def _limit_hits(roots: Roots) -> int | None:
    """Return how often memory reached the limits of all groups; ``None`` without a limit."""
    hits = []
    for folder in group_folders("memory", roots):
        if memory_limit(folder) is None:
            continue
        if (folder / "memory.failcnt").exists():
            hits.append(read_int(folder / "memory.failcnt"))
            continue
        # memory.events, which Linux < 5.2 has alone, includes the groups below.
        events = read_amounts(folder / "memory.events.local")
        events = events or read_amounts(folder / "memory.events")
        hits.append((events or {}).get("max", 0))
    return sum(hits) if hits else None


def _own_folder(controller: str, roots: Roots) -> Path | None:
    """Return this process's group for a controller; ``None`` if it has none, or can't be read."""
    try:
        return next((group.folder for group in own_groups(controller, roots)), None)
    except (OSError, ValueError):
        return None


def task_limits(roots: Roots) -> list[tuple[int, int]]:
    """Return ``pids.max`` and ``pids.current`` of this process's groups that have a limit.

    Both count threads. Empty where the kernel shows none.
    """
    try:
        folders = [each for each in group_folders("pids", roots) if (each / _TASKS[0]).exists()]
        pairs = [[read_text(folder / name) for name in _TASKS] for folder in folders]
        return [(int(most), int(now)) for most, now in pairs if most != "max"]
    except (OSError, ValueError):
        return []


def _least(
    roots: Roots, controller: str, read: Callable[[Path], float | None]
) -> tuple[float | None, str]:
    try:
        folders = [each for each in group_folders(controller, roots) if each.is_dir()]
        limits = [limit for folder in folders if (limit := read(folder)) is not None]
    except (OSError, ValueError) as error:
        return None, explain(error)
    return min(limits, default=None), _NO_LIMIT if folders else _NO_GROUP


def _cpu_quota(folder: Path) -> float | None:
    if (folder / "cpu.max").exists():
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
    elif (folder / "cpu.cfs_quota_us").exists():
        quota = read_text(folder / "cpu.cfs_quota_us")
        period = read_text(folder / "cpu.cfs_period_us")
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)


def memory_limit(folder: Path) -> int | None:
    """Return the limit of one group, in bytes; ``None`` without one."""
    limit = _read_limit(folder, "memory.max")
    return _read_limit(folder, "memory.limit_in_bytes") if limit is None else limit


def _read_limit(folder: Path, name: str) -> int | None:
    text = read_text(folder / name) if (folder / name).exists() else "max"
    return None if text == "max" or int(text) >= _UNLIMITED_V1_BYTES else int(text)


def read_amounts(path: Path) -> dict[str, int] | None:
    """Return the numbers of a flat keyed file (cgroups(7)); ``None`` if it can't be read."""
    try:
        lines = [line.split() for line in read_text(path).splitlines()]
    except OSError:
        return None
    return {name: int(value) for name, value in lines}
