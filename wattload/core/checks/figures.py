"""Comparisons of figures that a record has twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from wattload.core.histogram import lower_end_ns, upper_end_ns
from wattload.core.record.results import Latency, latencies_of
from wattload.core.units import NS_PER_S

_ROUNDING = 1e-9
"""A mean in seconds is a rounded one in nanoseconds."""


def apart(
    found: Mapping[str, Any], expected: Mapping[str, Any], where: str, *, of: str = "the details"
) -> Iterator[str]:
    """Yield the figures that are others than expected; raises ``KeyError`` for a missing one."""
    for name, other in expected.items():
        if not is_same(found[name], other):
            yield f"{name} of {of} is {found[name]} and {other} {where}"


def is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - figures of any kind
    """Return whether two figures are equal, but for rounding."""
    if isinstance(one, float) or isinstance(other, float):
        return None not in (one, other) and isclose(one, other)
    return bool(one == other)


def unlike_buckets(row: Latency) -> Iterator[str]:
    """Yield what a row of latencies says that its own buckets do not."""
    histogram = row.histogram()
    [made] = latencies_of(
        histogram, phase=row.phase, kind=row.kind, operation_bytes=row.operation_bytes
    ) or (None,)
    if made is None or made.count != row.count:
        yield f"the latencies of {row.kind} have other buckets than operations"
        return
    least_ns = sum(lower_end_ns(bucket) * count for bucket, count in row.buckets)
    most_ns = sum(upper_end_ns(bucket) * count for bucket, count in row.buckets)
    sum_ns = row.mean_s * row.count * NS_PER_S
    if not least_ns <= sum_ns * (1 + _ROUNDING) or not sum_ns <= most_ns * (1 + _ROUNDING):
        yield f"the mean latency of {row.kind} is not that of its buckets"
    for name in ("p50_s", "p90_s", "p95_s", "p99_s", "p999_s", "p9999_s", "p99999_s"):
        own, other = getattr(row, name), getattr(made, name)
        if not is_same(own, other):
            yield f"{name} of {row.kind} is {own} and {other} by its buckets"
