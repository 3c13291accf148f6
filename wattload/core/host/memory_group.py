"""A control group of this process's own, whose memory can be limited.

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
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from wattload.core.host.cgroups import (
    Group,
    memory_limit,
    memory_limit_bytes,
    own_groups,
    read_amounts,
)
from wattload.core.host.counters import read_pressure_s
from wattload.core.interrupts import ignored
from wattload.core.sysfs import (
    LIVE,
    Roots,
    explain,
    left_folders,
    own_name,
    read_int,
    read_text,
    text_or_empty,
)
from wattload.core.units import compared_bytes

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
        amounts = None if self._folder is None else read_amounts(self._folder / "memory.stat")
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
        return (read_amounts(self._folder / "memory.events") or {}).get("max")

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
            limit = memory_limit(folder)
            if limit is None:
                continue
            if place.method == "cgroup2":
                events = read_amounts(folder / "memory.events") or {}
                was_reached = bool(events.get("oom"))
            else:
                events = read_amounts(folder / "memory.oom_control") or {}
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
