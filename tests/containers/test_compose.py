"""Runs by compose.yaml, and with the power of compose.power.yaml, on a real engine."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.containers.engine import (
    IMAGE,
    ORDINARY_USER,
    PLAIN,
    POWER,
    REVISION,
    STRANGER,
    compose,
    docker,
)
from wattload.core.record.file import read_record

SAMPLED = (PLAIN, POWER)
RUN = ("run", "--rm", "wattload", "run", "scale=demo")

PROBE = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432,
           "mount_setattr": 442, "clone3": 435, "io_uring_setup": 425}
calls = {name: (libc.syscall, number, -1, None, -1, None, 0) for name, number in numbers.items()}
calls["clone3"] = (libc.syscall, 435, None, 0)
calls["io_uring_setup"] = (libc.syscall, 425, 1, None)
calls["adjtimex"] = (libc.adjtimex, None)
calls["mount"] = (libc.mount, None, None, None, 0, None)
calls["umount2"] = (libc.umount2, None, 0)
calls["setns"] = (libc.setns, -1, 0)
calls["unshare"] = (libc.unshare, 0x20000)
calls["chroot"] = (libc.chroot, None)
calls["personality"] = (libc.personality, 0xFFFFFFFF)
calls["socket of a virtual machine"] = (libc.socket, 40, 1, 0)
def error(call, *arguments):
    ctypes.set_errno(0)
    return 0 if call(*arguments) >= 0 else ctypes.get_errno()
print(json.dumps({name: error(*call) for name, call in calls.items()}))
"""
"""Calls by numbers, which are those of all architectures from 424 on, and by the C library."""

pytestmark = pytest.mark.slow


def test_the_suite_is_three_jobs_and_their_report(host: Path) -> None:
    image = docker("image", "inspect", "--format", "{{.Id}}", IMAGE).stdout.strip()
    words = ("run", "--rm", "suite")
    done = compose(host, *words, SCALE="demo", LABEL="suite", WATTLOAD_IMAGE=image)
    assert done.returncode == 0, done.stdout + done.stderr
    page = host / "runs" / "report.html"
    assert f"The report: {page}\n" in done.stdout
    text = page.read_text()
    assert f"{image} (declared)" in text
    for job in ("unet3d", "checkpoint", "dlrm"):
        (folder,) = (host / "runs").glob(f"*-{job}-suite-*")
        assert folder.name in text
        software = json.loads((folder / "record.json").read_text())["software"]
        assert (software["git_commit"], software["git_dirty"]) == (REVISION, False)
        assert software["image"] == {"id": image, "evidence": "declared", "missing": {}}


def test_what_a_run_leaves_is_the_users_and_where_it_was_printed(host: Path) -> None:
    done = compose(host, *RUN, "workload=null", "label=paths", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    record = Path(json.loads(done.stdout)["record"])
    assert record.is_relative_to(host / "runs")
    assert record.is_file()
    owners = {path.stat().st_uid for path in record.parent.rglob("*")}
    assert owners == {os.geteuid() or ORDINARY_USER}
    name = record.parent.relative_to(host)
    done = compose(host, "run", "--rm", "wattload", "report", str(name))
    assert done.returncode == 0, done.stdout + done.stderr
    page = Path(done.stdout.strip())
    assert page == host / "runs" / "report.html"
    assert page.is_file()


@pytest.mark.parametrize("name", ["target", "runs"])
def test_a_folder_that_root_made_is_refused_with_the_command(host: Path, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of root")
    made = host / f"of-root-{name}"
    made.mkdir()
    folder: dict[str, Any] = {name.upper(): str(made)}
    done = compose(host, *RUN, "workload=null", **folder)
    assert done.returncode == 2
    assert f"`sudo chown {ORDINARY_USER}:{ORDINARY_USER} {made}`" in done.stderr
    assert "`env UID=0 GID=0`" in done.stderr
    fresh = host / f"fresh-for-{name}"
    fresh.mkdir()
    os.chown(fresh, 0, 0)
    folder = {"TARGET": str(fresh), "RUNS": str(fresh)} | folder
    again = compose(host, *RUN, "workload=null", UID="0", GID="0", **folder)
    assert again.returncode == 0, again.stderr


def test_no_message_names_a_path_inside_the_container(host: Path) -> None:
    """Neither results nor errors; and paths of the host are taken as arguments."""
    target, runs = host / "target", host / "runs"
    elsewhere = host / "elsewhere"
    commands = {
        ("run", "workload=null", "scale=demo"): 0,
        ("doctor",): 0,
        ("devices",): 0,
        ("plan", "unet3d"): 0,
        ("plan", "unet3d", f"target.path={target}/missing"): 2,
        ("datagen", "workload=unet3d", "scale=demo"): 0,
        ("run", "workload=null", f"target.path={elsewhere}"): 2,
        ("run", "workload=null", f"runs={elsewhere}"): 2,
        ("check", str(runs / "missing")): 2,
        ("report", "runs", "-o", "page.html"): 2,
        ("report", str(runs), "--index"): 0,
        ("clean", str(target)): 0,
    }
    said = {}
    for command, status in commands.items():
        done = compose(host, "run", "--rm", "wattload", *command)
        assert done.returncode == status, (command, done.stdout, done.stderr)
        said[command[0]] = done.stdout + done.stderr
        assert "/wattload/runs" not in said[command[0]], command
        assert " /target" not in said[command[0]], command
    assert str(target) in said["plan"]
    assert str(target) in said["doctor"]
    assert str(target) in said["clean"]
    assert f"{runs}/index.html\n" in said["report"]
    assert not elsewhere.exists()


def test_calls_that_matter_are_permitted_or_refused_by_the_profiles(host: Path) -> None:
    """An argument that the kernel refuses shows that a call reached it: EFAULT, not EPERM."""
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    answers = {}
    for service in ("sampler", "wattload"):
        done = compose(
            host,
            *("run", "--rm", "--no-deps", "--entrypoint", "/opt/wattload/bin/python"),
            *(service, "-c", PROBE),
            files=SAMPLED,
            **device,
        )
        assert done.returncode == 0, done.stderr
        answers[service] = json.loads(done.stdout)
    refused = (errno.EPERM, errno.ENOSYS)
    ring = {service: found.pop("io_uring_setup") for service, found in answers.items()}
    assert ring["sampler"] in refused
    assert ring["wattload"] == errno.EFAULT
    for found in answers.values():
        assert found.pop("clone3") == errno.ENOSYS, "with EPERM no thread starts"
        assert found.pop("adjtimex") == errno.EFAULT, "it tells the clock's error"
        assert {name: error for name, error in found.items() if error not in refused} == {}


def test_a_job_is_a_service_that_takes_settings_and_reads_by_io_uring(host: Path) -> None:
    settings = ("scale=demo", "label=ring", "loader.engine=io_uring")
    done = compose(host, "run", "--rm", "unet3d", *settings)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (folder,) = (host / "runs").glob("*-unet3d-ring-*")
    record = read_record(folder)
    assert record.status == "complete"
    assert "WATTLOAD_IMAGE" in record.software.image.missing["id"]
    assert list((host / "target" / "wattload-data").iterdir())


def start(host: Path, label: str, **device: str) -> tuple[Path, str]:
    """Start a run of minutes; return its folder and its container, once it writes its journal."""
    arguments = ("run", "-d", "wattload", "run", "scale=demo", "workload=unet3d")
    long = ("workload.epochs=500", f"label={label}")
    done = compose(host, *arguments, *long, files=SAMPLED if device else (PLAIN,), **device)
    assert done.returncode == 0, done.stderr
    container = done.stdout.strip().splitlines()[-1]
    for _ in range(600):
        found = list((host / "runs").glob(f"*-unet3d-{label}-*/journal-*"))
        if found:
            return found[0].parent, container
        time.sleep(0.1)
    pytest.fail(f"{container} started no run")


@pytest.mark.thorough
@pytest.mark.parametrize("with_sampler", [False, True])
def test_a_killed_run_is_finished_as_aborted(host: Path, with_sampler: bool) -> None:
    """The whole composition is killed; the next command on this host, a new container, finds it."""
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    label = f"killed{int(with_sampler)}"
    try:
        folder, container = start(host, label, **(device if with_sampler else {}))
        living = compose(host, "run", "--rm", "wattload", "check", str(folder))
        assert not (folder / "record.json").exists(), "a living run is left alone"
        containers = compose(host, "ps", "-q", files=SAMPLED, **device).stdout.split()
        subprocess.run(["docker", "kill", *{container, *containers}], check=True)
        done = compose(host, "run", "--rm", "wattload", "check", str(folder))
    finally:
        compose(host, "down", "--volumes", "--remove-orphans", files=SAMPLED, **device)
    assert living.returncode != 0
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"recorded as aborted: {folder}" in done.stderr
    assert json.loads((folder / "record.json").read_text())["status"] == "aborted"


@pytest.mark.thorough
def test_a_sampler_serves_the_containers_that_share_it(host: Path) -> None:
    """A killed container leaves its sampler to others, and its record to the next command."""
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    try:
        folder, container = start(host, "first", **device)
        subprocess.run(["docker", "kill", container], check=True)
        after = compose(host, *RUN, "workload=null", "label=third", files=SAMPLED, **device)
    finally:
        compose(host, "down", "--volumes", "--remove-orphans", files=SAMPLED, **device)
    assert after.returncode == 0, after.stderr
    assert json.loads((folder / "record.json").read_text())["status"] == "aborted"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--read-only",), 0, "complete"),
        (("--tmpfs", "/wattload/runs:size=8m,uid=1000"), 2, "No space left on device"),
        (("--tmpfs", "/target:size=8m,uid=1000"), 2, "free"),
    ],
)
def test_a_read_only_root_does_and_a_full_volume_is_named(
    tmp_path: Path, host: Path, options: tuple[str, ...], status: int, words: str
) -> None:
    tmp_path.chmod(0o755)
    # A tmpfs takes the permissions of the folder that it hides.
    user = ORDINARY_USER if any("size=" in option for option in options) else STRANGER
    mounts = []
    for inside in ("/target", "/wattload/runs"):
        folder = tmp_path / Path(inside).name
        folder.mkdir()
        folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, user, user)
        if not any(inside in option for option in options):
            mounts += ["--volume", f"{folder}:{inside}"]
    done = docker(
        *("run", "--rm", "--network=none", f"--user={os.geteuid() or user}", *mounts, *options),
        *(IMAGE, "run", "scale=demo", "workload=unet3d"),
    )
    assert done.returncode in ((0, 3) if status == 0 else (status,)), done.stdout + done.stderr
    assert words in done.stdout + done.stderr


def test_mpirun_works_in_a_container(host: Path) -> None:
    words = ("--entrypoint", "mpirun", "wattload", "-n", "2", "wattload")
    done = compose(host, "run", "--rm", *words, "run", "workload=null", "label=mpi", "power=none")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (host / "runs").glob("*-null-mpi-*/record.json")
    assert json.loads(path.read_text())["workload"]["rank_count"] == 2


def test_a_missing_folder_is_refused_and_not_made_as_root(host: Path) -> None:
    missing = host / "missing"
    done = compose(host, *RUN, "workload=null", RUNS=str(missing))
    assert done.returncode != 0
    assert "does not exist" in done.stderr
    assert not missing.exists()


def test_replayed_watts_come_through_the_samplers_container(host: Path) -> None:
    """No drive is needed: the socket and the recording are the same without."""
    rows = "".join(f"{row / 10},12.5\n" for row in range(6000))
    (host / "runs" / "meter.csv").write_text(f"# evidence: measured\ntime_s,power_w\n{rows}")
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    settings = (
        "power=replay",
        "power.replay.path=/wattload/runs/meter.csv",
        "power.idle_s=0",
        "power.rest_max_s=1",
        "power.idle_after_s=0",
    )
    try:
        done = compose(
            host,
            *("run", "--rm", "unet3d", "scale=demo", "label=replayed", *settings),
            files=SAMPLED,
            **device,
        )
        reported = compose(host, "logs", "sampler", files=SAMPLED, **device).stdout
    finally:
        compose(host, "down", "--volumes", "--timeout=1", files=SAMPLED, **device)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (folder,) = (host / "runs").glob("*-unet3d-replayed-*")
    energies = [e for e in read_record(folder).power.energy if e.phase == "read" and e.chosen]
    assert [each.mean_w for each in energies] == [pytest.approx(12.5)]
    assert folder.name in reported, "the run started a sampler of its own"
    assert "journal      /var/lib/wattload" in reported, "the host's own, which others lock too"
    assert {path.stat().st_uid for path in folder.iterdir()} == {os.geteuid() or ORDINARY_USER}
    (machine,) = read_record(folder).hosts
    assert machine.facts.name == socket.gethostname()


def test_the_sampler_alone_has_privilege(host: Path) -> None:
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    done = compose(host, "config", "--format", "json", files=SAMPLED, **device)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    sampler = services.pop("sampler")
    assert set(services) == {"wattload", "unet3d", "checkpoint", "dlrm", "suite"}
    assert sampler["cap_drop"] == ["ALL"]
    assert sorted(sampler["cap_add"]) == ["SYS_ADMIN"]
    assert any(each.startswith("seccomp") for each in sampler["security_opt"])
    for run in services.values():
        assert run["cap_drop"] == ["ALL"]
        assert run["read_only"] is True
        assert "no-new-privileges:true" in run["security_opt"]
        assert not {"cap_add", "devices", "privileged"} & set(run)
        assert run["user"].split(":")[0] != "0"
        assert run["environment"]["WATTLOAD_SAMPLER_SOCKET"] == "/run/wattload/sampler.sock"
