"""The progress of a run: each rank counts into memory of its own, which rank 0 reads.

A rank's counters are 64-bit numbers in an anonymous file (``memfd_create``), which rank 0 maps
through ``/proc`` if it runs on the same host. Counting costs a rank under a microsecond and no
message; the display on rank 0 reads the counters at its own pace.
"""

from __future__ import annotations

import mmap
import os
import secrets
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

from wattload.core.workload import Communicator
from wattload.power.sampler.samples import LatestReadings

SIZE_BYTES = mmap.PAGESIZE
UNKNOWN = -1

(
    _TOKEN,
    _TASK,
    _READ,
    _WRITTEN,
    _READ_TOTAL,
    _WRITTEN_TOTAL,
    _ACTIVE_NS,
    _SINCE_NS,
) = range(8)
"""The counters of a rank. ``_TASK`` is a digest of the task's name, 0 without one. ``_ACTIVE_NS``
is the time in timed phases that have ended, ``_SINCE_NS`` when the open ones began, 0 without."""


class Address(NamedTuple):
    """Where rank 0 finds the counters of a rank: host, process, descriptor, and their token."""

    host: str
    pid: int
    descriptor: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPhase:
    """A phase that rank 0 is in: its name, when it began, and how long it lasts if known."""

    name: str
    start_s: float
    expected_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far the current task is, over the ranks that rank 0 sees and that are at it too.

    Totals are ``None`` if unknown. ``active_s`` is the time in timed phases since the task began,
    on the rank with the most. Times are CLOCK_MONOTONIC.
    """

    task: str
    since_s: float
    read_bytes: int
    written_bytes: int
    read_total_bytes: int | None
    written_total_bytes: int | None
    active_s: float
    phase: OpenPhase | None


class RankProgress:
    """The counters of this rank; implements ``wattload.core.workload.Progress``."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("wattload-progress")
        finalize(self, os.close, self._descriptor)
        os.ftruncate(self._descriptor, SIZE_BYTES)
        self._map = mmap.mmap(self._descriptor, SIZE_BYTES)
        self.counters = memoryview(self._map).cast("q")
        self.counters[_TOKEN] = secrets.randbits(62)
        self._lock = threading.Lock()
        self._timed_count = 0
        self.task = ""
        self.since_s = 0.0
        self.phases: list[OpenPhase] = []

        self.power: LatestReadings | None = None
        """The power of this host's drives, on its leader once the sampler has started."""

    def address(self, host: str) -> Address:
        """Return where another process of this host finds the counters."""
        return Address(host, os.getpid(), self._descriptor, self.counters[_TOKEN])

    def begin(
        self, task: str, *, read_bytes: int | None = None, written_bytes: int | None = None
    ) -> None:
        with self._lock:
            counters = self.counters
            counters[_TASK] = 0
            counters[_READ] = counters[_WRITTEN] = counters[_ACTIVE_NS] = 0
            counters[_SINCE_NS] = time.monotonic_ns() if self._timed_count else 0
            counters[_READ_TOTAL] = UNKNOWN if read_bytes is None else read_bytes
            counters[_WRITTEN_TOTAL] = UNKNOWN if written_bytes is None else written_bytes
            counters[_TASK] = zlib.crc32(task.encode()) or 1
            self.task, self.since_s = task, time.monotonic()

    def advance(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        with self._lock:
            if read_bytes:
                self.counters[_READ] += read_bytes
            if written_bytes:
                self.counters[_WRITTEN] += written_bytes

    def end(self) -> None:
        with self._lock:
            self.counters[_TASK] = 0
            self.task = ""

    @contextmanager
    def phase(
        self, name: str, *, timed: bool = False, expected_s: float | None = None
    ) -> Iterator[None]:
        """Show a phase while the block runs; rates are over the time in timed phases."""
        opened = OpenPhase(name=name, start_s=time.monotonic(), expected_s=expected_s)
        with self._lock:
            self.phases.append(opened)
            self._timed_count += timed
            if timed and self._timed_count == 1:
                self.counters[_SINCE_NS] = time.monotonic_ns()
        try:
            yield
        finally:
            with self._lock:
                self.phases.remove(opened)
                self._timed_count -= timed
                if timed and not self._timed_count:
                    since_ns = self.counters[_SINCE_NS]
                    self.counters[_SINCE_NS] = 0
                    self.counters[_ACTIVE_NS] += time.monotonic_ns() - since_ns


class Board:
    """The counters of all ranks that rank 0 sees: those of its own host.

    ``rank_count`` are the ranks of this host; ``of_hosts`` says which host it is of several.
    """

    def __init__(
        self,
        own: RankProgress,
        others: Sequence[memoryview],
        rank_count: int,
        of_hosts: str = "",
    ) -> None:
        self._own = own
        self._others = others
        self.rank_count = rank_count
        self.of_hosts = of_hosts

    @property
    def seen_count(self) -> int:
        return 1 + len(self._others)

    @property
    def power(self) -> LatestReadings | None:
        """The power of the drives of this host; ``None`` if none is measured."""
        return self._own.power

    def read(self) -> Standing | None:
        """Return the current standing; ``None`` if there is no task and no phase."""
        own, now_ns = self._own, time.monotonic_ns()
        task, phases = own.task, list(own.phases)
        if not task and not phases:
            return None
        digest = zlib.crc32(task.encode()) or 1
        at_task = [own.counters, *(each for each in self._others if each[_TASK] == digest)]
        return Standing(
            task=task,
            since_s=own.since_s,
            read_bytes=sum(each[_READ] for each in at_task),
            written_bytes=sum(each[_WRITTEN] for each in at_task),
            read_total_bytes=_total(at_task, _READ_TOTAL),
            written_total_bytes=_total(at_task, _WRITTEN_TOTAL),
            active_s=max(_active_ns(each, now_ns) for each in at_task) / 1e9,
            phase=phases[-1] if phases else None,
        )


def _total(ranks: Sequence[memoryview], slot: int) -> int | None:
    totals = [each[slot] for each in ranks]
    return None if UNKNOWN in totals else sum(totals)


def _active_ns(counters: memoryview, now_ns: int) -> int:
    since_ns: int = counters[_SINCE_NS]
    ended_ns: int = counters[_ACTIVE_NS]
    return ended_ns + (max(0, now_ns - since_ns) if since_ns else 0)


def gather_board(own: RankProgress, world: Communicator, host: str) -> Board | None:
    """Return the counters of all ranks on rank 0, ``None`` elsewhere; every rank must call it."""
    addresses = world.gather(own.address(host))
    if world.rank:
        return None
    here = [each for each in addresses if each.host == host]
    host_count = len({each.host for each in addresses})
    mapped = filter(None, map(_mapped, here[1:]))
    of_hosts = f"{host}, 1 of {host_count} hosts: " if host_count > 1 else ""
    return Board(own, list(mapped), len(here), of_hosts)


def _mapped(address: Address) -> memoryview | None:
    """Map the counters of another rank, ``None`` if they can't be reached: it is not shown then.

    The token proves that the file is the rank's: in a container of its own, its process number is
    another's here.
    """
    try:
        with Path(f"/proc/{address.pid}/fd/{address.descriptor}").open("rb") as file:
            counters = memoryview(mmap.mmap(file.fileno(), SIZE_BYTES, prot=mmap.PROT_READ))
    except (OSError, ValueError):
        return None
    numbers = counters.cast("q")
    return numbers if numbers[_TOKEN] == address.token else None
