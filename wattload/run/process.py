"""What lasts over the runs of one process: its MPI world, its host's sampler, the bytes written.

The sampler is exec'ed before MPI is imported, and both are started once: a session hands one
``ProcessContext`` to all of its runs.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from wattload.core import interrupts
from wattload.core.errors import ConfigError, RankLostError, WattloadError, host_fault
from wattload.core.sysfs import host_memory_bytes
from wattload.core.workload import Communicator
from wattload.power.sampler.aborted_record import finish_abandoned, recorded_texts
from wattload.run.config import RunConfig
from wattload.run.hosts import error_of_hosts
from wattload.run.launcher import is_first_on_host, local_rank_variables, rank_variables
from wattload.run.phases import RankJournal
from wattload.run.power_session import Sampling
from wattload.run.preflight import WriteLedger
from wattload.run.progress import Board, RankProgress, gather_board
from wattload.run.ranks import connect, end_other_ranks
from wattload.run.watch import Watch, end_ranks

T = TypeVar("T")


class Reporter(Protocol):
    """Where a run reports to while it is under way; called on rank 0 alone."""

    def note(self, text: str) -> None:
        """Show one or more lines on what happens."""
        ...

    def live(self, board: Board) -> AbstractContextManager[None]:
        """Show the progress on the board while the block runs."""
        ...


class Peers(Communicator, Protocol):
    """Ranks that also send to one another; a value is no larger than ``BLOCK_BYTES``."""

    def send(self, value: object, rank: int) -> None:
        """Send a value to one rank, which must ``receive`` it."""
        ...

    def wait(self, rank: int) -> None:
        """Wait asleep until a value from one rank is here."""
        ...

    def receive(self, rank: int) -> Any:  # noqa: ANN401 - what the other rank sends
        """Return the next value from one rank."""
        ...


@dataclass(slots=True, kw_only=True)
class ProcessContext:
    """One rank's process, over all runs of a command.

    ``local`` are the ranks of this host, whose first one is its leader; ``leaders`` are the leaders
    of all hosts, on a leader. ``hosts`` are the hosts' names, by their lowest ranks, and ``host``
    is the name of this one; they have ``hosts_memory_bytes`` together. ``sampling`` is this host's
    sampler on the host's leader, ``None`` elsewhere and where only data is generated. ``ledger``
    holds what the runs write to each drive. ``board`` is the progress of all ranks, on rank 0.
    """

    communicator: Communicator
    local: Peers
    leaders: Peers | None
    hosts: tuple[str, ...]
    hosts_memory_bytes: int
    sampling: Sampling | None
    host: str
    reporter: Reporter
    ledger: WriteLedger = field(default_factory=WriteLedger)
    progress: RankProgress = field(default_factory=RankProgress)
    board: Board | None = None
    journal: RankJournal | None = None
    """This rank's journal of the run under way."""
    has_failed_on_all_ranks: bool = False
    """Whether every rank knows about the failure, so that none needs to be aborted."""
    _noted: set[str] = field(default_factory=set)

    @property
    def is_root(self) -> bool:
        return self.communicator.rank == 0

    @property
    def record_host(self) -> str:
        """The host that has the records of runs over several hosts; empty for one host."""
        return self.hosts[0] if len(self.hosts) > 1 else ""

    @property
    def is_host_leader(self) -> bool:
        """Whether this is the host's first rank: the one that reads counters and power."""
        return self.leaders is not None

    def note(self, text: str) -> None:
        """Show one or more lines, once for all ranks."""
        if self.is_root:
            self.reporter.note(text)

    def note_once(self, lines: Sequence[str]) -> None:
        """Show the lines that no earlier run of this process has shown."""
        for line in lines:
            if line not in self._noted:
                self._noted.add(line)
                self.note(line)

    def live(self) -> AbstractContextManager[None]:
        """Show the progress of all ranks while the block runs, on rank 0."""
        return nullcontext() if self.board is None else self.reporter.live(self.board)

    def note_end(self, reason: str) -> None:
        """Write down why another host ends the run under way; may be called from any thread."""
        journal = self.journal  # the main thread may end the run meanwhile
        if journal is not None:
            journal.write("failed", {"status": "aborted", "reason": reason})

    def on_all_ranks(self, step: Callable[[], T]) -> T:
        """Do a step on every rank; if it fails on one, all ranks raise, rank 0 with the reasons.

        The reasons are those of all hosts.
        """
        failure: WattloadError | None = None
        value: T | None = None
        try:
            value = step()
        except WattloadError as error:
            failure = error
        except Exception as error:
            failure = host_fault(error)
            if failure is None:
                raise
        own = None if failure is None else (self.host, failure)
        failures = [found for found in self.communicator.all_gather(own) if found is not None]
        if not failures:
            return cast("T", value)  # no failure: step() has returned it
        self.has_failed_on_all_ranks = True
        if self.is_root:
            raise error_of_hosts(failures, self.hosts)
        raise RankLostError(failures[0][1].exit_code)


@contextmanager
def unsampled_process(
    config: RunConfig, reporter: Reporter, *, measures: bool = True
) -> Iterator[ProcessContext]:
    """Connect the ranks and yield the context of a process that measures no power.

    Whatever ends the block on one rank alone ends all of them. A signal that came before the ranks
    were connected is raised in the block.

    Raises:
        MissingExtraError: a launcher started several processes and mpi4py is not installed.
        ConfigError: MPI connects another number of processes, or splits them by host otherwise
            than the launcher, or two hosts have one name.
    """
    world = connect(config.ranks, measures=measures)
    local, leaders = world.split()
    name, progress = socket.gethostname(), RankProgress()
    host = local.broadcast(name)
    memory_bytes = host_memory_bytes() if leaders is not None else 0
    process = ProcessContext(
        communicator=world,
        local=local,
        leaders=leaders,
        hosts=local.broadcast(tuple(leaders.all_gather(name)) if leaders is not None else ()),
        hosts_memory_bytes=sum(world.all_gather(memory_bytes)),
        sampling=None,
        host=host,
        reporter=reporter,
        progress=progress,
        board=gather_board(progress, world, host),
    )
    try:
        interrupts.release()  # see ``wattload.__main__``
        claims = local.all_gather((name, _is_host_leader(config)))
        process.on_all_ranks(lambda: _require_split(process, claims))
        with _watched(process) if measures else nullcontext():
            yield process
    except RankLostError as lost:
        sys.exit(lost.status)
    except BaseException as error:
        if not process.has_failed_on_all_ranks:
            end_other_ranks(world, error, host if len(process.hosts) > 1 else "")
        raise


@contextmanager
def _watched(process: ProcessContext) -> Iterator[None]:
    """Watch the other hosts while the block runs; every rank must enter it.

    Raises:
        RunError: a host can't be reached.
    """
    if len(process.hosts) == 1:
        yield
        return
    namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - of what the link points to
    local = process.local.all_gather((os.getpid(), namespace))
    pids = [pid for pid, where in local if where == namespace and pid != os.getpid()]
    watch = Watch(process.hosts, note=process.note_end, end=partial(end_ranks, pids))
    try:
        offer = process.on_all_ranks(lambda: watch.listen() if process.is_root else None)
        if process.leaders is not None:
            offer = process.leaders.broadcast(offer)
        process.on_all_ranks(
            lambda: None if offer is None or process.is_root else watch.connect(offer, process.host)
        )
        yield
    except BaseException as error:
        if not process.has_failed_on_all_ranks:
            watch.say_why(f"{process.host}: {interrupts.interruption() or error}")
            raise
        watch.close()
        raise
    watch.close()


def _is_host_leader(config: RunConfig) -> bool:
    return config.ranks == 1 or is_first_on_host()


def _require_split(process: ProcessContext, claims: Sequence[tuple[str, bool]]) -> None:
    """Refuse hosts that can't be told apart, or whose sampler another process has started.

    Args:
        process: this process.
        claims: the host name of each rank of this host, and whether its launcher made it the first.
    """
    names = dict.fromkeys(name for name, _ in claims)
    if len(names) > 1:
        raise ConfigError(
            f"{len(claims)} processes are on one host by MPI, and on {len(names)} by its names "
            f"({', '.join(names)}); give all processes of a host its name, for example containers "
            "with uts: host"
        )
    is_first = [is_first for _, is_first in claims]
    if is_first != [number == 0 for number in range(len(claims))]:
        numbers = {**rank_variables(), **local_rank_variables()}
        listed = " ".join(f"{variable}={value}" for variable, value in numbers.items())
        raise ConfigError(
            f"{sum(is_first)} of {len(claims)} processes on {process.host} are the first there by "
            f"the variables of launchers (here {listed or 'none is set'}), and exactly MPI's first "
            "must be; start them with mpirun or srun, from a shell without the variables of "
            "another launcher"
        )
    name, count = Counter(process.hosts).most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{count} hosts are named {name} (cloned machines?); give each a name of its own, for "
            "example with hostnamectl set-hostname"
        )


@contextmanager
def start_process(config: RunConfig, reporter: Reporter) -> Iterator[ProcessContext]:
    """Start or reach the sampler, connect the ranks, and yield the context of this process.

    The sampler changes nothing on its host before MPI has confirmed who leads it. Runs that were
    killed are then recorded.

    Raises:
        PowerError: the sampler can't be started or reached.
        MissingExtraError, ConfigError: as for ``unsampled_process``.
    """
    runs = Path(config.runs)
    sampling: Sampling | None = None
    failure: Exception | None = None
    if _is_host_leader(config):
        try:
            sampling = Sampling.begin(runs, config.power.sampler_socket)
        except Exception as error:  # the other ranks wait in MPI_Init for this one
            failure = error

    def confirm() -> list[str]:
        if failure is not None:
            raise failure
        if sampling is None:
            return []
        sampling.confirm()
        return recorded_texts(finish_abandoned([runs]))

    try:
        with unsampled_process(config, reporter) as process:
            process.sampling = sampling
            recorded = process.on_all_ranks(confirm)
            if process.leaders is not None:
                found = process.leaders.gather(recorded)
                for host, texts in zip(process.hosts, found, strict=False):
                    for text in texts:
                        process.note(text if host == process.host else f"{host}: {text}")
            yield process
    finally:
        if sampling is not None:
            sampling.close()
