"""What lasts over the runs of one process: its MPI world, its host's sampler, the bytes written.

The sampler is exec'ed before MPI is imported, and both are started once: a session hands one
``ProcessContext`` to all of its runs.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
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
from wattload.run.ranks import (
    World,
    connect,
    deliver_sent,
    end_other_ranks,
    limit_end,
    reason_of,
    rest_until_all_here,
)
from wattload.run.watch import Offer, Watch, end_ranks, say_why

T = TypeVar("T")

OPEN_S = 20.0
"""How long hosts may take, once MPI has connected them, until they watch each other."""
NOT_OPENED = (
    f"the hosts of the run did not connect to each other within {OPEN_S:g} s: a host, its network "
    "or its first process has stopped"
)


class Reporter(Protocol):
    """Where a run reports to while it is under way; called on rank 0 alone, except for ``note``."""

    def note(self, text: str) -> None:
        """Show one or more lines on what happens, on any rank."""
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
    tell_why: Callable[[str], None] = lambda _: None
    """Tells all hosts why this rank ends the run, before it undoes what it has changed."""
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

    def note_here(self, text: str) -> None:
        """Show what concerns this rank's host alone, by the host's name if there are several."""
        self.reporter.note(f"{self.host}: {text}" if len(self.hosts) > 1 else text)

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
        """Write down why another rank ends the run under way; may be called from any thread."""
        journal = self.journal
        if journal is not None:
            journal.write("failed", {"status": "aborted", "reason": reason})

    def on_all_ranks(self, step: Callable[[], T], *, rests: bool = False) -> T:
        """Do a step on every rank; if it fails on one, all ranks raise, rank 0 with the reasons.

        The reasons are those of all hosts. A rank that ``rests`` waits asleep for the others.
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
        if rests:
            rest_until_all_here(self.communicator)
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
    opening = _limited_opening(world, config)
    process: ProcessContext | None = None
    try:
        process = _split(world, reporter)
        interrupts.release()  # see ``wattload.__main__``
        name = socket.gethostname()
        claims = process.local.all_gather((name, _is_host_leader(config)))
        process.on_all_ranks(partial(_require_split, process, claims))
        with _watched(process, opening):
            yield process
    except RankLostError as lost:
        sys.exit(lost.status)
    except BaseException as error:
        if process is None or not process.has_failed_on_all_ranks:
            is_alone = process is not None and len(process.hosts) == 1
            end_other_ranks(world, error, "" if is_alone else socket.gethostname())
        raise
    finally:
        opening.cancel()
        if process is not None and len(process.hosts) > 1:
            limit_end()


def _limited_opening(world: World, config: RunConfig) -> threading.Timer:
    """Return a running timer that ends this rank if it is not cancelled within ``OPEN_S``."""
    timer = threading.Timer(OPEN_S, end_ranks, [(), NOT_OPENED if _is_host_leader(config) else ""])
    timer.daemon = True
    if world.world_size > 1:
        with interrupts.blocked():
            timer.start()
    return timer


def _split(world: World, reporter: Reporter) -> ProcessContext:
    """Return the context of a process that knows the ranks of its host, and the other hosts."""
    local, leaders = world.split()
    name, progress = socket.gethostname(), RankProgress()
    host = local.broadcast(name)
    memory_bytes = host_memory_bytes() if leaders is not None else 0
    return ProcessContext(
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


@contextmanager
def _watched(process: ProcessContext, opening: threading.Timer) -> Iterator[None]:
    """Watch the other hosts and ranks while the block runs, and until all have left theirs.

    Every rank must enter it. Once the watch is open, ``opening`` is cancelled.

    Raises:
        RunError: a host can't be reached.
    """
    if process.communicator.world_size == 1:
        opening.cancel()
        yield
        return
    others = _other_ranks(process)
    end = partial(end_ranks, others) if process.is_host_leader else lambda _: end_ranks((), "")
    watch = Watch(process.hosts, others, note=process.note_end, end=end)
    offer: Offer | None = None

    def connected() -> Offer | None:
        if process.is_root or offer is None:
            return offer
        return watch.connect(offer, process.host)

    def tell_why(reason: str) -> None:
        if not process.has_failed_on_all_ranks:
            reason = f"{process.host}: {reason}"
        elif not process.is_root or process.journal is None:
            return  # all ranks end by themselves
        if offer is not None:
            say_why(offer, process.host, reason)

    try:
        if len(process.hosts) > 1:
            offer = process.on_all_ranks(lambda: watch.listen() if process.is_root else None)
            if process.leaders is not None:
                offer = process.leaders.broadcast(offer)
            offer = process.local.broadcast(process.on_all_ranks(connected))
        watch.start()
        process.tell_why = tell_why
        opening.cancel()
        yield
    except BaseException as error:
        if process.has_failed_on_all_ranks:
            _close(watch, process)
        else:
            tell_why(reason_of(error))
        raise
    _close(watch, process)


def _other_ranks(process: ProcessContext) -> dict[int, str]:
    """Return which ranks this one watches on its host, by PID: a leader all, the others theirs.

    Those in another namespace of PIDs, such as another container, can't be watched.
    """
    namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - of what the link points to
    own = process.communicator.rank, os.getpid(), namespace
    first, *others = process.local.all_gather(own)
    if not process.is_host_leader:
        return {first[1]: f"the first process on {process.host}"} if first[2] == namespace else {}
    return {
        pid: f"rank {rank} on {process.host}" for rank, pid, where in others if where == namespace
    }


def _close(watch: Watch, process: ProcessContext) -> None:
    """End the watch once the leaders of all hosts do; the other ranks wait for theirs.

    Others may still wait for what this rank has sent them.
    """
    if not process.is_host_leader:
        rest_until_all_here(process.local)
    watch.close(partial(deliver_sent, process.communicator))
    if process.is_host_leader:
        rest_until_all_here(process.local)


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
            sampling = Sampling.begin(runs, config.power.service)
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
            if sampling is not None:
                sampling.note = process.note_here
            recorded = process.on_all_ranks(confirm)
            if process.leaders is not None:
                found = process.leaders.gather(recorded)
                for host, texts in zip(process.hosts, found, strict=False):
                    for text in texts:
                        process.note(text if host == process.host else f"{host}: {text}")
            yield process
            if sampling is not None:  # it may take a while, in which the hosts are still watched
                sampling.close()
    finally:
        if sampling is not None:
            sampling.close()
