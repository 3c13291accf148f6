"""The tables of training on a graph: a row per step, and a row per request of the I/O profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S

STEP_COLUMNS = ("start_ns", "end_ns", "storage_bytes")
"""The columns of the table ``steps`` that pages draw."""
REQUEST_COLUMNS = ("issued_ns", "completed_ns", "bytes", "is_read")
"""Those of the table ``io_requests``."""
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The timed steps of a run; arrays have shape (steps,), times are on CLOCK_MONOTONIC.

    ``storage_bytes`` are NaN where nothing counted them.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    storage_bytes: Array

    def rates(self, most: int) -> tuple[Array, Array]:
        """Return edges in seconds since the start, (n + 1,), and bytes per second, (n,).

        Steps may overlap: the bytes of one count from the end of the step before to its own end.
        Of many steps ``most`` bins remain.
        """
        ends_s = (self.end_ns - self.start_ns[0]) / NS_PER_S
        last = np.unique(np.linspace(0, ends_s.size, min(ends_s.size, most) + 1).astype(np.int64))
        edges = np.concatenate(([0.0], ends_s))[last]
        sums = np.add.reduceat(self.storage_bytes, last[:-1])
        return edges, sums / np.diff(edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The traced reads of an I/O profile; arrays have shape (reads,), in order of their issue."""

    issued_ns: NDArray[np.int64]
    completed_ns: NDArray[np.int64]
    read_bytes: NDArray[np.int64]

    @property
    def seconds(self) -> float:
        return float(self.completed_ns.max() - self.issued_ns[0]) / NS_PER_S

    def edges_s(self, count: int) -> Array:
        """Return the edges of ``count`` equal bins over the whole time, in seconds."""
        return np.linspace(0.0, self.seconds, count + 1)

    def depth(self, edges_s: Array) -> Array:
        """Return the mean number of reads in flight in each bin between edges, (n,)."""
        in_flight_s = self._since(self.issued_ns, edges_s) - self._since(
            np.sort(self.completed_ns), edges_s
        )
        return np.asarray(np.diff(in_flight_s) / np.diff(edges_s), dtype=np.float64)

    def bytes_per_s(self, edges_s: Array) -> Array:
        """Return the bytes completed in each bin between edges ÷ its seconds, (n,)."""
        at_s = (self.completed_ns - self.issued_ns[0]) / NS_PER_S
        sums, _ = np.histogram(at_s, edges_s, weights=self.read_bytes)
        return np.asarray(sums / np.diff(edges_s), dtype=np.float64)

    def _since(self, sorted_ns: NDArray[np.int64], edges_s: Array) -> Array:
        """Return the sum of the seconds that passed since each time, up to each edge."""
        at_s = (sorted_ns - self.issued_ns[0]) / NS_PER_S
        passed = np.searchsorted(at_s, edges_s, side="right")
        sums = np.concatenate(([0.0], np.cumsum(at_s)))
        return np.asarray(passed * edges_s - sums[passed], dtype=np.float64)


def steps_of(columns: Mapping[str, NDArray[Any]]) -> Steps | None:
    """Return the steps of a table by column; ``None`` for an empty one.

    Raises:
        ValueError: a step ends before it starts, or not after the one before.
    """
    start_ns, end_ns = columns["start_ns"], columns["end_ns"]
    if not start_ns.size:
        return None
    if (end_ns <= start_ns).any() or (end_ns[1:] <= end_ns[:-1]).any():
        raise ValueError("its steps do not follow each other in time")
    return Steps(
        start_ns=start_ns.astype(np.int64),
        end_ns=end_ns.astype(np.int64),
        storage_bytes=columns["storage_bytes"].astype(np.float64),
    )


def requests_of(columns: Mapping[str, NDArray[Any]]) -> Requests | None:
    """Return the reads of a table by column; ``None`` if it has none.

    Raises:
        ValueError: a request completed before it was issued.
    """
    issued_ns, completed_ns = columns["issued_ns"], columns["completed_ns"]
    if (completed_ns < issued_ns).any():
        raise ValueError("a request completed before it was issued")
    reads = np.flatnonzero(columns["is_read"])
    if not reads.size or not (completed_ns[reads] > issued_ns[reads]).any():
        return None
    order = reads[np.argsort(issued_ns[reads], kind="stable")]
    return Requests(
        issued_ns=issued_ns[order].astype(np.int64),
        completed_ns=completed_ns[order].astype(np.int64),
        read_bytes=columns["bytes"][order].astype(np.int64),
    )
