"""One record of a run over three hosts: what each did, on its own drive, with its own meter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import open_mpi_library
from tests.run.running import run_folders
from tools.cluster.hosts import NAMES, RUNS, Cluster
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord
from wattload.reports.runs.hosts import shares_of

TRAINING = ("workload=unet3d", "scale=demo", "workload.file_count=56", "accelerator=unpaced")


def meter(folder: Path, name: str, watts: float) -> None:
    rows = "".join(f"{row / 10},{watts}\n" for row in range(6000))
    (folder / name).write_text(f"# evidence: estimated\n# device: OTHER\ntime_s,power_w\n{rows}")


def only_record(cluster: Cluster) -> RunRecord:
    """Return the record on the first host; the other hosts have nothing left."""
    for name in NAMES[1:]:
        assert not run_folders(cluster.files(name, RUNS))
    (folder,) = run_folders(cluster.files(NAMES[0], RUNS))
    return read_record(folder)


def written_bytes(cluster: Cluster) -> dict[str, int]:
    return {name: cluster.written_bytes(name) for name in NAMES}


def assert_each_host_wrote(record: RunRecord, cluster: Cluster, before: dict[str, int]) -> None:
    """Compare the counters in the record with those that were read around the run."""
    after = written_bytes(cluster)
    for host in NAMES:
        counted = [each.written_bytes or 0 for each in record.counters if each.host == host]
        assert 0 < sum(counted) <= after[host] - before[host]


def test_a_job_is_divided_over_the_hosts_and_each_reads_its_own_drive(cluster: Cluster) -> None:
    for name, watts in zip(NAMES, (5.0, 6.0, 7.0), strict=True):
        meter(cluster.files(name, "/tmp"), "meter.csv", watts)
    before = written_bytes(cluster)
    options = ["power=replay", "power.replay.path=/tmp/meter.csv", "power.idle_s=0"]
    done = cluster.mpirun(*TRAINING, *options, ranks=6)
    assert done.returncode in (0, 3), done.stderr
    record = only_record(cluster)
    assert [host.facts.name for host in record.hosts] == list(NAMES)
    assert record.workload.rank_count == 6
    assert_each_host_wrote(record, cluster, before)
    read = dict.fromkeys(NAMES, 0)
    for each in record.counters:
        if each.phase == "read":
            read[each.host] += each.read_bytes or 0
    total = sum(window.read_bytes for window in record.windows if window.name == "read")
    assert sum(read.values()) == pytest.approx(total, rel=0.1)
    assert min(read.values()) > 0.2 * total
    means = {each.host: each.mean_w for each in record.power.energy if each.phase == "read"}
    assert means == pytest.approx({"node1": 5.0, "node2": 6.0, "node3": 7.0}), record.power.energy
    *shares, whole = shares_of(record)
    assert [share.name for share in shares] == list(NAMES)
    assert whole.energy is not None
    assert whole.energy.mean_w == pytest.approx(18.0)
    assert whole.energy.bytes_per_j == pytest.approx(
        total / sum(e.energy_j or 0.0 for e in record.power.energy if e.phase == "read")
    )


def test_open_mpi_runs_over_the_hosts_as_well(cluster: Cluster) -> None:
    before = written_bytes(cluster)
    done = cluster.mpirun(
        *TRAINING, "power=none", open_mpi="mpirun.openmpi", MPI4PY_LIBMPI=open_mpi_library()
    )
    assert done.returncode in (0, 3), done.stderr
    record = only_record(cluster)
    assert [host.facts.name for host in record.hosts] == list(NAMES)
    assert_each_host_wrote(record, cluster, before)


def test_hosts_that_share_a_folder_use_the_same_data(cluster: Cluster) -> None:
    target = cluster.folder / "target"
    target.mkdir()
    done = cluster.mpirun(*TRAINING, "power=none", f"target.path={target}", "target.shared=true")
    assert done.returncode in (0, 3), done.stderr
    assert len(only_record(cluster).hosts) == len(NAMES)
    assert len(list(target.glob("wattload-data/*/*.npz"))) == 56


def test_one_folder_of_all_hosts_is_no_drive_of_each(cluster: Cluster) -> None:
    folder = cluster.folder / "claimed"
    folder.mkdir()
    done = cluster.mpirun(
        *("workload=null", "power=none"),
        *(f"target.path={folder}", "target.allow_unmounted=true", "target.shared=false"),
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "is the folder that node1 sees, and target.shared=false means" in done.stderr
