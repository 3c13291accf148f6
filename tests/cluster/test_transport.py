"""The results of all hosts are on the first one in the end, and nothing is left on the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.run.running import SLOW, run_folders, until
from tests.tinyfs import fill
from tools.cluster.hosts import DEADLINE_S, DRIVE, NAMES, RUNS, Cluster
from wattload.core.record.file import RECORD_FILE, RESERVE_FILE, read_record

REPLAY = (
    "power=replay",
    "power.replay.path=/tmp/meter.csv",
    "power.idle_s=0",
    "power.rest_max_s=0",
)
METER = "# evidence: measured\n# device: OTHER\ntime_s,power_w\n"


def write_meters(cluster: Cluster) -> None:
    """Give each host the log of a meter of its own."""
    for watts, name in enumerate(NAMES, start=5):
        rows = "".join(f"{row / 10},{watts}\n" for row in range(3000))
        (cluster.files(name, "/tmp") / "meter.csv").write_text(METER + rows)


def hosts_in(folder: Path, trace: str) -> set[str]:
    return set(pq.read_table(folder / f"{trace}.parquet").column("host").to_pylist())


def watts_in(folder: Path) -> dict[str, set[float]]:
    """Return the readings of each host's meter."""
    rows = pq.read_table(
        folder / "power.parquet", filters=[("channel", "=", "power_w")]
    ).to_pylist()
    return {name: {row["value"] for row in rows if row["host"] == name} for name in NAMES}


def ranks_in(folder: Path) -> set[int]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return {json.loads(line)["rank"] for line in lines}


def test_all_files_of_other_hosts_come_to_the_first_one(cluster: Cluster) -> None:
    write_meters(cluster)
    done = cluster.mpirun(*SLOW[:2], *REPLAY, ranks=6)
    assert done.returncode in (0, 3), done.stderr
    (folder,) = run_folders(cluster.files(NAMES[0], RUNS))
    assert [len(run_folders(cluster.files(name, RUNS))) for name in NAMES] == [1, 0, 0]
    record = read_record(folder)
    assert [rank.rank for rank in record.ranks] == [0, 1, 2, 3, 4, 5]
    assert sorted({span.rank for span in record.spans}) == [0, 1, 2, 3, 4, 5]
    assert [host.host for host in record.power.hosts] == list(NAMES)
    assert hosts_in(folder, "throughput") == hosts_in(folder, "power") == set(NAMES)
    assert ranks_in(folder) == {0, 1, 2, 3, 4, 5}
    for number, name in enumerate(NAMES[1:], start=1):
        (log,) = (folder / f"host-{number}/replay-{name}").iterdir()
        assert log.read_bytes() == (cluster.files(name, "/tmp") / "meter.csv").read_bytes()


def test_hosts_that_share_the_folder_of_runs_make_one_run_folder(cluster: Cluster) -> None:
    runs = cluster.folder / "runs"
    write_meters(cluster)
    done = cluster.mpirun(*SLOW[:2], *REPLAY, f"runs={runs}")
    assert done.returncode in (0, 3), done.stderr
    (folder,) = run_folders(runs)
    assert hosts_in(folder, "throughput") == hosts_in(folder, "power") == set(NAMES)
    assert watts_in(folder) == {name: {watts} for watts, name in enumerate(NAMES, start=5)}
    assert ranks_in(folder) == {0, 1, 2}
    names = {path.name for path in folder.iterdir()}
    assert not [name for name in names if name.startswith(("host-", "journal-", "samples-"))]


@pytest.mark.parametrize(("ranks", "failing"), [(3, "1"), (6, "3")])
def test_a_failure_on_the_second_host_is_in_the_record_of_each(
    cluster: Cluster, ranks: int, failing: str
) -> None:
    """Once it is that of the host's first rank, once of another."""
    done = cluster.mpirun(*SLOW, ranks=ranks, WATTLOAD_TEST_FAIL=failing)
    assert done.returncode
    assert "the record on this rank is torn" in done.stderr
    assert re.search(rf"  record      node[12]:{RUNS}/\S+/{RECORD_FILE}\n", done.stderr)
    assert re.search(rf"  next        on node[12]: wattload check {RUNS}/", done.stderr)
    for name in NAMES:
        (folder,) = run_folders(cluster.files(name, RUNS))
        until((folder / RECORD_FILE).exists, seconds=DEADLINE_S)
        record = read_record(folder)
        assert record.status in ("failed", "aborted")
        assert {span.host for span in record.spans} == {name}
        (elsewhere,) = (limit for limit in record.limits if limit.startswith("What the ranks on"))
        assert [other for other in NAMES if other in elsewhere] == [n for n in NAMES if n != name]
        assert "the record on this rank is torn" in record.status_reason


def test_a_full_disk_of_the_first_host_does_not_lose_the_record(cluster: Cluster) -> None:
    write_meters(cluster)
    small = cluster.files(NAMES[0], RUNS)
    small.mkdir()
    assert not cluster.on(
        NAMES[0], "mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", RUNS
    ).returncode
    try:
        with cluster.started(*SLOW[:2], *REPLAY, WATTLOAD_TEST_STOP="nap") as process:
            for rank, name in enumerate(NAMES):
                waiting = cluster.files(name, DRIVE) / f"waiting-{rank}"
                until(waiting.exists, process, DEADLINE_S)
            (folder,) = run_folders(small)
            (folder / RESERVE_FILE).unlink()
            fill(small)
            for name in NAMES:
                (cluster.files(name, DRIVE) / "go-on").touch()
            _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1, errors
        spare = cluster.files(NAMES[0], "/tmp/state/records") / folder.name
        assert f"its record is in /tmp/state/records/{folder.name}" in errors
        assert read_record(spare).status == "complete"
        assert hosts_in(spare, "throughput") == set(NAMES)
        assert ranks_in(spare) >= {1, 2}
        assert not list(folder.glob("host-*"))
        assert [run_folders(cluster.files(name, RUNS)) for name in NAMES[1:]] == [[], []]
    finally:
        cluster.on(NAMES[0], "umount", "--lazy", RUNS)
