"""Values over time from trace tables: rates of steps, and depth and bandwidth of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S

Array = NDArray[np.float64]


def step_rates(
    steps: Mapping[str, NDArray[Any]], amount: str, most: int
) -> tuple[NDArray[np.int64], Array] | None:
    """Return edges in ns, (n + 1,), and amounts per second, (n,), of steps.

    Steps may overlap: the amount of one counts from the end of the step before to its own end. Of
    many steps ``most`` bins remain. ``None`` for steps that do not follow each other.

    Args:
        steps: the columns ``start_ns``, ``end_ns`` and ``amount``.
        amount: the name of a column.
        most: the most bins.
    """
    ends_ns = steps["end_ns"].astype(np.int64)
    edges_ns = np.concatenate((steps["start_ns"][:1].astype(np.int64), ends_ns))
    if not ends_ns.size or (np.diff(edges_ns) <= 0).any():
        return None
    last = np.unique(np.linspace(0, ends_ns.size, min(ends_ns.size, most) + 1).astype(np.int64))
    sums = np.add.reduceat(steps[amount].astype(np.float64), last[:-1])
    return edges_ns[last], sums / (np.diff(edges_ns[last]) / NS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Traced requests; arrays have shape (requests,), in order of their issue."""

    issued_ns: NDArray[np.int64]
    completed_ns: NDArray[np.int64]
    moved_bytes: NDArray[np.int64]

    @property
    def seconds(self) -> float:
        return float(self.completed_ns.max() - self.issued_ns[0]) / NS_PER_S

    def edges_s(self, count: int) -> Array:
        """Return the edges of ``count`` equal bins over the whole time, in seconds."""
        return np.linspace(0.0, self.seconds, count + 1)

    def depth(self, edges_s: Array) -> Array:
        """Return the mean number of requests in flight in each bin between edges, (n,)."""
        in_flight_s = self._since(self.issued_ns, edges_s) - self._since(
            np.sort(self.completed_ns), edges_s
        )
        return np.asarray(np.diff(in_flight_s) / np.diff(edges_s), dtype=np.float64)

    def bytes_per_s(self, edges_s: Array) -> Array:
        """Return the bytes completed in each bin between edges ÷ its seconds, (n,)."""
        at_s = (self.completed_ns - self.issued_ns[0]) / NS_PER_S
        sums, _ = np.histogram(at_s, edges_s, weights=self.moved_bytes)
        return np.asarray(sums / np.diff(edges_s), dtype=np.float64)

    def _since(self, sorted_ns: NDArray[np.int64], edges_s: Array) -> Array:
        """Return the sum of the seconds that passed since each time, up to each edge."""
        at_s = (sorted_ns - self.issued_ns[0]) / NS_PER_S
        passed = np.searchsorted(at_s, edges_s, side="right")
        sums = np.concatenate(([0.0], np.cumsum(at_s)))
        return np.asarray(passed * edges_s - sums[passed], dtype=np.float64)


def reads_of(requests: Mapping[str, NDArray[Any]]) -> Requests | None:
    """Return the reads of a table of requests; ``None`` if it has none that took any time."""
    issued_ns, completed_ns = requests["issued_ns"], requests["completed_ns"]
    reads = np.flatnonzero(requests["is_read"])
    if not reads.size or not (completed_ns[reads] > issued_ns[reads]).any():
        return None
    order = reads[np.argsort(issued_ns[reads], kind="stable")]
    return Requests(
        issued_ns=issued_ns[order].astype(np.int64),
        completed_ns=completed_ns[order].astype(np.int64),
        moved_bytes=requests["bytes"][order].astype(np.int64),
    )
