"""Three hosts, each a container: MPI over ssh, a target for each, and one folder of records."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import CLUSTER, compose, docker, make_folders
from wattload.core.record.file import read_record

pytestmark = pytest.mark.slow

IMAGE_ID = "sha256:0123"
HOSTS = ("node1", "node2", "node3")
RUN = ("wattload", "run", "scale=demo", "power=none", "--hosts")


@pytest.fixture(scope="module")
def cluster(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster")
    make_folders(folder)
    try:
        done = up(folder)
        assert done.returncode == 0, done.stderr
        yield folder
    finally:
        compose(folder, "down", "--volumes", "--timeout=1", files=(CLUSTER,))


def up(folder: Path) -> subprocess.CompletedProcess[str]:
    return compose(folder, "up", "--detach", "--wait", files=(CLUSTER,), WATTLOAD_IMAGE=IMAGE_ID)


def on(cluster: Path, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    return compose(cluster, "exec", "-T", host, *command, files=(CLUSTER,))


def test_two_ranks_a_host_write_one_record(cluster: Path) -> None:
    done = on(
        cluster,
        "node1",
        *RUN,
        "node1:2,node2:2,node3:2",
        "workload=unet3d",
        "workload.file_count=42",
        "label=six",
    )
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (folder,) = (cluster / "runs").glob("*-unet3d-six-*")
    record = read_record(folder)
    assert record.status == "complete"
    assert record.software.image.id == IMAGE_ID
    assert [host.facts.name for host in record.hosts] == [*HOSTS]
    assert sorted(rank.host for rank in record.ranks) == sorted(HOSTS * 2)
    assert {span.host for span in record.spans if span.read_bytes} == set(HOSTS)


def test_keys_are_made_at_up_and_only_for_the_hosts_user(cluster: Path) -> None:
    found = on(cluster, "node2", "stat", "-c", "%a %U", "/keys/user", "/keys/host").stdout
    assert found == "600 wattload\n600 wattload\n"
    first = on(cluster, "node1", "cat", "/keys/host.pub").stdout
    assert up(cluster).returncode == 0
    assert on(cluster, "node1", "cat", "/keys/host.pub").stdout == first, "made once"
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes")
    words = [f"-o{option}" for option in options]
    done = on(cluster, "node1", "ssh", "-i/dev/null", "-Fnone", "-p2222", *words, "node2", "true")
    assert "Permission denied (publickey" in done.stderr, "a user without the key"


def test_a_host_without_the_target_is_named(cluster: Path) -> None:
    assert on(cluster, "node1", "mkdir", "-p", "/target/more").returncode == 0
    done = on(cluster, "node1", *RUN, "node1,node3", "workload=null", "target.path=/target/more")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "node3" in done.stderr
    assert "/target/more" in done.stderr


def test_a_host_that_is_killed_ends_the_run_on_all(cluster: Path) -> None:
    done = compose(cluster, "ps", "--format", "json", "node3", files=(CLUSTER,))
    name = json.loads(done.stdout.splitlines()[0])["Name"]
    command = [*RUN, "node1,node3", "workload=unet3d", "label=killed", "workload.epochs=500"]
    running = subprocess.Popen(
        ["docker", "exec", name.replace("node3", "node1"), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        journals = "*-unet3d-killed-*/journal-*"
        while running.poll() is None and not list((cluster / "runs").glob(journals)):
            time.sleep(0.1)
        assert running.poll() is None, running.communicate()
        assert docker("kill", name).returncode == 0
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode != 0, errors
    left = on(cluster, "node1", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert "wattload run" not in left
