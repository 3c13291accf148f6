"""A stream of hundreds of thousands of readings a second, thinned without losing a joule.

Of each interval stay the energy up to its end, exactly, and the least and the greatest power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import PowerDataLostError
from wattload.core.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One stretch of the stream, by the device's clock.

    ``energy_j`` counts from the stream's first reading to ``end_ns``; ``min_w`` and ``max_w`` are
    the extremes of the readings in ``[start_ns, end_ns)``.
    """

    start_ns: int
    end_ns: int
    energy_j: float
    min_w: float
    max_w: float


@dataclass(slots=True, kw_only=True)
class _Pending:
    """The interval that is not over yet."""

    sum_w: float = 0.0
    min_w: float = np.inf
    max_w: float = -np.inf


class Thinner:
    """Adds up readings of ``period_ns`` each to intervals of ``interval_ns``, a multiple of it."""

    def __init__(self, *, period_ns: int, interval_ns: int) -> None:
        self._period_ns = period_ns
        self._interval_ns = max(1, round(interval_ns / period_ns)) * period_ns
        self._next_ns: int | None = None
        self._energy_j = 0.0
        self._pending = _Pending()

    @property
    def reached_ns(self) -> int:
        """The end of the last reading that was added, by the device's clock; 0 before the first."""
        return self._next_ns or 0

    def add(self, time_ns: NDArray[np.int64], watts: NDArray[np.float64]) -> list[Interval]:
        """Return the intervals that are complete now; both arrays have shape (n,).

        A reading at t stands for ``[t, t + period)``.

        Raises:
            PowerDataLostError: readings are missing, or come in another order.
        """
        if time_ns.size == 0:
            return []
        self._check_order(time_ns)
        index = time_ns // self._interval_ns
        starts = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
        sums = np.add.reduceat(watts, starts)
        lows = np.minimum.reduceat(watts, starts)
        highs = np.maximum.reduceat(watts, starts)
        self._next_ns = int(time_ns[-1]) + self._period_ns
        ready = []
        for which, start in enumerate(starts):
            self._pending.sum_w += float(sums[which])
            self._pending.min_w = min(self._pending.min_w, float(lows[which]))
            self._pending.max_w = max(self._pending.max_w, float(highs[which]))
            end_ns = (int(index[start]) + 1) * self._interval_ns
            if end_ns <= self._next_ns:
                ready.append(self._complete(end_ns))
        return ready

    def _complete(self, end_ns: int) -> Interval:
        pending, self._pending = self._pending, _Pending()
        self._energy_j += pending.sum_w * self._period_ns / NS_PER_S
        return Interval(
            start_ns=end_ns - self._interval_ns,
            end_ns=end_ns,
            energy_j=self._energy_j,
            min_w=pending.min_w,
            max_w=pending.max_w,
        )

    def _check_order(self, time_ns: NDArray[np.int64]) -> None:
        expected = int(time_ns[0]) if self._next_ns is None else self._next_ns
        steps = np.diff(time_ns, prepend=expected - self._period_ns)
        wrong = np.flatnonzero(steps != self._period_ns)
        if wrong.size:
            at = int(wrong[0])
            raise PowerDataLostError(
                f"the stream jumps by {int(steps[at]) / 1000:g} us at "
                f"{int(time_ns[at]) / 1000:.0f} us where readings are "
                f"{self._period_ns / 1000:g} us apart: readings were lost, and with them joules"
            )
