"""The image and both compose files, with a real engine where one answers.

The engine is whatever ``docker`` reaches. ``WATTLOAD_TEST_BASE`` names another base image than the
Dockerfile's own, and ``WATTLOAD_TEST_BUILD_NETWORK=host`` builds on an engine without a bridge.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDINARY_USER = 1000
STRANGER = 12345
RUN = ("run", "--rm", "wattload", "run", "scale=demo")

PROBE = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432,
           "mount_setattr": 442, "clone3": 435, "io_uring_setup": 425}
calls = {name: (libc.syscall, number, -1, None, -1, None, 0) for name, number in numbers.items()}
calls["clone3"] = (libc.syscall, 435, None, 0)
calls["io_uring_setup"] = (libc.syscall, 425, 1, None)
calls["mount"] = (libc.mount, None, None, None, 0, None)
calls["umount2"] = (libc.umount2, None, 0)
calls["setns"] = (libc.setns, -1, 0)
calls["unshare"] = (libc.unshare, 0x20000)
calls["chroot"] = (libc.chroot, None)
def error(call, *arguments):
    ctypes.set_errno(0)
    return 0 if call(*arguments) >= 0 else ctypes.get_errno()
print(json.dumps({name: error(*call) for name, call in calls.items()}))
"""
"""Calls by numbers, which are those of all architectures from 424 on, and by the C library."""

pytestmark = pytest.mark.slow


def answers(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if shutil.which("docker") is None or not answers("docker", "compose", "version"):
        pytest.skip("there is no docker with compose here")
    if not answers("docker", "info"):
        pytest.skip("no container engine answers (docker info fails)")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders, and the image, built."""
    folder = tmp_path_factory.mktemp("host")
    folder.chmod(0o755)
    for name in ("target", "runs"):
        (folder / name).mkdir()
        if os.geteuid() == 0:
            os.chown(folder / name, ORDINARY_USER, ORDINARY_USER)
    done = compose(folder, "build", "--quiet")
    assert done.returncode == 0, done.stderr
    return folder


def compose(
    host: Path, *arguments: str, power: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run docker compose with the project's files on the user's folders."""
    files = ["docker/compose.yaml", *(["docker/compose.power.yaml"] if power else [])]
    options = [word for file in files for word in ("-f", str(ROOT / file))]
    return subprocess.run(
        ["docker", "compose", *options, *arguments],
        env=os.environ | dict(settings(host)) | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def settings(host: Path) -> Mapping[str, str]:
    """Return what a user would export; an ordinary user builds on the network that there is."""
    user = os.geteuid() or ORDINARY_USER
    chosen = {
        "TARGET": str(host / "target"),
        "RUNS": str(host / "runs"),
        "UID": str(user),
        "GID": str(os.getegid() or ORDINARY_USER),
        "BUILD_NETWORK": os.environ.get("WATTLOAD_TEST_BUILD_NETWORK", "default"),
    }
    base = os.environ.get("WATTLOAD_TEST_BASE")
    return chosen | ({"BASE": base} if base else {})


def only_record(host: Path, workload: str) -> dict[str, object]:
    (path,) = (host / "runs").glob(f"*-{workload}-*/record.json")
    record = json.loads(path.read_text())
    assert isinstance(record, dict)
    return record


def test_a_run_in_a_container_leaves_its_record_outside(host: Path) -> None:
    done = compose(host, *RUN, "workload=unet3d")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert only_record(host, "unet3d")["status"] == "complete"
    assert list((host / "target" / "wattload-data").iterdir())


def test_what_a_container_leaves_belongs_to_the_user(host: Path) -> None:
    done = compose(host, *RUN, "workload=null", "label=owner")
    assert done.returncode == 0, done.stdout + done.stderr
    owners = {path.stat().st_uid for path in (host / "runs").rglob("*")}
    assert owners == {os.geteuid() or ORDINARY_USER}


def test_printed_paths_exist_on_the_host_and_the_report_is_among_the_runs(host: Path) -> None:
    done = compose(host, *RUN, "workload=null", "label=paths", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    record = Path(json.loads(done.stdout)["record"])
    assert record.is_relative_to(host / "runs")
    assert record.is_file()
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
    folder = {name.upper(): str(made)}
    done = compose(host, *RUN, "workload=null", power=False, **folder)
    assert done.returncode == 2
    assert f"`sudo chown {ORDINARY_USER}:{ORDINARY_USER} {made}`" in done.stderr
    assert "`env UID=0 GID=0`" in done.stderr
    fresh = host / f"fresh-for-{name}"
    fresh.mkdir()
    folder = {"TARGET": str(fresh)} | folder
    again = compose(host, *RUN, "workload=null", power=False, UID="0", GID="0", **folder)
    assert again.returncode == 0, again.stderr


def test_no_message_names_a_path_inside_the_container(host: Path) -> None:
    """Neither results nor errors; and paths of the host are taken as arguments."""
    target, runs = host / "target", host / "runs"
    elsewhere = host / "elsewhere"
    commands = {
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
            power=True,
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
        assert {name: error for name, error in found.items() if error not in refused} == {}


def test_a_run_reads_by_io_uring(host: Path) -> None:
    done = compose(host, *RUN, "workload=unet3d", "label=ring", "loader.engine=io_uring")
    assert done.returncode in (0, 3), done.stdout + done.stderr


def start(host: Path, label: str, **device: str) -> tuple[Path, str]:
    """Start a run of minutes; return its folder and its container, once it writes its journal."""
    arguments = ("run", "-d", "wattload", "run", "scale=demo", "workload=unet3d")
    long = ("workload.epochs=500", f"label={label}")
    done = compose(host, *arguments, *long, power=bool(device), **device)
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
        containers = compose(host, "ps", "-q", power=True, **device).stdout.split()
        subprocess.run(["docker", "kill", *{container, *containers}], check=True)
        done = compose(host, "run", "--rm", "wattload", "check", str(folder))
    finally:
        compose(host, "down", "--volumes", "--remove-orphans", power=True, **device)
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
        after = compose(host, *RUN, "workload=null", "label=third", power=True, **device)
    finally:
        compose(host, "down", "--volumes", "--remove-orphans", power=True, **device)
    assert after.returncode == 0, after.stderr
    assert json.loads((folder / "record.json").read_text())["status"] == "aborted"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ((), 0, "complete"),
        (("--read-only", "--tmpfs", "/tmp"), 0, "complete"),
        (("--read-only",), 1, "start a container with --tmpfs /tmp"),
        (("--tmpfs", "/wattload/runs:size=8m,mode=0777"), 2, "No space left on device"),
        (("--tmpfs", "/target:size=8m,mode=0777"), 2, "free"),
    ],
)
def test_any_user_and_any_root_file_system(
    tmp_path: Path, host: Path, options: tuple[str, ...], status: int, words: str
) -> None:
    tmp_path.chmod(0o755)
    mounts = []
    for inside in ("/target", "/wattload/runs"):
        folder = tmp_path / Path(inside).name
        folder.mkdir()
        folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, STRANGER, STRANGER)
        if not any(inside in option for option in options):
            mounts += ["--volume", f"{folder}:{inside}"]
    command = ("docker", "run", "--rm", "--network=none")
    user = ("--user", str(STRANGER if os.geteuid() == 0 else os.geteuid()))
    done = subprocess.run(
        [*command, *user, *mounts, *options, "wattload", "run", "scale=demo", "workload=unet3d"],
        capture_output=True,
        text=True,
        check=False,
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


def test_the_image_runs_as_an_ordinary_user(host: Path) -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", "--entrypoint", "id", "wattload", "-u"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == ORDINARY_USER


def test_a_run_is_sampled_by_the_sampler_in_another_container(host: Path) -> None:
    """No drive is needed: the socket and the recording are the same without."""
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    try:
        done = compose(host, *RUN, "workload=null", "label=sampled", power=True, **device)
        reported = compose(host, "logs", "sampler", power=True, **device).stdout
    finally:
        compose(host, "down", "--volumes", "--timeout", "5", power=True, **device)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (host / "runs").glob("*-null-sampled-*")
    record = json.loads((run / "record.json").read_text())
    assert record["status"] == "complete"
    assert (run / "power.parquet").exists()
    assert "journal      /var/lib/wattload" in reported, "the host's own, which others lock too"
    assert run.name in reported, "the run started a sampler of its own"
    assert {path.stat().st_uid for path in run.iterdir()} == {os.geteuid() or ORDINARY_USER}
    assert record["hosts"][0]["facts"]["name"] == socket.gethostname()


def test_the_sampler_alone_has_privilege(host: Path) -> None:
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    done = compose(host, "config", "--format", "json", power=True, **device)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    run, sampler = services["wattload"], services["sampler"]
    assert run["cap_drop"] == sampler["cap_drop"] == ["ALL"]
    assert sorted(sampler["cap_add"]) == ["SYS_ADMIN"]
    assert any(each.startswith("seccomp") for each in sampler["security_opt"])
    assert not {"cap_add", "devices", "privileged"} & set(run)
    assert run["user"].split(":")[0] != "0"
