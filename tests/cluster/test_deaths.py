"""What dies on one of three hosts ends the run on all of them: with a record, and restored."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import open_mpi_library
from tests.cluster.model_drive import FROZEN, MODEL, MODELS, add_drives, states
from tests.model_host.drive import NOT_CHANGEABLE, Model, sent, store
from tests.run.running import SLOW, run_folders, until
from tools.cluster.hosts import DRIVE, NAMES, RUNS, Cluster
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord

START_S = 120.0
END_S = 30.0
"""How long a run may take to end after a host or the network was lost."""
PHASES = ("prepare", "run", "verify")
SETTING = (*SLOW, "power.state=1")
MODULE = "tests.cluster.model_drive"
SAMPLER = "tests.model_host.program"
Pids = dict[str, list[int]]


@contextmanager
def waiting(
    cluster: Cluster, where: str, *settings: str, ranks: int = 3, library: str = "MPICH"
) -> Iterator[tuple[subprocess.Popen[str], Pids]]:
    """Start a run in power state 1, and wait until all ranks wait; yields their PIDs by host."""
    variables, open_mpi = {"WATTLOAD_TEST_STOP": where}, ""
    if library == "Open MPI":
        variables["MPI4PY_LIBMPI"], open_mpi = open_mpi_library(), "mpirun.openmpi"
    add_drives(cluster)
    if where == "stall":
        for name in NAMES:
            os.mkfifo(cluster.files(name, f"{DRIVE}/drive"))

    def pids() -> Pids:
        found = {name: sorted(cluster.files(name, DRIVE).glob("waiting-*")) for name in NAMES}
        return {name: [int(path.read_text() or 0) for path in found[name]] for name in NAMES}

    with cluster.started(
        *SETTING, *settings, ranks=ranks, open_mpi=open_mpi, module=MODULE, **variables
    ) as process:
        until(lambda: sum(map(len, pids().values())) == ranks, process, START_S)
        assert states(cluster) == [1, 1, 1]
        yield process, pids()


def kill(cluster: Cluster, host: str, *pids: int, number: int = signal.SIGKILL) -> None:
    cluster.on(host, "kill", f"-{number:d}", *map(str, pids))


def one(cluster: Cluster, host: str, part: str) -> int:
    """Return the PID of the one process on a host whose command line has a part."""
    (pid,) = (pid for pid, line in cluster.processes(host).items() if part in line)
    return pid


def ended(cluster: Cluster, process: subprocess.Popen[str], hosts: tuple[str, ...] = NAMES) -> str:
    """Return what a run said, once its processes have ended on these hosts; that must be in time.

    If the first host is none of them, nothing is known of that.
    """
    deadline_s = time.monotonic() + END_S
    while any(map(cluster.processes, hosts)):
        assert time.monotonic() < deadline_s, {name: cluster.processes(name) for name in hosts}
        time.sleep(0.1)
    said = process.communicate(timeout=START_S)[1] if NAMES[0] in hosts else ""
    assert "Traceback" not in said
    return said


def record_on(cluster: Cluster, host: str, runs: str = RUNS) -> RunRecord:
    (folder,) = run_folders(cluster.files(host, runs))
    return read_record(folder)


def assert_aborted(cluster: Cluster, said: str) -> list[str]:
    """Return why the run ended by the record of each host, which has restored its drive."""
    assert states(cluster) == [0, 0, 0]
    records = [record_on(cluster, name) for name in NAMES]
    assert {record.status for record in records} == {"aborted"}, said
    for record, name in zip(records, NAMES, strict=True):
        (state,) = record.power.states
        assert (state.host, state.verified, state.restored) == (name, 1, 0)
    return [record.status_reason for record in records]


@pytest.mark.parametrize(
    ("victim", "where"), [("rank", "prepare"), ("leader", "run"), ("mpirun", "verify")]
)
def test_the_death_of_a_process_ends_the_run_on_all_hosts(
    cluster: Cluster, victim: str, where: str
) -> None:
    with waiting(cluster, where, ranks=6 if victim == "rank" else 3) as (process, pids):
        if victim == "mpirun":
            kill(cluster, "node1", one(cluster, "node1", "mpirun -hosts"))
        else:
            kill(cluster, "node2", pids["node2"][victim == "rank"])
        said = ended(cluster, process)
    assert_aborted(cluster, said)


def test_the_death_of_a_process_of_open_mpi_ends_the_run_on_all_hosts(cluster: Cluster) -> None:
    with waiting(cluster, "run", library="Open MPI") as (process, pids):
        kill(cluster, "node2", *pids["node2"])
        said = ended(cluster, process)
    assert_aborted(cluster, said)


@pytest.mark.parametrize(("library", "where"), [("MPICH", "prepare"), ("Open MPI", "run")])
def test_a_partition_leaves_a_record_on_both_sides(
    cluster: Cluster, library: str, where: str
) -> None:
    with waiting(cluster, where, library=library) as (process, _):
        cluster.cut("node2")
        said = ended(cluster, process)
    assert "nothing was heard from node2" in said
    reasons = assert_aborted(cluster, said)
    for reason, lost in zip(reasons, ("node2", "node1", "node2"), strict=True):
        assert reason.startswith(f"nothing was heard from {lost}")


@contextmanager
def napping(cluster: Cluster) -> Iterator[tuple[subprocess.Popen[str], Callable[..., None]]]:
    """Start a run that waits in each phase; yields a function that kills processes in the next."""
    add_drives(cluster)
    left = iter(PHASES)

    def kill_in_next_phase(*victims: tuple[str, str]) -> None:
        where = next(left)
        for rank, name in enumerate(NAMES):
            until(cluster.files(name, f"{DRIVE}/waiting-{where}-{rank}").exists, process, START_S)
        for name, part in victims:
            kill(cluster, name, one(cluster, name, part))
        for name in NAMES:
            cluster.files(name, f"{DRIVE}/go-on-{where}").touch()

    with cluster.started(*SETTING, module=MODULE, WATTLOAD_TEST_STOP="naps") as process:
        yield process, kill_in_next_phase


def test_a_run_outlives_its_samplers_and_what_started_its_ranks(cluster: Cluster) -> None:
    """MPI has connections of its own by then."""
    with napping(cluster) as (process, kill_in_next_phase):
        kill_in_next_phase(("node2", "sshd: root@notty"))
        kill_in_next_phase(("node2", SAMPLER), ("node3", "sshd: root@notty"))
        kill_in_next_phase(("node1", SAMPLER), ("node2", "hydra_pmi_proxy"))
        said = ended(cluster, process)
    record = record_on(cluster, "node1")
    assert record.status == "complete", said
    assert states(cluster) == [0, 0, 0]
    assert "node1: warning: the sampler ended" in said
    for name in NAMES[:2]:
        assert f"{name}: the sampler was lost" in " ".join(record.limits)


def test_the_death_of_a_sampler_before_it_samples_ends_the_run(cluster: Cluster) -> None:
    with napping(cluster) as (process, kill_in_next_phase):
        kill_in_next_phase(("node2", SAMPLER))
        said = ended(cluster, process)
    assert "node2: warning: the sampler ended" in said
    assert states(cluster) == [0, 0, 0]
    for name in NAMES:
        record = record_on(cluster, name)
        assert record.status == ("failed" if name == "node2" else "aborted"), said
        assert "the sampler ended" in record.status_reason


@pytest.mark.parametrize("where", ["run", "stall"])
def test_a_run_that_slurm_ends_leaves_a_record(cluster: Cluster, where: str) -> None:
    """It sends SIGTERM, and SIGKILL to what has not ended then, as no rank in a ``stall`` does."""
    with waiting(cluster, where) as (process, pids):
        for number in (signal.SIGTERM, *([signal.SIGKILL] if where == "stall" else [])):
            for name in NAMES:
                kill(cluster, name, *pids[name], number=number)
        said = ended(cluster, process)
    reasons = assert_aborted(cluster, said)
    if where == "run":
        assert all("interrupted by SIGTERM" in reason for reason in reasons)


def test_the_record_in_a_shared_folder_outlives_the_host_that_made_it(cluster: Cluster) -> None:
    runs = str(cluster.folder / "runs")
    with waiting(cluster, "run", f"runs={runs}") as (process, _):
        stopped = list(cluster.processes("node1"))
        kill(cluster, "node1", *stopped, number=signal.SIGSTOP)
        try:
            ended(cluster, process, NAMES[1:])
            record = record_on(cluster, "node2", runs)
            assert record.status == "aborted"
            assert record.status_reason.startswith("nothing was heard from node1")
            assert states(cluster) == [1, 0, 0]
        finally:
            kill(cluster, "node1", *stopped, number=signal.SIGCONT)
            process.send_signal(signal.SIGCONT)  # it has stopped with what it had started
        ended(cluster, process)
    assert states(cluster) == [0, 0, 0]


def test_an_interruption_of_all_hosts_is_reported_once(cluster: Cluster) -> None:
    """The first host records the run, even if others are interrupted before it."""
    runs = str(cluster.folder / "runs")
    with waiting(cluster, "run", f"runs={runs}") as (process, pids):
        for host in reversed(NAMES):
            kill(cluster, host, *pids[host], number=signal.SIGINT)
        said = ended(cluster, process)
    assert said.count("interrupted") == 1
    assert "wattload: rank 0 on node1: interrupted\n" in said
    assert record_on(cluster, "node1", runs).status == "aborted"


def test_hosts_do_not_wait_for_the_first_one_to_record_why_the_run_failed(cluster: Cluster) -> None:
    """They restore their drives at once, and the run ends with its reason."""
    add_drives(cluster)
    store(cluster.files("node2", MODEL), Model(refuses=NOT_CHANGEABLE))
    runs, frozen = cluster.folder / "runs", "node1 lifecycle record_failure"
    with cluster.started(
        *SETTING, f"runs={runs}", module=MODULE, WATTLOAD_TEST_FREEZE=frozen
    ) as process:
        until(cluster.files("node1", FROZEN).exists, process, START_S)
        until(lambda: sent(cluster.files("node3", str(MODELS))) == ["0x2 1", "0x2 0"], process)
        said = ended(cluster, process)
    assert "wattload: node2: " in said
    (folder,) = run_folders(runs)
    assert read_record(folder).status == "failed"


@pytest.mark.parametrize("function", ["_require_split", "_close", "limit_end"])
def test_a_host_that_is_lost_before_or_after_the_run_ends_the_others(
    cluster: Cluster, function: str
) -> None:
    """Before the hosts watch each other; while others wait to end; and when all were to end."""
    add_drives(cluster)
    frozen = f"node2 process {function}"
    with cluster.started(*SETTING, module=MODULE, WATTLOAD_TEST_FREEZE=frozen) as process:
        until(cluster.files("node2", FROZEN).exists, process, START_S)
        cluster.cut("node2")
        said = ended(cluster, process, ("node1", "node3"))
    folders = run_folders(cluster.files("node1", RUNS))
    if function == "_require_split":
        assert "did not connect to each other" in said
        assert not folders
    else:
        assert [read_record(folder).status for folder in folders] == ["complete"]
    assert states(cluster) == [0, 0, 0]
