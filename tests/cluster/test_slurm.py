"""Slurm's srun, for each of its ways to start MPI, and a batch script."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import need, open_mpi_library
from tests.cluster.slurm import missing_slurm, start_slurm
from tests.run.running import SLOW, run_folders, until
from tools.cluster.hosts import (
    DEADLINE_S,
    DRIVE,
    NAMES,
    RUN,
    RUNS,
    VARIABLES,
    Cluster,
    missing,
    running_hosts,
)
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord

END_S = 30.0
NULL = (*RUN, "workload=null", "power=none")


class Slurm:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.variables = {
            **start_slurm(cluster),
            **VARIABLES,
        }

    def run(self, *words: str, **variables: str) -> tuple[str, list[int]]:
        """Run a command on the first host; return its stderr, and the ranks of each new record."""
        self.cluster.clear_files()
        done = self.cluster.on(NAMES[0], *words, **self.variables, **variables)
        folders = [run_folders(self.cluster.files(name, RUNS)) for name in NAMES]
        records = [read_record(path) for found in folders for path in found]
        return done.stderr, [record.workload.rank_count for record in records]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    need(missing() or missing_slurm())
    with running_hosts() as cluster:
        yield Slurm(cluster)


@pytest.mark.parametrize(
    ("plugin", "library"),
    [("none", "MPICH"), ("pmix", "MPICH"), ("none", "Open MPI"), ("pmi2", "Open MPI")],
)
def test_tasks_that_are_no_world_are_refused(slurm: Slurm, plugin: str, library: str) -> None:
    variables = {"MPI4PY_LIBMPI": open_mpi_library()} if library == "Open MPI" else {}
    words = ["srun", f"--mpi={plugin}", "--nodes=1", "--ntasks=2", *NULL]
    said, ranks = slurm.run(*words, **variables)
    sentences = {line for line in said.splitlines() if line.startswith("wattload: ")}
    assert not ranks
    if plugin == "pmi2":  # MPI_Init has ended it, as that of an Open MPI built for PMI would not
        assert "OMPI was not built with SLURM's PMI support" in said
    else:
        (sentence,) = sentences
        assert "a launcher started 2 processes" in sentence
        assert f"mpi4py uses {library}" in sentence


@pytest.mark.parametrize(("plugin", "library"), [("pmi2", "MPICH"), ("pmix", "Open MPI")])
def test_tasks_on_several_hosts_are_one_world(slurm: Slurm, plugin: str, library: str) -> None:
    variables = {"MPI4PY_LIBMPI": open_mpi_library()} if library == "Open MPI" else {}
    words = ["srun", f"--mpi={plugin}", "--nodes=3", "--ntasks=4", *NULL]
    said, ranks = slurm.run(*words, **variables)
    assert ranks == [4], said
    assert not [line for line in said.splitlines() if line.startswith("wattload: ")]


def test_a_batch_script_of_one_process_is_a_run_of_one_rank(slurm: Slurm) -> None:
    """It inherits the number of tasks of its job, none of which are started."""
    submit = shlex.join(["sbatch", "--ntasks=4", "--wrap", shlex.join(NULL)])
    to_its_end = 'while [ -n "$(squeue --noheader)" ]; do sleep 0.2; done'
    said, ranks = slurm.run("sh", "-c", f"{submit} && {to_its_end}")
    assert ranks == [1], said


@contextmanager
def waiting(slurm: Slurm, hosts: int, each: int) -> Iterator[dict[str, list[int]]]:
    """Start a run of some ranks on each host and wait until all wait; yields their PIDs."""
    cluster = slurm.cluster
    cluster.clear_files()
    tasks = (f"--nodes={hosts}", f"--ntasks-per-node={each}")
    words = ["srun", "--mpi=pmi2", *tasks, *RUN, *SLOW]
    with subprocess.Popen(
        cluster.words(NAMES[0], *words),
        env={**os.environ, **slurm.variables, "WATTLOAD_TEST_STOP": "run"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def pids() -> dict[str, list[int]]:
            folders = {name: cluster.files(name, DRIVE) for name in NAMES[:hosts]}
            return {
                name: [int(path.read_text() or 0) for path in sorted(folder.glob("waiting-*"))]
                for name, folder in folders.items()
            }

        try:
            until(lambda: sum(map(len, pids().values())) == hosts * each, process, DEADLINE_S)
            yield pids()
            process.wait(END_S)
        finally:
            cluster.on(NAMES[0], "scancel", "--signal=KILL", "--user=root", **slurm.variables)


def records(slurm: Slurm, hosts: int) -> Iterator[RunRecord]:
    """Return the record on each host, once it is there."""
    for name in NAMES[:hosts]:
        (folder,) = run_folders(slurm.cluster.files(name, RUNS))
        until((folder / "record.json").exists, seconds=DEADLINE_S)
        yield read_record(folder)


def test_a_cancelled_job_leaves_an_aborted_record(slurm: Slurm) -> None:
    with waiting(slurm, 3, 1):
        slurm.cluster.on(NAMES[0], "scancel", "--user=root", **slurm.variables)
    assert {record.status for record in records(slurm, 3)} == {"aborted"}


@pytest.mark.parametrize(("hosts", "victim"), [(1, "rank"), (2, "leader")])
def test_the_death_of_a_task_ends_the_run_on_all_hosts(
    slurm: Slurm, hosts: int, victim: str
) -> None:
    """Slurm itself lets the other tasks wait for it.

    On two hosts, as six ranks that spin in MPI_Init may take over its limit on two cores.
    """
    name = NAMES[hosts > 1]
    with waiting(slurm, hosts, 2) as pids:
        slurm.cluster.on(name, "kill", "-KILL", str(pids[name][victim == "rank"]))
    who = "the first process" if victim == "leader" else "rank 1"
    for host, record in zip(NAMES, records(slurm, hosts), strict=False):
        assert record.status == "aborted"
        if victim == "rank" or host != name:  # else its sampler says why
            assert record.status_reason.startswith(f"{who} on {name} has ended")
