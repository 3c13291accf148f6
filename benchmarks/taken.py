"""One run of one way: bytes, operations, wall and CPU seconds, and the quotients of them."""

from __future__ import annotations

import resource
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one run moved, and what it took.

    ``cpu_s`` are the CPU seconds, user and system, while bytes moved; ``process_cpu_s`` those of
    the whole process with its start-up, for the reader who doubts the former.
    """

    moved_bytes: int
    operation_count: int
    seconds: float
    cpu_s: float
    process_cpu_s: float

    def bytes_per_s(self) -> float:
        return self.moved_bytes / self.seconds

    def gb_per_s(self) -> float:
        """GB (10^9 bytes) moved per second."""
        return self.bytes_per_s() / 1e9

    def million_per_s(self) -> float:
        return self.operation_count / self.seconds / 1e6

    def million_per_cpu_s(self) -> float:
        """Million operations per CPU second: what one core does when it does nothing else."""
        return self.operation_count / self.cpu_s / 1e6

    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.moved_bytes * 1e9

    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.operation_count * 1e6

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def children_cpu_s() -> float:
    """Return user and system seconds of all children that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
