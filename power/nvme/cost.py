"""What admin commands cost: each one is work for the drive that is being measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CommandCost:
    """How many commands were sent, and the nanoseconds from sending to answer: sum and longest."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0

    def add(self, spent_ns: int) -> None:
        """Count one command."""
        self.count += 1
        self.total_ns += spent_ns
        self.max_ns = max(self.max_ns, spent_ns)

    def reset(self) -> None:
        """Begin anew."""
        self.count = self.total_ns = self.max_ns = 0


ADMIN_COST = CommandCost()
"""All that this process has sent: a sampler serves one run at a time, and counts from its start."""
