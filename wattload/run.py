"""The life of one run, from overrides to record; the one module that touches MPI."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wattload.compose import compose
from wattload.core.errors import MissingExtraError, RankLostError, RunError, WattloadError
from wattload.core.record.run import Comparison
from wattload.interleave import session_less
from wattload.life.assemble import Order
from wattload.life.communication import LocalCommunicator
from wattload.life.lastwords import say_and_wait
from wattload.life.life import Life, Session
from wattload.life.progress import progress_for
from wattload.life.sampling import Sampling
from wattload.life.signals import termination_interrupts

if TYPE_CHECKING:
    from mpi4py import MPI

    from wattload.config import RunConfig
    from wattload.core.target import Target
    from wattload.core.workload import Communicator, WorkloadPlan

T = TypeVar("T")

NO_COMPARISON = Comparison(session_id="", arm="", block=0, order=0)

WORLD_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_RANK_VARIABLES = (
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
)


class MpiCommunicator:
    """A world of several ranks, over mpi4py's pickling calls; values are small and our own."""

    def __init__(self, communicator: MPI.Intracomm) -> None:
        self._communicator = communicator

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self._communicator.Get_rank()

    @property
    def world_size(self) -> int:
        """How many processes take part."""
        return self._communicator.Get_size()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self._communicator.Barrier()

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - the Communicator protocol's type
        """Return every rank's value, by rank, on every rank."""
        return list(self._communicator.allgather(value))

    def broadcast(self, value: Any) -> Any:  # noqa: ANN401 - the Communicator protocol's type
        """Return rank 0's value on every rank."""
        return self._communicator.bcast(value, root=0)

    def abort(self, exit_code: int) -> None:
        """End every rank at once; does not return."""
        self._communicator.Abort(exit_code)


def launched_by_mpi() -> bool:
    """Return whether a launcher started this process as one of several."""
    return any(int(os.environ.get(name, "1") or 1) > 1 for name in WORLD_SIZE_VARIABLES)


def is_host_leader() -> bool:
    """Return whether this is its host's first rank, as the launcher says; true without one."""
    return all(os.environ.get(name, "0") in ("0", "") for name in LOCAL_RANK_VARIABLES)


def connect() -> Communicator:
    """Return the world this process is part of.

    Raises:
        MissingExtraError: a launcher started several processes and mpi4py is not installed.
    """
    if not launched_by_mpi():
        return LocalCommunicator()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingExtraError(
            f"mpirun started several processes and MPI can't be loaded ({error}); "
            "pip install 'wattload[mpi]' brings mpi4py and an MPI"
        ) from error
    return MpiCommunicator(MPI.COMM_WORLD)


_session: Session | None = None


def session(config: RunConfig) -> Session:
    """Return this process's session: its sampler, exec'ed before MPI is imported, and its world."""
    global _session  # noqa: PLW0603 - MPI and the sampler are started once per process
    if _session is None:
        sampling = None
        if is_host_leader():
            sampling = Sampling.begin(Path(config.runs), config.power.sampler_socket)
        _session = Session(
            communicator=connect(),
            sampling=sampling,
            host=socket.gethostname(),
        )
    return _session


def execute(overrides: Sequence[str], comparison: Comparison) -> tuple[Path | None, int]:
    """Run once; returns the run's folder on rank 0 (else ``None``) and the exit status, 0 or 3.

    Raises:
        WattloadError: what made the run impossible or made it fail, on rank 0; other ranks end
            quietly with the same exit status.
    """
    config, plain = compose(overrides)
    here = session(config)
    order = Order(
        config=config,
        plain=plain,
        comparison=comparison,
        command=("wattload", "run", *session_less(overrides)),
    )
    life = Life(here, order, progress_for(here.communicator.rank))
    return _with_all_ranks(here, life, life.live)


def foresee(
    overrides: Sequence[str], *, judge: bool = False
) -> tuple[RunConfig, tuple[Target, ...], WorkloadPlan]:
    """Return what a run would do to its targets, on every rank; nothing is made there.

    With ``judge`` the preflight refuses what it would refuse of the run.
    """
    config, plain = compose(overrides)
    here = session(config)
    order = Order(config=config, plain=plain, comparison=NO_COMPARISON, command=tuple(overrides))
    life = Life(here, order, progress_for(here.communicator.rank))
    targets, plan = _with_all_ranks(here, life, lambda: life.foresee(judge=judge))
    return config, targets, plan


def generate(overrides: Sequence[str]) -> None:
    """Generate or complete the data of a workload, or of a search's runs, and nothing else."""
    config, plain = compose(overrides)
    here = Session(communicator=connect(), sampling=None, host=socket.gethostname())
    if config.sweep.searches:
        from wattload.search.plan import plan_search

        config, plain = compose(plan_search(overrides, here.communicator).widest())
    order = Order(
        config=config,
        plain=plain,
        comparison=NO_COMPARISON,
        command=("wattload", "datagen", *overrides),
    )
    life = Life(here, order, progress_for(here.communicator.rank))
    _with_all_ranks(here, life, life.generate)


def _with_all_ranks(here: Session, life: Life, work: Callable[[], T]) -> T:
    """Do the work; when it fails on this rank, end the run on every rank."""
    with termination_interrupts():
        try:
            return work()
        except RankLostError as lost:
            sys.exit(lost.status)
        except BaseException as error:
            life.fail(error)
            if not life.failed_together:
                _end_other_ranks(here.communicator, error)
            raise


def _end_other_ranks(communicator: Communicator, error: BaseException) -> None:
    if not isinstance(communicator, MpiCommunicator):
        return
    code = error.exit_code if isinstance(error, WattloadError) else RunError.exit_code
    say_and_wait(f"wattload: rank {communicator.rank}: {str(error) or type(error).__name__}")
    communicator.abort(130 if isinstance(error, KeyboardInterrupt) else code)
