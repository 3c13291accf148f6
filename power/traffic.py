"""Bytes over time: what had moved by when."""

from __future__ import annotations

from collections.abc import Mapping
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
        cls, bins: Mapping[int, int], *, bin_ns: int, start_ns: int, end_ns: int
    ) -> ByteSeries:
        """Return the series of one phase from its bytes per bin of ``bin_ns``, by bin start.

        What moved in a bin is spread evenly over its part in ``[start_ns, end_ns]``, the phase's
        window: all of its bytes moved in there, so that the series ends at their exact sum.
        """
        edges = {start_ns: 0, end_ns: 0}
        for bin_start_ns, moved in sorted(bins.items()):
            first = min(max(bin_start_ns, start_ns), end_ns)
            last = max(min(bin_start_ns + bin_ns, end_ns), first)
            edges.setdefault(first, 0)
            edges[last] = edges.get(last, 0) + moved
        times = sorted(edges)
        moved_bytes = np.cumsum([edges[time_ns] for time_ns in times])
        return cls(
            time_ns=np.array(times, dtype=np.int64), moved_bytes=moved_bytes.astype(np.float64)
        )

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Return whether the series says something of all of ``[start_ns, end_ns]``."""
        return bool(self.time_ns[0] <= start_ns and self.time_ns[-1] >= end_ns)

    def at(self, time_ns: Times) -> Values:
        """Return bytes moved by each time, interpolated and rounded to whole bytes, shape (n,)."""
        origin = self.time_ns[0]
        moved: Values = np.interp(time_ns - origin, self.time_ns - origin, self.moved_bytes)
        return np.rint(moved)
