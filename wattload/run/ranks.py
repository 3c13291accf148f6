"""The ranks of a run: a single process, or several under MPI. No other module imports mpi4py.

A rank that exits before ``MPI_Init`` leaves the others in theirs for ever: MPICH's launcher notices
only ranks that a signal ended. So a signal is held back until every rank has connected, and a rank
that fails earlier has the launcher end the others.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wattload.core import interrupts
from wattload.core.errors import INTERRUPTED, MissingExtraError, RunError, WattloadError
from wattload.core.installation import install_command
from wattload.core.interrupts import unlink_shared_memory, wait_for_reader

if TYPE_CHECKING:
    from mpi4py import MPI

    from wattload.core.workload import Communicator

T = TypeVar("T")

REST_S = 0.02
"""How often a resting rank looks for the others."""

CONNECT_TIMEOUT_S = 60
"""How long ``MPI_Init`` may wait for the other ranks, which may import from a slow file system."""

LAUNCHER_VARIABLE = "PMI_FD"
"""The descriptor on which MPICH's launcher takes commands of PMI-1, one per line."""

WORLD_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")

LOCAL_RANK_VARIABLES = (
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
)


def connect() -> Communicator:
    """Return the world that this process is part of.

    Raises:
        MissingExtraError: a launcher started several processes and mpi4py is not installed.
    """
    if not launched_by_mpi():
        return LocalCommunicator()
    with interrupts.blocked(), _deadline(CONNECT_TIMEOUT_S):
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise MissingExtraError(
                f"mpirun started several processes, but MPI can't be loaded ({error}); install it "
                f"with {install_command(['mpi'])}"
            ) from error
        world = MpiCommunicator(MPI.COMM_WORLD)
        world.barrier()
        unlink_shared_memory()
    return world


@contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    """Have the kernel end this process if the block takes longer, even inside of a library."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def launched_by_mpi() -> bool:
    """Return whether a launcher started this process as one of several."""
    return any(int(os.environ.get(name, "1") or 1) > 1 for name in WORLD_SIZE_VARIABLES)


def is_unconnected() -> bool:
    """Return whether MPICH started this process as one of several and it has not called MPI_Init.

    Other launchers end the other ranks themselves.
    """
    descriptor = os.environ.get(LAUNCHER_VARIABLE, "")
    is_known = descriptor.isdecimal() and launched_by_mpi() and "mpi4py.MPI" not in sys.modules
    try:
        return is_known and stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode)
    except OSError:  # a variable that this process inherited without the descriptor
        return False


def end_waiting_ranks(status: int) -> None:
    """Have MPICH's launcher end the ranks that wait for this unconnected one in MPI_Init."""
    with suppress(OSError):  # the launcher has ended
        wait_for_reader()
        os.write(int(os.environ[LAUNCHER_VARIABLE]), f"cmd=abort exitcode={status}\n".encode())


def is_host_leader() -> bool:
    """Return whether the launcher calls this its host's first rank; true without a launcher."""
    return all(os.environ.get(name, "0") in ("0", "") for name in LOCAL_RANK_VARIABLES)


class LocalCommunicator:
    """A world of one rank."""

    @property
    def rank(self) -> int:
        return 0

    @property
    def world_size(self) -> int:
        return 1

    def barrier(self) -> None:
        """Return at once."""

    def gather(self, value: T) -> list[T]:
        return [value]

    def all_gather(self, value: T) -> list[T]:
        return [value]

    def broadcast(self, value: T) -> T:
        return value


class MpiCommunicator:
    """A world of several ranks, over mpi4py's pickling calls; values are our own."""

    def __init__(self, communicator: MPI.Intracomm) -> None:
        self._communicator = communicator

    @property
    def rank(self) -> int:
        return self._communicator.Get_rank()

    @property
    def world_size(self) -> int:
        return self._communicator.Get_size()

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

    def rest(self) -> None:
        """Wait until every rank is here, asleep: in ``barrier`` a rank takes a whole CPU."""
        request = self._communicator.Ibarrier()
        while not request.Test():
            time.sleep(REST_S)

    def abort(self, exit_code: int) -> None:
        """End every rank at once; does not return. MPICH's own message is not shown."""
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        self._communicator.Abort(exit_code)


def rest_until_all_here(communicator: Communicator) -> None:
    if isinstance(communicator, MpiCommunicator):
        communicator.rest()


def end_other_ranks(communicator: Communicator, error: BaseException) -> None:
    """Abort all ranks of an MPI world, once the launcher has read this rank's error."""
    if not isinstance(communicator, MpiCommunicator):
        return
    code = error.exit_code if isinstance(error, WattloadError) else RunError.exit_code
    why = interrupts.interruption()
    sentence = f"wattload: rank {communicator.rank}: {why or str(error) or type(error).__name__}"
    flush_stderr("\n".join([sentence, *getattr(error, "__notes__", ())]))
    communicator.abort(code if why is None else INTERRUPTED)


def flush_stderr(text: str) -> None:
    """Print a line to stderr; if that is a pipe, return when it was read, or after 2 seconds."""
    sys.stderr.write(f"{text}\n")  # one write: two ranks may fail at the same time
    wait_for_reader()
