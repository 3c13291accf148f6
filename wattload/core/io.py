"""How bytes move: the shapes that engines and loaders share.

An ``Engine`` executes planned I/O, a ``Loader`` yields batches in a given order by way of an engine
or a library. Every result carries a ``DataPath``: which way was asked for, and which way the
counters say was taken. Outside programs that own the loop are in ``core.harness``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.record.base import Frozen


class DataPath(Frozen):
    """The way that bytes took between target and memory.

    ``path_requested`` is what the loader asked for, e.g. ``o_direct`` or ``page_cache``.
    ``path_effective`` comes from counters only (device sectors against bytes), else ``unverified``;
    ``path_evidence`` says which counters, with their figures. ``engine`` is what moved the bytes,
    with the threads and registrations it got. ``remarks`` are sentences that the page must print:
    a way that was taken in place of a better one, and why.
    """

    initiator: Literal["cpu", "gpu"] = "cpu"
    data_path: str
    path_requested: str
    path_effective: str = "unverified"
    path_evidence: str = "no device counter was compared"
    engine: str = ""
    remarks: tuple[str, ...] = ()


class IOKind(StrEnum):
    """What one planned operation does."""

    READ = "read"
    WRITE = "write"


class IOOrder(StrEnum):
    """In which order the blocks of a plan are taken."""

    SEQUENTIAL = "sequential"
    RANDOM = "random"


class Allocation(StrEnum):
    """What the file system has of a file before it is written: three modes that differ in speed.

    ``PREALLOCATED`` reserves the blocks of the file first, by ``fallocate``; ``OVERWRITE`` writes
    over what is there; ``EXTENDING`` lets every write make the file longer. A written file ends
    where its last extent does; one that is overwritten keeps what lies behind that.
    """

    PREALLOCATED = "preallocated"
    OVERWRITE = "overwrite"
    EXTENDING = "extending"


@dataclass(frozen=True, slots=True)
class Stamps:
    """What each 4096-byte block of a plan carries: three little-endian 64-bit words.

    They are ``nonce``, ``word`` and the block's number, which is its offset in its file ÷ 4096 plus
    ``first_block``. A write puts them there, a read counts the blocks that bear others.
    """

    nonce: int
    word: int
    first_block: int = 0


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes in one file: ``length_bytes`` from ``offset_bytes``, both 0 or more."""

    path: Path
    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IOPlan:
    """Extents to read or write in blocks of ``block_bytes``, up to ``depth`` in flight per poller.

    Without ``operation_count`` and ``duration_s`` every block is moved once; with either, blocks
    are taken again from the start (sequential) or drawn uniformly by ``seed`` (random) until the
    count is reached or the time is over. ``rate_bytes_per_s`` paces the issue of operations.
    ``allocation`` is how written files come to their size; ``fsync`` makes them and the folders
    they lie in durable before the plan ends. One operation in ``trace_every`` is traced.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IOResult:
    """What an engine did: bytes that moved, operations, wall seconds, CPU seconds, and the path.

    ``seconds`` end after the fsync, if one was asked for. ``latency`` holds one value in ns per
    operation, from just before it was handed to the kernel to when its completion was seen;
    ``None`` where the engine takes none. Under a rate, what an operation is late by is not in it.
    ``cpu_s`` is that of the engine's own threads and of those that the kernel starts for io_uring
    where it can't go on at once: writes that extend a file or go to the page cache, and fsync.
    With ``stamps``, ``checksum`` is the sum of the 64-bit words that moved, modulo 2^64, and
    ``bad_blocks`` counts those that bore another stamp.
    ``sync_ns`` is the longest fsync of a written file, 0 where none was made.
    ``trace`` has a row per traced operation (see ``TRACE_DTYPE``), by time of submission.
    """

    moved_bytes: int
    operation_count: int
    seconds: float
    cpu_s: float
    path: DataPath
    latency: Histogram | None = None
    trace: NDArray[np.void] | None = None
    checksum: int | None = None
    bad_blocks: int = 0
    sync_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """What an engine can do; the core acts on these flags, never on names.

    ``direct`` passes the page cache by, ``diskless`` touches no file, ``visits`` shows each block
    to a visitor, ``latencies`` says that results hold a histogram.
    """

    reads: bool = True
    writes: bool = True
    direct: bool = False
    diskless: bool = False
    visits: bool = False
    latencies: bool = False


BlockVisitor = Callable[[NDArray[np.uint8], Extent, int], None]
"""Called with a block, its extent and its offset in the file in bytes.

The block is a view of the engine's buffer and holds the payload only: the last block of an extent
may be shorter. It must not be kept. Called on several threads at once.
"""

TRACE_DTYPE = np.dtype(
    [("submit_ns", "<u8"), ("offset_bytes", "<u8"), ("latency_ns", "<u4"), ("file", "<u4")]
)
"""A traced operation: CLOCK_MONOTONIC ns, offset in file number ``file`` of the plan, latency."""


@dataclass(frozen=True, slots=True)
class TracedFile:
    """A file that traced operations lie in, and its size in bytes."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOperations:
    """A sample of one rank's operations of one kind in one phase.

    ``rows`` are of ``TRACE_DTYPE``, by time of submission; their ``file`` numbers ``files``.
    """

    phase: str
    kind: IOKind
    rows: NDArray[np.void]
    files: tuple[TracedFile, ...]


ByteCounter = Callable[[int], None]
"""Called with the bytes that have just moved; on several threads at once."""


class Engine(Protocol):
    """Executes planned I/O against files of one target. All pass ``tests/contracts/engine.py``."""

    def capabilities(self) -> EngineCapabilities:
        """Return what the engine can do."""
        ...

    def run(
        self,
        plan: IOPlan,
        *,
        visit: BlockVisitor | None = None,
        moved: ByteCounter | None = None,
    ) -> IOResult:
        """Execute the plan; ``visit`` fills each block to write, or looks at each block read.

        Only engines that say so (``capabilities().visits``) take a visitor. ``moved`` is called
        once per operation; an engine that moves bytes without Python calls it in bursts, at least
        every 50 ms.

        Raises ``OSError`` with the file and offset in its message, ``DataError`` for a file that is
        shorter than an extent to read or, where the engine looks at that, changes meanwhile, and
        ``ConfigError`` for a plan that it can't do. The engine can be used again after any of them.
        """
        ...

    def close(self) -> None:
        """Give buffers and descriptors back."""
        ...


@runtime_checkable
class TimesOperations(Protocol):
    """A loader or store that knows how long each of its operations took."""

    @property
    def operation_bytes(self) -> int:
        """The size of an operation; the last one of a file may be shorter."""
        ...

    def latency(self, kind: IOKind) -> Histogram:
        """Return how long the operations of that kind took so far, all together."""
        ...


@runtime_checkable
class TracesOperations(Protocol):
    """A loader or store that keeps a sample of its operations: when each began, and where."""

    def traced(self, kind: IOKind, phase: str) -> Sequence[TracedOperations]:
        """Return the sample of that kind so far, said to be of ``phase``; empty where none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as the accelerator would get it.

    ``tensor`` has shape ``(batch, resize_bytes)``, dtype uint8: row i holds the first
    ``resize_bytes`` of sample ``indices[i]``. It is valid until the next batch is asked for.
    ``payload_bytes`` counts decoded payload, ``read_bytes`` what was read from the target for it.
    ``digests`` maps the index of each sample that was chosen for hashing to the hex digest of its
    whole decoded payload as delivered; ``hash_cpu_s`` is what that cost. ``worker_cpu_s`` is CPU
    time that other processes spent since the batch before; a loader of threads has none.

    ``decode_s`` is what the loader's workers spent between the bytes of a file and the rows of the
    batch: parsing headers, comparing the CRC where that is done, copying the front of each payload
    into its row. Wall seconds by CLOCK_MONOTONIC, summed over the samples of the batch (workers run
    side by side, so it may exceed the time the batch took); neither waiting for the target nor
    hashing is in it. ``None`` where the library behind the loader does not tell it from reading.
    """

    tensor: NDArray[np.uint8]
    indices: tuple[int, ...]
    payload_bytes: int
    read_bytes: int
    digests: dict[int, str]
    hash_cpu_s: float = 0.0
    worker_cpu_s: float = 0.0
    decode_s: float | None = None


class Loader(Protocol):
    """Yields the batches of one epoch in the order it was given."""

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        """Yield batches of the samples in ``order``; an incomplete last batch is dropped."""
        ...

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        ...

    def close(self) -> None:
        """End workers and give buffers back."""
        ...
