"""What gdsio prints: one line per job, in KiB, GiB/s and microseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from wattload.core.units import GIB, KIB

_LINE = re.compile(
    r"^(?:IoType: )?(?P<io>\S+) XferType: (?P<transfer>\S+) Threads: (?P<threads>\d+)"
    r"(?: IoDepth: \d+)?\s+DataSetSize: (?P<done>\d+)/(?P<planned>\d+)\(KiB\) "
    r"IOSize: [\d:]+\(KiB\) Throughput: (?P<rate>[\d.]+) GiB/sec, "
    r"Avg_Latency: (?P<latency>[\d.]+) usecs ops: (?P<operations>\d+) "
    r"total_time (?P<seconds>[\d.]+) secs",
    re.MULTILINE,
)
"""Of the GDS configuration guide's examples, and of public logs of several versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job's figures: what it moved, its mean latency, and the seconds that it took.

    ``planned_bytes`` is the size of the data set; a job limited by time moves more or less than
    that. ``transfer`` is the name of the transfer type, which does not prove the path.
    """

    kind: str
    transfer: str
    threads: int
    moved_bytes: int
    planned_bytes: int
    rate_bytes_per_s: float
    mean_latency_s: float
    operations: int
    seconds: float


def read_lines(text: str) -> tuple[JobLine, ...]:
    """Return the result lines of jobs that read, in their order; other lines are skipped."""
    lines = (_job(found) for found in _LINE.finditer(text))
    return tuple(line for line in lines if "READ" in line.kind)


def _job(found: re.Match[str]) -> JobLine:
    return JobLine(
        kind=found["io"],
        transfer=found["transfer"],
        threads=int(found["threads"]),
        moved_bytes=int(found["done"]) * KIB,
        planned_bytes=int(found["planned"]) * KIB,
        rate_bytes_per_s=float(found["rate"]) * GIB,
        mean_latency_s=float(found["latency"]) / 1e6,
        operations=int(found["operations"]),
        seconds=float(found["seconds"]),
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """The jobs of one command together; gdsio prints no percentile."""

    jobs: Sequence[JobLine]

    @property
    def operations(self) -> int:
        return sum(job.operations for job in self.jobs)

    @property
    def moved_bytes(self) -> int:
        """The bytes of all jobs."""
        return sum(job.moved_bytes for job in self.jobs)

    @property
    def planned_bytes(self) -> int:
        return sum(job.planned_bytes for job in self.jobs)

    @property
    def seconds(self) -> float:
        """The time of the longest job: they run at the same time."""
        return max(job.seconds for job in self.jobs)

    @property
    def mean_latency_s(self) -> float:
        summed = sum(job.mean_latency_s * job.operations for job in self.jobs)
        return summed / self.operations

    def as_reported(self) -> Mapping[str, object]:
        return {"jobs": [asdict(job) for job in self.jobs]}
