"""Nothing but the life of a run: it measures the harness, not a drive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattload.core.accelerator import Accelerator
from wattload.core.record.check import Check
from wattload.core.workload import DataFacts, Outcome, RunContext, WorkloadPlan


@dataclass(slots=True, kw_only=True)
class Config:
    """There is nothing to set."""

    _target_: str = "wattload.workloads.null.Null"


class Null:
    """Moves no byte; every step of a run's life still happens."""

    name: ClassVar[str] = "null"

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        self.config = config

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return a plan of nothing."""
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=0,
            peak_bytes=0,
            memory_bytes_per_rank=0,
            needs_direct_io=False,
        )

    def prepare(self, context: RunContext) -> DataFacts | None:
        """Return ``None``: there is no data."""
        return None

    def run(self, context: RunContext) -> Outcome:
        """Open one phase that moves nothing."""
        with context.phase("nothing"):
            context.communicator.barrier()
        return Outcome(remarks=("The null workload moves no byte: it measures the harness.",))

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return no check: nothing was delivered."""
        return ()
