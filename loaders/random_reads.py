"""Random reads of small blocks with many in flight, and the protocol of their loaders.

Whoever asks, a thread of a GPU or of the CPU, loaders with requesters read the same blocks:
requester r of all belongs to file r ÷ requesters, and its n-th block follows from the seed, r and n
alone (see ``wl_queue_open`` in ``loaders/engine/src/wattload_engine.h``). ``loader=direct`` has no
requesters and draws other blocks with the same distribution. A read ends when its bytes are where
the loader delivers them: in GPU memory, or in the host's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import TRACE_DTYPE, DataPath, Stamps
from wattload.core.storage.targets import Target
from wattload.core.workload import LoaderConfig
from wattload.loaders.gpu_reads import ReadsWatch

WARP = 32
"""The threads of a GPU that run together."""


LEAST_CLOCK_STEPS = 20
"""A latency of fewer steps of the clock is not known: it may be 5 % off, or more."""


class Pattern(StrEnum):
    """Which blocks a requester reads: any of its file, or those of its warp's own region."""

    UNIFORM = "uniform"
    REGIONS = "regions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomReadFile:
    """A file that is read: one per target, with a stamp per 512 bytes.

    ``read_bytes`` is what a read of a block asks of the drive: the block, or what O_DIRECT takes
    at least where that is more.
    """

    path: Path
    size_bytes: int
    stamps: Stamps
    read_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomReadPlan:
    """Random reads of whole blocks for ``duration_s`` seconds.

    ``requesters`` (a multiple of 32), ``queue_pairs`` and ``queue_size`` (a power of two) are those
    of each file; each requester has one read in flight. ``gpu`` is the PCI address of the GPU that
    this process uses, ``node`` its NUMA node; both are ``None`` without a GPU. ``drive_count`` are
    the physical drives under the files, 1 if they are unknown.
    """

    files: tuple[RandomReadFile, ...]
    block_bytes: int
    requesters: int
    queue_pairs: int
    queue_size: int
    pattern: Pattern
    duration_s: float
    seed: int
    gpu: str | None
    node: int | None
    drive_count: int = 1

    @property
    def outstanding(self) -> int:
        return self.requesters * len(self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollerShare:
    """What one poller answered, and the seconds in which it had something to do."""

    answered: int
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """What became of requests at a cache in the GPU's memory; each is in one of the counts.

    Requests of a warp for the block of another one of its lanes are ``coalesced``; ``hits`` found
    their block in a page; those ``joined`` found it being read by another warp. ``misses`` were
    read into a page. Those ``passed`` were read past the cache, as all pages of their set were in
    use.
    """

    coalesced: int
    hits: int
    joined: int
    misses: int
    passed: int

    @property
    def asked(self) -> int:
        return self.misses + self.passed

    @property
    def requests(self) -> int:
        return self.coalesced + self.hits + self.joined + self.asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """Reads of a file that failed for one reason, and the offset of the first."""

    file: int
    reason: str
    offset_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomReadResult:
    """What the timed stretch did, from the first request to the last answer.

    ``operations`` are reads that succeeded and whose block is where it is delivered, by file in
    ``file_operations``. ``cpu_s`` is the CPU time of the reader's process, requesters on the CPU
    included. ``latency`` (ns) is from a request until its block is delivered, by the requester's
    clock, of a sample; with a cache until all blocks of its warp are. ``file_latencies`` are from
    when a poller takes a request until the drive has answered, of all. Both are ``None`` where
    there are none. ``pull_per_s`` is what the GPU pulls
    of these blocks from host memory without a queue, ``queue_per_s`` what the queue does with
    nothing to deliver; measured just before. ``wrong_blocks`` had another stamp where they were
    delivered; of ``compared_bytes`` every byte was compared too, and ``bad_blocks`` of 512 bytes
    were wrong, by file in ``file_bad_blocks`` where the loader counts that. ``trace`` has fewer
    than one in a thousand operations (``TRACE_DTYPE``). ``drive_bytes`` is what the drives read, by
    the kernel's count, where that is not ``read_bytes`` for each operation: of reads through the
    page cache, of whose ``touched_pages`` threads waited for a drive in ``major_faults``. All three
    are ``None`` for other reads. ``in_flight`` is how many reads there are at once where that is
    not ``plan.outstanding``. Where requests go through a queue, ``requests`` were made, pollers
    took ``taken`` of them and answered ``answered``; ``delivered`` blocks had their own stamp. They
    are ``None`` without a queue. With a ``cache`` only the requests that it did not meet went
    through the queue; all are delivered. ``clock_step_ns`` is the step of the GPU's clock, ``None``
    without a GPU. ``latency`` is ``None`` too where half of the requests take less than
    ``LEAST_CLOCK_STEPS`` of them; ``latency_missing`` says so.
    """

    operations: int
    file_operations: tuple[int, ...]
    start_ns: int
    end_ns: int
    cpu_s: float
    latency: Histogram | None
    file_latencies: tuple[Histogram, ...] | None
    pollers: tuple[PollerShare, ...] = ()
    pull_per_s: float | None = None
    queue_per_s: float | None = None
    failures: tuple[ReadFailure, ...] = ()
    wrong_blocks: int = 0
    first_wrong: tuple[int, int] | None = None
    """File and offset of the first block with another stamp."""
    compared_bytes: int = 0
    bad_blocks: int = 0
    file_bad_blocks: tuple[int, ...] = ()
    drive_bytes: int | None = None
    touched_pages: int | None = None
    major_faults: int | None = None
    in_flight: int | None = None
    trace: NDArray[np.void] = field(default_factory=lambda: np.empty(0, dtype=TRACE_DTYPE))
    software: Mapping[str, str] = field(default_factory=dict)
    requests: int | None = None
    taken: int | None = None
    answered: int | None = None
    delivered: int | None = None
    cache: CacheCounts | None = None
    clock_step_ns: int | None = None
    latency_missing: str = ""

    @property
    def seconds(self) -> float:
        """The time from the first request to the last answer."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def resident_fraction(self) -> float | None:
        """The share of touched pages that the page cache had; ``None`` for other reads."""
        return resident_fraction(self.touched_pages, self.major_faults)

    @property
    def failed(self) -> int:
        return sum(each.count for each in self.failures)


def resident_fraction(touched_pages: int | None, major_faults: int | None) -> float | None:
    """Return the share of touched pages that needed no wait for a drive."""
    if not touched_pages or major_faults is None:
        return None
    return max(1 - major_faults / touched_pages, 0.0)


class RandomReader(Protocol):
    """Requesters with registered memory, ready to read."""

    def path(self) -> DataPath:
        """Return the path; after ``run`` with the counts that prove it."""
        ...

    def run(self, watch: ReadsWatch) -> RandomReadResult:
        """Read for the planned time and return the figures.

        Raises:
            RunError: the reader's process ended, requests were not answered, or the GPU was lost.
        """
        ...

    def close(self) -> None:
        """End the requesters and release all memory; safe to call twice."""
        ...


@runtime_checkable
class RandomReadLoaderConfig(LoaderConfig, Protocol):
    """The configuration of a loader that makes random reads."""

    @property
    def reads_storage(self) -> bool:
        """Whether files are read at all; else nothing is, and no drive is compared."""
        ...

    @property
    def needs_gpu(self) -> bool:
        """Whether the reads end in the memory of a GPU."""
        ...

    def check_random_reads(self, plan: RandomReadPlan, targets: Sequence[Target]) -> None:
        """Raise for anything that will not work, before there is a file; creates nothing.

        Raises:
            ConfigError: the settings do not fit the plan or this host.
            MissingExtraError: a library behind the loader is not installed.
            NoGpuError: a GPU is needed and there is none.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def memory_bytes(self, plan: RandomReadPlan) -> int:
        """Return the host memory that a reader takes."""
        ...

    def random_reader(self, plan: RandomReadPlan, folder: Path) -> RandomReader:
        """Return the reader of files that exist; memory is registered, nothing is read yet.

        ``folder``, which does not exist, may be created for what is kept with the record.

        Raises:
            ConfigError: the GPU or the kernel refuses.
            RunError: the reader's process ended, or did not answer.
        """
        ...
