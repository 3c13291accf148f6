"""What the ranks have read, and what follows from all of it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from wattload.core.histogram import Histogram
from wattload.core.host.gpus import Gpu
from wattload.core.io import DataPath, PathCounts
from wattload.core.record.results import Check, percentile_s
from wattload.core.units import NS_PER_S
from wattload.loaders.block_reads import ReadResult

LINK, POLLERS, QUEUE, STORAGE = "link", "pollers", "queue", "storage"
NEAR, MOST = 0.9, 1.05
"""From this share of a ceiling on, it limits the rate."""
BUSY = 0.9
"""A poller that has something to do for more of the time limits the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReads:
    """The reads of one rank: of which targets, by which GPU, and the checks of its files.

    ``memory_bytes`` is what the host's memory moved meanwhile, if that is counted.
    """

    rank: int
    host: str
    gpu: Gpu | None
    targets: tuple[int, ...]
    paths: tuple[Path, ...]
    result: ReadResult
    path: DataPath
    checks: tuple[Check, ...]
    memory_bytes: float | None = None

    @property
    def is_even(self) -> bool:
        """Whether requests, descriptors and operations are equal; true without a queue.

        With a cache, requests are those that it met and those that went through the queue.
        """
        counts = self.result.counts
        if counts is None or counts.requester is None:
            return True
        ended = self.result.operations + self.result.failed
        is_equal = {counts.asked, counts.taken, counts.answered} == {ended}
        return is_equal and counts.is_cache_even


@dataclass(frozen=True, kw_only=True)
class Reads:
    """The reads of all ranks. ``read_bytes`` is what a drive reads for a block, 0 without one.

    ``threads`` are those with one synchronous read in flight each; ``None`` for other loaders.
    """

    ranks: tuple[RankReads, ...]
    phase: str
    engine: str
    block_bytes: int
    read_bytes: int
    in_flight: int
    threads: int | None = None

    @property
    def results(self) -> tuple[ReadResult, ...]:
        return tuple(each.result for each in self.ranks)

    @property
    def operations(self) -> int:
        return sum(each.operations for each in self.results)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.results)

    @cached_property
    def counts(self) -> PathCounts | None:
        """The counts of all ranks together; ``None`` where one has none."""
        known = [each.counts for each in self.results if each.counts is not None]
        return reduce(_sum, known) if len(known) == len(self.ranks) else None

    @property
    def has_queue(self) -> bool:
        return self.counts is not None and self.counts.requester is not None

    @property
    def requests(self) -> int | None:
        """The requests of a queue, those that a cache met included; ``None`` without a queue."""
        if self.counts is None or not self.has_queue:
            return None
        return self.counts.asked if self.counts.requests is None else self.counts.requests

    @property
    def drive_bytes(self) -> int:
        """The bytes that drives read: the kernel's count where the loader has one."""
        return sum(
            each.operations * self.read_bytes if each.drive_bytes is None else each.drive_bytes
            for each in self.results
        )

    @property
    def seconds(self) -> float:
        """The time from the first request to the last answer: on the host that took longest.

        Clocks of hosts can't be compared.
        """
        hosts: dict[str, list[ReadResult]] = {}
        for each in self.ranks:
            hosts.setdefault(each.host, []).append(each.result)
        return (
            max(
                max(each.end_ns for each in own) - min(each.start_ns for each in own)
                for own in hosts.values()
            )
            / NS_PER_S
        )

    @property
    def reads_per_s(self) -> float:
        return self.operations / self.seconds

    @property
    def has_cache(self) -> bool:
        return self.counts is not None and self.counts.requests is not None

    @property
    def deliveries_per_s(self) -> float:
        """The rate of blocks that reached who asked: more than reads where a cache has some."""
        if self.counts is None or not self.has_cache:
            return self.reads_per_s
        return (self.counts.delivered or 0) / self.seconds

    @property
    def cpu_s(self) -> float:
        return sum(each.cpu_s for each in self.results)

    @property
    def mean_latency_s(self) -> float | None:
        """The mean time from a request until its block is delivered, if it was taken."""
        known = [each.latency for each in self.results if each.latency is not None]
        if not known or self.latency_missing:
            return self.results[0].mean_latency_s
        mean_ns = reduce(Histogram.merged, known).mean_ns
        return None if mean_ns is None else mean_ns / NS_PER_S

    @property
    def latency_missing(self) -> str:
        """Why the time until blocks are delivered is not known on a rank; empty if it is."""
        return next((text for each in self.results if (text := each.latency_missing)), "")

    @property
    def clock_step_s(self) -> float | None:
        """The longest step of the clocks of the GPUs; ``None`` without one."""
        steps_ns = [each.clock_step_ns for each in self.results if each.clock_step_ns is not None]
        return max(steps_ns) / NS_PER_S if steps_ns else None

    @property
    def resident_fraction(self) -> float | None:
        """The share of touched pages that needed no wait for a drive, for mapped files."""
        touched_pages, major_faults = self.total("touched_pages"), self.total("major_faults")
        if not touched_pages or major_faults is None:
            return None
        return max(1 - major_faults / touched_pages, 0.0)

    @property
    def in_flight_seen(self) -> float | None:
        """The mean number of reads that the kernel and the drives had, by Little's law.

        Requesters ask again at once, so their own latency would give what they ask by definition.
        It is ``None`` where there is no other: without storage, and for mapped files.
        """
        parts = []
        for each in self.results:
            latencies = each.file_latencies
            mean_ns = reduce(Histogram.merged, latencies).mean_ns if latencies else None
            if mean_ns is None:
                return None
            parts.append(each.operations / each.seconds * mean_ns / NS_PER_S)
        return sum(parts)

    def total(self, name: str) -> int | None:
        """Return the sum of a count of the results; ``None`` if one of them has none."""
        values = [getattr(each, name) for each in self.results]
        return None if None in values else sum(values)

    def ceiling(self, name: str) -> float | None:
        """Return the sum of a ceiling over the ranks; ``None`` if one of them has none."""
        values = [getattr(each, name) for each in self.results]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    def path(self) -> DataPath:
        """Return the path of rank 0, with the remarks of all ranks, and counts of storage."""
        remarks = dict.fromkeys(remark for each in self.ranks for remark in each.path.remarks)
        counts = self.counts if self.engine == "storage" else None
        memory_bytes = self.ranks[0].memory_bytes
        if counts is not None and memory_bytes is not None and self.drive_bytes:
            each = max(memory_bytes, 0.0) / self.drive_bytes
            counts = counts.model_copy(update={"memory_bytes_per_byte": each})
        update = {"remarks": tuple(remarks), "counts": counts}
        return self.ranks[0].path.model_copy(update=update)

    def bottleneck(self) -> tuple[str | None, str]:
        """Return what limits the rate, ``None`` if that is unknown, and why."""
        busy = [each.busy_s / result.seconds for result in self.results for each in result.pollers]
        return bottleneck_of(
            self.engine,
            rate=self.reads_per_s,
            pull_per_s=self.ceiling("pull_per_s"),
            queue_per_s=self.ceiling("queue_per_s"),
            busiest=max(busy, default=None),
            in_flight=self.in_flight_seen,
            outstanding=self.in_flight,
        )


def bottleneck_of(
    engine: str,
    *,
    rate: float,
    pull_per_s: float | None,
    queue_per_s: float | None,
    busiest: float | None,
    in_flight: float | None,
    outstanding: int,
) -> tuple[str | None, str]:
    """Return what limits a rate, ``None`` if that is unknown, and why.

    Args:
        engine: ``storage``, ``memory`` or ``null``.
        rate: reads per second.
        pull_per_s: what the GPU pulls per second without a queue, if that was measured.
        queue_per_s: what the queue does per second with nothing to deliver, if it was measured.
        busiest: the largest share of the time that a poller worked, if there is one.
        in_flight: the mean number of reads in flight, if it is known.
        outstanding: the reads that were asked for at once.
    """
    if engine != "null" and pull_per_s and NEAR * pull_per_s <= rate <= MOST * pull_per_s:
        return LINK, f"{rate / pull_per_s:.2f} of what the GPU pulls without a queue"
    if queue_per_s and NEAR * queue_per_s <= rate <= MOST * queue_per_s:
        return QUEUE, f"{rate / queue_per_s:.2f} of what the queue does with nothing to deliver"
    if busiest is not None and busiest >= BUSY:
        return POLLERS, f"the busiest poller worked for {busiest:.2f} of the time"
    if engine != "storage":
        return None, "no storage was read, and neither queue, pollers nor link limit the rate"
    if in_flight is None:
        return None, "how many reads were in flight is not known"
    share = in_flight / outstanding
    reason = f"{share:.2f} of the reads that were asked for at once were in flight"
    return (STORAGE if share >= NEAR else None), reason


def _sum(one: PathCounts, other: PathCounts) -> PathCounts:
    """Return the counts of two ranks together; what one of them lacks is missing."""
    summed: dict[str, Any] = {}
    for name in type(one).model_fields:
        values = getattr(one, name), getattr(other, name)
        if name == "requester":
            summed[name] = values[0] if values[0] == values[1] else None
        elif None not in values:
            summed[name] = sum(values)
    return one.model_copy(update={**dict.fromkeys(type(one).model_fields), **summed})


def file_rows(reads: Reads) -> list[dict[str, Any]]:
    """Return what was read of each file, by target."""
    rows = []
    for each in reads.ranks:
        latencies = each.result.file_latencies
        operations = each.result.file_operations or (None,) * len(each.paths)
        for number, (target, path) in enumerate(zip(each.targets, each.paths, strict=True)):
            histogram = None if latencies is None else latencies[number]
            rows.append(
                {
                    "rank": each.rank,
                    "target": target,
                    "path": str(path),
                    "gpu": each.gpu.address if each.gpu else None,
                    "operations": operations[number],
                    "seconds": each.result.seconds,
                    "p50_s": None if histogram is None else percentile_s(histogram, 0.5),
                    "p99_s": None if histogram is None else percentile_s(histogram, 0.99),
                }
            )
    return sorted(rows, key=lambda row: row["target"])


def gpu_rows(reads: Reads) -> list[dict[str, Any]]:
    return [
        {
            "rank": each.rank,
            "address": each.gpu.address,
            "name": each.gpu.name,
            "node": each.gpu.node,
            "operations": each.result.operations,
            "delivered": None if each.result.counts is None else each.result.counts.delivered,
            "seconds": each.result.seconds,
        }
        for each in reads.ranks
        if each.gpu is not None
    ]


def poller_rows(reads: Reads) -> list[dict[str, Any]]:
    return [
        {
            "rank": each.rank,
            "answered": poller.answered,
            "busy_s": poller.busy_s,
            "seconds": each.result.seconds,
        }
        for each in reads.ranks
        for poller in each.result.pollers
    ]


def failure_rows(reads: Reads) -> list[dict[str, Any]]:
    """Return the reads that failed, by file and reason."""
    return [
        {
            "file": None if failure.file is None else str(each.paths[failure.file]),
            "reason": failure.reason,
            "offset_bytes": failure.offset_bytes,
            "count": failure.count,
        }
        for each in reads.ranks
        for failure in each.result.failures
    ]


def bad_files(ranks: Sequence[RankReads]) -> list[str]:
    """Return the files with blocks that differ, as far as the loader counts them by file."""
    return [
        str(path)
        for each in ranks
        for path, count in zip(each.paths, each.result.file_bad_blocks, strict=False)
        if count
    ]


def wrong_place(ranks: Sequence[RankReads]) -> str:
    """Return the file and offset of the first block with another stamp, empty if there is none."""
    for each in ranks:
        if each.result.first_wrong is not None:
            file, offset = each.result.first_wrong
            return f"{each.paths[file]} at byte {offset}"
    return ""
