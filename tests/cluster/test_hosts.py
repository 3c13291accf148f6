"""The hosts of namespaces themselves: what MPI, the network and a drive are on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.conftest import assert_three_nodes, need, open_mpi_library
from tests.run.running import until
from tools.cluster.hosts import DRIVE, NAMES, ROOT, Cluster, launcher, missing


def test_open_mpi_starts_a_node_on_each_host(cluster: Cluster) -> None:
    words = launcher(open_mpi="mpirun.openmpi", variables=["MPI4PY_LIBMPI"])
    assert_three_nodes(cluster, words, MPI4PY_LIBMPI=open_mpi_library())


def test_each_host_has_its_own_files_and_drive(cluster: Cluster) -> None:
    before = {name: cluster.written_bytes(name) for name in NAMES}
    cluster.on(
        "node2", "dd", "if=/dev/zero", f"of={DRIVE}/file", "bs=1M", "count=8", "oflag=direct"
    )
    written = {name: cluster.written_bytes(name) - before[name] for name in NAMES}
    assert written["node2"] >= 8 << 20
    assert max(written["node1"], written["node3"]) < 1 << 20
    assert cluster.files("node2", f"{DRIVE}/file").exists()
    assert not cluster.files("node1", f"{DRIVE}/file").exists()


def test_a_host_that_is_cut_off_is_silent_until_it_is_restored(cluster: Cluster) -> None:
    reach = ["ssh", "-o", "ConnectTimeout=2", "node2", "hostname"]
    assert cluster.on("node1", *reach).stdout == "node2\n"
    cluster.cut("node2")
    assert "timed out" in cluster.on("node1", *reach).stderr
    cluster.restore("node2")
    assert cluster.on("node1", *reach).stdout == "node2\n"


def test_what_runs_on_a_host_is_listed_and_cleared(cluster: Cluster) -> None:
    words = cluster.words("node3", sys.executable, "-c", "print(flush=True); input()")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [line for line in cluster.processes("node3").values() if "input()" in line]
        assert not cluster.processes("node1")
        cluster.clear()
        process.wait()
    assert not cluster.processes("node3")


def test_nothing_of_the_hosts_outlives_their_maker(tmp_path: Path) -> None:
    """Everything is in namespaces that end with it, however it ends."""
    need(missing())

    folders: list[str] = []

    def left() -> list[str]:
        words = ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"]
        devices = subprocess.check_output(words, text=True).splitlines()
        return [path for path in devices if any(name in path for name in folders)]

    words = [sys.executable, "-m", "tools.cluster.hosts", "sh", "-c", "echo ready; sleep 600"]
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, env=variables, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"ready\n"
        folders += [path.name for path in tmp_path.iterdir()]
        pids = [int(path.read_text()) for path in tmp_path.glob("*/*.pid")]
        assert len(pids) == len(left()) == len(NAMES)
        maker.kill()
    until(lambda: not left() and not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
