"""The metrics of reads of blocks, and their latencies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce

from wattload.core.histogram import Histogram
from wattload.core.record.results import Latency, Metric, latencies_of
from wattload.core.units import Unit
from wattload.loaders.block_reads import ReadResult
from wattload.workloads.gpu_read.reads import Reads

MILLION = 1e6


def metrics(reads: Reads, phase: str) -> Iterator[Metric]:
    """Yield the metrics of a run that read something."""
    yield from _of_threads(reads, phase) if reads.threads else _of_requesters(reads, phase)
    yield Metric.of(
        "failed_reads",
        float(reads.failed),
        Unit.COUNT,
        "lower",
        "reads that failed; none is repeated, and none is in another figure",
        phase=phase,
    )
    if reads.has_cache:
        yield from _of_cache(reads, phase)


def _of_threads(reads: Reads, phase: str) -> Iterator[Metric]:
    figure = partial(Metric.of, phase=phase)
    has_latencies = reads.results[0].latency is not None
    yield figure(
        "read_bytes_per_s",
        reads.drive_bytes / reads.seconds,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes read into GPU memory / time",
        headline=True,
        # The phase of a program that owns its loop has the program's start and end in it.
        rate_of="read" if has_latencies else "",
    )
    yield figure(
        "read_iops",
        reads.reads_per_s,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "reads that ended in GPU memory / time",
    )
    yield figure(
        "mean_latency_s",
        reads.mean_latency_s,
        Unit.SECONDS,
        "lower",
        "mean time from the start of a read until its bytes are in GPU memory",
        reason="the program reported no latency",
    )
    yield figure(
        "cpu_s_per_gb",
        reads.cpu_s / reads.drive_bytes,
        Unit.SECONDS_PER_BYTE,
        "lower",
        "CPU time of the reader's process / bytes read",
    )


def _of_requesters(reads: Reads, phase: str) -> Iterator[Metric]:
    figure = partial(Metric.of, phase=phase)
    yield figure(
        "reads_per_s",
        reads.reads_per_s,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "reads whose block was delivered / time; what a cache of the GPU holds is not read",
        headline=True,
    )
    yield figure(
        "delivered_bytes_per_s",
        None if reads.engine == "null" else reads.deliveries_per_s * reads.block_bytes,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes of the blocks that reached who asked for them / time",
        reason="nothing is delivered with loader.engine=null",
    )
    yield figure(
        "read_bytes_per_s",
        reads.drive_bytes / reads.seconds if reads.read_bytes else None,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes that drives read / time: what O_DIRECT takes for each block, or the kernel's count",
        rate_of="read" if reads.read_bytes else "",
        reason="no storage was read",
    )
    yield figure(
        "mean_latency_s",
        reads.mean_latency_s,
        Unit.SECONDS,
        "lower",
        "mean time from a request until its block is delivered, of one request of a thread in 64",
        reason=reads.latency_missing or "no request was timed",
    )
    yield figure(
        "cpu_s_per_million_reads",
        reads.cpu_s / reads.operations * MILLION,
        Unit.SECONDS,
        "lower",
        "CPU time of the readers' processes for a million reads",
    )


def _of_cache(reads: Reads, phase: str) -> Iterator[Metric]:
    figure = partial(Metric.of, phase=phase)
    yield figure(
        "requests_per_s",
        reads.deliveries_per_s,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "requests whose block was delivered, from the cache or by a read / time",
    )
    assert reads.counts is not None
    yield figure(
        "hit_rate",
        (reads.counts.hits or 0) / (reads.requests or 1),
        Unit.FRACTION,
        "higher",
        "requests whose block was in the cache / requests; joined and coalesced ones, which share "
        "a read, are not hits",
    )


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
