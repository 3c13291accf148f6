"""``--hosts`` over several hosts."""

from __future__ import annotations

import sys

from tests.run.running import run_folders
from tools.cluster.hosts import DRIVE, NAMES, RUN, RUNS, VARIABLES, Cluster
from wattload.core.record.file import read_record

NONLOCAL = "/proc/sys/net/ipv4/ip_nonlocal_bind"
ON_ALL = (*RUN, "--hosts", ",".join(NAMES), "workload=null", "power=none")


def test_one_command_runs_on_all_hosts(cluster: Cluster) -> None:
    done = cluster.on("node1", *ON_ALL, **VARIABLES)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(cluster.files("node1", RUNS))
    assert tuple(host.facts.name for host in read_record(folder).hosts) == NAMES


def test_a_plan_is_that_of_all_hosts(cluster: Cluster) -> None:
    words = (sys.executable, "-m", "wattload", "plan", "--hosts", ",".join(NAMES), "unet3d")
    done = cluster.on("node1", *words, "scale=demo", f"target.path={DRIVE}", **VARIABLES)
    assert done.returncode == 0, done.stderr
    assert "3 (node1, node2, node3), a drive each: 3 processes do one job" in done.stdout


def test_all_hosts_that_can_not_be_used_are_named(cluster: Cluster) -> None:
    """One is off the network, one lacks the current folder. Their addresses could be bound here."""
    cluster.cut("node2")
    cluster.on("node1", "sh", "-c", f"echo 1 >{NONLOCAL}")
    folder = "/tmp/of-node1"
    cluster.on("node1", "mkdir", folder)
    done = cluster.on("node1", "env", "-C", folder, *ON_ALL, **VARIABLES)
    assert not cluster.on("node1", "sh", "-c", f"echo 0 >{NONLOCAL}").returncode
    assert done.returncode == 2
    first, *hosts = done.stderr.splitlines()
    assert first.startswith("wattload: nothing was started: each host must be reachable by ssh")
    assert [line.partition(": ")[0] for line in hosts] == ["  node2", "  node3"]
    assert hosts[0].endswith("Connection timed out")
    assert hosts[1].endswith(f"ls: cannot access '{folder}': No such file or directory")
