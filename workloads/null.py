"""A workload without I/O, which measures wattload itself and not a drive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.workload import (
    Accelerator,
    Outcome,
    OverHosts,
    RunContext,
    WorkloadPlan,
)


@dataclass(slots=True, kw_only=True)
class Config:
    """There are no settings."""

    _target_: str = "wattload.workloads.null.Null"

    def check(self, scale: str) -> None:
        """Accept every scale."""


class Null:
    """Moves no data, but goes through every step of a run."""

    name: ClassVar[str] = "null"
    needs: ClassVar[tuple[type, ...]] = ()
    over_hosts: ClassVar[OverHosts] = "replicate"
    """Each host goes through every step of a run."""

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        self.config = config

    def plan(self, context: RunContext) -> WorkloadPlan:
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=0,
            peak_bytes=0,
            memory_bytes_per_rank=0,
            needs_direct_io=False,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Return ``None``: there is no data."""
        return None

    def run(self, context: RunContext) -> Outcome:
        with context.phase("nothing"):
            context.communicator.barrier()
        return Outcome(
            remarks=("The null workload moves no data; it measures what wattload needs by itself.",)
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return no checks: nothing was delivered."""
        return ()
