"""The metrics of reads into GPU memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wattload.core.record.results import Latency, Metric, latencies_of
from wattload.core.units import NS_PER_S, Unit
from wattload.loaders.gpu_reads import GpuReadResult
from wattload.workloads.gpu_read.config import Config

PHASE = "gpu_read"

figure = partial(Metric.of, phase=PHASE)
"""Create a metric of this phase; see ``Metric.of``."""


def mean_latency_s(result: GpuReadResult) -> float | None:
    """Return the mean of all latencies, or the one that an outside program reports."""
    if result.latency is None or result.latency.mean_ns is None:
        return result.mean_latency_s
    return result.latency.mean_ns / NS_PER_S


def failed_reads(result: GpuReadResult) -> int:
    """Return how many reads failed, for whatever reason."""
    return sum(result.failures.values())


def metrics(result: GpuReadResult) -> Iterator[Metric]:
    """Yield the metrics of a run that read something, its headline first."""
    yield figure(
        "read_bytes_per_s",
        result.moved_bytes / result.seconds,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes read into GPU memory / time",
        headline=True,
        # The phase of a program that owns its loop has the program's start and end in it.
        rate_of="" if result.latency is None else "read",
    )
    yield figure(
        "read_iops",
        result.operations / result.seconds,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "reads that ended in GPU memory / time",
    )
    yield figure(
        "mean_latency_s",
        mean_latency_s(result),
        Unit.SECONDS,
        "lower",
        "mean time from the start of a read until its bytes are in GPU memory",
        reason="the program reported no latency",
    )
    yield figure(
        "cpu_s_per_gb",
        result.cpu_s / result.moved_bytes,
        Unit.SECONDS_PER_BYTE,
        "lower",
        "CPU time of the reader's process / bytes read",
    )
    yield figure(
        "failed_reads",
        float(failed_reads(result)),
        Unit.COUNT,
        "lower",
        "reads that failed; none is repeated, and none is in another figure",
    )


def latencies(config: Config, result: GpuReadResult) -> tuple[Latency, ...]:
    """Return the latencies of all reads; empty for a program that reports a mean only."""
    return latencies_of(
        result.latency, phase=PHASE, kind="read", operation_bytes=config.block_bytes
    )
