"""The facts of random reads of blocks, by threads or by requesters, into a GPU's memory or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from wattload.core.base_models import Frozen
from wattload.core.host.gpus import Gpu
from wattload.core.io import PathCounts
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun

BY_THREADS, BY_REQUESTERS = "gpu_read", "gpu_random_read"
"""The names of the workload's runs, each that of its timed phase too."""
Engine = Literal["storage", "memory", "null"]
STORAGE: Engine = "storage"
MEMORY: Engine = "memory"
NULL: Engine = "null"
PAGE_CACHE = "page_cache"
"""The requested path of reads of mapped files."""
CACHE_COUNTS = ("coalesced", "hits", "merged", "misses", "bypassed")
"""What becomes of requests at a cache, each in one of the counts; see ``PathCounts``."""


class ReadSettings(Settings):
    """The settings of the workload that are read here."""

    block_bytes: int
    duration_s: float
    threads: int = 0
    requesters: int = 0
    queue_pairs: int = 0
    queue_size: int = 0
    pattern: str = "uniform"


class Connection(Frozen):
    """A target and the GPU that its blocks are read into."""

    target: int
    path: str
    gpu: str
    gpu_name: str | None
    gpu_node: int | None
    drive_node: int | None
    link: str


class FileReads(Frozen):
    """The reads of one file. Times are those at the drive: without the way to who asked."""

    target: int = fact("number of its target", ge=0)
    path: str = fact("where it is")
    operations: int | None = fact("reads; None where they are not counted by file", ge=0)
    p50_s: float | None = fact("median time of a read, if each was timed", "s")
    p99_s: float | None = fact("99th percentile", "s")


class Poller(Frozen):
    """What one poller answered, and how long it had something to do."""

    answered: int = fact("requests", ge=0)
    busy_s: float = fact("time at work", "s", ge=0)


class FailedReads(Frozen):
    """Reads that failed for one reason; none is tried again."""

    reason: str = fact("why")
    count: int = fact("reads", ge=0)
    file: str | None = fact("the file, if it is known")
    offset_bytes: int | None = fact("place of the first in the file", "B")


class RankReads(Frozen):
    """The reads of one process."""

    rank: int = fact("number", ge=0)
    host: str = fact("where it ran")
    gpu: Gpu | None = fact("the GPU that asks; None of threads, and where a CPU asks")
    seconds: float = fact("from its first read to the end of the last", "s", gt=0)
    operations: int = fact("reads that succeeded in time", ge=0)
    in_flight: int = fact("reads asked for at once", ge=0)
    cpu_s: float = fact("CPU time of the reader's process", "s", ge=0)
    cut_s: float = fact("time of all threads in reads that the end cut off", "s", ge=0)
    compared_bytes: int = fact("bytes compared one by one where they were delivered", "B", ge=0)
    bad_blocks: int = fact("units of 512 bytes of these that were wrong", ge=0)
    bad_files: tuple[str, ...] = fact("files of these, where that is counted")
    wrong_blocks: int = fact("blocks delivered with another stamp", ge=0)
    first_wrong: str = fact("file and place of the first of these")
    drive_bytes: int | None = fact("what drives read; None: as much for each block", "B")
    touched_pages: int | None = fact("pages of mapped files that were read")
    major_faults: int | None = fact("pages of these that waited for a drive")
    files: tuple[FileReads, ...]
    pollers: tuple[Poller, ...]
    failures: tuple[FailedReads, ...]
    queue: PathCounts | None = fact("the counts of its queue; None without one")
    pull_per_s: float | None = fact("blocks that the GPU pulls without a queue", "1/s")
    queue_per_s: float | None = fact("requests of a queue that delivers nothing", "1/s")
    clock_step_s: float | None = fact("step of the GPU's clock", "s")

    @property
    def failed(self) -> int:
        return sum(each.count for each in self.failures)

    @property
    def reads_per_s(self) -> float:
        return self.operations / self.seconds

    @property
    def is_even(self) -> bool:
        """Whether requests, descriptors and operations are equal; true without a queue.

        With a cache, requests are those that it met and those that went through the queue.
        """
        if self.queue is None:
            return True
        ended = self.operations + self.failed
        counts = {self.queue.asked, self.queue.taken, self.queue.answered}
        return counts == {ended} and self.queue.is_cache_even


class ReadFacts(Facts):
    """The facts of the timed reads of a run.

    Threads have one read in flight each, which ends when its bytes are delivered. Requesters ask
    for blocks, of a queue with pollers or of a CPU's threads, and ask again at once.
    """

    settings: ReadSettings = fact("of the workload", exclude=True)
    by_threads: bool = fact("whether each read has a thread of its own")
    must_be_direct: bool = fact("whether a path through host memory fails the run")
    engine: Engine = fact("what answers requests")
    read_bytes: int = fact("what a drive reads for a block", "B", ge=1)
    file_bytes: int = fact("size of a file", "B", ge=0)
    table_bytes: int = fact(
        "table that the ceiling of the link reads, and engine memory", "B", ge=0
    )
    cache_bytes: int = fact("cache in the memory of each GPU, 0 without one", "B", ge=0)
    shared_targets: int = fact("targets that share a drive with another one", ge=0)
    connections: tuple[Connection, ...] = fact("GPUs of targets, if threads read into them")
    reported_latency_s: float | None = fact("mean latency by an outside program", "s")
    latency_missing: str = fact("why the time until delivery is not known, if it was taken")
    reported: Mapping[str, Any] = fact("what an outside program reported of its own")
    software: Mapping[str, str] = fact("versions that the reader's process saw, by name")
    ranks: tuple[RankReads, ...] = fact("by process", min_length=1)

    @property
    def reads_storage(self) -> bool:
        return self.engine == STORAGE

    @property
    def operations(self) -> int:
        return sum(each.operations for each in self.ranks)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.ranks)

    @property
    def failures(self) -> Sequence[FailedReads]:
        return [failure for each in self.ranks for failure in each.failures]

    @property
    def files(self) -> Sequence[tuple[RankReads, FileReads]]:
        found = [(each, file) for each in self.ranks for file in each.files]
        return sorted(found, key=lambda pair: pair[1].target)

    @property
    def pollers(self) -> Sequence[tuple[RankReads, Poller]]:
        return [(each, poller) for each in self.ranks for poller in each.pollers]

    @property
    def in_flight(self) -> int:
        return sum(each.in_flight for each in self.ranks)

    @property
    def cpu_s(self) -> float:
        return sum(each.cpu_s for each in self.ranks)

    @property
    def drive_bytes(self) -> int:
        """The bytes that drives read: counted, or for each block as much."""
        each_bytes = self.read_bytes if self.reads_storage else 0
        return sum(
            each.operations * each_bytes if each.drive_bytes is None else each.drive_bytes
            for each in self.ranks
        )

    @property
    def is_mapped(self) -> bool:
        return self.total("major_faults") is not None

    @property
    def resident_fraction(self) -> float | None:
        """The share of touched pages that needed no wait for a drive, for mapped files."""
        touched_pages, major_faults = self.total("touched_pages"), self.total("major_faults")
        if not touched_pages or major_faults is None:
            return None
        return max(1 - float(major_faults / touched_pages), 0.0)

    @cached_property
    def queue(self) -> Mapping[str, int] | None:
        """The counts of the queues of all ranks; ``None`` without queues."""
        known = [each.queue for each in self.ranks if each.queue is not None]
        if len(known) < len(self.ranks):
            return None
        names = ("asked", "taken", "answered", "delivered", "requests", *CACHE_COUNTS)
        return {
            name: sum(values)
            for name in names
            if None not in (values := [getattr(each, name) for each in known])
        }

    @property
    def has_cache(self) -> bool:
        return self.queue is not None and "requests" in self.queue

    @property
    def requests(self) -> int | None:
        """The requests of a queue, those that a cache met included; ``None`` without a queue."""
        return None if self.queue is None else self.queue.get("requests", self.queue["asked"])

    @property
    def delivered(self) -> int:
        """The blocks that reached who asked: more than reads where a cache has some."""
        if self.queue is None or not self.has_cache:
            return self.operations
        return self.queue["delivered"]

    def total(self, name: str) -> Any:  # noqa: ANN401 - a number of the ranks
        """Return the sum of a fact of the ranks; ``None`` if one of them lacks it."""
        values = [getattr(each, name) for each in self.ranks]
        return None if None in values else sum(values)


Run = AnyRun[ReadFacts]
