"""What dies on one of three hosts ends the run on all of them, and a record says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.run.running import SLOW, run_folders, until
from tools.cluster.hosts import DRIVE, NAMES, RUNS, Cluster
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord

DEADLINE_S = 120.0
"""Five missed heartbeats are 10 s, and the rest is for a busy machine."""


@contextmanager
def waiting(
    cluster: Cluster, where: str, ranks: int = 3, *settings: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, list[int]]]]:
    """Start a run and wait until all ranks wait in a step; yields their PIDs by host."""

    def pids() -> dict[str, list[int]]:
        found = {name: sorted(cluster.files(name, DRIVE).glob("waiting-*")) for name in NAMES}
        return {name: [int(path.read_text() or 0) for path in found[name]] for name in NAMES}

    with cluster.started(*SLOW, *settings, ranks=ranks, WATTLOAD_TEST_STOP=where) as process:
        until(lambda: sum(map(len, pids().values())) == ranks, process, DEADLINE_S)
        yield process, pids()


def one(cluster: Cluster, host: str, part: str) -> int:
    """Return the PID of the one process on a host whose command line has a part."""
    (pid,) = (pid for pid, line in cluster.processes(host).items() if part in line)
    return pid


def let_go_on(cluster: Cluster, process: subprocess.Popen[str]) -> str:
    """End the nap of all ranks, and return what the run wrote to stderr until its end."""
    for name in NAMES:
        cluster.files(name, f"{DRIVE}/go-on").touch()
    return process.communicate(timeout=DEADLINE_S)[1]


def record_on(cluster: Cluster, host: str) -> RunRecord:
    (folder,) = run_folders(cluster.files(host, RUNS))
    until((folder / "record.json").exists, seconds=DEADLINE_S)
    return read_record(folder)


def assert_nothing_runs(cluster: Cluster) -> None:
    until(lambda: not any(map(cluster.processes, NAMES)), seconds=DEADLINE_S)


@pytest.mark.parametrize(
    ("victim", "where"),
    [
        ("rank", "run"),
        ("leader", "prepare"),
        ("leader", "run"),
        ("leader", "verify"),
    ],
)
def test_what_dies_on_the_second_host_ends_the_run_on_all(
    cluster: Cluster, victim: str, where: str
) -> None:
    with waiting(cluster, where, ranks=6 if victim == "rank" else 3) as (process, pids):
        ranks = {"leader": 0, "rank": 1}
        pid = pids["node2"][ranks[victim]] if victim in ranks else one(cluster, "node2", victim)
        cluster.on("node2", "kill", "-KILL", str(pid))
        _, said = process.communicate(timeout=DEADLINE_S)
    assert_nothing_runs(cluster)
    assert "Traceback" not in said
    assert record_on(cluster, "node1").status == "aborted", said


@pytest.mark.parametrize("where", ["prepare", "run"])
def test_the_death_of_mpirun_ends_the_run_on_all(cluster: Cluster, where: str) -> None:
    with waiting(cluster, where) as (process, _):
        cluster.on("node1", "kill", "-KILL", str(one(cluster, "node1", "mpirun -hosts")))
        process.communicate(timeout=DEADLINE_S)
    assert_nothing_runs(cluster)
    assert record_on(cluster, "node1").status == "aborted"


def test_the_death_of_a_sampler_is_in_the_record_with_its_host(cluster: Cluster) -> None:
    with waiting(cluster, "nap") as (process, _):
        cluster.on("node2", "kill", "-KILL", str(one(cluster, "node2", "wattload.power.sampler")))
        said = let_go_on(cluster, process)
    assert "the sampler ended" in said
    assert_nothing_runs(cluster)
    assert "node2: the sampler was lost" in " ".join(record_on(cluster, "node1").limits)


@pytest.mark.parametrize("starter", ["sshd: root@notty", "hydra_pmi_proxy"])
def test_a_run_outlives_what_started_its_ranks(cluster: Cluster, starter: str) -> None:
    """MPI has connections of its own by then."""
    with waiting(cluster, "nap") as (process, _):
        cluster.on("node2", "kill", "-KILL", str(one(cluster, "node2", starter)))
        said = let_go_on(cluster, process)
    assert_nothing_runs(cluster)
    assert record_on(cluster, "node1").status == "complete", said


@pytest.mark.parametrize("where", ["prepare", "run"])
def test_a_partition_leaves_a_record_on_both_sides(cluster: Cluster, where: str) -> None:
    with waiting(cluster, where) as (process, _):
        cluster.cut("node2")
        _, said = process.communicate(timeout=DEADLINE_S)
        assert_nothing_runs(cluster)
    assert "nothing was heard from node2" in said
    for name, lost in zip(NAMES, ("node2", "node1", "node2"), strict=True):
        record = record_on(cluster, name)
        assert record.status == "aborted"
        assert f"nothing was heard from {lost}" in record.status_reason
