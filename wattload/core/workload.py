"""The interface of workloads: the run they see, their plan and outcome, and the accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from wattload.core.base_models import Frozen
from wattload.core.errors import MissingExtraError
from wattload.core.host.counters import BlockStat
from wattload.core.installation import install_command
from wattload.core.io import DataPath, TracedOperations
from wattload.core.record.results import Check, Latency
from wattload.core.record.run import DataRecord
from wattload.core.settings import setting
from wattload.core.storage.targets import Target

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

PurgeMethod = Literal["discard", "format"]

OverHosts = Literal["divide", "replicate", "one"]
"""What a workload does if its ranks are on several hosts.

``divide``: all ranks do one job together. ``replicate``: each host does the whole job on its own
drives, at the same time. ``one``: it runs on one host only.
"""

MAX_ACCELERATORS = 1024


class Device(Enum):
    """Whether batches are copied to a real device."""

    auto = "auto"
    """Copy to a CUDA device if PyTorch sees one, else nowhere."""
    cuda = "cuda"
    """Copy to a CUDA device; without one the run is refused."""
    none = "none"
    """Do not copy: batches stay in host memory, as in MLPerf Storage."""


@dataclass(slots=True, kw_only=True)
class Accelerator:
    """An accelerator emulated by sleeping; a real GPU gets the batches but computes nothing.

    ``step_s`` maps a workload's name to the published computation time of one step in seconds
    (MLPerf Storage ``computation_time``); 0 everywhere means unpaced. Each rank drives ``count /
    world_size`` accelerators.
    """

    name: str = setting("h100", "Selected by accelerator=NAME.")
    count: int = setting(
        1,
        "Emulated accelerators over all ranks; 1: one per rank, as in MLPerf Storage.",
        least=1,
        most=MAX_ACCELERATORS,
    )
    step_s: dict[str, float] = setting(
        dict, "Computation time of one step by workload; 0 does not pace it."
    )
    device: Device = setting(
        Device.auto,
        "Where batches are copied: to a CUDA device (auto: if PyTorch sees one), or nowhere.",
    )


class Communicator(Protocol):
    """The collective calls that a workload needs; a single process has a trivial form."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """The number of processes."""
        ...

    @property
    def members(self) -> Sequence[int]:
        """The numbers of these processes among all of the run, in order."""
        ...

    def barrier(self) -> None:
        """Wait for every rank."""
        ...

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, by rank, on rank 0; an empty list on every other rank."""
        ...

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's value, by rank, on every rank; for small values only.

        It is for decisions that all ranks take alike. What only rank 0 needs goes by ``gather``.
        """
        ...

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every rank."""
        ...


class Progress(Protocol):
    """Progress of long work, shown with rates and the time left."""

    def begin(
        self, task: str, *, read_bytes: int | None = None, written_bytes: int | None = None
    ) -> None:
        """Start a task with its name and the bytes that this rank will move in it, if known."""
        ...

    def advance(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        """Add bytes moved outside of phases, which add theirs; may be called from any thread."""
        ...

    def end(self) -> None:
        """End the current task."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment of an open phase: this rank's counts until then, and those of the block devices.

    ``time_ns`` is CLOCK_MONOTONIC, ``cpu_s`` the CPU time of the rank's processes, ``stopped_s``
    the time for which the rank did not run and ``throttled_s`` that of a CPU quota, each ``None``
    if it is not counted, and ``devices`` are the kernel's counters by device.
    """

    time_ns: int
    read_bytes: int = 0
    written_bytes: int = 0
    operations: int = 0
    cpu_s: float = 0.0
    stopped_s: float | None = None
    throttled_s: float | None = None
    devices: Mapping[str, BlockStat] = field(default_factory=dict)


class Phase(Protocol):
    """A named interval of a run; every byte of the run is counted in one."""

    @property
    def read_bytes(self) -> int:
        """The bytes read in it so far on this rank."""
        ...

    @property
    def written_bytes(self) -> int:
        """The bytes written in it so far on this rank."""
        ...

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0, operations: int = 1) -> None:
        """Count bytes where and when they have moved, also as progress; from any thread."""
        ...

    def count_read(self, moved_bytes: int) -> None:
        """Count one operation's bytes; passed to an engine."""
        ...

    def count_written(self, moved_bytes: int) -> None:
        """Count one operation's bytes; passed to an engine."""
        ...

    def mark(self) -> Mark:
        """Return the counts at this moment."""
        ...

    def set_edges(self, start_ns: int, end_ns: int) -> None:
        """Take the edges of the phase from another process, which moves the bytes.

        Times are CLOCK_MONOTONIC, within the time that the phase is open: who opens and closes it
        hears of the edges late.
        """
        ...

    def add_part(self, name: str, start: Mark, end: Mark) -> None:
        """Add a timed phase that ran inside this one, from one mark to another.

        For parts that are known afterwards only, such as a steady state.
        """
        ...


class RawDrive(Protocol):
    """A whole drive that the guard has released to this run, and its history on this host.

    What is noted about a drive is kept under its serial in the state folder, durably.
    """

    @property
    def nonce(self) -> int:
        """The nonce of every stamp that this run writes; later runs know the blocks by it."""
        ...

    def host_written_bytes(self) -> tuple[int, int] | None:
        """Return the drive's own count of bytes written to it, and its rounding, in bytes.

        For a drive that reports none it is the kernel's, from when the disk appeared; ``None`` if
        there is neither.
        """
        ...

    def conditioning(self) -> Conditioning | None:
        """Return what was last noted, ``None`` if nothing was."""
        ...

    def note_conditioning(self, conditioning: Conditioning) -> None:
        """Replace what was noted."""
        ...

    def purge(self, method: PurgeMethod) -> Mapping[str, Any]:
        """Discard all blocks, or format the namespace; returns what was sent and what reads now.

        Raises:
            TargetError: another namespace would lose its data too, or that can't be ruled out, or
                the drive refuses.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditioning:
    """How far a drive was prepared: sequential bytes of ``range_bytes``, then random ones.

    ``random_bytes`` by ``draw`` follow the sequential ones without a rest of over 60 s.
    ``host_written_bytes`` is the drive's own count afterwards. ``ended_s`` is Unix time. A
    conditioning under way has ``complete`` false, and continues after ``sequential_bytes``.
    """

    block_bytes: int
    range_bytes: int
    sequential_bytes: int
    random_bytes: int = 0
    random_block_bytes: int | None = None
    draw: str | None = None
    host_written_bytes: int | None = None
    ended_s: float
    complete: bool
    nonce: int


class RunContext(Protocol):
    """What a workload may know about the run: no MPI, no power, no report."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """Where to read and write, at least one."""
        ...

    @property
    def communicator(self) -> Communicator:
        """All ranks of the run."""
        ...

    @property
    def local(self) -> Communicator:
        """The ranks on this host."""
        ...

    @property
    def sharers(self) -> Communicator:
        """The ranks that see the same targets as this one: all, or those on this host.

        They generate, claim, seal and remove data together, each with ``sharers.rank`` as its part.
        """
        ...

    @property
    def progress(self) -> Progress:
        """The progress display."""
        ...

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        ...

    @property
    def scale(self) -> str:
        """``demo``, ``quick`` or ``full``."""
        ...

    @property
    def hosts_memory_bytes(self) -> int:
        """The memory of all hosts of the run."""
        ...

    def phase(self, name: str, *, timed: bool = True) -> AbstractContextManager[Phase]:
        """Open a phase; phases nest and overlap. Only timed ones enter metrics, energy and checks.

        Times are CLOCK_MONOTONIC; the phase's window over ranks is first start to last end.
        """
        ...

    def end_job(self) -> None:
        """Say that the job has ended: all of its timed phases are over on this rank.

        Every rank calls it, before ceilings and whatever else a job does not have; for a workload
        that does not, the run calls it behind ``run()``. It may take a while, in which the drives
        rest. Further calls do nothing.
        """
        ...

    def end_pause(self, phase: str) -> None:
        """Say that no rank has used the drives since this rank's last timed phase.

        Called at the end of a pause that the job has anyway, such as emulated computation in the
        untimed phase ``phase``.
        """
        ...

    def raw_drive(self, target: Target) -> RawDrive | None:
        """Return the drive of a block target that this process may overwrite, else ``None``.

        It is ``None`` for a directory. While a run is only previewed, its history can be read, and
        whatever would change it is refused.
        """
        ...

    def output_folder(self, name: str) -> Path:
        """Return the folder for an outside program's raw output; it is not created yet.

        Only for ``run()``: without a run there is no record.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """What a run will do to its target; the preflight judges it before the run starts.

    Sizes are totals over the targets of this host, and over the ranks that share them
    (``RunContext.sharers``): all ranks of a run on one host. ``data_bytes`` is the size of the
    data after ``prepare`` (including reused data), ``prepare_bytes`` what ``prepare`` still has to
    write, ``run_bytes`` the maximum that the timed phases write, ``peak_bytes`` the maximum space
    of data and run together, of which ``present_bytes`` are taken already: by output of an earlier
    run that this one keeps or removes first. ``read_bytes`` is what the timed phases read, and
    ``computing_s`` the emulated computation in them, in seconds, which may overlap with I/O.
    ``memory_bytes_per_rank`` bounds the buffers of one rank. ``covered_bytes`` is how much from the
    start of each raw drive a completed run has written throughout. ``reading_s`` is how long the
    timed phases read where a clock ends them, however much that is. ``lines`` are further lines of
    a preview: a word and a text. ``refusal`` is why this host can't make the run, empty if it can:
    what the run would take is known all the same. ``minimum_ranks`` and ``maximum_ranks`` are
    those of one job; if each host does the whole job, of each host. ``prepare_files`` is how many
    files ``prepare`` creates.
    """

    data_bytes: int
    prepare_bytes: int
    run_bytes: int
    peak_bytes: int
    memory_bytes_per_rank: int
    needs_direct_io: bool
    prepare_files: int = 0
    present_bytes: int = 0
    read_bytes: int = 0
    computing_s: float = 0.0
    covered_bytes: int = 0
    reading_s: float = 0.0
    lines: tuple[tuple[str, str], ...] = ()
    prepares_again: bool = False
    minimum_ranks: int = 1
    maximum_ranks: int | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What arithmetic says of a run, without a target: lines of a preview, and their figures.

    A line is a word and a text, as in ``WorkloadPlan``.
    """

    lines: tuple[tuple[str, str], ...]
    figures: Mapping[str, float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a workload's run. Rank 0's are kept, except latencies and traced operations.

    ``facts`` are those that ``wattload.results`` declares for the workload; its metrics, and the
    checks that follow from them, are computed from these.
    ``remarks`` are sentences that the page must print (a smaller record, a wrong published label).
    ``latencies`` (from ``latencies_of``) and the traced ``operations`` are this rank's own.
    ``tables`` are kept as Parquet files in the run's folder, by name (lower-case letters, digits,
    underscores; none of ``TRACE_NAMES``).
    ``queue_depth`` are the operations of ``block_bytes`` that the workload keeps in flight over all
    ranks, where its settings alone do not say so; 0 where it keeps no number of them.
    """

    facts: Frozen | None = None
    paths: Sequence[DataPath] = ()
    checks: Sequence[Check] = ()
    remarks: Sequence[str] = ()
    latencies: Sequence[Latency] = ()
    operations: Sequence[TracedOperations] = ()
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    queue_depth: int | None = None
    block_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A Python module that a loader needs and a plain installation of wattload lacks.

    ``module`` is its import name, ``software`` the name its users know. ``extra`` is the extra of
    wattload that lists it. ``package`` is what pip has to install in addition, without its own
    dependencies, because pip can't resolve them.
    """

    module: str
    software: str
    extra: str
    package: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether the module can be found; it is not imported."""
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:  # a package above it is missing
            return False


PYTORCH = Requirement(
    module="torch",
    software="PyTorch",
    extra="torch",
)
"""Several loaders need it, and so does ``accelerator.device=cuda``."""


def require_installed(
    requirements: Sequence[Requirement], *, user: str, alternative: str = "loader=direct"
) -> None:
    """Return if all requirements are installed; imports none of them.

    ``user`` is the setting or feature that needs them, ``alternative`` the setting that works
    without them.

    Raises:
        MissingExtraError: some are not installed; the message has the commands that install them.
    """
    missing = [requirement for requirement in requirements if not requirement.is_installed]
    if missing:
        raise missing_error(missing, user=user, alternative=alternative)


def command_for(missing: Sequence[Requirement]) -> str:
    return install_command(
        [requirement.extra for requirement in missing],
        without_dependencies=[each.package for each in missing if each.package],
    )


def missing_error(
    missing: Sequence[Requirement], *, user: str, alternative: str = "loader=direct"
) -> MissingExtraError:
    """Return the error for one or more requirements that are not installed."""
    names = [requirement.software for requirement in missing]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
    return MissingExtraError(
        f"{user} needs {listed}, which {'are' if names[1:] else 'is'} not installed; install "
        f"{'them' if names[1:] else 'it'} with: {command_for(missing)}"
        f", or use {alternative}"
    )


@runtime_checkable
class LoaderConfig(Protocol):
    """The settings of any loader. ``check`` raises ``ConfigError`` if one is out of range.

    ``requires`` is what it imports beyond wattload's own dependencies. A loader's capabilities are
    the protocols it implements: ``CheckpointLoader`` in ``loaders.checkpoint_store``,
    ``SampleLoaderConfig`` and ``SampleHarnessConfig`` in ``loaders.samples``.
    """

    name: ClassVar[str]
    requires: ClassVar[tuple[Requirement, ...]]

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        ...


class Workload(Protocol):
    """An I/O pattern. Every implementation passes ``tests/contracts``.

    It is created from its own typed configuration and the loader's. It knows nothing about power or
    reports. All four methods are called on every rank, in this order.

    ``needs`` are runtime-checkable protocols; the loader's configuration has to implement one of
    them. A workload without any runs with every loader.

    ``over_hosts`` is what it does over several hosts; each workload says what that means for it.

    A workload that also runs on other targets than directories has them in an attribute
    ``target_kinds``. One whose ``prepare`` must be followed by ``run`` without a rest has a true
    ``prepares_last``: idle power is then measured before it. One that can be planned without a
    target has static methods that return an ``Outline``: ``outline(config, seed=)`` of what a run
    takes, and ``at_rate(config, rate_bytes_per_s=, power_w=)`` of what a rate and a power mean.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[type, ...]]
    over_hosts: ClassVar[OverHosts]

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the target; raises ``ConfigError`` if it is impossible.

        It may not wait for other ranks: one whose host can't make the run does not plan it.
        """
        ...

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Generate or reuse the data, keyed by its parameters and resumable; leave caches cold."""
        ...

    def run(self, context: RunContext) -> Outcome:
        """Run the timed phases, say that the job has ended, then measure ceilings."""
        ...

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Check what the run delivered or wrote, and remove its temporary files."""
        ...
