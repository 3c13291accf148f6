"""What a workload is, and all that it may know of the run it is part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wattload.core.io import DataPath, TracedOperations
from wattload.core.record.check import Check
from wattload.core.record.latency import Latency
from wattload.core.record.metric import Metric
from wattload.core.target import Target


class Communicator(Protocol):
    """The few collective calls that a workload needs; one process answers for itself."""

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """How many processes take part."""
        ...

    def barrier(self) -> None:
        """Wait until every rank is here."""
        ...

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - any picklable value of ours
        """Return every rank's value, by rank, on every rank."""
        ...

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401 - any picklable value of ours
        """Return rank 0's value on every rank."""
        ...


class Progress(Protocol):
    """Where long work says how far it is; shown with a rate and a time left."""

    def begin(self, task: str, total_bytes: int | None) -> None:
        """Name the task at hand and its size in bytes, if known."""
        ...

    def advance(self, moved_bytes: int) -> None:
        """Add bytes that have moved; may be called from any thread."""
        ...

    def end(self) -> None:
        """End the task at hand."""
        ...


class Phase(Protocol):
    """A named stretch of a run; every byte of the run is counted in one."""

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1) -> None:
        """Count bytes where they move, when they have moved; may be called from any thread."""
        ...


class RunContext(Protocol):
    """All that a workload may know of the run: no MPI, no power, no report."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """Where to read and write, at least one."""
        ...

    @property
    def communicator(self) -> Communicator:
        """Rank, world size and the collective calls."""
        ...

    @property
    def progress(self) -> Progress:
        """Where to say how far long work is."""
        ...

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        ...

    @property
    def scale(self) -> str:
        """``demo``, ``quick`` or ``full``."""
        ...

    def phase(self, name: str, *, timed: bool = True) -> AbstractContextManager[Phase]:
        """Open a phase; phases nest and overlap. Only timed ones enter metrics, energy and checks.

        Times are CLOCK_MONOTONIC; the phase's window over ranks is first start to last end.
        """
        ...

    def output_folder(self, name: str) -> Path:
        """Return where the raw output of an outside program goes, beside the record; not made yet.

        For ``run()`` alone: there is no record when data is only generated.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """What a run will do to its target, known before it starts; the preflight judges it.

    Sizes are totals over all ranks and targets. ``data_bytes`` is what stays on the target after
    ``prepare`` (reused data included), ``prepare_bytes`` what ``prepare`` still has to write,
    ``run_bytes`` what the timed phases write at most, ``peak_bytes`` the most that data and run
    together occupy. ``memory_bytes_per_rank`` bounds the buffers of one rank.
    """

    data_bytes: int
    prepare_bytes: int
    run_bytes: int
    peak_bytes: int
    memory_bytes_per_rank: int
    needs_direct_io: bool
    minimum_ranks: int = 1
    maximum_ranks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The data a run works on: its key, size, whether it was reused, and how it was made."""

    key: str
    folder: Path
    file_count: int
    data_bytes: int
    reused: bool
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a workload says of its run; rank 0's is kept, but for latencies and traced operations.

    ``details`` is JSON: whatever a reader needs to judge the metrics (sizes drawn, tensor counts).
    ``remarks`` are sentences that the page must print (a shrunken record, a wrong published label).
    ``latencies`` are this rank's own, from ``latencies_of``, and so are the traced ``operations``.
    """

    metrics: Sequence[Metric] = ()
    paths: Sequence[DataPath] = ()
    checks: Sequence[Check] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    latencies: Sequence[Latency] = ()
    operations: Sequence[TracedOperations] = ()


class Workload(Protocol):
    """An I/O pattern. Every implementation passes ``tests/contracts``.

    It is built from its own typed configuration and the loader's; it knows nothing of power or of
    reports. All four methods are called on every rank, in this order.
    """

    name: str

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the target; raises ``ConfigError`` if it can't be done."""
        ...

    def prepare(self, context: RunContext) -> DataFacts | None:
        """Generate or reuse the data, resumable, keyed by its parameters; cold caches after."""
        ...

    def run(self, context: RunContext) -> Outcome:
        """Run the timed phases."""
        ...

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Check what the run delivered or left, and remove what only the run needed."""
        ...
