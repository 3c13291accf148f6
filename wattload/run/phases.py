"""Phases as they run.

Their spans on each rank, the bytes in them, and what block devices counted meanwhile.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wattload.core.files import open_folder
from wattload.core.host.counters import BlockStat, ProcessTree
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
from wattload.run.traffic import BIN_NS, PhaseTraffic, Traffic

SHORTEST_HALVED_S = 2.0

StatReader = Callable[[], Mapping[str, BlockStat]]


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
        with open_folder(run_folder) as folder:
            self._descriptor = folder.append(JOURNAL_PATTERN.replace("*", str(rank)))

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one event; an error of the file system is kept in ``failure``."""
        head = {"event": event, "time_ns": time.monotonic_ns(), "rank": self._rank}
        line = json.dumps({**head, **fields}, separators=(",", ":"))
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
        os.close(self._descriptor)


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
        """Take the edges of the stretch from the process that moves the bytes."""
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
        with self._bins.lock:
            return Mark(
                time_ns=time.monotonic_ns(),
                read_bytes=self.read_bytes,
                written_bytes=self.written_bytes,
                operations=self.operations,
                cpu_s=cpu_s,
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
        self._stack = threading.local()
        self.progress = progress or RankProgress()
        self.at_timed_edge: Callable[[bool], None] | None = None
        """Called in a timed phase's thread, with ``True`` just before it begins and ``False`` just
        after it ends."""

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

    def last_timed_end_ns(self) -> int | None:
        """Return when this rank's last timed span ended, ``None`` before the first."""
        return max((span["end_ns"] for span, *_ in self._marked if span["timed"]), default=None)

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
            "is_part": is_part,
        }
        self._marked.append((span, start.devices, end.devices))
        if self._journal is not None:
            self._journal.write("span", span)

    def traffic_of_phases(self) -> list[PhaseTraffic]:
        """Return the bytes of this rank per 100 ms bin, by phase."""
        return self.traffic.columns(self._host, self._rank)

    @contextmanager
    def phase(
        self, name: str, *, timed: bool = True, expected_s: float | None = None
    ) -> Iterator[OpenPhase]:
        """Open a phase for the block; if it fails, the journal has only its begin line.

        ``expected_s`` is how long it will last, to show the time left.
        """
        stack: list[str] = self._stack.__dict__.setdefault("names", [])
        parent = stack[-1] if stack else None
        opened = OpenPhase(name, self)
        at_edge = self.at_timed_edge if timed else None
        if at_edge is not None:
            at_edge(True)
        at_start = self.read_stats()
        cpu_s = self.tree.cpu_s()
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
        end = Mark(
            time_ns=end_ns,
            read_bytes=opened.read_bytes,
            written_bytes=opened.written_bytes,
            operations=opened.operations,
            cpu_s=self.tree.cpu_s(),
            devices=self.read_stats(),
        )
        start = Mark(time_ns=start_ns, cpu_s=cpu_s, devices=at_start)
        self._add_span(name, parent, start, end, timed=timed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Implements ``wattload.core.workload.RunContext`` over a phase recorder."""

    targets: tuple[Target, ...]
    communicator: Communicator
    seed: int
    scale: str
    recorder: PhaseRecorder
    raw_drives: Mapping[int, RawDrive] = field(default_factory=dict)

    @property
    def progress(self) -> Progress:
        return self.recorder.progress

    def phase(self, name: str, *, timed: bool = True) -> AbstractContextManager[Phase]:
        """Open a phase; see the protocol."""
        return self.recorder.phase(name, timed=timed)

    def raw_drive(self, target: Target) -> RawDrive | None:
        """Return the drive of a block target; see the protocol."""
        return self.raw_drives.get(target.index)

    def output_folder(self, name: str) -> Path:
        """Return a path in the run's folder; see the protocol."""
        if self.recorder.folder is None:
            raise RuntimeError("the run has no folder before run()")
        return self.recorder.folder / name


def block_counters(marked: Sequence[MarkedSpan]) -> list[IoCounter]:
    """Return the counters of the block devices per phase.

    Ranks of one host enter a phase within a spread: overlapping spans are taken together, from the
    reading of the first that started to the reading of the last that ended, so that every byte of
    the phase is inside and none is counted twice.
    """
    counters: list[IoCounter] = []
    groups: dict[tuple[str, str], list[MarkedSpan]] = defaultdict(list)
    for item in marked:
        groups[item.span.host, item.span.name].append(item)
    for (host, phase), items in groups.items():
        for device in sorted({name for item in items for name in item.at_start}):
            total = BlockStat.zero()
            for start, end in merge_intervals((i.span.start_ns, i.span.end_ns) for i in items):
                first = next(i for i in items if i.span.start_ns == start)
                last = next(i for i in items if i.span.end_ns == end)
                total = total + (last.at_end[device] - first.at_start[device])
            counters.append(_block_counter(host, phase, device, total))
    return counters


def _block_counter(host: str, phase: str, device: str, stat: BlockStat) -> IoCounter:
    return IoCounter(
        host=host,
        device=device,
        phase=phase,
        read_bytes=stat.read_bytes,
        written_bytes=stat.write_bytes,
        read_operations=stat.read_ios,
        write_operations=stat.write_ios,
        busy_s=stat.busy_s,
        weighted_s=stat.weighted_s,
    )


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
