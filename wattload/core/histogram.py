"""Mergeable latency histograms: log-linear buckets, 64 per octave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BUCKETS_PER_OCTAVE = 64
BUCKET_COUNT = 2304
"""Enough for 2^41 ns (36 minutes); the last bucket also counts everything longer."""

_LINEAR_BITS = 6


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often each latency occurred, in ns.

    Values below 64 ns have a bucket each; above, every octave is cut into 64 equal buckets, so a
    bucket is at most 1/64 of its value wide. ``counts`` has shape ``(BUCKET_COUNT,)``, dtype
    uint64. ``minimum_ns`` and ``maximum_ns`` are exact, and ``None`` for an empty histogram.
    """

    counts: NDArray[np.uint64]
    sum_ns: int = 0
    minimum_ns: int | None = None
    maximum_ns: int | None = None

    @classmethod
    def of(cls, values_ns: Iterable[int]) -> Histogram:
        values = list(values_ns)
        counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
        for value in values:
            counts[bucket_of(value)] += np.uint64(1)
        if not values:
            return cls(counts)
        return cls(counts, sum(values), min(values), max(values))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def mean_ns(self) -> float | None:
        """The exact mean, ``None`` if empty."""
        return self.sum_ns / self.count if self.count else None

    def quantile_ns(self, share: float) -> int | None:
        """Return the value that ``share`` (0 to 1) of the values do not exceed, ``None`` if empty.

        This is the value of rank ``ceil(share x count)``, at least 1, rounded up to the end of its
        bucket but not above the exact maximum: at most 1/64 too high, never too low.
        """
        if self.maximum_ns is None:
            return None
        rank = max(int(np.ceil(share * self.count)), 1)
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank))
        if bucket == BUCKET_COUNT - 1:  # it has no upper end
            return self.maximum_ns
        return min(upper_end_ns(bucket), self.maximum_ns)

    def since(self, earlier: Histogram) -> Histogram:
        """Return the histogram of the values that came after an earlier reading of the same ones.

        ``counts`` are exact. ``minimum_ns`` and ``maximum_ns`` are the ends of the outermost
        buckets, limited by those of all values: at most 1/64 too low and too high. Beyond 36
        minutes, in the last bucket, they are its start and the maximum of all values.

        Raises:
            ValueError: ``earlier`` has values that are not in this one.
        """
        if (self.counts < earlier.counts).any():
            raise ValueError("the earlier histogram has values that this one does not have")
        counts = self.counts - earlier.counts
        used = np.flatnonzero(counts)
        if not len(used) or self.minimum_ns is None or self.maximum_ns is None:
            return Histogram(counts)
        first, last = int(used[0]), int(used[-1])
        highest = self.maximum_ns if last == BUCKET_COUNT - 1 else upper_end_ns(last)
        return Histogram(
            counts,
            self.sum_ns - earlier.sum_ns,
            max(lower_end_ns(first), self.minimum_ns),
            min(highest, self.maximum_ns),
        )

    def merged(self, other: Histogram) -> Histogram:
        return Histogram(
            self.counts + other.counts,
            self.sum_ns + other.sum_ns,
            _either(min, self.minimum_ns, other.minimum_ns),
            _either(max, self.maximum_ns, other.maximum_ns),
        )


def bucket_of(value_ns: int) -> int:
    """Return the bucket of a value, 0 or more."""
    if value_ns < BUCKETS_PER_OCTAVE:
        return value_ns
    exponent = value_ns.bit_length() - 1
    within = (value_ns >> (exponent - _LINEAR_BITS)) - BUCKETS_PER_OCTAVE
    return min((exponent - _LINEAR_BITS + 1) * BUCKETS_PER_OCTAVE + within, BUCKET_COUNT - 1)


def upper_end_ns(bucket: int) -> int:
    """Return the largest value of a bucket; for the last bucket, as if it had an upper end."""
    if bucket < BUCKETS_PER_OCTAVE:
        return bucket
    octave, within = divmod(bucket, BUCKETS_PER_OCTAVE)
    return ((within + BUCKETS_PER_OCTAVE + 1) << (octave - 1)) - 1


def lower_end_ns(bucket: int) -> int:
    return upper_end_ns(bucket - 1) + 1 if bucket else 0


def _either(
    choose: Callable[[Iterable[int]], int], first: int | None, second: int | None
) -> int | None:
    values = [value for value in (first, second) if value is not None]
    return choose(values) if values else None
