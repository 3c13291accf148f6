"""The ranks of a run: a single process, or several under MPI. No other module imports mpi4py.

A rank that exits before ``MPI_Init`` leaves the others in theirs for ever: MPICH's launcher notices
only ranks that a signal ended. So a signal is held back until every rank has connected, and a rank
that fails earlier has the launcher end the others.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from wattload.core import interrupts
from wattload.core.errors import (
    INTERRUPTED,
    ConfigError,
    MissingExtraError,
    RunError,
    WattloadError,
)
from wattload.core.installation import install_command
from wattload.core.interrupts import unlink_shared_memory, wait_for_reader
from wattload.run.launcher import SRUN, JobSize, job_sizes, lost_size

if TYPE_CHECKING:
    from mpi4py import MPI

    from wattload.core.workload import Communicator

T = TypeVar("T")

REST_S = 0.02
"""How often a resting rank looks for the others."""

SHORTEST_WAIT_S = 20e-6

BLOCK_BYTES = 16 << 20
"""The largest message between two ranks, without its frame."""

CONNECT_TIMEOUT_S = 60
"""How long ``MPI_Init`` may wait for the other ranks, which may import from a slow file system."""

END_TIMEOUT_S = 20
"""How long a process of several hosts may take to end, once all others do too."""

INTERRUPTED_S = 3.0
"""How long rank 0 may take to record an interrupted run and to end all ranks, for all of them.

Less than the time after which ``wattload.run.watch`` ends a host.
"""

LAUNCHER_VARIABLE = "PMI_FD"
"""The descriptor on which MPICH's launcher takes commands of PMI-1, one per line."""

_MPI_SETTINGS = {
    # keeps Open MPI 4 from starting a daemon where another launcher started the process
    "OMPI_MCA_ess_singleton_isolated": "1",
    # large messages without process_vm_readv, which containers may forbid
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
}
"""Variables that MPI libraries read, unless the user has set them."""

PMIX_VARIABLE = "PMIX_NAMESPACE"
"""The name of a job whose launcher connects processes by PMIx, as Open MPI's does, and Slurm's."""

PMI_VARIABLE = "PMI_RANK"
"""The number of a process whose launcher connects processes by PMI, as Slurm's pmi2 does."""

_SLURM_SETTING = ("MPIR_CVAR_CH4_NETMOD", "ofi")
"""MPICH 5.0 publishes addresses of UCX with whatever follows them in memory, which Slurm's PMI may
refuse. Those of libfabric are short."""

ALONE = "or set ranks=1 to run this process alone"


def connect(ranks: int | None, *, measures: bool = True) -> World:
    """Return the world that this process is part of.

    Args:
        ranks: how many processes the run is to have; with 1 it is alone, whatever launchers say.
        measures: whether a world is refused that is not as large as a launcher says.

    Raises:
        MissingExtraError: a launcher started several processes and mpi4py is not installed.
        ConfigError: MPI connects another number of processes than the launcher started, or that
            number is unknown.
    """
    sizes = job_sizes()
    if ranks == 1 or all(size.processes <= 1 for size in sizes):
        lost = lost_size() if measures and ranks != 1 else None
        if lost is None:
            return LocalCommunicator()
        rank, size = lost
        raise ConfigError(
            f"a launcher numbered this process ({rank}={os.environ[rank]}), but {size} is not set, "
            f"so how many it started is unknown; keep both variables, remove both, {ALONE}"
        )
    by_slurm = sizes[-1].launcher == SRUN
    with interrupts.blocked(), _deadline(CONNECT_TIMEOUT_S):
        try:
            mpi = _initialized(by_slurm=by_slurm)
        except (ImportError, RuntimeError) as error:
            if not measures:
                return LocalCommunicator()
            why = str(error).partition("\n")[0]
            raise MissingExtraError(
                f"{_started(sizes)}, but mpi4py can't be loaded ({why}), so each would be 1 "
                f"process alone; install it with {install_command(['mpi'])}, {ALONE}"
            ) from error
        world = MpiCommunicator(mpi.COMM_WORLD) if mpi.Is_initialized() else LocalCommunicator()
        world.barrier()
        unlink_shared_memory()
    if not measures or world.world_size == max(size.processes for size in sizes):
        return world
    name, version = mpi.get_vendor()
    with_srun = ", with srun --mpi=pmix or --mpi=pmi2 if it supports that"
    raise ConfigError(
        f"{_started(sizes)}, but MPI connects {world.world_size}: mpi4py uses {name} "
        f"{'.'.join(map(str, version))}; start it with that library's own mpirun"
        f"{with_srun if by_slurm else ''}, {ALONE}"
    )


def mpi_library() -> tuple[str, Path]:
    """Return the name of mpi4py's MPI, such as ``MPICH``, and its library; MPI is not initialized.

    Raises:
        MissingExtraError: mpi4py is not installed, or finds no MPI library.
    """
    try:
        import mpi4py

        mpi4py.rc(initialize=False)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise MissingExtraError(
            f"mpi4py can't be loaded ({why}); install it with {install_command(['mpi'])}"
        ) from error
    maps = Path("/proc/self/maps").read_text()
    return MPI.get_vendor()[0], Path(re.findall(r"(?m)/.*/libmpi[^/\n]*\.so.*$", maps)[0])


def _initialized(*, by_slurm: bool) -> ModuleType:
    """Return mpi4py's module with MPI initialized, unless its library can't be in this job.

    Args:
        by_slurm: whether srun started this process.

    Raises:
        ImportError: mpi4py is not installed.
        RuntimeError: it finds no MPI library.
    """
    import mpi4py

    mpi4py.rc(initialize=False, finalize=True)
    for name, value in _MPI_SETTINGS.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mpi4py's of another launcher: ``connect`` refuses it
        from mpi4py import MPI

        vendor, version = MPI.get_vendor()
        if by_slurm and re.search(r"MPICH Device:.*\bofi\b", MPI.Get_library_version()):
            os.environ.setdefault(*_SLURM_SETTING)
        has_pmix = PMIX_VARIABLE in os.environ
        if vendor == "MPICH" and has_pmix:
            # MPICH without PMIx aborts the process in MPI_Init. A session reports it.
            try:
                MPI.Session.Init(errhandler=MPI.ERRORS_RETURN).Finalize()
            except MPI.Exception:
                return MPI
        may_use_pmi = PMI_VARIABLE in os.environ and version < (5,)  # if it was built for that
        if vendor == "Open MPI" and by_slurm and not has_pmix and not may_use_pmi:
            return MPI  # it would abort the process in MPI_Init, too
        MPI.Init_thread()
    return MPI


def _started(sizes: Sequence[JobSize]) -> str:
    """Return what launchers say, as the beginning of a sentence."""
    several = [size for size in sizes if size.processes > 1]
    variables = " and ".join(map(str, several))
    return f"a launcher started {several[0].processes} processes ({variables})"


def override_text(ranks: int | None) -> str:
    """Return a sentence on what launchers said if ``ranks=1`` overrides it, else ``""``."""
    several = [size for size in job_sizes() if size.processes > 1]
    if ranks != 1 or not several:
        return ""
    started = _started(several)
    return f"By ranks=1 this process ran alone, although {started}."


@contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    """Have the kernel end this process if the block takes longer, even inside of a library."""
    limit_end(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def limit_end(seconds: int = END_TIMEOUT_S) -> None:
    """Have the kernel end this process if it takes longer to end by itself.

    ``MPI_Finalize`` waits for the other hosts, which nobody watches any more.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def is_connected() -> bool:
    """Return whether MPI has connected this process to others."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() > 1


def is_first_connected() -> bool:
    """Return whether this is rank 0 of the processes that MPI has connected."""
    mpi = sys.modules["mpi4py.MPI"]
    return bool(mpi.COMM_WORLD.Get_rank() == 0)


def is_unconnected() -> bool:
    """Return whether MPICH started this process as one of several and it is not connected to them.

    Other launchers end the other ranks themselves.
    """
    descriptor = os.environ.get(LAUNCHER_VARIABLE, "")
    is_one_of_several = any(size.processes > 1 for size in job_sizes())
    is_known = descriptor.isdecimal() and is_one_of_several and not is_connected()
    try:
        return is_known and stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode)
    except OSError:  # a variable that this process inherited without the descriptor
        return False


def end_waiting_ranks(status: int) -> None:
    """Have MPICH's launcher end the ranks that wait for this unconnected one in MPI_Init."""
    with suppress(OSError):  # the launcher has ended
        wait_for_reader()
        os.write(int(os.environ[LAUNCHER_VARIABLE]), f"cmd=abort exitcode={status}\n".encode())


class LocalCommunicator:
    """A world of one rank."""

    @property
    def rank(self) -> int:
        return 0

    @property
    def world_size(self) -> int:
        return 1

    @property
    def members(self) -> tuple[int, ...]:
        return (0,)

    def barrier(self) -> None:
        """Return at once."""

    def gather(self, value: T) -> list[T]:
        return [value]

    def all_gather(self, value: T) -> list[T]:
        return [value]

    def broadcast(self, value: T) -> T:
        return value

    def send(self, value: object, rank: int) -> None:
        """There is no other rank to send to."""

    def wait(self, rank: int) -> None:
        """There is no other rank to wait for."""

    def receive(self, rank: int) -> Any:  # noqa: ANN401 - as an ``MpiCommunicator``
        """There is no other rank to receive from."""

    def split(self) -> tuple[LocalCommunicator, LocalCommunicator]:
        """Return the ranks of this host, and the hosts' leaders: this one alone."""
        return self, self


class MpiCommunicator:
    """A world of several ranks, over mpi4py's pickling calls; values are our own."""

    def __init__(self, communicator: MPI.Comm) -> None:
        self._communicator = communicator

    @property
    def rank(self) -> int:
        return self._communicator.Get_rank()

    @property
    def world_size(self) -> int:
        return self._communicator.Get_size()

    @property
    def members(self) -> tuple[int, ...]:
        world = sys.modules["mpi4py.MPI"].COMM_WORLD.Get_group()
        return tuple(self._communicator.Get_group().Translate_ranks(group=world))

    def barrier(self) -> None:
        self._communicator.Barrier()

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, by rank, on rank 0; an empty list on every other rank."""
        return list(self._communicator.gather(value, root=0) or ())

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's value, by rank, on every rank; for small values only."""
        return list(self._communicator.allgather(value))

    def broadcast(self, value: T) -> T:
        shared: T = self._communicator.bcast(value, root=0)
        return shared

    def split(self) -> tuple[MpiCommunicator, MpiCommunicator | None]:
        """Return the ranks of this host, and on its first rank the first ranks of all hosts.

        A host is what shares memory, as MPI says. Both are ordered by rank. Every rank calls it.
        """
        mpi = sys.modules["mpi4py.MPI"]
        shared = self._communicator.Split_type(mpi.COMM_TYPE_SHARED, key=self.rank)
        is_leader = shared.Get_rank() == 0
        leading = self._communicator.Split(0 if is_leader else mpi.UNDEFINED, key=self.rank)
        return MpiCommunicator(shared), MpiCommunicator(leading) if is_leader else None

    def send(self, value: object, rank: int) -> None:
        """Send a value, of ``BLOCK_BYTES`` at most, to one rank, which must ``receive`` it."""
        self._communicator.send(value, dest=rank)

    def wait(self, rank: int) -> None:
        """Wait asleep, at first for short times, until a value from one rank is here."""
        wait_s = SHORTEST_WAIT_S
        while not self._communicator.iprobe(source=rank):
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, REST_S)

    def receive(self, rank: int) -> Any:  # noqa: ANN401 - what the other rank sends
        """Return the next value from one rank."""
        return self._communicator.recv(source=rank)

    def rest(self) -> None:
        """Wait until every rank is here, asleep: in ``barrier`` a rank takes a whole CPU."""
        request = self._communicator.Ibarrier()
        while not request.Test():
            time.sleep(REST_S)

    def deliver(self) -> None:
        """Let MPI go on with what this rank has sent: some libraries only do so in a call."""
        self._communicator.iprobe()

    def abort(self, exit_code: int) -> None:
        """End every rank at once; does not return. MPICH's own message is not shown."""
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        self._communicator.Abort(exit_code)


World = LocalCommunicator | MpiCommunicator
"""The ranks of a run."""


def rest_until_all_here(communicator: Communicator) -> None:
    if isinstance(communicator, MpiCommunicator):
        communicator.rest()


def deliver_sent(communicator: Communicator) -> None:
    if isinstance(communicator, MpiCommunicator):
        communicator.deliver()


def end_other_ranks(communicator: Communicator, error: BaseException, host: str) -> None:
    """Abort all ranks of an MPI world, once the launcher has read this rank's error.

    ``host`` is the name of this host if there are several, else empty.
    """
    if not isinstance(communicator, MpiCommunicator):
        return
    code = error.exit_code if isinstance(error, WattloadError) else RunError.exit_code
    rank = f"rank {communicator.rank}{f' on {host}' if host else ''}"
    if communicator.rank and interrupts.interruption() is not None:
        time.sleep(INTERRUPTED_S)
    sentence = f"wattload: {rank}: {reason_of(error)}"
    flush_stderr("\n".join([sentence, *getattr(error, "__notes__", ())]))
    communicator.abort(code if interrupts.interruption() is None else INTERRUPTED)


def reason_of(error: BaseException) -> str:
    """Return why an error ends a run, in words that can be encoded: those of a path may not be."""
    reason = interrupts.interruption() or str(error) or type(error).__name__
    return reason.encode(errors="backslashreplace").decode()


def flush_stderr(text: str) -> None:
    """Print a line to stderr; if that is a pipe, return when it was read, or after 2 seconds."""
    sys.stderr.write(f"{text}\n")  # one write: two ranks may fail at the same time
    wait_for_reader()
