"""The results of a run in the record: metrics, latencies and checks.

A check compares two independent counters. It has the figures that decided it and one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from wattload.core.base_models import Frozen, Observed
from wattload.core.histogram import BUCKET_COUNT, Histogram
from wattload.core.units import NS_PER_S, Unit

Verdict = Literal["pass", "warn", "fail", "not_checked"]

NO_DRIVE, NO_SENSOR, TOO_SHORT = "no NVMe drive", "no power sensor", "phase too short"
NO_CALIBRATION = "no calibration"
PACED, NO_UTILISATION = "paced by the accelerator", "no accelerator utilisation"
"""Causes of checks that do not apply to a run."""

SHARES = {
    "p50_s": 0.5,
    "p90_s": 0.9,
    "p95_s": 0.95,
    "p99_s": 0.99,
    "p999_s": 0.999,
    "p9999_s": 0.9999,
    "p99999_s": 0.99999,
}
_RAREST, _BEYOND = SHARES["p99999_s"], 10
"""So many operations must lie beyond the rarest percentile."""


Better = Literal["higher", "lower", "neither"]
"""Which direction of a figure is better."""


_OF_POWER = ("power_", "energy_", "sensor_calibrated_", "trace_digest_power")
"""How the names of checks begin that concern power alone."""

Meter = tuple[str, str, str]
"""A host, a source, and the device that it measures."""


class Check(Frozen):
    """The verdict on one claim of a run.

    ``figures`` are the numbers that decided it, with units in their names. If a ``mandatory`` check
    could not be made, the run gets no verdict in a comparison. ``cause`` is why a check does not
    apply to the run, in the same few words for all such checks; it is empty for every other check.
    ``doubted_meters`` are the meters of GPUs and nodes whose energy is not checked because of it.
    """

    name: str
    verdict: Verdict
    sentence: str
    figures: Mapping[str, float | int | str | None] = Field(default_factory=dict)
    mandatory: bool = False
    cause: str = ""
    doubted_meters: tuple[Meter, ...] = ()

    @property
    def bars_verdict(self) -> bool:
        return self.mandatory and self.verdict == "not_checked"

    @property
    def is_of_power(self) -> bool:
        """Whether it concerns power alone: if it was not made, only energy gets no verdict."""
        return self.name.startswith(_OF_POWER)

    @property
    def fails_run(self) -> bool:
        """Whether the run is invalid because of it."""
        return self.verdict == "fail"

    @property
    def bars_energy(self) -> bool:
        """Whether energy gets no verdict because a mandatory check of power was not made."""
        return self.bars_verdict and self.is_of_power

    @model_validator(mode="after")
    def _require_sentence(self) -> Self:
        if not self.sentence:
            raise ValueError(f"check {self.name}: a verdict needs a sentence")
        return self


def amount(figures: Mapping[str, float | int | str | None], name: str) -> float:
    """Return a count or another figure that can't be negative.

    Raises:
        KeyError: it is missing.
        ValueError: it is no number, negative or not finite.
    """
    value = figures[name]
    if value is None or isinstance(value, (str, bool)) or not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be a number, 0 or more")
    return value


LatencyKind = Literal["read", "write", "request"]
"""A read or a write of a drive, or a request through a queue until its block is delivered."""

_Time = Annotated[float, Field(ge=0, lt=1e15)]
"""Seconds; no run's latencies add up to 30 million years."""
_Bucket = Annotated[int, Field(ge=0, lt=BUCKET_COUNT)]
_BucketCount = Annotated[int, Field(ge=1, lt=1 << 48)]


class Latency(Frozen):
    """The latencies of one kind of operation in one phase, over the named ranks.

    The latency of an operation of ``operation_bytes`` (the last of a file may be shorter) runs from
    just before it is submitted to the kernel, or under a rate limit from when it was due, until its
    completion is seen. A percentile is the value that this share of operations did not exceed, at
    most 1/64 too high and never too low. Sum, minimum and maximum are exact; of a part of a phase
    the minimum may be 1/64 too low and the maximum 1/64 too high. A percentile needs at least
    1 / (1 - share) operations; with fewer it is missing. p99.999 needs ten times as many,
    1,000,000, so that ten operations lie beyond it: with one, a single event of the host would make
    it.

    A ``request`` through a queue lasts until its block is where it was asked for. Only a sample of
    requests is timed, into buckets: its mean may be 1/128 off, its minimum and maximum 1/64.

    ``buckets`` has (bucket of ``wattload.core.histogram``, count), empty buckets left out, so that
    rows merge exactly.
    """

    phase: str
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    kind: LatencyKind
    operation_bytes: int = Field(ge=1)
    sum_s: _Time
    min_s: _Time
    max_s: _Time
    buckets: tuple[tuple[_Bucket, _BucketCount], ...] = Field(min_length=1)

    @property
    def count(self) -> int:
        return sum(count for _, count in self.buckets)

    @property
    def mean_s(self) -> float:
        return self.sum_s / self.count

    @cached_property
    def percentiles_s(self) -> Mapping[str, float | None]:
        """The percentiles by the names of ``SHARES``; ``None`` with too few operations."""
        histogram = self.histogram()
        return {name: percentile_s(histogram, share) for name, share in SHARES.items()}

    def why_missing(self, name: str) -> str:
        least = least_count(SHARES[name])
        return f"it needs at least {least} operations; there were {self.count}"

    def histogram(self) -> Histogram:
        counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
        for bucket, count in self.buckets:
            counts[bucket] = count
        return Histogram(
            counts,
            round(self.sum_s * NS_PER_S),
            round(self.min_s * NS_PER_S),
            round(self.max_s * NS_PER_S),
        )


def latencies_of(
    histogram: Histogram | None,
    *,
    phase: str,
    kind: LatencyKind,
    operation_bytes: int,
) -> tuple[Latency, ...]:
    """Return the row of a phase's histogram for ``Outcome.latencies``; empty if it has no values.

    The run fills in host and rank.
    """
    if histogram is None or not histogram.count:
        return ()
    row = Latency(
        phase=phase,
        kind=kind,
        operation_bytes=operation_bytes,
        sum_s=histogram.sum_ns / NS_PER_S,
        min_s=(histogram.minimum_ns or 0) / NS_PER_S,
        max_s=(histogram.maximum_ns or 0) / NS_PER_S,
        buckets=tuple((int(i), int(histogram.counts[i])) for i in histogram.counts.nonzero()[0]),
    )
    return (row,)


def merge_latencies(rows: Sequence[Latency]) -> tuple[Latency, ...]:
    """Merge the rows of equal phase, kind and size of all ranks, exactly, by their histograms."""
    groups: dict[tuple[str, LatencyKind, int], list[Latency]] = {}
    for row in rows:
        groups.setdefault((row.phase, row.kind, row.operation_bytes), []).append(row)
    return tuple(_merged(group) for group in groups.values())


def _merged(rows: Sequence[Latency]) -> Latency:
    first, *others = rows
    if not others:
        return first
    (row,) = latencies_of(
        reduce(Histogram.merged, (row.histogram() for row in rows)),
        phase=first.phase,
        kind=first.kind,
        operation_bytes=first.operation_bytes,
    )
    hosts = tuple(dict.fromkeys(host for row in rows for host in row.hosts))
    ranks = tuple(rank for row in rows for rank in row.ranks)
    return row.model_copy(update={"hosts": hosts, "ranks": ranks})


def least_count(share: float) -> int:
    """Return how many operations a percentile needs: at least to differ from the maximum."""
    return round((_BEYOND if share >= _RAREST else 1) / (1 - share))


def percentile_s(histogram: Histogram, share: float) -> float | None:
    """Return a percentile in seconds; ``None`` if there are too few operations for it."""
    value_ns = histogram.quantile_ns(share)
    if value_ns is None or histogram.count < least_count(share):
        return None
    return value_ns / NS_PER_S


class Metric(Observed):
    """One figure, in ``unit`` (SI base units); if it is ``None``, ``missing`` has the reason.

    ``name`` is stable (``throughput_bytes_per_s``), ``meaning`` is one sentence for the reader, and
    ``phase`` the window it belongs to. ``headline`` metrics lead the page, in their order. Metrics
    of a run with the same ``part_of`` add up to that whole and are drawn stacked.
    """

    name: str
    value: float | None
    unit: Unit
    better: Better
    meaning: str = Field(min_length=1)
    phase: str = ""
    headline: bool = False
    part_of: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        value: float | None,
        unit: Unit,
        better: Better,
        meaning: str,
        *,
        phase: str = "",
        headline: bool = False,
        part_of: str = "",
        reason: str = "",
    ) -> Self:
        """Return a metric; without a value it needs the ``reason``."""
        return cls(
            name=name,
            value=value,
            unit=unit,
            better=better,
            meaning=meaning,
            phase=phase,
            headline=headline,
            part_of=part_of,
            missing={"value": reason} if value is None and reason else {},
        )
