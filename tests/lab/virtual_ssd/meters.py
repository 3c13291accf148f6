"""What the drive measures of itself: the interval power of SMART, and the log 25h."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.lab.virtual_ssd.curve import NS_PER_S, EnergyCurve

Updates = Literal["sliding", "tumbling"]

BIN_W = 0.25


def power_field(watts: float) -> int:
    """Return a power as the specification codes it: value 15:0, scale 17:16, the finest that fits.

    Scale 1 counts 0.0001 W, scale 2 counts 0.01 W.
    """
    fine = round(watts * 10_000)
    if fine <= 0xFFFF:
        return fine | 1 << 16
    return min(round(watts * 100), 0xFFFF) | 2 << 16


def interval_power_w(curve: EnergyCurve, updates: Updates, window_s: float = 1.0) -> float:
    """Return the mean of the last window, or of the last whole one since the start."""
    end_ns, window_ns = curve.end_ns, round(window_s * NS_PER_S)
    if updates == "tumbling":
        end_ns -= (end_ns - curve.start_ns) % window_ns
    start_ns = max(curve.start_ns, end_ns - window_ns)
    if end_ns == start_ns:
        return 0.0
    return curve.between_j(start_ns, end_ns) / ((end_ns - start_ns) / NS_PER_S)


@dataclass
class PowerMeasurement:
    """Feature 25h and its log: intervals of one second from start to stop.

    ``jumped_s`` is by how much the drive's clock was off: it counts intervals that never were.
    """

    curve: EnergyCurve
    generation: int = 0
    enabled: bool = False
    stop_minutes: int = 0
    type: int = 0
    jumped_s: int = 0
    _start_ns: int = 0
    _intervals_w: list[float] = field(default_factory=list)

    def start(self, stop_minutes: int, type_: int) -> None:
        """Begin anew at the curve's end."""
        self.generation = (self.generation + 1) % 256
        self.enabled = True
        self.stop_minutes, self.type = stop_minutes, type_
        self.jumped_s = 0
        self._start_ns = self.curve.end_ns
        self._intervals_w = []

    def stop(self) -> None:
        """End at the curve's end; what was measured stays readable."""
        self.update()
        self.enabled = False

    def update(self) -> None:
        """Take in the intervals that have ended."""
        while self.enabled:
            count = len(self._intervals_w)
            if self.stop_minutes and count >= self.stop_minutes * 60:
                self.enabled = False
                return
            begin_ns = self._start_ns + count * NS_PER_S
            if begin_ns + NS_PER_S > self.curve.end_ns:
                return
            self._intervals_w.append(self.curve.between_j(begin_ns, begin_ns + NS_PER_S))

    @property
    def count(self) -> int:
        """PMC: intervals since the start."""
        return max(0, len(self._intervals_w) + self.jumped_s)

    @property
    def mean_w(self) -> float:
        return sum(self._intervals_w) / len(self._intervals_w) if self._intervals_w else 0.0

    @property
    def highest_w(self) -> float:
        return max(self._intervals_w, default=0.0)

    @property
    def highest_ns(self) -> int:
        """When the interval of the highest power ended, on the curve's clock."""
        if not self._intervals_w:
            return 0
        index = self._intervals_w.index(self.highest_w)
        return self._start_ns + (index + 1) * NS_PER_S

    @property
    def remaining_minutes(self) -> int:
        """SMTR: minutes until it stops by itself, rounded up; 0 where nothing was said."""
        if not self.enabled or not self.stop_minutes:
            return 0
        return -(-(self.stop_minutes * 60 - len(self._intervals_w)) // 60)

    def histogram(self) -> list[int]:
        """Return how many intervals lie in each bin of 250 mW, from 0 W to the highest."""
        bins = Counter(int(watts / BIN_W) for watts in self._intervals_w)
        return [bins[index] for index in range(max(bins, default=-1) + 1)]
