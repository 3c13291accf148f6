"""``wattload run --hosts`` over several hosts."""

from __future__ import annotations

from tests.cluster.hosts import NAMES, RUN, VARIABLES, Cluster

ON_ALL = (*RUN, "--hosts", ",".join(NAMES), "workload=null", "power=none")


def test_all_hosts_that_can_not_be_used_are_named(cluster: Cluster) -> None:
    """One is off the network, one lacks the current folder."""
    cluster.cut("node2")
    folder = "/tmp/of-node1"
    cluster.on("node1", "mkdir", folder)
    done = cluster.on("node1", "env", "-C", folder, *ON_ALL, **VARIABLES)
    assert done.returncode == 2
    first, *hosts = done.stderr.splitlines()
    assert first.startswith("wattload: nothing was started: each host must be reachable by ssh")
    assert [line.partition(": ")[0] for line in hosts] == ["  node2", "  node3"]
    assert hosts[0].endswith("Connection timed out")
    assert hosts[1].endswith(f"ls: cannot access '{folder}': No such file or directory")
