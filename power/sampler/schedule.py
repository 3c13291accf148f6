"""When to read next: deadlines counted from the start, so that lateness never adds up."""

from __future__ import annotations

from wattload.core.units import NS_PER_S


class Schedule:
    """Absolute deadlines, ``period_s`` apart from ``start_ns`` on; missed ones are skipped."""

    def __init__(self, period_s: float, start_ns: int) -> None:
        self._period_ns = round(period_s * NS_PER_S)
        self.due_ns = start_ns
        self.tick_count = 0
        self.missed_count = 0
        """Deadlines that passed while a read was still at work."""

    def advance(self, now_ns: int) -> None:
        """Set the next deadline after a read that ended at ``now_ns``."""
        self.tick_count += 1
        self.due_ns += self._period_ns
        if self.due_ns <= now_ns:
            missed = (now_ns - self.due_ns) // self._period_ns + 1
            self.missed_count += missed
            self.due_ns += missed * self._period_ns
