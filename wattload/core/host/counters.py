"""What the kernel counts: a host's load, block devices, and CPU time by process and by CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Self

from wattload.core.clock import anchor, clock_sync
from wattload.core.errors import TargetError
from wattload.core.processes import stat_fields
from wattload.core.record.host import HostState, RankRecord
from wattload.core.sysfs import (
    LIVE,
    SECTOR_BYTES,
    Observation,
    Roots,
    explain,
    read_meminfo,
    read_text,
)
from wattload.core.units import NS_PER_S

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of linux/posix-timers.h
_FIELD_COUNT = 11
_MS_PER_S = 1000
_WRAP_S = 2**32 / _MS_PER_S
"""The kernel prints busy and weighted time as 32-bit milliseconds: they wrap after 49.7 days."""

_US_PER_S = 1_000_000

PRESSURES = ("cpu", "io", "memory")
"""What tasks wait for, by the names of the kernel's pressure files."""

_IDLE = slice(3, 5)
_STEAL = 7
_COUNTED = 8
"""Fields of the ``cpu`` line of ``/proc/stat``: user nice system idle iowait irq softirq steal;
guest time, which follows, is already part of user time (proc_stat(5))."""


RESET = "the kernel's counts of the device fell, so it was reset"
"""Why there is no growth, as of a zram device that was set up anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStat:
    """Counters since boot, or their difference: operations, bytes and seconds, reads and writes.

    ``busy_s`` is the time with at least one operation in flight; ``weighted_s`` adds up the time of
    all operations, so that ``weighted_s / busy_s`` is the mean queue depth.
    """

    read_operations: int
    read_bytes: int
    write_operations: int
    written_bytes: int
    busy_s: float
    weighted_s: float

    @classmethod
    def zero(cls) -> Self:
        return cls(
            read_operations=0,
            read_bytes=0,
            write_operations=0,
            written_bytes=0,
            busy_s=0.0,
            weighted_s=0.0,
        )

    def __add__(self, other: BlockStat) -> BlockStat:
        added = asdict(other)
        return BlockStat(**{name: value + added[name] for name, value in asdict(self).items()})

    def since(self, earlier: BlockStat) -> BlockStat | None:
        """Return the growth since an earlier reading, ``None`` if a count fell (``RESET``).

        Times alone may be lower: they wrap after 49 days.
        """
        before = asdict(earlier)
        grown = {name: value - before[name] for name, value in asdict(self).items()}
        grown["busy_s"] = _elapsed_s(earlier.busy_s, self.busy_s)
        grown["weighted_s"] = _elapsed_s(earlier.weighted_s, self.weighted_s)
        return None if min(grown.values()) < 0 else BlockStat(**grown)


def _elapsed_s(earlier_s: float, later_s: float) -> float:
    return later_s - earlier_s + (_WRAP_S if later_s < earlier_s else 0.0)


def read_block_stat(device_name: str, roots: Roots = LIVE) -> BlockStat:
    """Return a block device's counters now (Linux ``Documentation/block/stat.rst``).

    Args:
        device_name: the kernel's name, such as ``nvme0n1``; partitions and hidden paths too.
        roots: where sysfs is.

    Raises:
        TargetError: there is no such device, or its counters have another form.
    """
    path = roots.sys / "class/block" / device_name / "stat"
    try:
        fields = [int(word) for word in path.read_text(encoding="ascii").split()]
    except (OSError, ValueError) as error:
        raise TargetError(
            f"the counters of block device {device_name} can't be read ({explain(error)}); "
            "see wattload devices for what is there"
        ) from error
    if len(fields) < _FIELD_COUNT:
        raise TargetError(f"{path} has {len(fields)} fields; a kernel since 2.6 has {_FIELD_COUNT}")
    return BlockStat(
        read_operations=fields[0],
        read_bytes=fields[2] * SECTOR_BYTES,
        write_operations=fields[4],
        written_bytes=fields[6] * SECTOR_BYTES,
        busy_s=fields[9] / _MS_PER_S,
        weighted_s=fields[10] / _MS_PER_S,
    )


def read_block_stats(device_names: Sequence[str]) -> Mapping[str, BlockStat]:
    """Return the counters of several devices now, by name; errors as in ``read_block_stat``."""
    return {name: read_block_stat(name) for name in device_names}


class ProcessTree:
    """The process tree of one rank, without the processes named in ``excluded``.

    The sampler and a load are children of the run but no part of its cost. ``root`` is the rank's
    process, by default this one.
    """

    def __init__(self, excluded: frozenset[int] = frozenset(), root: int | None = None) -> None:
        self._excluded = set(excluded)
        self._root = root

    def exclude(self, pid: int) -> None:
        """Leave out a process that was started since; see ``reap_apart`` for its end."""
        self._excluded.add(pid)

    def cpu_s(self) -> float:
        """Return user plus system seconds of the tree (``proc(5)``, stat fields 14 to 17)."""
        root = os.getpid() if self._root is None else self._root
        apart_s = _apart.cpu_s if root == os.getpid() else 0.0
        return sum(own_and_reaped_s(pid) for pid in self._members(root)) - apart_s

    def _members(self, pid: int) -> Iterator[int]:
        yield pid
        for child in _children(pid):
            if child not in self._excluded:
                yield from self._members(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.extend(int(word) for word in (task / "children").read_text().split())
    except OSError:
        return found  # the process ended while it was looked at: nothing more to count
    return found


def own_and_reaped_s(pid: int) -> float:
    """Return the CPU seconds of a process, to the nanosecond, and of the children it waited for.

    The id of its clock is that of ``clock_getcpuclockid(3)``: the pid's complement, shifted by 3.
    """
    try:
        fields = stat_fields(pid)
        own_s = time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0.0  # ended in between; its parent's reaped time has it at the next look
    return own_s + sum(int(field) for field in fields[13:15]) / _TICKS_PER_S


@dataclass(slots=True)
class _Apart:
    """The CPU time of ended children that are no part of this process's cost."""

    cpu_s: float = 0.0


_apart = _Apart()


def reap_apart(pid: int) -> int:
    """Wait for a child whose CPU time no ``ProcessTree`` counts; return its ``Popen.returncode``.

    The kernel adds the time of a child that was waited for to its parent's.

    Raises:
        ChildProcessError: there is no such child, or it was waited for.
    """
    _, status, usage = os.wait4(pid, 0)
    _apart.cpu_s += usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status)


def rank_facts(rank: int, host: str, cpu_s: float | None = None, roots: Roots = LIVE) -> RankRecord:
    """Return the resources that this process may use and has used.

    Args:
        rank: its number in the run.
        host: the host's name in the record.
        cpu_s: CPU seconds counted by the caller including running children; by default the user
            and system time of this process and its finished children.
        roots: where proc is.
    """
    observation = Observation()
    observation.read("cpu_affinity", lambda: format_cpus(os.sched_getaffinity(0)))
    observation.put("cpu_s", _cpu_s() if cpu_s is None else cpu_s, "")
    observation.read("peak_memory_bytes", lambda: _peak_memory_bytes(roots), "no VmHWM in status")
    return observation.build(RankRecord, rank=rank, host=host, pid=os.getpid())


def format_cpus(cpus: set[int]) -> str:
    """Return CPU numbers as the kernel lists them: ``0-3,8``."""
    # Consecutive numbers have a constant difference to their position in the list.
    runs = groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0])
    spans = [[cpu for _, cpu in run] for _, run in runs]
    return ",".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else f"{s[0]}" for s in spans)


def _cpu_s() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _peak_memory_bytes(roots: Roots) -> int | None:
    status = roots.proc / "self/status"
    lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else None


def host_state(roots: Roots = LIVE) -> HostState:
    """Return the host's counters now; takes well under a millisecond."""
    observation = Observation()
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    observation.read("cpu_total_s", lambda: sum(_cpu_ticks(roots)) / ticks_per_s)
    observation.read("cpu_busy_s", lambda: _busy_ticks(roots) / ticks_per_s)
    observation.read("steal_s", lambda: _cpu_ticks(roots)[_STEAL] / ticks_per_s)
    observation.read("load_1min", lambda: float(read_text(roots.proc / "loadavg").split()[0]))
    _read_memory(observation, roots)
    for resource in PRESSURES:
        observation.read(f"pressure_{resource}_some_s", partial(pressure_s, resource, roots))
    _read_sync(observation)
    return observation.build(HostState, clock=anchor())


def _read_sync(observation: Observation) -> None:
    names = ("ntp_offset_s", "ntp_error_s", "ntp_max_error_s")
    try:
        sync = clock_sync()
    except (OSError, ValueError) as error:
        observation.lack(explain(error), *names)
        return
    for name, value in zip(names, (sync.offset_s, sync.error_s, sync.max_error_s), strict=True):
        observation.put(name, value, "")


def _cpu_ticks(roots: Roots) -> list[int]:
    name, *fields = read_text(roots.proc / "stat").splitlines()[0].split()
    if name != "cpu" or len(fields) < _COUNTED:
        raise ValueError(f"{roots.proc / 'stat'} does not start with the sum over CPUs")
    return [int(field) for field in fields[:_COUNTED]]


def _busy_ticks(roots: Roots) -> int:
    ticks = _cpu_ticks(roots)
    return sum(ticks) - sum(ticks[_IDLE]) - ticks[_STEAL]


def _read_memory(observation: Observation, roots: Roots) -> None:
    file = roots.proc / "meminfo"
    observation.read("memory_available_bytes", lambda: read_meminfo(file).get("MemAvailable"))
    observation.read("dirty_bytes", lambda: read_meminfo(file).get("Dirty"))
    observation.read("swap_used_bytes", lambda: _swap_used_bytes(file))


def _swap_used_bytes(file: Path) -> int:
    amounts = read_meminfo(file)
    return amounts.get("SwapTotal", 0) - amounts.get("SwapFree", 0)


def pressure_s(resource: str, roots: Roots = LIVE) -> float:
    """Return how long some task has waited for one of ``PRESSURES`` since boot, in seconds.

    See ``Documentation/accounting/psi.rst``.

    Raises:
        OSError: the kernel does not show it.
        ValueError: the file has another form.
    """
    return read_pressure_s(roots.proc / "pressure" / resource)


def read_pressure_s(file: Path) -> float:
    """Return the seconds of a pressure file, such as a control group's; errors as above."""
    for line in read_text(file).splitlines():
        kind, *pairs = line.split()
        if kind == "some":
            return int(dict(pair.split("=") for pair in pairs)["total"]) / _US_PER_S
    raise ValueError(f"{file} has no 'some' line")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Idle and stolen seconds of some CPUs since boot; idle time includes iowait.

    ``time_ns`` is CLOCK_MONOTONIC. ``cpu_count`` counts those that are online.
    """

    time_ns: int
    cpu_count: int
    idle_s: float
    steal_s: float

    @classmethod
    def read(cls, cpus: Collection[int], roots: Roots = LIVE) -> Self:
        """Read the counters of the given CPUs (``proc_stat(5)``).

        Raises:
            OSError: ``/proc/stat`` can't be read.
            ValueError: none of the CPUs is in it, or it has another form.
        """
        wanted = {f"cpu{number}" for number in cpus}
        time_ns = time.monotonic_ns()
        idle = steal = count = 0
        for line in read_text(roots.proc / "stat").splitlines():
            name, *fields = line.split()
            if name in wanted:
                count += 1
                idle += sum(map(int, fields[_IDLE]))
                steal += int(fields[_STEAL])
        if not count:
            raise ValueError(f"{roots.proc / 'stat'} has none of the CPUs {sorted(cpus)}")
        return cls(
            time_ns=time_ns,
            cpu_count=count,
            idle_s=idle / _TICKS_PER_S,
            steal_s=steal / _TICKS_PER_S,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShares:
    """Shares of the time of all CPUs between two readings: busy, and taken by a hypervisor.

    What is neither idle, waiting for I/O nor stolen is busy. The time that passed is the clock's:
    a kernel counts idle time exactly but busy time by ticks, whose sum differs from it.
    """

    cpu_s: float
    """The time of all CPUs: seconds times CPUs."""
    busy: float
    steal: float

    @classmethod
    def between(cls, first: CpuTime, last: CpuTime) -> Self:
        cpu_s = max((last.time_ns - first.time_ns) / NS_PER_S * last.cpu_count, 1e-9)
        idle = (last.idle_s - first.idle_s) / cpu_s
        steal = min(max((last.steal_s - first.steal_s) / cpu_s, 0.0), 1.0)
        return cls(cpu_s=cpu_s, busy=min(max(1.0 - idle - steal, 0.0), 1.0), steal=steal)
