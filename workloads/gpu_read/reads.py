"""What the ranks have read, as facts, latencies and a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from wattload.core.histogram import Histogram
from wattload.core.host.gpus import Gpu
from wattload.core.io import DataPath, PathCounts
from wattload.core.record.results import Check, Latency, latencies_of, percentile_s
from wattload.core.units import NS_PER_S
from wattload.loaders.block_reads import ReadFailure, ReadResult
from wattload.results.gpu_read.facts import FailedReads, FileReads, Poller, RankReads


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """The reads of one rank: of which targets, by which GPU, and the checks of its files.

    ``memory_bytes`` is what the host's memory moved meanwhile, if that is counted.
    """

    rank: int
    host: str
    gpu: Gpu | None
    targets: tuple[int, ...]
    paths: tuple[Path, ...]
    in_flight: int
    result: ReadResult
    path: DataPath
    checks: tuple[Check, ...]
    memory_bytes: float | None = None

    def facts(self) -> RankReads:
        result = self.result
        counts = result.counts
        wrong = result.first_wrong
        step_ns = result.clock_step_ns
        return RankReads(
            rank=self.rank,
            host=self.host,
            gpu=self.gpu,
            seconds=result.seconds,
            operations=result.operations,
            in_flight=self.in_flight if result.in_flight is None else result.in_flight,
            cpu_s=result.cpu_s,
            cut_s=result.cut_s,
            compared_bytes=result.compared_bytes,
            bad_blocks=result.bad_blocks,
            bad_files=tuple(
                str(path)
                for path, count in zip(self.paths, result.file_bad_blocks, strict=False)
                if count
            ),
            wrong_blocks=result.wrong_blocks,
            first_wrong="" if wrong is None else f"{self.paths[wrong[0]]} at byte {wrong[1]}",
            drive_bytes=result.drive_bytes,
            touched_pages=result.touched_pages,
            major_faults=result.major_faults,
            files=tuple(map(self._file, range(len(self.paths)))),
            pollers=tuple(
                Poller(answered=each.answered, busy_s=each.busy_s) for each in result.pollers
            ),
            failures=tuple(map(self._failure, result.failures)),
            queue=counts if counts is not None and counts.requester is not None else None,
            pull_per_s=result.pull_per_s,
            queue_per_s=result.queue_per_s,
            clock_step_s=None if step_ns is None else step_ns / NS_PER_S,
        )

    def _file(self, number: int) -> FileReads:
        latencies, operations = self.result.file_latencies, self.result.file_operations
        histogram = None if latencies is None else latencies[number]
        return FileReads(
            target=self.targets[number],
            path=str(self.paths[number]),
            operations=operations[number] if operations else None,
            p50_s=None if histogram is None else percentile_s(histogram, 0.5),
            p99_s=None if histogram is None else percentile_s(histogram, 0.99),
        )

    def _failure(self, failure: ReadFailure) -> FailedReads:
        return FailedReads(
            reason=failure.reason,
            count=failure.count,
            file=None if failure.file is None else str(self.paths[failure.file]),
            offset_bytes=failure.offset_bytes,
        )


def path_of(ranks: Sequence[RankOutcome], drive_bytes: int) -> DataPath:
    """Return the path of rank 0, with the remarks of all ranks, and counts of storage.

    ``drive_bytes`` are those of all ranks; without any, no path to storage is proved.
    """
    remarks = dict.fromkeys(remark for each in ranks for remark in each.path.remarks)
    known = [each.result.counts for each in ranks if each.result.counts is not None]
    counts = reduce(_sum, known) if len(known) == len(ranks) and drive_bytes else None
    memory_bytes = [each.memory_bytes for each in ranks if each.memory_bytes is not None]
    if counts is not None and len(memory_bytes) == len(ranks):
        each_bytes = max(sum(memory_bytes), 0.0) / drive_bytes
        counts = counts.model_copy(update={"memory_bytes_per_byte": each_bytes})
    return ranks[0].path.model_copy(update={"remarks": tuple(remarks), "counts": counts})


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


def latencies(
    result: ReadResult, phase: str, *, block_bytes: int, read_bytes: int, by_threads: bool
) -> tuple[Latency, ...]:
    """Return a rank's latencies: of all reads, and of requests where those take longer.

    Threads have one latency for both: from the start of a read until it is delivered.
    """
    by_file = result.file_latencies
    reads = reduce(Histogram.merged, by_file) if by_file else None
    requests = result.latency
    if by_threads:
        reads, requests = requests, None
    return (
        *latencies_of(reads, phase=phase, kind="read", operation_bytes=read_bytes or block_bytes),
        *latencies_of(requests, phase=phase, kind="request", operation_bytes=block_bytes),
    )
