"""What keeps hosts from making one run is named, with the host, before a byte is written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.run.running import SLOW, run_folders, until
from tools.cluster.hosts import DEADLINE_S, DRIVE, NAMES, RUN, RUNS, VARIABLES, Cluster

NULL = ("workload=null", "power=none")


@contextmanager
def changed(cluster: Cluster, change: str, back: str) -> Iterator[None]:
    """Change the second host by a shell command, and change it back."""
    assert cluster.on("node2", "sh", "-ec", change).returncode == 0
    try:
        yield
    finally:
        assert cluster.on("node2", "sh", "-ec", back).returncode == 0


def sentences(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("wattload: ")]


def refusal(cluster: Cluster, *settings: str) -> str:
    """Return the one sentence of a run that was refused, and wrote nothing on any host."""
    done = cluster.mpirun(*settings)
    (sentence,) = sentences(done)
    assert done.returncode == 2, done
    for name in NAMES:
        assert not run_folders(cluster.files(name, RUNS))
        assert not list(cluster.files(name, DRIVE).glob("wattload-data/*/*.npz"))
    return sentence


def test_two_hosts_of_one_name(cluster: Cluster) -> None:
    with changed(cluster, "hostname node1", "hostname node2"):
        assert "2 hosts are named node1" in refusal(cluster, *NULL)


def test_two_jobs_on_one_drive(cluster: Cluster) -> None:
    with cluster.started(*SLOW, WATTLOAD_TEST_STOP="nap") as first:
        until(
            lambda: all(
                (cluster.files(n, DRIVE) / f"waiting-{i}").exists() for i, n in enumerate(NAMES)
            ),
            first,
        )
        (sentence,) = sentences(cluster.mpirun(*NULL))
        assert "another wattload run" in sentence
        for name in NAMES:
            (cluster.files(name, DRIVE) / "go-on").touch()
        assert first.wait(DEADLINE_S) in (0, 3)


def test_a_workload_of_one_host_on_three(cluster: Cluster) -> None:
    sentence = refusal(cluster, "workload=random_write", "power=none")
    assert "one host" in sentence


@pytest.mark.parametrize("named", ["node1,node4", "node1,nowhere.invalid"])
def test_a_name_that_does_not_resolve(cluster: Cluster, named: str) -> None:
    done = cluster.on("node1", *RUN, "--hosts", named, *NULL, **VARIABLES)
    assert done.returncode == 2
    assert named.partition(",")[2] in done.stderr
    assert "resolve" in done.stderr.lower()


def test_more_processes_than_cores_of_another_host(cluster: Cluster) -> None:
    done = cluster.on("node1", *RUN, "--hosts", "node1,node2:999", *NULL, **VARIABLES)
    assert done.returncode == 2
    assert "and a core for each process\n  node2: 999 processes on " in done.stderr


def test_a_host_that_refuses_ssh(cluster: Cluster) -> None:
    with changed(cluster, "kill $(cat /run/sshd.pid)", "/usr/sbin/sshd"):
        done = cluster.on("node1", *RUN, "--hosts", ",".join(NAMES), *NULL, **VARIABLES)
    assert done.returncode == 2
    assert "node2: " in done.stderr
    assert "refused" in done.stderr
