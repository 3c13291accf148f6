"""Whether hosts have a drive each or share a folder, and what a workload makes of that."""

from __future__ import annotations

from tools.cluster.hosts import DRIVE, NAMES, RUNS, Cluster

AWAY = "/mnt/away"
SMALL = (
    *("workload=unet3d", "scale=demo", "power=none", "workload.record_divisor=640"),
    *("workload.file_count=18", "workload.batch_samples=2", "workload.epochs=1"),
)


def files(cluster: Cluster, host: str, kind: str) -> list[str]:
    return sorted(path.name for path in cluster.files(host, DRIVE).glob(f"wattload-data/*/{kind}"))


def test_folders_that_are_not_as_stated_are_refused(cluster: Cluster) -> None:
    done = cluster.mpirun(*SMALL, "target.shared=true")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"wattload: node2, node3: {DRIVE} is not the folder that node1 sees, and target.shared=true"
    )
    cluster.on("node2", "sh", "-c", f"mkdir {AWAY} && mount --move {DRIVE} {AWAY}")
    try:
        done = cluster.mpirun(*SMALL)
    finally:
        cluster.on("node2", "sh", "-c", f"mount --move {AWAY} {DRIVE} && rmdir {AWAY}")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"wattload: node2: no drive is mounted at {DRIVE}, where node1 has one; mount the drive"
    )
    for name in NAMES:
        assert not list(cluster.files(name, RUNS).glob("*-*"))
        assert not list(cluster.files(name, DRIVE).glob("*wattload*"))


def test_each_host_reads_its_share_from_its_own_drive(cluster: Cluster) -> None:
    done = cluster.mpirun(*SMALL)
    assert done.returncode == 0, done.stderr
    assert "hosts 3 (node1, node2, node3), a drive each: 3 processes do one job" in done.stderr
    for name in NAMES:
        assert len(files(cluster, name, "*.npz")) == 18
        assert files(cluster, name, ".wattload-manifest-*") == [".wattload-manifest-0.jsonl"]
