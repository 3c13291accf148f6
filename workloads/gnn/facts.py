"""What the steps of a run add up to: its facts, and its table of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import fsum
from typing import Any

import pyarrow as pa

from wattload.core.histogram import Histogram
from wattload.results.gnn.facts import PLACES, STEPS
from wattload.workloads.gnn.steps import Step

_STAGES: Mapping[str, Callable[[Step], float | None]] = {
    "sampling": lambda step: step.sampling_s,
    "aggregation": lambda step: step.aggregation_s,
    "transfer": lambda step: step.trained.transfer_s,
    "training": lambda step: step.trained.training_s,
    "verification": lambda step: step.verification_s,
}


def summed(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the facts that are sums over steps, by name; ``None`` for what was not counted."""
    stages = {name: [of(step) for step in steps] for name, of in _STAGES.items()}
    rows = sum(step.gathered.rows for step in steps)
    reads = _counted(steps, "operations")
    return {
        "steps": len(steps),
        "stages_s": {
            name: fsum(value for value in values if value is not None)
            for name, values in stages.items()
            if None not in values
        },
        "transfer_gpu_s": _sum_s([step.trained.transfer_gpu_s for step in steps]),
        "training_gpu_s": _sum_s([step.trained.training_gpu_s for step in steps]),
        "eviction_s": fsum(step.eviction_s for step in steps),
        "rows": rows,
        **{name: _counted(steps, name) for name in PLACES},
        "storage_bytes": sum(step.gathered.storage_bytes for step in steps),
        "operations": rows if reads is None else reads,
        "read_bytes": read_bytes(steps),
        "major_faults": _counted(steps, "major_faults"),
        "cpu_s": fsum(step.gathered.cpu_s for step in steps),
        "losses": [step.trained.loss for step in steps if step.trained.loss is not None],
        "compared_rows": sum(step.compared_rows for step in steps),
    }


def read_bytes(steps: Sequence[Step]) -> int | None:
    """Return the bytes of each read that the loader made, ``None`` through the page cache."""
    found = {step.gathered.operation_bytes for step in steps} - {None}
    return found.pop() if len(found) == 1 else None


def latency(steps: Sequence[Step]) -> Histogram | None:
    """Return the latencies of all reads, ``None`` if they were not taken."""
    taken = [step.gathered.latency for step in steps if step.gathered.latency is not None]
    return reduce(Histogram.merged, taken) if taken else None


def table(steps: Sequence[Step]) -> pa.Table:
    """Return a row per step, for the run's folder."""
    first = steps[0].number
    return STEPS.table(
        {
            "step": [step.number - first for step in steps],
            "start_ns": [step.start_ns for step in steps],
            "end_ns": [step.end_ns for step in steps],
            **{f"{name}_s": [of(step) for step in steps] for name, of in _STAGES.items()},
            "transfer_gpu_s": [step.trained.transfer_gpu_s for step in steps],
            "training_gpu_s": [step.trained.training_gpu_s for step in steps],
            "rows": [step.gathered.rows for step in steps],
            **{name: [getattr(step.gathered, name) for step in steps] for name in PLACES},
            "storage_bytes": [step.gathered.storage_bytes for step in steps],
            "loss": [step.trained.loss for step in steps],
        }
    )


def _counted(steps: Sequence[Step], name: str) -> int | None:
    values = [getattr(step.gathered, name) for step in steps]
    return None if None in values else sum(values)


def _sum_s(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) if len(known) == len(values) else None
