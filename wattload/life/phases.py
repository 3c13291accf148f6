"""Phases as they run: spans, the bytes in them, and what the block devices counted meanwhile."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattload.core.blockstat import BlockStat
from wattload.core.record.phase import PhaseSpan
from wattload.core.units import NS_PER_S
from wattload.life.cpu import ProcessTree
from wattload.life.journal import Journal

BIN_NS = NS_PER_S // 10
"""Width of a traffic bin: 100 ms, the sampler's usual period."""

TrafficRow = tuple[int, str, int, str, int, int]
"""Bin start in ns (monotonic), host, rank, phase, bytes read, bytes written."""

StatReader = Callable[[], Mapping[str, BlockStat]]


@dataclass(frozen=True, slots=True)
class MarkedSpan:
    """A span with the block devices' counters at both of its ends, by device name."""

    span: PhaseSpan
    at_start: Mapping[str, BlockStat]
    at_end: Mapping[str, BlockStat]


@dataclass(slots=True)
class Traffic:
    """Bytes per phase and 100 ms bin: ``(phase, bin start in ns)`` to ``[read, written]``."""

    bins: dict[tuple[str, int], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )


class OpenPhase:
    """A phase that is under way on this rank; counts from any thread."""

    def __init__(self, name: str, traffic: Traffic) -> None:
        self._name = name
        self._traffic = traffic
        self._lock = threading.Lock()
        self.read_bytes = 0
        self.written_bytes = 0
        self.operations = 0

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1) -> None:
        """Count bytes that have just moved."""
        now_ns = time.monotonic_ns()
        with self._lock:
            self.read_bytes += read_bytes
            self.written_bytes += written_bytes
            self.operations += operations
            cell = self._traffic.bins[self._name, now_ns - now_ns % BIN_NS]
            cell[0] += read_bytes
            cell[1] += written_bytes


class PhaseRecorder:
    """Opens phases on one rank and keeps their spans; they nest, and overlap over threads."""

    def __init__(self, *, host: str, rank: int, tree: ProcessTree, read_stats: StatReader) -> None:
        self.spans: list[MarkedSpan] = []
        self.traffic = Traffic()
        self._host = host
        self._rank = rank
        self._journal: Journal | None = None
        self.tree = tree
        self._read_stats = read_stats
        self._stack = threading.local()

    def write_to(self, journal: Journal) -> None:
        """Keep a journal of the phases from now on."""
        self._journal = journal

    @property
    def folder(self) -> Path | None:
        """The run's folder; ``None`` where no run was opened, as when data is only generated."""
        return self._journal.folder if self._journal is not None else None

    def last_timed_end_ns(self) -> int | None:
        """Return when this rank's last timed span ended, ``None`` before the first."""
        return max((item.span.end_ns for item in self.spans if item.span.timed), default=None)

    def add_span(self, name: str, start_ns: int) -> None:
        """Add an untimed span from ``start_ns`` to now, in which nothing was moved or counted."""
        span = PhaseSpan(
            name=name,
            parent=None,
            host=self._host,
            rank=self._rank,
            timed=False,
            start_ns=start_ns,
            end_ns=time.monotonic_ns(),
            read_bytes=0,
            written_bytes=0,
            operations=0,
            cpu_s=0.0,
        )
        self.spans.append(MarkedSpan(span, {}, {}))
        self._note("span", span.model_dump())

    def traffic_rows(self) -> list[TrafficRow]:
        """Return the bytes of this rank per 100 ms bin and phase, in order of time."""
        return [
            (bin_ns, self._host, self._rank, phase, read_bytes, written_bytes)
            for (phase, bin_ns), (read_bytes, written_bytes) in sorted(
                self.traffic.bins.items(), key=lambda item: item[0][1]
            )
        ]

    def _note(self, event: str, fields: Mapping[str, Any]) -> None:
        if self._journal is not None:
            self._journal.write(event, fields)

    @contextmanager
    def phase(self, name: str, *, timed: bool = True) -> Iterator[OpenPhase]:
        """Open a phase until the block ends; one that fails leaves its open line in the journal."""
        stack: list[str] = self._stack.__dict__.setdefault("names", [])
        parent = stack[-1] if stack else None
        opened = OpenPhase(name, self.traffic)
        at_start = self._read_stats()
        cpu_s = self.tree.cpu_s()
        self._note("begin", {"name": name, "parent": parent})
        stack.append(name)
        start_ns = time.monotonic_ns()
        try:
            yield opened
            end_ns = time.monotonic_ns()
        finally:
            stack.pop()
        span = PhaseSpan(
            name=name,
            parent=parent,
            host=self._host,
            rank=self._rank,
            timed=timed,
            start_ns=start_ns,
            end_ns=end_ns,
            read_bytes=opened.read_bytes,
            written_bytes=opened.written_bytes,
            operations=opened.operations,
            cpu_s=max(0.0, self.tree.cpu_s() - cpu_s),
        )
        self.spans.append(MarkedSpan(span, at_start, self._read_stats()))
        self._note("span", span.model_dump())
