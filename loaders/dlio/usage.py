"""What a process and all below it have used: CPU time, bytes read, memory."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CPU_CLOCK = 2
"""``CPUCLOCK_SCHED`` of ``linux/posix-timers.h``: the scheduler's count of a process, in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU seconds, and bytes read as ``proc(5)`` counts them in ``/proc/PID/io``.

    ``called_bytes`` is ``rchar``, what read calls returned from wherever; ``storage_bytes`` is
    ``read_bytes``, what was fetched from storage; ``None`` where the kernel does not tell.
    """

    cpu_s: float
    called_bytes: int | None
    storage_bytes: int | None

    def since(self, earlier: Usage) -> Usage:
        """Return what was used between two looks."""
        return Usage(
            cpu_s=self.cpu_s - earlier.cpu_s,
            called_bytes=_difference(self.called_bytes, earlier.called_bytes),
            storage_bytes=_difference(self.storage_bytes, earlier.storage_bytes),
        )


def usage() -> Usage:
    """Return what this process and its descendants have used so far, the reaped included."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    members = list(_members(os.getpid()))
    counts = [_io_counts(pid) for pid in members]
    return Usage(
        cpu_s=reaped.ru_utime + reaped.ru_stime + sum(_cpu_s(pid) for pid in members),
        called_bytes=_total(counts, "rchar"),
        storage_bytes=_total(counts, "read_bytes"),
    )


def peak_memory_bytes() -> int | None:
    """Return the most memory of this process and its living descendants, each at its own peak.

    Pages that they share are divided among them (PSS); what a process has given back since its
    peak (VmHWM less VmRSS) is its own. ``None`` where the kernel does not tell. It takes
    milliseconds: the kernel walks their pages.
    """
    found = [_peak_bytes(pid) for pid in _members(os.getpid())]
    known = [size for size in found if size is not None]
    return sum(known) if known and len(known) == len(found) else None


def _members(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [word for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return  # it ended while it was looked at
    for child in children:
        yield from _members(int(child))


def _cpu_s(pid: int) -> float:
    """Return a process's CPU seconds from its clock, to the nanosecond; 0 once it has ended.

    The clock's id is that of ``clock_getcpuclockid(3)``: the pid's complement, shifted by 3.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0.0


def _io_counts(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    except OSError:
        return {}
    return {name: int(count) for name, _, count in (line.partition(": ") for line in lines)}


def _peak_bytes(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        text += Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    try:
        pss, peak, now = (int(fields[name].split()[0]) for name in ("Pss", "VmHWM", "VmRSS"))
    except (KeyError, IndexError):
        return None  # a kernel without the field, or a zombie
    return (pss + peak - now) * 1024


def _total(counts: list[dict[str, int]], name: str) -> int | None:
    known = [count[name] for count in counts if name in count]
    return sum(known) if known else None


def _difference(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier
