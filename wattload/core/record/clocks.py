"""The common clock of a run: times of all its hosts on CLOCK_MONOTONIC of the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.host import ClockOffset

TimesNs = NDArray[np.int64]
Times = TypeVar("Times", int, TimesNs)
Offsets = Mapping[str, Sequence[ClockOffset]]
"""By host, the exchanges of time stamps with the first one."""


class CommonClock:
    """Converts each host's CLOCK_MONOTONIC to that of the first host.

    An offset is interpolated linearly between the exchanges of time stamps, and is that of the
    nearest exchange before the first and after the last. A host without any, such as the first,
    keeps its own times.
    """

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = {host: readings for host, readings in offsets.items() if readings}

    def ns(self, host: str, times: Times) -> Times:
        """Return a host's times in ns, a number or an array (n,), on the first host's clock."""
        readings = self._offsets.get(host)
        if readings is None:
            return times
        first = readings[0]  # what is left is small enough for the precision of floats
        at = [each.monotonic_ns - first.monotonic_ns for each in readings]
        drift = [each.offset_ns - first.offset_ns for each in readings]
        drift_ns = np.rint(np.interp(times - first.monotonic_ns, at, drift))
        if isinstance(times, int):
            return times - first.offset_ns - int(drift_ns)
        return times - first.offset_ns - drift_ns.astype(np.int64)

    def bound_ns(self, host: str) -> int | None:
        """Return how far a converted time of the job may be from the true one.

        With offsets ``o`` and bounds ``b`` of the exchanges before and after the job, it is
        ``max(b1, b2) + |o2 - o1|``: clocks that drift apart in one direction have at any time an
        offset between ``o1 - b1`` and ``o2 + b2`` (``o1 <= o2``), and the interpolated one is
        between ``o1`` and ``o2``. At an exchange, and if they drift at a constant rate, the error
        is at most the larger ``b``. ``None`` for a host without exchanges.
        """
        readings = self._offsets.get(host, ())[-2:]
        if not readings:
            return None
        drift_ns = abs(readings[-1].offset_ns - readings[0].offset_ns)
        return max(each.bound_ns for each in readings) + drift_ns
