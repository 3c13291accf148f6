"""Phases as they run: their spans on each rank, their bytes over time, and the devices' counters.

Bytes are counted in bins of 100 ms and kept as arrays: a run of two days has 1.8 million bins, of
24 bytes each.

Each rank keeps a journal with one JSON object per line, written by one ``write()`` each: it
survives the death of the process, not of the machine. The sampler reads it to say what an
unfinished run had reached.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.files import open_folder
from wattload.core.host.cgroups import read_throttled_s, throttling_files
from wattload.core.host.counters import RESET, BlockStat, ProcessTree
from wattload.core.record.file import JOURNAL_PATTERN
from wattload.core.record.phase import (
    IoCounter,
    PhaseHalves,
    PhaseSpan,
    PhaseWindow,
    merge_intervals,
)
from wattload.core.storage.targets import Target
from wattload.core.units import NS_PER_S
from wattload.core.workload import Communicator, Mark, Phase, Progress, RawDrive
from wattload.run.progress import RankProgress

SHORTEST_HALVED_S = 2.0

REST_PHASE = "rest"
"""Times directly behind timed phases in which the drives are left alone, all of one length."""

StatReader = Callable[[], Mapping[str, BlockStat]]
StopReader = Callable[[], float | None]
"""Returns for how long this process has not run; ``None`` if that is not counted."""


@dataclass(frozen=True, slots=True)
class MarkedSpan:
    """A span with the block devices' counters at its start and end, by device name."""

    span: PhaseSpan
    at_start: Mapping[str, BlockStat]
    at_end: Mapping[str, BlockStat]


class RankJournal:
    """Appends events to one rank's journal."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        self.folder = run_folder
        self.failure: str | None = None
        """Why a line is missing, ``None`` if all are there: a full disk does not end a run."""
        self._rank = rank
        self._lock = threading.Lock()
        with open_folder(run_folder) as folder:
            self._descriptor = folder.append(JOURNAL_PATTERN.replace("*", str(rank)))

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one event from any thread; an error of the file system is kept in ``failure``.

        Once the journal is closed, this does nothing.
        """
        head = {"event": event, "time_ns": time.monotonic_ns(), "rank": self._rank}
        line = json.dumps({**head, **fields}, separators=(",", ":"))
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                # A line that was torn before, by a full disk, must not spoil this one.
                prefix = b"\n" if self.failure is not None else b""
                content = prefix + line.encode() + b"\n"
                if os.write(self._descriptor, content) < len(content):
                    self.failure = os.strerror(errno.ENOSPC)
            except OSError as error:
                self.failure = error.strerror or str(error)

    def close(self) -> None:
        """Close the file; it stays in the run folder."""
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1


class OpenPhase:
    """An open phase on this rank; any thread may count in it."""

    def __init__(self, name: str, recorder: PhaseRecorder) -> None:
        self._name = name
        self._recorder = recorder
        self._bins = recorder.traffic.of(name)
        self._progress = recorder.progress
        self.read_bytes = 0
        self.written_bytes = 0
        self.operations = 0
        self.edges_ns: tuple[int, int] | None = None

    def set_edges(self, start_ns: int, end_ns: int) -> None:
        """Take the edges of the phase from the process that moves the bytes."""
        self.edges_ns = start_ns, end_ns

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1) -> None:
        with self._bins.lock:  # also of the time: a mark has all bytes before it and no others
            self.read_bytes += read_bytes
            self.written_bytes += written_bytes
            self.operations += operations
            self._bins.add(time.monotonic_ns(), read_bytes, written_bytes)
        self._progress.advance(read_bytes=read_bytes, written_bytes=written_bytes)

    def count_read(self, moved_bytes: int) -> None:
        self.moved(read_bytes=moved_bytes)

    def count_written(self, moved_bytes: int) -> None:
        self.moved(written_bytes=moved_bytes)

    def mark(self) -> Mark:
        devices, cpu_s = self._recorder.read_stats(), self._recorder.tree.cpu_s()
        stopped_s, throttled_s = self._recorder.read_lost_s()
        with self._bins.lock:
            return Mark(
                time_ns=time.monotonic_ns(),
                read_bytes=self.read_bytes,
                written_bytes=self.written_bytes,
                operations=self.operations,
                cpu_s=cpu_s,
                stopped_s=stopped_s,
                throttled_s=throttled_s,
                devices=devices,
            )

    def add_part(self, name: str, start: Mark, end: Mark) -> None:
        """Add a timed phase that ran inside this one, from one mark to another."""
        self._recorder.add_part(self._name, name, start, end)


class PhaseRecorder:
    """Opens phases on one rank and keeps their spans; phases nest, and overlap across threads."""

    def __init__(
        self,
        *,
        host: str,
        rank: int,
        tree: ProcessTree,
        read_stats: StatReader,
        read_stopped_s: StopReader = lambda: None,
        progress: RankProgress | None = None,
    ) -> None:
        self.traffic = Traffic()
        self._marked: list[tuple[dict[str, Any], Mapping[str, BlockStat], Mapping[str, BlockStat]]]
        self._marked = []
        self._host = host
        self._rank = rank
        self._journal: RankJournal | None = None
        self.tree = tree
        self.read_stats = read_stats
        self._read_stopped_s = read_stopped_s
        self._throttling_files = throttling_files()
        self._stack = threading.local()
        self.progress = progress or RankProgress()
        self.at_timed_edge: Callable[[bool], None] | None = None
        """Called in a timed phase's thread, with ``True`` just before it begins and ``False`` just
        after it ends."""
        self.at_job_end: Callable[[], None] | None = None
        """Called once, when the last timed phase is over."""
        self.rest_s = 0.0
        """The length of a rest, on the rank that records them; 0 for none."""
        self._has_ended = False

    def read_lost_s(self) -> tuple[float | None, float | None]:
        """Return for how long this process has not run, and a CPU quota has stopped its groups."""
        return self._read_stopped_s(), read_throttled_s(self._throttling_files)

    def write_to(self, journal: RankJournal) -> None:
        self._journal = journal

    @property
    def folder(self) -> Path | None:
        """The run's folder; ``None`` when only data is generated."""
        return self._journal.folder if self._journal is not None else None

    @property
    def spans(self) -> list[MarkedSpan]:
        """The spans so far, in order of their ends.

        Models are made here, not when a phase ends: what can wait is kept out of the run.
        """
        return [MarkedSpan(PhaseSpan(**span), *marks) for span, *marks in self._marked]

    @property
    def written_bytes(self) -> int:
        """What this rank has written in phases that have ended; parts are in their phases."""
        return sum(span["written_bytes"] for span, *_ in self._marked if not span["is_part"])

    def last_timed_end_ns(self) -> int | None:
        """Return when this rank's last timed span ended, ``None`` before the first."""
        return max((span["end_ns"] for span, *_ in self._marked if span["timed"]), default=None)

    def end_job(self) -> None:
        """End the job: no timed phase may follow."""
        if self._has_ended:
            return
        self._has_ended = True
        if self.at_job_end is not None:
            self.at_job_end()

    def end_pause(self, phase: str) -> None:
        """Record a rest behind the last timed phase, if the time since then is long enough.

        ``phase`` is the untimed phase of the pause: the record has it as the parent of the rest.
        """
        start_ns = self.last_timed_end_ns()
        if not self.rest_s or start_ns is None:
            return
        end_ns = start_ns + round(self.rest_s * NS_PER_S)
        if end_ns <= time.monotonic_ns():
            start, end = Mark(time_ns=start_ns), Mark(time_ns=end_ns)
            self._add_span(REST_PHASE, phase, start, end, timed=False)

    def add_span(self, name: str, start_ns: int, end_ns: int | None = None) -> None:
        """Add an untimed span from ``start_ns`` to ``end_ns``, without bytes or counters.

        It ends now if it has no end.
        """
        end = Mark(time_ns=time.monotonic_ns() if end_ns is None else end_ns)
        self._add_span(name, None, Mark(time_ns=start_ns), end, timed=False)

    def add_part(self, parent: str, name: str, start: Mark, end: Mark) -> None:
        """Add a timed phase inside of ``parent``, with the parent's traffic in that time.

        Its bytes are in the parent's too; see ``PhaseSpan.is_part``.
        """
        self.traffic.copy(parent, name, start, end)
        self._add_span(name, parent, start, end, timed=True, is_part=True)

    def _add_span(
        self,
        name: str,
        parent: str | None,
        start: Mark,
        end: Mark,
        *,
        timed: bool,
        is_part: bool = False,
    ) -> None:
        span = {
            "name": name,
            "parent": parent,
            "host": self._host,
            "rank": self._rank,
            "timed": timed,
            "start_ns": start.time_ns,
            "end_ns": end.time_ns,
            "read_bytes": end.read_bytes - start.read_bytes,
            "written_bytes": end.written_bytes - start.written_bytes,
            "operations": end.operations - start.operations,
            "cpu_s": max(0.0, end.cpu_s - start.cpu_s),
            "stopped_s": _between(start.stopped_s, end.stopped_s),
            "throttled_s": _between(start.throttled_s, end.throttled_s),
            "is_part": is_part,
        }
        self._marked.append((span, start.devices, end.devices))
        if self._journal is not None:
            self._journal.write("span", span)

    def traffic_of_phases(self) -> list[PhaseTraffic]:
        return self.traffic.columns(self._host, self._rank)

    @contextmanager
    def phase(
        self, name: str, *, timed: bool = True, expected_s: float | None = None
    ) -> Iterator[OpenPhase]:
        """Open a phase for the block; if it fails, the journal has only its begin line.

        ``expected_s`` is how long it will last, to show the time left.
        """
        if timed and self._has_ended:
            raise RuntimeError(f"the timed phase {name} begins after the end of the job")
        stack: list[str] = self._stack.__dict__.setdefault("names", [])
        parent = stack[-1] if stack else None
        opened = OpenPhase(name, self)
        at_edge = self.at_timed_edge if timed else None
        if at_edge is not None:
            at_edge(True)
        at_start = self.read_stats()
        cpu_s, (stopped_s, throttled_s) = self.tree.cpu_s(), self.read_lost_s()
        if self._journal is not None:
            self._journal.write("begin", {"name": name, "parent": parent})
        stack.append(name)
        try:
            with self.progress.phase(name, timed=timed, expected_s=expected_s):
                start_ns = time.monotonic_ns()
                yield opened
                end_ns = time.monotonic_ns()
            start_ns, end_ns = opened.edges_ns or (start_ns, end_ns)
            if at_edge is not None:
                at_edge(False)
        finally:
            stack.pop()
        end_stopped_s, end_throttled_s = self.read_lost_s()
        end = Mark(
            time_ns=end_ns,
            read_bytes=opened.read_bytes,
            written_bytes=opened.written_bytes,
            operations=opened.operations,
            cpu_s=self.tree.cpu_s(),
            stopped_s=end_stopped_s,
            throttled_s=end_throttled_s,
            devices=self.read_stats(),
        )
        start = Mark(
            time_ns=start_ns,
            cpu_s=cpu_s,
            stopped_s=stopped_s,
            throttled_s=throttled_s,
            devices=at_start,
        )
        self._add_span(name, parent, start, end, timed=timed)


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Implements ``wattload.core.workload.RunContext`` over a phase recorder."""

    targets: tuple[Target, ...]
    communicator: Communicator
    local: Communicator
    sharers: Communicator
    seed: int
    scale: str
    hosts_memory_bytes: int
    recorder: PhaseRecorder
    raw_drives: Mapping[int, RawDrive] = field(default_factory=dict)

    @property
    def progress(self) -> Progress:
        return self.recorder.progress

    def phase(self, name: str, *, timed: bool = True) -> AbstractContextManager[Phase]:
        return self.recorder.phase(name, timed=timed)

    def end_job(self) -> None:
        self.recorder.end_job()

    def end_pause(self, phase: str) -> None:
        self.recorder.end_pause(phase)

    def raw_drive(self, target: Target) -> RawDrive | None:
        return self.raw_drives.get(target.index)

    def output_folder(self, name: str) -> Path:
        if self.recorder.folder is None:
            raise RuntimeError("the run has no folder before run()")
        return self.recorder.folder / name


def block_counters(marked: Sequence[MarkedSpan]) -> list[IoCounter]:
    """Return the counters of the block devices per phase.

    Ranks of one host enter a phase within a spread: overlapping spans are taken together, from the
    reading of the first that started to the reading of the last that ended, so that every byte of
    the phase is inside and none is counted twice. A phase with spans that were added without
    counters has none.
    """
    counters: list[IoCounter] = []
    groups: dict[tuple[str, str], list[MarkedSpan]] = defaultdict(list)
    for item in marked:
        groups[item.span.host, item.span.name].append(item)
    for (host, phase), items in groups.items():
        for device in sorted(set.intersection(*(set(item.at_start) for item in items))):
            growths = []
            for start, end in merge_intervals((i.span.start_ns, i.span.end_ns) for i in items):
                first = next(i for i in items if i.span.start_ns == start)
                last = next(i for i in items if i.span.end_ns == end)
                growths.append(last.at_end[device].since(first.at_start[device]))
            counters.append(_counter(host, device, phase, growths))
    return counters


def _counter(host: str, device: str, phase: str, growths: Sequence[BlockStat | None]) -> IoCounter:
    """Return the sum of a device's growths in a phase; unknown if one is."""
    known = [growth for growth in growths if growth is not None]
    values: dict[str, Any] = asdict(sum(known, BlockStat.zero()))
    missing = {}
    if len(known) < len(growths):
        missing = dict.fromkeys(values, RESET)
        values = dict.fromkeys(values)
    return IoCounter(host=host, device=device, phase=phase, missing=missing, **values)


def phase_halves(
    windows: Sequence[PhaseWindow], traffic: Sequence[PhaseTraffic]
) -> Iterator[PhaseHalves]:
    """Yield the bytes of each phase in the first and second half of its active time.

    Seconds without traffic count, because a drive that stalls is slower. Pauses between a phase's
    spans do not.
    """
    for window in windows:
        if window.active_s < SHORTEST_HALVED_S:
            continue
        half_ns, first, whole = _middle_ns(window), 0, 0
        for each in traffic:
            if (each.host, each.phase) == (window.host, window.name):
                before = int(np.searchsorted(each.time_ns + BIN_NS // 2, half_ns))
                first += int(each.read_bytes[:before].sum() + each.written_bytes[:before].sum())
                whole += int(each.read_bytes.sum() + each.written_bytes.sum())
        yield PhaseHalves(
            phase=window.name, host=window.host, first_bytes=first, second_bytes=whole - first
        )


def _middle_ns(window: PhaseWindow) -> int:
    """Return the first moment at which the phase had been active for half of its active time."""
    left_ns = window.active_s / 2 * NS_PER_S
    for start_ns, end_ns in window.intervals:
        if end_ns - start_ns >= left_ns:
            return start_ns + round(left_ns)
        left_ns -= end_ns - start_ns
    return window.end_ns


BIN_NS = NS_PER_S // 10
"""Width of a traffic bin: 100 ms, the sampler's usual period."""

Counts = NDArray[np.int64]

_TIME, _READ, _WRITTEN = range(3)
_FIRST_CAPACITY = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseTraffic:
    """The bytes of one phase on one rank; all arrays have shape (bins,).

    ``time_ns`` are the starts of the bins on CLOCK_MONOTONIC of ``host``, ascending. A bin without
    traffic is left out.
    """

    host: str
    rank: int
    phase: str
    time_ns: Counts
    read_bytes: Counts
    written_bytes: Counts


class PhaseBins:
    """Counts the bytes of one phase of a rank; whoever calls ``add`` holds ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stored = np.empty((3, _FIRST_CAPACITY), dtype=np.int64)
        self._count = 0
        self._bin_ns: int | None = None
        self._read_bytes = self._written_bytes = 0

    def add(self, time_ns: int, read_bytes: int, written_bytes: int) -> None:
        """Count bytes that moved at ``time_ns``, which does not decrease from call to call."""
        bin_ns = time_ns - time_ns % BIN_NS
        if bin_ns != self._bin_ns:
            self._store()
            self._bin_ns = bin_ns
        self._read_bytes += read_bytes
        self._written_bytes += written_bytes

    def columns(self) -> Counts:
        """Return the bins so far, shape (3, bins): start in ns, bytes read, bytes written."""
        with self.lock:
            self._store()
            self._bin_ns = None
            return _merged(self._stored[:, : self._count])

    def append(self, columns: Counts) -> None:
        with self.lock:
            self._store()
            self._bin_ns = None
            self._reserve(columns.shape[1])
            self._stored[:, self._count : self._count + columns.shape[1]] = columns
            self._count += columns.shape[1]

    def _store(self) -> None:
        if self._bin_ns is None:
            return
        self._reserve(1)
        self._stored[:, self._count] = self._bin_ns, self._read_bytes, self._written_bytes
        self._count += 1
        self._read_bytes = self._written_bytes = 0

    def _reserve(self, count: int) -> None:
        capacity = self._stored.shape[1]
        if self._count + count <= capacity:
            return
        # Memory that is not written to yet takes no room, so a doubled capacity costs nothing.
        grown = np.empty((3, max(2 * capacity, self._count + count)), dtype=np.int64)
        grown[:, : self._count] = self._stored[:, : self._count]
        self._stored = grown


def _merged(columns: Counts) -> Counts:
    """Return the bins in order of time; bins of equal time are one."""
    steps = np.diff(columns[_TIME])
    if (steps > 0).all():
        return columns
    time_ns, place = np.unique(columns[_TIME], return_inverse=True)
    merged = np.zeros((3, time_ns.size), dtype=np.int64)
    merged[_TIME] = time_ns
    for row in (_READ, _WRITTEN):
        np.add.at(merged[row], place, columns[row])
    return merged


class Traffic:
    """The bytes of every phase of a rank."""

    def __init__(self) -> None:
        self._phases: dict[str, PhaseBins] = {}

    def of(self, phase: str) -> PhaseBins:
        """Return the bins of a phase; all threads in it share them."""
        return self._phases.setdefault(phase, PhaseBins())

    def copy(self, parent: str, name: str, start: Mark, end: Mark) -> None:
        """Copy the traffic of ``parent`` between two marks to the phase ``name``.

        Its sums are the growth of the counts from mark to mark. Bins between those of the marks
        are copied as they are, unless several entries into the parent overlapped: then all are
        scaled, because the marks count one of them.
        """
        edges_ns = [mark.time_ns - mark.time_ns % BIN_NS for mark in (start, end)]
        columns = self.of(parent).columns()
        first, last = np.searchsorted(columns[_TIME], [edges_ns[0], edges_ns[1] + 1])
        part = _with_edges(columns[:, first:last], edges_ns)
        first_share = 1 - (start.time_ns - edges_ns[0]) / BIN_NS
        last_share = (end.time_ns - edges_ns[1]) / BIN_NS
        growths = {
            _READ: end.read_bytes - start.read_bytes,
            _WRITTEN: end.written_bytes - start.written_bytes,
        }
        for row, growth in growths.items():
            part[row] = _cut(part[row], growth, first_share, last_share)
        self.of(name).append(part[:, part[_READ] + part[_WRITTEN] > 0])

    def columns(self, host: str, rank: int) -> list[PhaseTraffic]:
        """Return the traffic of every phase, in order of the phases' first bytes."""
        return [
            PhaseTraffic(
                host=host,
                rank=rank,
                phase=phase,
                time_ns=columns[_TIME],
                read_bytes=columns[_READ],
                written_bytes=columns[_WRITTEN],
            )
            for phase, bins in self._phases.items()
            if (columns := bins.columns()).size
        ]


def _with_edges(columns: Counts, edges_ns: Sequence[int]) -> Counts:
    """Return a copy of the bins, with empty ones at the edges if these had no traffic."""
    missing = [time_ns for time_ns in dict.fromkeys(edges_ns) if time_ns not in columns[_TIME]]
    empty = np.array([missing, [0] * len(missing), [0] * len(missing)], dtype=np.int64)
    found = np.concatenate((columns, empty), axis=1)
    return found[:, np.argsort(found[_TIME], kind="stable")]


def _cut(moved: Counts, total: int, first_share: float, last_share: float) -> Counts:
    """Return bytes per bin that sum to ``total``, of bins of which the first and last are cut.

    What the other bins leave is divided between both by their shares, each at most its own bytes.
    """
    if moved.size == 1:
        return np.array([total], dtype=np.int64)
    rest = total - int(moved[1:-1].sum())
    if not 0 <= rest <= moved[0] + moved[-1]:
        return _scaled(moved, total)
    weights = moved[0] * first_share, moved[-1] * last_share
    share = weights[0] / sum(weights) if sum(weights) else 1.0
    at_first = min(max(round(rest * share), rest - int(moved[-1])), int(moved[0]))
    return np.concatenate(([at_first], moved[1:-1], [rest - at_first])).astype(np.int64)


def _scaled(moved: Counts, total: int) -> Counts:
    """Return the bytes of all bins scaled to ``total``, in whole bytes."""
    summed = np.cumsum(moved, dtype=np.float64)
    if not summed[-1]:
        summed = np.arange(1, moved.size + 1, dtype=np.float64)
    scaled = np.rint(summed / summed[-1] * total).astype(np.int64)
    parts: Counts = np.diff(scaled, prepend=0)
    return parts


def bytes_over_time(
    traffic: Iterable[PhaseTraffic], intervals: Sequence[tuple[int, int]]
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Return a function from times to the bytes of a phase moved by then, in whole bytes.

    The bytes of a bin, of all ranks, are spread evenly over its parts in the active ``intervals``
    (start and end in ns, ascending). A bin outside all of them counts at the end of the one before.
    """
    parts = [np.stack((t.time_ns, t.read_bytes, t.written_bytes)) for t in traffic]
    columns = _merged(np.concatenate([np.empty((3, 0), dtype=np.int64), *parts], axis=1))
    bin_ns = np.stack((columns[_TIME], columns[_TIME] + BIN_NS), axis=1).reshape(-1)
    moved = np.cumsum(np.append(0, columns[_READ] + columns[_WRITTEN]))
    border_ns = np.array(intervals, dtype=np.int64).reshape(-1)
    length_ns = np.diff(border_ns, prepend=border_ns[0])
    length_ns[2::2] = 0  # none move in a pause
    at_border_ns = np.cumsum(length_ns)

    def active_ns(time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        active: NDArray[np.float64] = np.interp(
            time_ns - border_ns[0], border_ns - border_ns[0], at_border_ns
        )
        return active

    known_ns, known_bytes = np.append(0.0, active_ns(bin_ns)), np.repeat(moved, 2)[:-1]

    def moved_bytes(time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        by_then = np.rint(np.interp(active_ns(time_ns), known_ns, known_bytes))
        return np.where(time_ns > border_ns[0], by_then, 0.0)

    return moved_bytes
