"""What launchers of parallel jobs say of this process, by environment variables.

Every program that a process of a job starts inherits them. Slurm's count only in a step that runs
several tasks, and in the processes of these tasks: the shells of ``sbatch`` and ``salloc``, which
have them too, are one process. A rank's number on its host is needed before MPI is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wattload.core.processes import ancestry, sees_all_processes

SRUN = "srun"

_SIZES = {
    "PMI_SIZE": "a PMI launcher such as MPICH's mpirun",
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun",
    "PMIX_SIZE": "a PMIx launcher",
    "MV2_COMM_WORLD_SIZE": "MVAPICH's mpirun",
}
"""Variables with the number of processes of a job, and who sets them."""

_SIZED = {
    "PMI_RANK": "PMI_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_RANK": "MV2_COMM_WORLD_SIZE",
}
"""Launchers that set the first always set the second too."""
_RANKS = (*_SIZED, "PMIX_RANK")
_LOCAL_RANKS = (
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
)
"""Variables with the number of a process on its host, of the launchers above and HPE's PALS."""
_STEP_SIZE, _STEP_RANK, _STEP_LOCAL_RANK = "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"
_OF_PMIX = ("PMIX_NAMESPACE", "PMIX_RANK")

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Slurm numbers the steps of batch scripts, interactive shells and the like from here on
(``slurm_protocol_defs.h``)."""


class JobSize(NamedTuple):
    """How many processes a launcher says it started: its variable, and who sets it."""

    processes: int
    variable: str
    launcher: str

    def __str__(self) -> str:
        return f"{self.variable}={self.processes}, set by {self.launcher}"


def job_sizes() -> Sequence[JobSize]:
    """Return what each launcher says; several if one started another, none without any."""
    found = [(name, who) for name, who in _SIZES.items() if os.environ.get(name, "").isdecimal()]
    if _is_in_step():
        found.append((_STEP_SIZE, SRUN))
    return [JobSize(int(os.environ[name]), name, who) for name, who in found]


def lost_size() -> tuple[str, str] | None:
    """Return a variable that numbers this process, and that of the missing number of processes."""
    given = ((rank, size) for rank, size in _SIZED.items() if os.environ.get(rank))
    return next(((rank, size) for rank, size in given if not os.environ.get(size)), None)


def is_rank() -> bool:
    """Return whether a launcher numbered this process."""
    return bool(rank_variables()) or _is_in_step()


def is_first_rank() -> bool:
    """Return whether this is rank 0, or no rank."""
    return all(value == "0" for value in rank_variables().values())


def rank_variables() -> Mapping[str, str]:
    """Return the variables with which launchers numbered this process."""
    return _given(_RANKS, _STEP_RANK)


def is_first_on_host() -> bool:
    """Return whether this is the first rank of its host, or no rank.

    MPI's own split of the ranks by host has to agree.
    """
    local_ranks = local_rank_variables()
    if not local_ranks:  # right on one host, where rank 0 is the first
        return is_first_rank()
    return all(value == "0" for value in local_ranks.values())


def local_rank_variables() -> Mapping[str, str]:
    """Return the variables with which launchers numbered this process on its host."""
    return _given(_LOCAL_RANKS, _STEP_LOCAL_RANK) if is_rank() else {}


def _given(names: Sequence[str], of_step: str) -> Mapping[str, str]:
    """Return those variables that are set; that of a Slurm step counts in its tasks only."""
    heeded = [*names, of_step] if _is_in_step() else names
    return {name: os.environ[name] for name in heeded if os.environ.get(name)}


def _is_in_step() -> bool:
    """Return whether this process belongs to a task of a Slurm step with several tasks."""
    step = os.environ.get("SLURM_STEP_ID", os.environ.get("SLURM_STEPID", ""))
    size = os.environ.get(_STEP_SIZE, "")
    if not (step.isdecimal() and size.isdecimal()):
        return False
    return int(step) < _FIRST_SPECIAL_STEP and int(size) > 1 and _may_be_of_task()


def _may_be_of_task() -> bool:
    """Return whether this process belongs to a task of its Slurm step, as far as can be seen.

    A container with a PID namespace of its own hides the task, which is this process's ancestor.
    """
    if all(name in os.environ for name in _OF_PMIX) or not sees_all_processes():
        return True
    task = os.environ.get("SLURM_TASK_PID", "")
    return task.isdecimal() and int(task) in ancestry(os.getpid())
