"""Reads into GPU memory: what is read by how many threads, and the protocol of their loaders.

Every loader reads the same blocks: thread t reads from file t modulo the number of files, on the
NUMA node of that file's GPU, and its n-th block follows from the seed, t and n alone. Each thread
has one read in flight. A read ends when its bytes are in the memory of the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, PathCounts, Stamps
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig


class ReadsWatch(Protocol):
    """Receives the start and end of the timed stretch, and the reads within it; on one thread."""

    def begin(self) -> None:
        """Note that the timed reads begin as soon as this returns."""
        ...

    def moved(self, reads: int, read_bytes: int) -> None:
        """Count reads that have ended since the last call, at least every 50 ms."""
        ...

    def end(self, start_ns: int, end_ns: int) -> None:
        """Note that their time is over and ``moved`` has counted them all.

        ``start_ns`` and ``end_ns`` (CLOCK_MONOTONIC) are the reader's own edges of the stretch.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFile:
    """A file whose blocks are read into the memory of one GPU.

    ``gpu`` is its PCI address (``0000:65:00.0``), ``node`` its NUMA node, ``None`` if it has none.
    Every 4096 bytes of the file begin with one of ``stamps``.
    """

    path: Path
    size_bytes: int
    gpu: str
    node: int | None
    stamps: Stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReadPlan:
    """Random reads of whole blocks by ``threads`` over all files for ``duration_s`` seconds.

    Before and after the timed stretch each thread reads ``checked_reads`` further blocks by the
    same path, which are copied back and whose stamps are compared, as is the last block that each
    thread read in time.
    """

    files: tuple[GpuFile, ...]
    block_bytes: int
    threads: int
    duration_s: float
    seed: int
    checked_reads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReadResult:
    """What the timed stretch did, and what its reader's process counted.

    ``operations`` are the reads that ended in time, ``moved_bytes`` their bytes; ``latency`` is of
    these, in ns. ``start_ns`` and ``end_ns`` are CLOCK_MONOTONIC, ``cpu_s`` the CPU time of the
    reader's process between them. ``file_operations`` are the reads by file. ``failures`` counts
    reads that failed, by a clause with the reason; none is tried again, and none is in the other
    figures. ``compared_bytes`` were copied back, and of their 4096-byte blocks ``bad_blocks`` were
    not what the file has. ``latency`` is ``None`` and ``mean_latency_s`` set for a program that
    reports a mean only. ``software`` has versions by name (``cuda``, ``nvidia_driver``, ``cufile``,
    ``nvidia_fs``); ``reported`` an outside program's own figures. ``cut_s`` is the time until the
    end, over all threads, of the reads that were then in flight: they are in no other figure.
    """

    operations: int
    moved_bytes: int
    start_ns: int
    end_ns: int
    cpu_s: float
    latency: Histogram | None
    counts: PathCounts
    file_operations: tuple[int, ...] = ()
    mean_latency_s: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    compared_bytes: int = 0
    bad_blocks: int = 0
    software: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, object] = field(default_factory=dict)
    cut_s: float = 0.0

    @property
    def seconds(self) -> float:
        """The time from the first read to the end of the last one."""
        return (self.end_ns - self.start_ns) / 1e9


class GpuReader(Protocol):
    """Threads with registered buffers, ready to read."""

    def path(self) -> DataPath:
        """Return the requested path; ``counts`` come with the result."""
        ...

    def run(self, watch: ReadsWatch) -> GpuReadResult:
        """Read for the planned time, compare what was delivered, and return the figures.

        Reads outside of the timed stretch come before ``watch.begin`` and after ``watch.end``.

        Raises:
            OSError: a file can't be read.
            RunError: the reader's process ended, or the GPU was lost.
        """
        ...

    def close(self) -> None:
        """End the threads and release all memory; safe to call twice."""
        ...


@runtime_checkable
class GpuReadLoaderConfig(LoaderConfig, Protocol):
    """The configuration of a loader that reads into GPU memory.

    ``gpu_path_must_be_direct`` is whether a path through host memory fails the run.
    """

    @property
    def gpu_path_must_be_direct(self) -> bool:
        """Whether the run asked for GPUDirect Storage, and fails without it."""
        ...

    def check_gpu_reads(self, plan: GpuReadPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; reads and creates nothing.

        Raises:
            ConfigError: the settings do not fit this host, such as its limits.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def gpu_reader(self, plan: GpuReadPlan, folder: Path) -> GpuReader:
        """Return the reader of files that exist; buffers are registered, nothing is read yet.

        ``folder`` exists and takes what is kept with the record: configuration and logs of the
        library, an outside program's raw output.

        Raises:
            ConfigError: the GPU or the library refuses.
            RunError: the reader's process ended, or did not answer.
        """
        ...
