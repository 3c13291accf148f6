"""The I/O types that engines and loaders share.

An engine executes an ``IOPlan``. A ``Loader`` yields batches in a given order, through an engine or
a library. Every result carries a ``DataPath``: the path that was requested, and the path that
counters prove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from wattload.core.base_models import Frozen
from wattload.core.histogram import Histogram
from wattload.core.units import NS_PER_S

TRACE_DTYPE = np.dtype(
    [("submit_ns", "<u8"), ("offset_bytes", "<u8"), ("latency_ns", "<u4"), ("file", "<u4")]
)
"""A traced operation: CLOCK_MONOTONIC ns, offset in file number ``file`` of the plan, latency.

The latency is the time in flight, from ``submit_ns`` on, under a rate limit too.
"""

ByteCounter = Callable[[int], None]
"""Called with the bytes that have just moved; on several threads at once."""


PathWord = Literal[
    "p2p_nvfs",
    "p2p_pci",
    "p2p_via_peer_gpu",
    "posix_bounce",
    "host_bounce",
    "gpu_pull",
    "cpu_queue",
    "mixed",
    "unverified",
]
"""The path of reads into GPU memory, or of requests through a queue; see ``PathCounts.word``."""
QUEUE_WORDS: frozenset[PathWord] = frozenset({"gpu_pull", "cpu_queue"})
"""The paths through host memory on which requests came through a queue."""
DIRECT_WORDS: frozenset[PathWord] = frozenset({"p2p_nvfs", "p2p_pci", "p2p_via_peer_gpu"})
"""The paths on which the drive writes into the memory of a GPU: GPUDirect Storage."""


_PATHS = 3
_MOST_MEMORY_BYTES_PER_BYTE = 0.5
"""More than an idle host's memory moves for each byte that is read past it."""


class PathCounts(Frozen):
    """Counters of reads into GPU memory that tell their path; ``None`` where nothing counts.

    ``reads`` and ``read_bytes`` are the reader's own count of reads that succeeded, those before
    and after the timed window included: all other counters run from the start of the reader's
    process to its end. ``pinned_copies`` are our own copies from pinned host memory, of
    ``pinned_bytes``. A library counts ``library_reads`` in all, of which ``p2p_reads`` by PCI
    P2PDMA, ``nvfs_reads`` by nvidia-fs and ``posix_reads`` through host memory; ``peer_reads`` went
    through another GPU. These are cuFile's statistics of the process (level 3, summed over GPUs;
    ``n_dr_reads`` for peers), and KvikIO's count of the reads that it did by POSIX without cuFile.
    ``nvidia_fs_reads`` is the change of the driver's own count
    (``/proc/driver/nvidia-fs/stats``), of all processes: where a library counts, it can refute
    that count; where none does, it proves the path only if it equals ``reads``.
    ``memory_bytes_per_byte`` is what the host's memory moved in the timed window, by hardware
    counters, for each byte read; ``None`` also under a load, which moves more. A direct path does
    not touch that memory, but a bounce may stay in caches: the figure can refute a direct path,
    and proves none.

    Where a ``requester`` (the threads of a GPU, or of the CPU) asks through a queue, it counts the
    requests ``asked`` and the blocks ``delivered`` to it with their own stamp, and pollers those
    ``taken`` and ``answered``. Four counts equal to ``reads`` prove that every block came through
    host memory to who asked for it. With a cache in the requester's memory there are more
    ``requests``: each is ``coalesced`` with another one, ``hits`` a block that the cache holds, is
    ``merged`` to a read under way, or is one of the ``misses`` or ``bypassed`` the cache. Only the
    last two are asked through the queue, and as many blocks as requests have to be delivered.
    """

    reads: int = Field(ge=0)
    read_bytes: int = Field(ge=0)
    pinned_copies: int | None = Field(default=None, ge=0)
    pinned_bytes: int | None = Field(default=None, ge=0)
    library_reads: int | None = Field(default=None, ge=0)
    p2p_reads: int | None = Field(default=None, ge=0)
    nvfs_reads: int | None = Field(default=None, ge=0)
    posix_reads: int | None = Field(default=None, ge=0)
    peer_reads: int | None = Field(default=None, ge=0)
    nvidia_fs_reads: int | None = Field(default=None, ge=0)
    memory_bytes_per_byte: float | None = Field(default=None, ge=0)
    requester: Literal["gpu", "cpu"] | None = None
    asked: int | None = Field(default=None, ge=0)
    taken: int | None = Field(default=None, ge=0)
    answered: int | None = Field(default=None, ge=0)
    delivered: int | None = Field(default=None, ge=0)
    requests: int | None = Field(default=None, ge=0)
    coalesced: int | None = Field(default=None, ge=0)
    hits: int | None = Field(default=None, ge=0)
    merged: int | None = Field(default=None, ge=0)
    misses: int | None = Field(default=None, ge=0)
    bypassed: int | None = Field(default=None, ge=0)

    @property
    def word(self) -> PathWord:
        """The path that the counters prove for every read; ``unverified`` if they prove none."""
        word = self._counted_word
        return "unverified" if word in DIRECT_WORDS and self._is_memory_busy else word

    @property
    def _is_memory_busy(self) -> bool:
        return (self.memory_bytes_per_byte or 0) > _MOST_MEMORY_BYTES_PER_BYTE

    @property
    def _counted_word(self) -> PathWord:
        if self.requester is not None:
            return self._word_of_queue(self.requester)
        if self.library_reads is None:
            return self._word_without_library()
        return self._word_of_library()

    def _word_of_library(self) -> PathWord:
        parts = [n for n in (self.p2p_reads, self.nvfs_reads, self.posix_reads) if n is not None]
        is_sum = len(parts) == _PATHS and sum(parts) == self.library_reads
        if not is_sum or not self.reads or self.library_reads != self.reads:
            return "unverified"
        by_peer = self.peer_reads or 0
        if by_peer > self.reads:
            return "unverified"
        if max(parts) < self.reads or 0 < by_peer < self.reads:
            return "mixed"
        if self.posix_reads:
            return "posix_bounce"
        return "p2p_via_peer_gpu" if by_peer else self._direct_word()

    @property
    def evidence(self) -> str:
        """The counters that have a figure, in words."""
        figures = {name: getattr(self, name) for name in type(self).model_fields}
        return ", ".join(
            f"{name.replace('_', ' ')} {figure:,.4g}"
            if isinstance(figure, float)
            else f"{name.replace('_', ' ')} {figure}"
            if isinstance(figure, str)
            else f"{name.replace('_', ' ')} {figure:,}"
            for name, figure in figures.items()
            if figure is not None
        )

    @property
    def is_contradictory(self) -> bool:
        """Whether counters leave reads out, or do not add up; one that is missing can't."""
        if self.requester is not None:
            # A request that failed was asked and answered, but neither read nor delivered.
            is_even = self.asked == self.taken == self.answered and self.is_cache_even
            is_more = self.reads > (self.asked or 0) or (self.delivered or 0) > self._requested
            return not is_even or is_more
        if self._counted_word in DIRECT_WORDS and self._is_memory_busy:
            return True
        if self.library_reads is None:
            return self.pinned_copies is not None and self.word == "unverified"
        if not self.library_reads:  # a library that does not count shows nothing
            return False
        parts = (self.p2p_reads, self.nvfs_reads, self.posix_reads)
        sums = [n for n in parts if n is not None]
        is_apart = len(sums) == _PATHS and sum(sums) != self.library_reads
        # The driver counts other processes too, so it can only show too few.
        is_refuted = self.nvidia_fs_reads is not None and self.nvidia_fs_reads < (
            self.nvfs_reads or 0
        )
        return self.library_reads != self.reads or is_apart or is_refuted

    def _word_of_queue(self, requester: Literal["gpu", "cpu"]) -> PathWord:
        is_whole = {self.asked, self.taken, self.answered} == {self.reads} and self.is_cache_even
        if not self.reads or not is_whole or self.delivered != self._requested:
            return "unverified"
        return "gpu_pull" if requester == "gpu" else "cpu_queue"

    @property
    def _requested(self) -> int:
        """The requests for blocks, those that a cache met included."""
        return (self.asked if self.requests is None else self.requests) or 0

    @property
    def is_cache_even(self) -> bool:
        """Whether each request is in one count of the cache; true without a cache."""
        if self.requests is None:
            return True
        asked = (self.misses or 0) + (self.bypassed or 0)
        met = (self.coalesced or 0) + (self.hits or 0) + (self.merged or 0)
        return asked == self.asked and met + asked == self.requests

    def _word_without_library(self) -> PathWord:
        if self.pinned_copies is not None:
            is_whole = self.pinned_copies and self.pinned_bytes == self.read_bytes
            return "host_bounce" if is_whole else "unverified"
        is_driver = self.reads and self.nvidia_fs_reads == self.reads
        return "p2p_nvfs" if is_driver else "unverified"

    def _direct_word(self) -> PathWord:
        if self.p2p_reads:
            return "p2p_pci"
        # The driver counts other processes too, so it can only contradict.
        is_refuted = self.nvidia_fs_reads is not None and self.nvidia_fs_reads < self.reads
        return "unverified" if is_refuted else "p2p_nvfs"


KEPT_PAGES = "page_cache, kept"
"""The requested path where pages are not evicted: how many reads memory serves is a result."""


class DataPath(Frozen):
    """The path of the bytes between target and memory.

    ``path_requested`` is what the loader requested, e.g. ``o_direct`` or ``page_cache``, or
    ``KEPT_PAGES`` where what was written or read before may be read from memory again.
    ``path_effective`` comes from counters only (device sectors against bytes), else it is
    ``unverified``; ``path_evidence`` names the counters, with their figures. ``engine`` is what
    moved the bytes, with its threads and registrations. ``remarks`` are sentences that the page
    must print: a path that was used instead of a better one, and why. With ``counts``, of reads
    into GPU memory or through a queue, ``path_effective`` is their ``word``. ``initiator`` is who
    asked for the reads: a GPU only where counts prove it (``gpu_pull``).
    """

    initiator: Literal["cpu", "gpu"] = "cpu"
    data_path: str
    path_requested: str
    path_effective: str = "unverified"
    path_evidence: str = "no device counter was compared"
    engine: str = ""
    remarks: tuple[str, ...] = ()
    counts: PathCounts | None = None


class IOKind(StrEnum):
    """What one planned operation does."""

    READ = "read"
    WRITE = "write"


class IOOrder(StrEnum):
    """The order in which the blocks of a plan are moved."""

    SEQUENTIAL = "sequential"
    RANDOM = "random"


class Allocation(StrEnum):
    """How a file is allocated before it is written: three modes that differ in speed.

    ``PREALLOCATED`` reserves the blocks of the file first, by ``fallocate``. ``OVERWRITE`` writes
    over existing blocks. With ``EXTENDING`` every write makes the file longer. A written file ends
    where its last extent ends; an overwritten file keeps the bytes after that.
    """

    PREALLOCATED = "preallocated"
    OVERWRITE = "overwrite"
    EXTENDING = "extending"


@dataclass(frozen=True, slots=True)
class BlockIdentity:
    """What sets the blocks of one plan apart from all others: two 64-bit words.

    ``nonce`` is drawn anew for every run, ``word`` is unique within a run; both in [0, 2^64).
    """

    nonce: int
    word: int


@dataclass(frozen=True, slots=True)
class Stamps(BlockIdentity):
    """What each block of ``unit_bytes`` of a plan begins with: four little-endian 64-bit words.

    They are ``nonce``, ``word``, the block's number, which is its offset in its file ÷
    ``unit_bytes`` (512 or 4096) plus ``first_block``, and the sum of the rest of the block. A write
    stores them; a read counts the blocks that differ in a word or in the sum.
    """

    first_block: int = 0
    unit_bytes: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """What tells a block device from every other one that may take its name.

    ``major_minor`` is the kernel's ``"259:1"``. ``disk_sequence`` is BLKGETDISKSEQ, which grows
    with every disk that appears (Linux 5.15); ``None`` on an older kernel.
    """

    path: Path
    major_minor: str
    disk_sequence: int | None
    size_bytes: int
    logical_block_bytes: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes in one file: ``length_bytes`` from ``offset_bytes``, both 0 or more."""

    path: Path
    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IOPlan:
    """Extents to read or write in blocks of ``block_bytes``, up to ``depth`` in flight per poller.

    Without ``operation_count`` and ``duration_s`` every block is moved once. With either, blocks
    are repeated from the start (sequential) or drawn uniformly by ``seed`` (random) until the count
    is reached or the time is over. ``rate_bytes_per_s`` limits the rate at which operations are
    issued. ``allocation`` applies to files that are written; ``fsync`` makes them and their folders
    durable before the plan ends. One operation in ``trace_every`` is traced. With a ``device`` the
    extents' only path is that of this block device: nothing is created, and the engine fails before
    the first operation if what it opened is another device. With ``blocks``, a read moves these
    blocks in their order, and no others: they are numbered from 0 over the blocks of all extents,
    and block i of the list goes to place i of a destination.

    With ``words`` each extent has its own stamp word, in [0, 2^64), in place of that of ``stamps``:
    extents prove themselves one by one, so other parts of a file that is read may change meanwhile.
    With ``places`` each extent of a read without stamps goes to its own offset in the destination.
    ``sampled`` limits the comparison of stamps and sums to the first, the last, and one other block
    of each extent, which follows from ``seed`` and the extent's word.
    """

    kind: IOKind
    extents: Sequence[Extent]
    block_bytes: int
    depth: int
    fsync: bool = False
    order: IOOrder = IOOrder.SEQUENTIAL
    operation_count: int | None = None
    duration_s: float | None = None
    rate_bytes_per_s: float | None = None
    allocation: Allocation = Allocation.PREALLOCATED
    stamps: Stamps | None = None
    seed: int = 0
    trace_every: int | None = None
    device: DeviceIdentity | None = None
    blocks: NDArray[np.uint64] | None = None
    words: Sequence[int] | None = None
    places: Sequence[int] | None = None
    sampled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IOReading:
    """What a plan under way has done until ``time_ns`` (CLOCK_MONOTONIC), all from its start.

    The counts are those of completed operations. They may differ by operations that complete
    while they are read.
    """

    time_ns: int
    moved_bytes: int
    operation_count: int
    latency: Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class IOResult:
    """The result of a plan: bytes moved, operations, times, CPU seconds, and the path.

    ``start_ns`` is when its first operation was issued, ``end_ns`` when all of it was done,
    including the fsync if the plan has one (CLOCK_MONOTONIC). ``latency`` holds one value in ns per
    operation, from just before it is handed to the kernel until its completion is seen; ``None``
    where the engine does not measure it. Under a rate limit it runs from when the operation was
    due, so that an operation that had to wait for others is not counted as fast. ``cpu_s`` is the
    CPU time of the engine's own threads and of the kernel's io_uring workers, which do what would
    block: writes that extend a file or go to the page cache, and fsync. Of plans under way together
    it counts once, for the one that ends first. With ``stamps``,
    ``compared_bytes`` of those read were compared, and ``bad_blocks`` counts the blocks of these
    that have another stamp or another sum. ``synced_files`` counts the written files whose fsync
    succeeded. ``open_s`` is the wall time of opening, checking and closing ``opened_files`` files,
    summed over threads.
    ``trace`` has a row per traced operation (see ``TRACE_DTYPE``), by time of submission.
    """

    moved_bytes: int
    operation_count: int
    start_ns: int
    end_ns: int
    cpu_s: float
    path: DataPath
    latency: Histogram | None = None
    trace: NDArray[np.void] | None = None
    bad_blocks: int = 0
    compared_bytes: int = 0
    synced_files: int = 0
    open_s: float = 0.0
    opened_files: int = 0

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryRegion:
    """Memory of a GPU at ``address``; ``owner`` keeps it allocated while the region exists."""

    address: int
    size_bytes: int
    owner: object


@dataclass(frozen=True, slots=True)
class TracedFile:
    """A file with traced operations, and its size in bytes."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOperations:
    """A sample of one rank's operations of one kind in one phase.

    ``rows`` have ``TRACE_DTYPE`` and are sorted by time of submission; their ``file`` is an index
    into ``files``.
    """

    phase: str
    kind: IOKind
    rows: NDArray[np.void]
    files: tuple[TracedFile, ...]


@runtime_checkable
class TimesOperations(Protocol):
    """A loader or store that measures how long each of its operations takes."""

    @property
    def operation_bytes(self) -> int:
        """The size of an operation; the last one of a file may be shorter."""
        ...

    def latency(self, kind: IOKind) -> Histogram:
        """Return the latencies of all operations of that kind so far."""
        ...


@runtime_checkable
class TracesOperations(Protocol):
    """A loader or store that keeps a sample of its operations: when each began, and where."""

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample of that kind so far, labelled with ``phase``; empty without one."""
        ...


@dataclass(slots=True, kw_only=True)
class VerifiedSamples:
    """What was compared with what was written: bytes, wrong blocks by sample, CPU seconds."""

    verified_bytes: int = 0
    bad_blocks: dict[int, int] = field(default_factory=dict)
    cpu_s: float = 0.0

    def add(self, other: VerifiedSamples) -> None:
        self.verified_bytes += other.verified_bytes
        self.cpu_s += other.cpu_s
        for index, count in other.bad_blocks.items():
            self.bad_blocks[index] = self.bad_blocks.get(index, 0) + count


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as the accelerator would receive it.

    ``tensor`` has shape ``(batch, resize_bytes)``, dtype uint8: row i holds the first
    ``resize_bytes`` of sample ``indices[i]``. It is valid until the next batch is requested.
    ``payload_bytes`` counts decoded payload, ``read_bytes`` what was read from the target for it.
    ``verified`` is what the loader compared of these bytes. ``worker_cpu_s`` is the CPU time of
    other processes since the previous batch; a loader of threads has none.

    ``decode_s`` is the time that the loader's workers spend between the bytes of a file and the
    rows of the batch: parsing headers, comparing the CRC where that is done, and copying the front
    of each payload into its row. Wall seconds by CLOCK_MONOTONIC, summed over the samples of the
    batch. Workers run in parallel, so it may exceed the time of the batch. Waiting for the target
    and verification are not included. ``None`` where the library behind the loader does not
    separate it from reading.

    ``open_s`` is the time that the loader spends on opening and closing the files of the batch, and
    on what it asks of them besides their bytes, summed over its workers likewise. ``None`` where
    the loader does not separate it from reading.
    """

    tensor: NDArray[np.uint8]
    indices: tuple[int, ...]
    payload_bytes: int
    read_bytes: int
    verified: VerifiedSamples
    worker_cpu_s: float = 0.0
    decode_s: float | None = None
    open_s: float | None = None


class Loader(Protocol):
    """Yields the batches of one epoch in the order it was given."""

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Yield batches of the samples in ``order``; an incomplete last batch is dropped."""
        ...

    def path(self) -> DataPath:
        """Return the requested path of the bytes."""
        ...

    def close(self) -> None:
        """Stop workers and release buffers."""
        ...
