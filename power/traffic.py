"""Bytes over time: what had moved by when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattload.power.trace import Times, Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByteSeries:
    """``moved_bytes[i]`` had moved in all by ``time_ns[i]``; both ascending, shape (n,), n >= 2."""

    time_ns: Times
    moved_bytes: Values

    @classmethod
    def from_bins(
        cls, bins: Mapping[int, int], *, bin_ns: int, intervals: Sequence[tuple[int, int]]
    ) -> ByteSeries:
        """Return the series of one phase from its bytes per bin of ``bin_ns``, by bin start.

        What moved in a bin is spread evenly over its parts in the phase's active ``intervals``
        (start and end in ns, ascending): all of its bytes moved in there, none in a pause, so that
        the series ends at their exact sum. A bin outside of them all counts at the nearest end.
        """
        ends = [end_ns for _, end_ns in intervals]
        grown: dict[int, float] = {moment: 0.0 for span in intervals for moment in span}
        pieces = [
            piece
            for bin_start_ns, moved in sorted(bins.items())
            for piece in _spread(
                moved, *_parts(bin_start_ns, bin_start_ns + bin_ns, intervals, ends)
            )
        ]
        for first, last, moved in pieces:
            grown.setdefault(first, 0.0)
            grown[last] = grown.get(last, 0.0) + moved
        times = sorted(grown)
        moved_bytes = np.cumsum([grown[time_ns] for time_ns in times])
        return cls(time_ns=np.array(times, dtype=np.int64), moved_bytes=moved_bytes)

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Return whether the series says something of all of ``[start_ns, end_ns]``."""
        return bool(self.time_ns[0] <= start_ns and self.time_ns[-1] >= end_ns)

    def at(self, time_ns: Times) -> Values:
        """Return bytes moved by each time, interpolated and rounded to whole bytes, shape (n,)."""
        origin = self.time_ns[0]
        moved: Values = np.interp(time_ns - origin, self.time_ns - origin, self.moved_bytes)
        return np.rint(moved)


def _parts(
    start_ns: int, end_ns: int, intervals: Sequence[tuple[int, int]], ends: Sequence[int]
) -> list[tuple[int, int]]:
    """Return a bin's parts in the intervals, of which ``ends`` are the ends; at least one."""
    parts: list[tuple[int, int]] = []
    for index in range(bisect_right(ends, start_ns), len(intervals)):
        first, last = intervals[index]
        if first >= end_ns:
            break
        parts.append((max(start_ns, first), min(end_ns, last)))
    nearest = min(ends, key=lambda moment: abs(moment - start_ns)) if not parts else 0
    return parts or [(nearest, nearest)]


def _spread(moved: int, *parts: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield from when to when how many of a bin's bytes moved; whole numbers that sum to all."""
    left, left_ns = moved, sum(last - first for first, last in parts)
    for first, last in parts:
        share = left * (last - first) // left_ns if left_ns else left
        yield first, last, share
        left, left_ns = left - share, left_ns - (last - first)
