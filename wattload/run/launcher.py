"""What launchers of parallel jobs say of this process, by environment variables.

Every program that a process of a job starts inherits them. Slurm's count only in a step that runs
several tasks, and in the processes of these tasks: the shells of ``sbatch`` and ``salloc``, which
have them too, are one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SRUN = "srun"

_SIZES = {
    "PMI_SIZE": "a PMI launcher such as MPICH's mpirun",
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun",
    "PMIX_SIZE": "a PMIx launcher",
    "MV2_COMM_WORLD_SIZE": "MVAPICH's mpirun",
}
"""Variables with the number of processes of a job, and who sets them."""

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
_LOCAL_RANKS = (
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
)
_STEP_SIZE, _STEP_RANK, _STEP_LOCAL_RANK = "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Slurm numbers the steps of batch scripts, interactive shells and the like from here on
(``slurm_protocol_defs.h``)."""

_INIT = 1


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


def is_rank() -> bool:
    """Return whether a launcher numbered this process."""
    return any(name in os.environ for name in _RANKS) or _is_in_step()


def is_first_rank() -> bool:
    """Return whether this is rank 0, or no rank."""
    return _are_zero(_RANKS, _STEP_RANK)


def is_first_of_host() -> bool:
    """Return whether the launcher calls this its host's first rank; true without a launcher."""
    return _are_zero(_LOCAL_RANKS, _STEP_LOCAL_RANK)


def _are_zero(names: Sequence[str], of_step: str) -> bool:
    counting = [*names, of_step] if _is_in_step() else names
    return all(os.environ.get(name, "0") in ("0", "") for name in counting)


def _is_in_step() -> bool:
    """Return whether this process belongs to a task of a Slurm step with several tasks."""
    step = os.environ.get("SLURM_STEP_ID", os.environ.get("SLURM_STEPID", ""))
    size, task = os.environ.get(_STEP_SIZE, ""), os.environ.get("SLURM_TASK_PID", "")
    if not (step.isdecimal() and size.isdecimal() and task.isdecimal()):
        return False
    is_step = int(step) < _FIRST_SPECIAL_STEP and int(size) > 1
    return is_step and int(task) in _own_line()


def _own_line() -> Iterator[int]:
    """Yield this process and its ancestors (``proc(5)``, the fourth field of ``stat``)."""
    pid = os.getpid()
    while pid > _INIT:
        yield pid
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return
        pid = int(text.rpartition(")")[2].split()[1])
