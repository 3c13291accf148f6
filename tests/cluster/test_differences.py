"""Hosts that can't make one run together are refused, with all that differs, before a byte."""

from __future__ import annotations

import pytest

from tools.cluster.hosts import DRIVE, NAMES, ROOT, RUNS, Cluster

NULL = ("workload=null", "power=none")
SITE = "/tmp/site"
"""Where a host may have code that changes what Python is on it."""
LAB = "/tmp/lab"
OWN = (f"hydra.searchpath=[{LAB}]", "experiment=own", *NULL)


def changed(cluster: Cluster, host: str, code: str) -> None:
    site = cluster.files(host, SITE)
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import os, time\nread = time.time\n{code}")


def labelled(cluster: Cluster, host: str, label: str) -> None:
    """Give a host an experiment of its own that sets the label."""
    folder = cluster.files(host, LAB) / "experiment"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(f"# @package _global_\nlabel: {label}\n")


def test_all_differences_are_listed_at_once(cluster: Cluster) -> None:
    for host, label in zip(NAMES, "AAB", strict=True):
        labelled(cluster, host, label)
    older = "import wattload\nwattload.__version__ = '0.0.9'\n"
    changed(cluster, "node2", f"{older}time.time = lambda: read() + 600")
    changed(cluster, "node3", "time.time = lambda: read() - 20")
    cluster.on("node3", "mount", "-o", "remount,ro", DRIVE)
    try:
        done = cluster.mpirun(*OWN, PYTHONPATH=f"{SITE}:{ROOT}")
    finally:
        cluster.on("node3", "mount", "-o", "remount,rw", DRIVE)
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert len(lines) == 5, done.stderr
    assert lines[0].startswith("warning: the clock of node3 is ")
    assert lines[0].endswith(" s behind that of node1")
    assert lines[1].startswith("wattload: node2: wattload is 0.0.9")
    assert "also        node2: the clock is 6" in lines[2]
    assert "(label=B here and A there); use the same configuration files" in lines[3]
    assert f"also        node3: {DRIVE} is on a read-only file system" in lines[4]
    for name in NAMES:
        assert not list(cluster.files(name, RUNS).glob("*-*"))
        assert not list(cluster.files(name, DRIVE).glob("*wattload*"))


@pytest.mark.parametrize(
    ("runs", "target", "unmounted"),
    [
        ("repeat=1", DRIVE, f"no drive is mounted at {DRIVE}, where node1 has one; "),
        ("repeat=2", f"{DRIVE}/data", f"{DRIVE}/data does not exist; create the directory "),
    ],
)
def test_faults_of_every_kind_are_one_list(
    cluster: Cluster, runs: str, target: str, unmounted: str
) -> None:
    """Another version, no trace of power and no space on the second host, no drive on the third.

    Its folder of runs is full, too.
    """
    changed(cluster, "node2", "import wattload\nwattload.__version__ = '0.0.9'\n")
    trace = "/tmp/power.csv"
    for host in NAMES:
        cluster.on(host, "mkdir", "-p", target)
    for host in ("node1", "node3"):
        cluster.files(host, trace).write_text("# evidence: measured\ntime_s,power_w\n0,5\n99,5\n")
    fill = f"fallocate -l $(($(stat -f -c %a*%S {DRIVE}) - 30000000)) {DRIVE}/full"
    cluster.on("node2", "sh", "-c", fill)
    small = f"mkdir {RUNS} && mount -t tmpfs -o size=8m tmpfs {RUNS}"
    cluster.on("node2", "sh", "-c", small)
    cluster.on("node3", "umount", DRIVE)
    settings = ("workload=unet3d", "scale=demo", "power=replay", f"power.replay.path={trace}")
    try:
        done = cluster.mpirun(*settings, runs, f"target.path={target}", PYTHONPATH=f"{SITE}:{ROOT}")
    finally:
        cluster.on("node2", "umount", RUNS)
        cluster.on("node3", "mount", "-o", "loop", f"/mnt/{cluster.folder.name}.image", DRIVE)
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert len(lines) == 5, done.stderr
    assert lines[0].startswith("wattload: node2: wattload is 0.0.9")
    assert lines[1].startswith(f"  also        node2: {trace}")
    assert lines[2].startswith(f"  also        node2: can't create the folder of a run in {RUNS}, ")
    assert "No space left on device" in lines[2]
    assert lines[3].startswith(f"  also        node2: {target} has ")
    assert "must stay free; free some space" in lines[3]
    assert lines[4].startswith(f"  also        node3: {unmounted}")
    for name in NAMES:
        assert not list(cluster.files(name, RUNS).glob("*-*"))
        assert not list(cluster.files(name, DRIVE).glob("*wattload*"))


def test_a_fault_before_hosts_are_connected_names_its_host(cluster: Cluster) -> None:
    for host in ("node1", "node3"):
        labelled(cluster, host, "A")
    done = cluster.mpirun(*OWN)
    assert done.returncode
    assert f"wattload: node2: --config-dir: there is no folder {LAB}" in done.stderr, done.stderr


def test_a_reason_of_all_hosts_names_none(cluster: Cluster) -> None:
    done = cluster.mpirun(*NULL, f"target.path={DRIVE}/missing")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"wattload: {DRIVE}/missing does not exist; create the directory on the drive under test, "
        "or mount it"
    )
