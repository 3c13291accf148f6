"""The control groups of this process (cgroups(7)): limits, counts, and one of its own.

``memory_group`` puts this process, all its threads and the children that it starts meanwhile into a
group whose memory can be limited; children that were there before stay where they are. What the
kernel charges to a group is what its processes touch first while they are in it: memory, pages of
files that a read or a page fault brings into the page cache, and code of libraries among these.
Hence three rules for callers:

* Enter the group before anything is allocated, and limit it once all of it is there, a first step
  of work included: drivers allocate, and load code, at first use. A limit below what a process
  needs makes it read its own code again and again, until the kernel kills it.
* Memory that was touched before stays charged to the old group and does not count.
* Pages of files that are in the page cache already stay there and are served from there, beyond the
  limit. Evict the files first.

``memory.high`` is not used: it throttles the process itself. Memory that a driver pins for a GPU
may not be charged at all. The group is below the process's own in version 1, so that the limits of
a container still hold. Version 2 forbids that where the own group has processes: the group is then
beside it, outside its limits of CPU time and I/O.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from wattload.core.host.counters import PRESSURES, read_pressure_s
from wattload.core.interrupts import ignored
from wattload.core.record.host import GroupState
from wattload.core.storage.file_system import Mount, read_mounts
from wattload.core.sysfs import (
    LIVE,
    Observation,
    Roots,
    explain,
    left_folders,
    own_name,
    read_int,
    read_text,
    text_or_empty,
)
from wattload.core.units import NS_PER_S, compared_bytes


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
    limit, reason = _least(roots, "memory", _memory_limit)
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
    amounts = _amounts(file) or {}
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
        if _memory_limit(folder) is None:
            continue
        if (folder / "memory.failcnt").exists():
            hits.append(read_int(folder / "memory.failcnt"))
            continue
        # memory.events, which Linux < 5.2 has alone, includes the groups below.
        events = _amounts(folder / "memory.events.local") or _amounts(folder / "memory.events")
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


def _memory_limit(folder: Path) -> int | None:
    limit = _read_limit(folder, "memory.max")
    return _read_limit(folder, "memory.limit_in_bytes") if limit is None else limit


def _read_limit(folder: Path, name: str) -> int | None:
    text = read_text(folder / name) if (folder / name).exists() else "max"
    return None if text == "max" or int(text) >= _UNLIMITED_V1_BYTES else int(text)


Method = Literal["cgroup1", "cgroup2"]

_IN_CONTAINER = "in Docker add --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:rw"
_MEMBERS = "cgroup.procs"
_ENABLED = "cgroup.subtree_control"
_PREFIX = "wattload-memory"


_SWAPPINESS = "memory.swappiness"
_PEAK_1 = "memory.max_usage_in_bytes"
_BATCH_BYTES = 1 << 20
"""The kernel charges memory in batches, so that a limit is reached this much below itself."""
_MOVES = 3
"""Rounds in which members are moved back."""


class MemoryLimitError(Exception):
    """No group can be made; the message is a clause that says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPlace:
    """Where a group would be made: in ``parent``; ``own`` is the group that the process is in.

    ``enables`` is whether the controller has to be enabled in ``parent`` first, for the while.
    """

    method: Method
    own: Path
    parent: Path
    enables: bool = False


@dataclass(frozen=True, slots=True)
class LimitProbe:
    """What would limit the memory; without a ``place``, ``reason`` says why and what to do."""

    place: LimitPlace | None
    reason: str | None = None


def probe(roots: Roots = LIVE) -> LimitProbe:
    """Return where a group would be made. Creates nothing: rights are looked up, not tried."""
    try:
        return LimitProbe(_find_place(roots))
    except MemoryLimitError as error:
        return LimitProbe(None, str(error))


class MemoryGroup:
    """The group, or ``method`` ``None`` and the ``reason`` why there is none or no limit."""

    def __init__(self, folder: Path | None, method: Method | None, roots: Roots = LIVE) -> None:
        self.method = method
        self.reason: str | None = None
        self.limit_bytes: int | None = None
        self._folder = folder
        self._roots = roots

    def own_bytes(self) -> int | None:
        """Return what the processes themselves have: memory, and the code that is mapped.

        That is what is charged, less the page cache, which gives way. Unmap data first. ``None``
        without a group.
        """
        charged = self._amount("memory.current", "memory.usage_in_bytes")
        amounts = None if self._folder is None else _amounts(self._folder / "memory.stat")
        if charged is None or amounts is None:
            return None
        names = ("file", "file_mapped", "shmem")
        if self.method == "cgroup1":
            names = ("total_cache", "total_mapped_file", "total_shmem")
        pages, mapped, shared = (amounts.get(name, 0) for name in names)
        return charged - max(pages - max(mapped, shared), 0)

    def limit(self, limit_bytes: int) -> None:
        """Limit the memory, 1 MiB or more, rounded down to whole pages; swap is not used instead.

        What the page cache has beyond the limit is dropped. If the processes need more than it
        leaves, the kernel kills them. Where the limit is refused, or an outer group has a lower
        one, there is none, ``method`` is ``None`` and ``reason`` says why.
        """
        if self._folder is None or self.method is None:
            return
        outer_bytes, _ = memory_limit_bytes(self._roots)
        if outer_bytes is not None and outer_bytes < limit_bytes:
            outer, limit = compared_bytes(outer_bytes, limit_bytes)
            self._give_up(
                f"the control groups of this process are limited to {outer}, less than the {limit} "
                "of the run; raise that limit, in Docker by --memory"
            )
            return
        try:
            for name, value in _limits(self.method, self._folder, limit_bytes):
                _write(self._folder / name, value)
            if self.method == "cgroup1":  # so that its peak tells whether the limit was reached
                _write(self._folder / _PEAK_1, "0")
        except OSError as error:
            self._give_up(f"the limit of memory was refused: {explain(error)}")
            return
        self.limit_bytes = limit_bytes

    def lift(self) -> None:
        """Take the limit away again, unless the kernel refuses; the group ends with the block."""
        if self._folder is None or self.method is None:
            return
        for name, _ in reversed(list(_limits(self.method, self._folder, 0))):
            if name != _SWAPPINESS:
                with suppress(OSError):
                    _write(self._folder / name, "max" if self.method == "cgroup2" else "-1")

    def _give_up(self, reason: str) -> None:
        self.lift()
        self.method, self.reason = None, reason

    def peak_bytes(self) -> int | None:
        """Return the most that was charged at once, page cache included.

        In version 1 that is since the limit was set, in version 2 since the group exists. ``None``
        without a group, and in version 2 before Linux 5.19.
        """
        return self._amount("memory.peak", _PEAK_1)

    def hits(self) -> int | None:
        """Return how often the limit was reached, and the page cache had to give way.

        ``None`` in version 1, whose ``failcnt`` stays 0 on kernels that reclaim before they fail.
        """
        if self._folder is None or self.method == "cgroup1":
            return None
        return (_amounts(self._folder / "memory.events") or {}).get("max")

    def stalled_s(self) -> float | None:
        """Return the seconds in which a task of the group waited for memory, or for its own pages.

        Version 2 tells with pressure stall information; reads of mapped files are included.
        """
        if self._folder is None:
            return None
        try:
            return read_pressure_s(self._folder / "memory.pressure")
        except (OSError, ValueError):
            return None

    def _amount(self, name_2: str, name_1: str) -> int | None:
        if self._folder is None:
            return None
        return _int_or_none(self._folder / (name_1 if self.method == "cgroup1" else name_2))


@contextmanager
def memory_group(roots: Roots = LIVE) -> Iterator[MemoryGroup]:
    """Keep this process in a group of its own while the block runs; it has no limit at first.

    The group goes at every end of the block but a kill: see ``remove_left_groups``.
    """
    group = None
    memory = MemoryGroup(None, None)
    try:
        try:
            place = _find_place(roots)
            group = _Group(place, roots)
            memory = group.begin()
        except MemoryLimitError as error:
            memory.reason = str(error)
        yield memory
    finally:
        if group is not None:
            with ignored():
                group.end()


class _Group:
    """A group while it exists."""

    def __init__(self, place: LimitPlace, roots: Roots) -> None:
        self._place = place
        self._roots = roots
        self._folder = place.parent / own_name(_PREFIX, roots)
        self._keeper: subprocess.Popen[bytes] | None = None

    def begin(self) -> MemoryGroup:
        try:
            if self._place.enables:
                _write(self._place.parent / _ENABLED, "+memory")
            self._folder.mkdir()
            self._keep_own_group()
            _write(self._folder / _MEMBERS, str(os.getpid()))
        except OSError as error:
            raise MemoryLimitError(
                f"the control group {self._folder} was refused: {explain(error)}; "
                f"{_remedy(error.errno)}"
            ) from error
        return MemoryGroup(self._folder, self._place.method, self._roots)

    def end(self) -> None:
        """Move everything back, and remove the group; safe wherever ``begin`` stopped."""
        with suppress(OSError):
            # Children that were started within are in it too, and may start others meanwhile.
            for _ in range(_MOVES):
                for member in read_text(self._folder / _MEMBERS).split():
                    with suppress(ProcessLookupError):
                        _write(self._place.own / _MEMBERS, member)
        with suppress(OSError):
            self._folder.rmdir()
        if self._place.enables:
            with suppress(OSError):  # refused while another process uses the controller
                _write(self._place.parent / _ENABLED, "-memory")
        if self._keeper is not None:
            _pipe(self._keeper).close()
            self._keeper.wait()

    def _keep_own_group(self) -> None:
        """Leave a process behind if the own group would be empty: systemd removes such groups."""
        cat = shutil.which("cat")
        inside = self._place.parent == self._place.own
        if inside or cat is None or len(text_or_empty(self._place.own / _MEMBERS).split()) > 1:
            return
        self._keeper = subprocess.Popen([cat], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def _pipe(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdin is None:
        raise ValueError("the process has no pipe")
    return process.stdin


def _find_place(roots: Roots) -> LimitPlace:
    """Return where to make a group; raises ``MemoryLimitError`` if none can be made."""
    try:
        groups = list(own_groups("memory", roots))
    except (OSError, ValueError) as error:
        raise MemoryLimitError(f"the control groups are unknown: {explain(error)}") from error
    found = [group for group in groups if _has_memory(group)]
    if not found:
        raise MemoryLimitError(
            "no control groups with the memory controller are mounted below /sys; mount them, "
            f"{_IN_CONTAINER}, or start the kernel with cgroup_enable=memory"
        )
    group = found[0]
    if str(os.getpid()) not in text_or_empty(group.folder / _MEMBERS).split():
        raise MemoryLimitError(
            f"{group.folder} is not this process's control group, which is hidden; {_IN_CONTAINER}"
        )
    if group.version == 1:
        place = LimitPlace(method="cgroup1", own=group.folder, parent=group.folder)
    else:
        place = _place_2(group)
    for path in (place.parent, place.own / _MEMBERS, place.parent / _MEMBERS):
        if not os.access(path, os.W_OK):
            code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
            why = "is mounted read-only" if code == errno.EROFS else "is not this user's to change"
            raise MemoryLimitError(f"{path} {why}; {_remedy(code)}")
    return place


def _has_memory(group: Group) -> bool:
    if group.version == 1:
        return (group.folder / "memory.limit_in_bytes").exists()
    return "memory" in text_or_empty(group.top / "cgroup.controllers").split()


def _place_2(group: Group) -> LimitPlace:
    """Return the nearest group that may have children with the controller.

    A group with processes must not, unless it is the root of the hierarchy ("No Internal Process
    Constraint" in ``Documentation/admin-guide/cgroup-v2.rst``).
    """
    for parent in group.upwards():
        if "memory" in text_or_empty(parent / _ENABLED).split():
            return LimitPlace(method="cgroup2", own=group.folder, parent=parent)
    if (group.top / "cgroup.type").exists():  # which the root has not: this one is a container's
        raise MemoryLimitError(
            "version 2 of control groups allows none below this container's own, which has "
            f"processes; {_IN_CONTAINER}"
        )
    return LimitPlace(method="cgroup2", own=group.folder, parent=group.top, enables=True)


def _remedy(code: int | None) -> str:
    if code in (errno.EACCES, errno.EPERM):
        return "run as root, or in a scope of the user's: systemd-run --user --scope wattload run"
    return _IN_CONTAINER


def _limits(method: Method, folder: Path, limit_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield the files of a limit that does not swap, with what to write."""
    if method == "cgroup2":
        yield "memory.max", str(limit_bytes)
        if (folder / "memory.swap.max").exists():
            yield "memory.swap.max", "0"
        return
    yield "memory.limit_in_bytes", str(limit_bytes)
    if (folder / "memory.memsw.limit_in_bytes").exists():
        yield "memory.memsw.limit_in_bytes", str(limit_bytes)
    else:
        yield _SWAPPINESS, "0"


def limit_that_killed(pid: int, roots: Roots = LIVE) -> int | None:
    """Return the limit in bytes at which the kernel killed in a process's ``memory_group``.

    A kill at the limit of an outer group, such as a container's, is none of this one's: version 2
    counts ``oom`` where the limit is, and version 1 shows whether the group had reached its own.
    """
    with suppress(MemoryLimitError):
        place = _find_place(roots)
        for folder in place.parent.glob(f"{_PREFIX}-{pid}-*"):
            limit = _memory_limit(folder)
            if limit is None:
                continue
            if place.method == "cgroup2":
                events = _amounts(folder / "memory.events") or {}
                was_reached = bool(events.get("oom"))
            else:
                events = _amounts(folder / "memory.oom_control") or {}
                peak = _int_or_none(folder / _PEAK_1)
                was_reached = peak is not None and peak >= limit - _BATCH_BYTES
            if was_reached and events.get("oom_kill"):
                return int(limit)
    return None


def remove_left_groups(roots: Roots = LIVE) -> None:
    """Remove the groups of processes that were killed."""
    with suppress(MemoryLimitError):
        for left in left_folders(_find_place(roots).parent, _PREFIX, roots):
            with suppress(OSError):  # a process is in it: it is still in use
                left.path.rmdir()


def _amounts(path: Path) -> dict[str, int] | None:
    try:
        lines = [line.split() for line in read_text(path).splitlines()]
    except OSError:
        return None
    return {name: int(value) for name, value in lines}


def _int_or_none(path: Path) -> int | None:
    try:
        return read_int(path)
    except (OSError, ValueError):
        return None


def _write(path: Path, text: str) -> None:
    """Write a file of the kernel by one call; ``OSError`` names the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)
