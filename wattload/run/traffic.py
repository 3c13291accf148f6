"""The bytes that a phase moved over time, in bins of 100 ms: counted, cut, and kept in columns.

A run of two days has 1.8 million bins. As arrays they take 24 bytes each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S
from wattload.core.workload import Mark

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
        """Append bins in the form of ``columns``."""
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


def moved_per_bin(traffic: Iterable[PhaseTraffic]) -> tuple[Counts, Counts]:
    """Return the starts of the bins of one phase, ascending, and the bytes in them over all ranks.

    Both have shape (bins,).
    """
    parts = [np.stack((t.time_ns, t.read_bytes, t.written_bytes)) for t in traffic]
    columns = _merged(np.concatenate([np.empty((3, 0), dtype=np.int64), *parts], axis=1))
    return columns[_TIME], columns[_READ] + columns[_WRITTEN]
