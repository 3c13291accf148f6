"""What the timed steps of a run add up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import fsum

import pyarrow as pa

from wattload.core.histogram import Histogram
from wattload.core.units import NS_PER_S
from wattload.workloads.gnn.steps import Step

COUNTS = ("storage_rows", "host_rows", "cache_rows", "joined_rows")
"""The places that rows come from; each row from one."""
STAGES = ("sampling_s", "aggregation_s", "transfer_s", "training_s", "verification_s")


@dataclass(frozen=True)
class Results:
    """The timed steps in their order, at least one."""

    steps: Sequence[Step]
    row_bytes: int
    overlaps: bool

    @property
    def count(self) -> int:
        return len(self.steps)

    @cached_property
    def wall_s(self) -> float:
        """From the start of the first step to the end of the last, without dropping caches.

        With overlap caches are dropped beside other stages, so that nothing is taken off.
        """
        return self.span_s if self.overlaps else self.span_s - self.eviction_s

    @cached_property
    def span_s(self) -> float:
        """From the start of the first step to the end of the last: the phase."""
        return (self.steps[-1].end_ns - self.steps[0].start_ns) / NS_PER_S

    @cached_property
    def eviction_s(self) -> float:
        return fsum(step.eviction_s for step in self.steps)

    @cached_property
    def rows(self) -> int:
        return sum(step.gathered.rows for step in self.steps)

    @cached_property
    def storage_bytes(self) -> int:
        return sum(step.gathered.storage_bytes for step in self.steps)

    @cached_property
    def compared_rows(self) -> int:
        """The rows that were compared where the model takes them."""
        return sum(step.compared_rows for step in self.steps)

    @cached_property
    def cpu_s(self) -> float:
        return fsum(step.gathered.cpu_s for step in self.steps)

    @cached_property
    def latency(self) -> Histogram | None:
        """The latencies of all reads, ``None`` if they were not taken."""
        taken = [step.gathered.latency for step in self.steps if step.gathered.latency is not None]
        return reduce(Histogram.merged, taken) if taken else None

    @property
    def losses(self) -> list[float]:
        """The loss of each step; empty if nothing was trained."""
        return [step.trained.loss for step in self.steps if step.trained.loss is not None]

    @property
    def reads(self) -> int:
        """The reads that the loader made, or through the page cache the rows."""
        found = self.counted("operations")
        return self.rows if found is None else found

    @property
    def operation_bytes(self) -> int | None:
        """The bytes of each read that the loader made, ``None`` through the page cache."""
        found = {step.gathered.operation_bytes for step in self.steps} - {None}
        return found.pop() if len(found) == 1 else None

    def counted(self, name: str) -> int | None:
        """Return the sum of one of ``COUNTS`` or of ``major_faults``, ``None`` if not counted."""
        values = [getattr(step.gathered, name) for step in self.steps]
        return None if None in values else sum(values)

    def stage_s(self, name: str) -> float | None:
        """Return the seconds of one of ``STAGES`` in all, ``None`` for one that is not there."""
        values = [_STAGES[name](step) for step in self.steps]
        return fsum(v for v in values if v is not None) if None not in values else None

    def gpu_s(self, name: str) -> float | None:
        """Return ``transfer_gpu_s`` or ``training_gpu_s`` in all, by CUDA events."""
        values = [getattr(step.trained, name) for step in self.steps]
        return None if None in values else fsum(values)

    def table(self) -> pa.Table:
        """Return a row per step, for the run's folder."""
        first = self.steps[0].number
        columns: dict[str, list[float | int | None]] = {
            "step": [step.number - first for step in self.steps],
            "start_ns": [step.start_ns for step in self.steps],
            "end_ns": [step.end_ns for step in self.steps],
            **{name: [_STAGES[name](step) for step in self.steps] for name in STAGES},
            "transfer_gpu_s": [step.trained.transfer_gpu_s for step in self.steps],
            "training_gpu_s": [step.trained.training_gpu_s for step in self.steps],
            "rows": [step.gathered.rows for step in self.steps],
            **{name: [getattr(step.gathered, name) for step in self.steps] for name in COUNTS},
            "storage_bytes": [step.gathered.storage_bytes for step in self.steps],
            "loss": [step.trained.loss for step in self.steps],
        }
        integers = {"step", "start_ns", "end_ns", "rows", "storage_bytes", *COUNTS}
        schema = pa.schema(
            [(name, pa.int64() if name in integers else pa.float64()) for name in columns]
        )
        return pa.table(columns, schema=schema)


_STAGES: dict[str, Callable[[Step], float | None]] = {
    "sampling_s": lambda step: step.sampling_s,
    "aggregation_s": lambda step: step.aggregation_s,
    "transfer_s": lambda step: step.trained.transfer_s,
    "training_s": lambda step: step.trained.training_s,
    "verification_s": lambda step: step.verification_s,
}
