"""Containers that lack something: one sentence says what, and what to do."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.containers.engine import IMAGE, ORDINARY_USER, PLAIN, POWER, STRANGER, compose, docker

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("images")]

SAMPLED = (PLAIN, POWER)
RUN = ("run", "--rm", "wattload", "run", "scale=demo", "workload=null")


def plain_words(host: Path, user: int = ORDINARY_USER) -> list[str]:
    volumes = (f"{host / 'target'}:/target", f"{host / 'runs'}:/wattload/runs")
    mounts = [word for volume in volumes for word in ("--volume", volume)]
    return ["run", "--rm", "--network=none", f"--user={user}", *mounts]


def plain(host: Path, *words: str, user: int = ORDINARY_USER) -> subprocess.CompletedProcess[str]:
    """Run the image by docker alone, with the user's folders mounted."""
    return docker(*plain_words(host, user), *words)


def test_a_device_that_is_missing_is_named(host: Path) -> None:
    done = compose(host, *RUN, files=SAMPLED, NVME="/dev/nvme77", STATE=str(host / "state"))
    assert done.returncode != 0
    assert "/dev/nvme77" in done.stderr
    unnamed = compose(host, *RUN, files=SAMPLED)
    assert unnamed.returncode != 0
    assert "NVME=/dev/nvme0" in unnamed.stderr


def test_a_sampler_of_another_version_is_refused(host: Path, tmp_path: Path) -> None:
    """An image with another version of the package, whose sampler serves."""
    (tmp_path / "Dockerfile").write_text(
        f"FROM {IMAGE}\nUSER root\n"
        "RUN sed -i 's/^__version__ = .*/__version__ = \"0.0.1\"/' "
        "$(python -c 'import wattload; print(wattload.__file__)')\n"
    )
    built = docker("build", "--tag", f"{IMAGE}-old", str(tmp_path))
    assert built.returncode == 0, built.stderr
    file = tmp_path / "old.yaml"
    file.write_text(f"services: {{sampler: {{image: {IMAGE}-old}}}}\n")
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    try:
        done = compose(host, *RUN, files=(*SAMPLED, str(file)), **device)
    finally:
        compose(host, "down", "--volumes", "--timeout=1", files=SAMPLED, **device)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the version of the sampler is 0.0.1, of the run " in done.stderr


def test_a_sampler_without_its_capability_says_so(host: Path, tmp_path: Path) -> None:
    file = tmp_path / "unprivileged.yaml"
    file.write_text("services: {sampler: {cap_add: !reset []}}\n")
    files = (*SAMPLED, str(file))
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    try:
        done = compose(host, "up", "--detach", "--wait", "sampler", files=files, **device)
        said = compose(host, "logs", "sampler", files=files, **device).stdout
    finally:
        compose(host, "down", "--volumes", "--timeout=1", files=files, **device)
    assert done.returncode == 0, done.stderr
    assert "without CAP_SYS_ADMIN, power states and SMART" in said
    assert "cap_add: [SYS_ADMIN]" in said


def test_a_target_in_the_container_is_refused_or_warned_of(host: Path) -> None:
    done = compose(host, *RUN, "target.path=/tmp/inside")
    assert done.returncode == 2
    assert "TARGET=" in done.stderr
    done = docker("run", "--rm", "--network=none", IMAGE, "run", "workload=null", "scale=demo")
    assert "the target is an overlay, like a container's own files: mount" in done.stderr


def test_a_runs_volume_that_can_not_be_written_is_refused(host: Path) -> None:
    volume = ("--volume", f"{host / 'runs'}:/records:ro")
    done = plain(host, *volume, IMAGE, "run", "runs=/records", "workload=null")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Read-only file system" in done.stderr


def test_a_user_who_may_not_write_is_told_the_command(host: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run as another user")
    done = plain(host, IMAGE, "run", "workload=null", user=STRANGER)
    assert done.returncode == 2
    assert f"chown {STRANGER}:" in done.stderr


def test_a_user_without_an_entry_and_without_a_home_runs(host: Path, tmp_path: Path) -> None:
    user = STRANGER if os.geteuid() == 0 else os.geteuid()
    tmp_path.chmod(0o755)
    for name in ("target", "runs"):
        (tmp_path / name).mkdir()
        if os.geteuid() == 0:
            os.chown(tmp_path / name, user, 0)
    words = (IMAGE, "-u", "HOME", "wattload", "run", "workload=null", "scale=demo")
    done = plain(tmp_path, "--entrypoint=env", *words, user=user)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_killed_run_is_finished_by_a_container_of_another_name(host: Path) -> None:
    """Without uts: host, Docker makes up a name for each container."""
    name = f"wattload-killed-{os.getpid()}"
    job = ("workload=unet3d", "workload.epochs=500", "label=killed", "power=none", "scale=demo")
    with subprocess.Popen(
        ["docker", *plain_words(host), f"--name={name}", IMAGE, "run", *job],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        while running.poll() is None and not list(host.glob("runs/*-killed-*/journal-*")):
            time.sleep(0.1)
        assert running.poll() is None, "it ended before it was killed"
        (folder,) = host.glob("runs/*-killed-*")
        assert docker("kill", name).returncode == 0
    done = plain(host, IMAGE, "check", f"runs/{folder.name}")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"recorded as aborted: runs/{folder.name}" in done.stderr


def test_ranks_need_little_shared_memory(host: Path) -> None:
    """Docker gives 64 MB of /dev/shm; MPI's ranks on one host fit into it."""
    words = (IMAGE, "-n", "4", "wattload", "run", "workload=null", "label=shm", "power=none")
    done = plain(host, "--entrypoint=mpirun", *words)
    assert done.returncode == 0, done.stdout + done.stderr
