"""The truth: power as a step function of time, and so energy as an exact broken line."""

from __future__ import annotations

from array import array
from bisect import bisect_left

NS_PER_S = 1_000_000_000


class EnergyCurve:
    """Joules since the start, known up to ``end_ns``; times are CLOCK_MONOTONIC."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self._times_ns = array("q", [start_ns])
        self._energies_j = array("d", [0.0])
        self._last_w: float | None = None

    @property
    def end_ns(self) -> int:
        return self._times_ns[-1]

    @property
    def total_j(self) -> float:
        return self._energies_j[-1]

    @property
    def corner_count(self) -> int:
        return len(self._times_ns)

    def add(self, end_ns: int, watts: float) -> None:
        """Continue the curve at a constant power up to ``end_ns``."""
        if end_ns < self.end_ns:
            raise ValueError(f"energy is known up to {self.end_ns} ns, got {end_ns} ns")
        energy_j = self.total_j + watts * (end_ns - self.end_ns) / NS_PER_S
        if watts == self._last_w:
            self._times_ns[-1], self._energies_j[-1] = end_ns, energy_j
        else:
            self._times_ns.append(end_ns)
            self._energies_j.append(energy_j)
            self._last_w = watts

    def energy_j(self, time_ns: int) -> float:
        """Return the joules used from the start up to a time."""
        if not self.start_ns <= time_ns <= self.end_ns:
            raise ValueError(
                f"energy is known from {self.start_ns} to {self.end_ns} ns, asked for {time_ns}"
            )
        right = bisect_left(self._times_ns, time_ns)
        if self._times_ns[right] == time_ns:
            return self._energies_j[right]
        before_ns, after_ns = self._times_ns[right - 1], self._times_ns[right]
        before_j, after_j = self._energies_j[right - 1], self._energies_j[right]
        return before_j + (after_j - before_j) * (time_ns - before_ns) / (after_ns - before_ns)

    def between_j(self, start_ns: int, end_ns: int) -> float:
        """Return the joules used in a window."""
        return self.energy_j(end_ns) - self.energy_j(start_ns)
