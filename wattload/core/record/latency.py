"""How long operations took in a phase: percentiles, and the histogram that they come from."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from wattload.core.histogram import BUCKET_COUNT, Histogram
from wattload.core.record.base import Observed
from wattload.core.units import NS_PER_S

SHARES = {
    "p50_s": 0.5,
    "p90_s": 0.9,
    "p95_s": 0.95,
    "p99_s": 0.99,
    "p999_s": 0.999,
    "p9999_s": 0.9999,
}


class Latency(Observed):
    """The latencies of one kind of operation in one phase, over the ranks that it names.

    An operation of ``operation_bytes`` (the last of a file may be shorter) lasts from just before
    it was handed to the kernel to when its completion was seen. A percentile is the value that this
    share of all did not exceed, up to 1/64 too high and never too low; minimum, mean and maximum
    are exact. A percentile that fewer operations than 1 ÷ (1 - share) would stand for is missing.

    ``buckets`` pairs the bucket of ``wattload.core.histogram`` with its count, empty ones left out,
    so that rows merge exactly. A row of one rank among several has none.
    """

    phase: str
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    kind: Literal["read", "write"]
    operation_bytes: int = Field(ge=1)
    count: int = Field(ge=1)
    mean_s: float = Field(ge=0)
    min_s: float = Field(ge=0)
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    p99_s: float | None
    p999_s: float | None
    p9999_s: float | None
    max_s: float = Field(ge=0)
    buckets: tuple[tuple[int, int], ...] = ()

    def histogram(self) -> Histogram:
        """Return the histogram of a row that has buckets."""
        counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
        for bucket, count in self.buckets:
            counts[bucket] = count
        return Histogram(
            counts,
            round(self.mean_s * self.count * NS_PER_S),
            round(self.min_s * NS_PER_S),
            round(self.max_s * NS_PER_S),
        )


def latencies_of(
    histogram: Histogram | None,
    *,
    phase: str,
    kind: Literal["read", "write"],
    operation_bytes: int,
) -> tuple[Latency, ...]:
    """Return the row of a phase's histogram, for ``Outcome.latencies``; none of nothing.

    Host and rank are the run's to fill in.
    """
    if histogram is None or not histogram.count:
        return ()
    low, high, mean = histogram.minimum_ns, histogram.maximum_ns, histogram.mean_ns
    count = histogram.count
    values = {name: _percentile(histogram, share) for name, share in SHARES.items()}
    row = Latency(
        phase=phase,
        kind=kind,
        operation_bytes=operation_bytes,
        count=count,
        mean_s=(mean or 0) / NS_PER_S,
        min_s=(low or 0) / NS_PER_S,
        **values,
        max_s=(high or 0) / NS_PER_S,
        buckets=tuple((int(i), int(histogram.counts[i])) for i in histogram.counts.nonzero()[0]),
        missing={
            name: f"{least_count(SHARES[name])} operations are the least for it, there were {count}"
            for name, value in values.items()
            if value is None
        },
    )
    return (row,)


def least_count(share: float) -> int:
    """Return how many operations a percentile needs to be more than the maximum."""
    return round(1 / (1 - share))


def _percentile(histogram: Histogram, share: float) -> float | None:
    value_ns = histogram.quantile_ns(share)
    if value_ns is None or histogram.count < least_count(share):
        return None
    return value_ns / NS_PER_S
