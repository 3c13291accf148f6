"""The metrics of random reads that a GPU asks for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce

from wattload.core.histogram import Histogram
from wattload.core.record.results import Latency, Metric, latencies_of
from wattload.core.units import Unit
from wattload.loaders.random_reads import RandomReadResult
from wattload.workloads.gpu_random_read.reads import Reads

PHASE = "gpu_random_read"
MILLION = 1e6

figure = partial(Metric.of, phase=PHASE)
"""Create a metric of this phase; see ``Metric.of``."""


def metrics(reads: Reads) -> Iterator[Metric]:
    """Yield the metrics of a run that read something, its headline first."""
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
    yield figure(
        "failed_reads",
        float(reads.failed),
        Unit.COUNT,
        "lower",
        "reads that failed; none is repeated, and none is in another figure",
    )
    if reads.cache is not None:
        yield figure(
            "requests_per_s",
            reads.deliveries_per_s,
            Unit.SAMPLES_PER_SECOND,
            "higher",
            "requests whose block was delivered, from the cache or by a read / time",
        )
        yield figure(
            "hit_rate",
            reads.cache.hits / reads.cache.requests,
            Unit.FRACTION,
            "higher",
            "requests whose block was in the cache / requests; joined and coalesced ones, which "
            "share a read, are not hits",
        )


def latencies(
    result: RandomReadResult, *, block_bytes: int, read_bytes: int
) -> tuple[Latency, ...]:
    """Return a rank's latencies: of all reads by its drives, and of its sampled requests."""
    of_drives = result.file_latencies
    reads = latencies_of(
        reduce(Histogram.merged, of_drives) if of_drives else None,
        phase=PHASE,
        kind="read",
        operation_bytes=read_bytes or block_bytes,
    )
    requests = latencies_of(
        result.latency, phase=PHASE, kind="request", operation_bytes=block_bytes
    )
    return (*reads, *requests)
