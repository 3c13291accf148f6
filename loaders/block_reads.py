"""Blocks read into memory with many in flight: the plan, its result, and the loaders' protocol.

Each loader reads whole blocks at random for a while, and a read ends when its bytes are where the
loader delivers them: in the memory of a GPU, or in the host's. What a loader can do are flags
(``Ability``): callers check these, never names.

A loader with threads (``Ability.THREADS``) has one synchronous read in flight for each: thread t
reads from file t modulo the number of files, on the NUMA node of that file's GPU, and its n-th
block follows from the seed, t and n alone. Other loaders keep as many reads in flight for each
file. Those with requesters all read the same blocks: requester r belongs to file r ÷ requesters,
and its n-th block follows from the seed, r and n alone (see ``wl_queue_open`` in
``loaders/engine/src/wattload_engine.h``). ``loader=direct`` has no requesters and draws other
blocks with the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import TRACE_DTYPE, DataPath, PathCounts, Stamps
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig

WARP = 32
"""The threads of a GPU that run together."""

LEAST_CLOCK_STEPS = 20
"""A latency of fewer steps of the clock is not known: it may be 5 % off, or more."""


class Ability(Flag):
    """What a loader does with a plan.

    ``FILES``: it reads files; without, nothing is read and no drive is compared. ``GPU``: blocks
    end in the memory of GPUs. ``THREADS``: one synchronous read in flight per thread, so that
    latencies cover all of the threads' time. ``ONLY_DIRECT``: a path through host memory fails the
    run.
    """

    FILES = auto()
    GPU = auto()
    THREADS = auto()
    ONLY_DIRECT = auto()


class Pattern(StrEnum):
    """Which blocks a requester reads: any of its file, or those of its warp's own region."""

    UNIFORM = "uniform"
    REGIONS = "regions"


class ReadsWatch(Protocol):
    """Receives the start and end of the timed window, and the reads within it; on one thread."""

    def begin(self) -> None:
        """Note that the timed reads begin as soon as this returns."""
        ...

    def moved(self, reads: int, read_bytes: int) -> None:
        """Count reads that have ended since the last call, at least every 50 ms."""
        ...

    def end(self, start_ns: int, end_ns: int) -> None:
        """Note that their time is over and ``moved`` has counted them all.

        ``start_ns`` and ``end_ns`` (CLOCK_MONOTONIC) are the reader's own edges of the window.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file whose blocks are read, and every ``stamps.unit_bytes`` of it begin with a stamp.

    ``gpu`` is the PCI address (``0000:65:00.0``) of the GPU whose memory takes them, ``node`` its
    NUMA node; ``None`` where there is none.
    """

    path: Path
    size_bytes: int
    stamps: Stamps
    gpu: str | None = None
    node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Random reads of whole blocks for ``duration_s`` seconds, ``in_flight`` over all files.

    ``read_bytes`` is what a read of a block asks of the drive: the block, or what O_DIRECT takes at
    least where that is more. Loaders with a queue have ``queue_pairs`` of ``queue_size`` (a power
    of two) for each file. Those with threads read ``checked_reads`` further blocks by each thread
    before and after the timed window, by the same path; these are copied back and compared.
    ``drive_count`` are the physical drives under the files, 1 if they are unknown.
    """

    files: tuple[ReadFile, ...]
    block_bytes: int
    read_bytes: int
    in_flight: int
    duration_s: float
    seed: int
    pattern: Pattern = Pattern.UNIFORM
    queue_pairs: int = 1
    queue_size: int = WARP
    checked_reads: int = 1
    drive_count: int = 1

    @property
    def per_file(self) -> int:
        """The reads in flight of each file, where all files have as many."""
        return self.in_flight // len(self.files)

    @property
    def gpus(self) -> Mapping[str, int | None]:
        """The GPUs that blocks are delivered to, in the order of the files, with their nodes."""
        return {file.gpu: file.node for file in self.files if file.gpu is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PollerShare:
    """What one poller answered, and the seconds in which it had something to do."""

    answered: int
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """Reads that failed for one reason; of one file, with the offset of the first, if known."""

    reason: str
    count: int
    file: int | None = None
    offset_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """What the timed window did, from its first read to the end of the last one.

    ``operations`` are reads that succeeded and ended in time, by file in ``file_operations``; none
    that failed is tried again. ``start_ns`` and ``end_ns`` are CLOCK_MONOTONIC, ``cpu_s`` the CPU
    time of the reader's process between them. ``latency`` (ns) is from a request until its block is
    delivered: of all reads, or of a sample by the requester's clock, with a cache until all blocks
    of its warp are. ``file_latencies`` are from when a poller takes a request until the drive has
    answered, of all. Both are ``None`` where there are none; ``latency_missing`` says why a sample
    is not known. ``counts`` prove the path, ``None`` where nothing counts. Of ``compared_bytes``
    every byte was compared, and ``bad_blocks`` of the stamps' size were wrong, by file in
    ``file_bad_blocks`` where that is counted. ``wrong_blocks`` had another stamp where they were
    delivered, the first at the file and offset of ``first_wrong``. ``drive_bytes`` is what the
    drives read where that is not ``read_bytes`` for each operation: nothing, an outside program's
    own figure, or of reads through the page cache the kernel's; of these, threads waited for a
    drive in ``major_faults`` of ``touched_pages``. ``in_flight`` is how many reads there are at
    once where that is not the plan's. ``cut_s`` is the time until the end, over all threads, of the
    reads that were then in flight: they are in no other figure. ``software`` has versions by name
    (``cuda``, ``nvidia_driver``, ``cufile``, ``nvidia_fs``). ``trace`` has fewer than one in a
    thousand operations (``TRACE_DTYPE``). An outside program has figures of its own in
    ``reported``, and may have no more than a ``mean_latency_s``.

    Of a queue, ``pull_per_s`` is what the GPU pulls of these blocks from host memory without it,
    ``queue_per_s`` what it does with nothing to deliver; both are measured just before.
    ``clock_step_ns`` is the step of the GPU's clock.
    """

    operations: int
    start_ns: int
    end_ns: int
    cpu_s: float
    latency: Histogram | None = None
    file_operations: tuple[int, ...] = ()
    file_latencies: tuple[Histogram, ...] | None = None
    counts: PathCounts | None = None
    failures: tuple[ReadFailure, ...] = ()
    compared_bytes: int = 0
    bad_blocks: int = 0
    file_bad_blocks: tuple[int, ...] = ()
    wrong_blocks: int = 0
    first_wrong: tuple[int, int] | None = None
    drive_bytes: int | None = None
    touched_pages: int | None = None
    major_faults: int | None = None
    in_flight: int | None = None
    cut_s: float = 0.0
    software: Mapping[str, str] = field(default_factory=dict)
    trace: NDArray[np.void] = field(default_factory=lambda: np.empty(0, dtype=TRACE_DTYPE))
    mean_latency_s: float | None = None
    reported: Mapping[str, object] = field(default_factory=dict)
    pollers: tuple[PollerShare, ...] = ()
    pull_per_s: float | None = None
    queue_per_s: float | None = None
    clock_step_ns: int | None = None
    latency_missing: str = ""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def failed(self) -> int:
        return sum(each.count for each in self.failures)

    @property
    def has_cache(self) -> bool:
        """Whether a cache in the GPU's memory met some of the requests."""
        return self.counts is not None and self.counts.requests is not None


class BlockReader(Protocol):
    """Open files, registered memory and threads, ready to read."""

    def path(self) -> DataPath:
        """Return the requested path; ``counts`` come with the result."""
        ...

    def run(self, watch: ReadsWatch) -> ReadResult:
        """Read for the planned time, compare what was delivered, and return the figures.

        Reads outside of the timed window come before ``watch.begin`` and after ``watch.end``.

        Raises:
            DataError: a file changed while it was read.
            OSError: a file can't be read.
            RunError: the reader's process ended, reads were not answered, or the GPU was lost.
        """
        ...

    def close(self) -> None:
        """End the threads and release all memory; safe to call twice."""
        ...


@runtime_checkable
class BlockReadConfig(LoaderConfig, Protocol):
    """The configuration of a loader that reads blocks."""

    @property
    def abilities(self) -> Ability:
        """What the loader does, with these settings."""
        ...

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; reads and creates nothing.

        Raises:
            ConfigError: the settings do not fit the plan or this host.
            MissingExtraError: a library behind the loader is not installed.
            NoGpuError: a GPU is needed and there is none.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def block_read_bytes(self, plan: ReadPlan) -> int:
        """Return the host memory that a reader takes."""
        ...

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader of files that exist; memory is registered, nothing is read yet.

        ``folder`` may be created for what is kept with the record: configuration and logs of a
        library, an outside program's raw output.

        Raises:
            ConfigError: the GPU, a library or the kernel refuses.
            OSError: a file can't be opened.
            RunError: the reader's process ended, or did not answer.
            TargetError: a file is shorter than planned, or its file system has no O_DIRECT.
        """
        ...
