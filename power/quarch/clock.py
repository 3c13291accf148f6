"""From a module's clock to this host's: where it began, and how fast it runs.

A reading can only arrive after it was taken. Of many readings the least delayed ones so trace the
true difference of the two clocks from above; the line below all points and nearest to them gives
its rate (Moon, Skelly, Towsley: Estimation and Removal of Clock Skew from Network Delay
Measurements, INFOCOM 1999). Where the stream began lies between its command and the answer.
"""

from __future__ import annotations

from itertools import pairwise

from wattload.core.units import NS_PER_S

BIN_NS = 10 * NS_PER_S
"""Of so long a stretch the least delayed arrival is kept."""
RATE_AFTER_NS = 60 * NS_PER_S
"""Over less than this, delays that vary by milliseconds would pass for drift."""
RATE_MAX = 500e-6
"""No crystal runs off by more."""

Point = tuple[int, int]
"""Time on the module's clock, and the host's minus it, both in ns."""


class DeviceClock:
    """Maps a stream's times, which begin at 0, to CLOCK_MONOTONIC.

    ``before_ns`` and ``after_ns`` are the host's times around the command that began it.
    """

    def __init__(self, before_ns: int, after_ns: int) -> None:
        self._before_ns = before_ns
        self._after_ns = after_ns
        self._least: dict[int, Point] = {}
        self._touching_ns: float = after_ns
        self.rate = 0.0
        """Seconds that the host's clock gains on the module's per second."""

    @property
    def spread_ns(self) -> int:
        """How far apart the earliest and the latest possible begin of the stream are."""
        return max(0, round(self._latest_ns() - self._before_ns))

    def heard(self, device_ns: int, host_ns: int) -> None:
        """Note that what happened at ``device_ns`` was known here at ``host_ns``."""
        ahead_ns = host_ns - device_ns
        which = device_ns // BIN_NS
        known = self._least.get(which)
        if known is not None and known[1] <= ahead_ns:
            return
        self._least[which] = (device_ns, ahead_ns)
        self._fit()

    def host_ns(self, device_ns: int) -> int:
        """Return the host's time of a moment on the module's clock."""
        begin_ns = (min(self._before_ns, self._latest_ns()) + self._latest_ns()) / 2
        return round(begin_ns + device_ns * (1 + self.rate))

    def _latest_ns(self) -> float:
        return min(float(self._after_ns), self._touching_ns)

    def _fit(self) -> None:
        points = sorted(self._least.values())
        span_ns = points[-1][0] - points[0][0]
        if span_ns >= RATE_AFTER_NS:
            middle_ns = sum(device_ns for device_ns, _ in points) / len(points)
            rate = _rate_below(points, middle_ns)
            self.rate = max(-RATE_MAX, min(RATE_MAX, rate))
        self._touching_ns = min(ahead_ns - self.rate * device_ns for device_ns, ahead_ns in points)


def _rate_below(points: list[Point], middle_ns: float) -> float:
    """Return the slope of the lower convex hull's edge over ``middle_ns``."""
    hull: list[Point] = []
    for point in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return next(_slope(a, b) for a, b in pairwise(hull) if a[0] <= middle_ns <= b[0])


def _slope(first: Point, second: Point) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])
