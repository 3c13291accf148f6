"""The image and both compose files, with a real engine where one answers.

The engine is whatever ``docker`` reaches. ``WATTLOAD_TEST_BASE`` names another base image than the
Dockerfile's own, and ``WATTLOAD_TEST_BUILD_NETWORK=host`` builds on an engine without a bridge.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDINARY_USER = 1000
RUN = ("run", "--rm", "wattload", "run", "scale=demo")

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
    assert "UID=0 GID=0" in done.stderr
    again = compose(host, *RUN, "workload=null", power=False, UID="0", GID="0", **folder)
    assert again.returncode == 0, again.stderr


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
    """No drive is needed: the socket, the user check and the recording are the same without."""
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    try:
        done = compose(host, *RUN, "workload=null", "label=sampled", power=True, **device)
        told = compose(host, "logs", "sampler", power=True, **device).stdout
    finally:
        compose(host, "down", "--volumes", "--timeout", "5", power=True, **device)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (host / "runs").glob("*-null-sampled-*")
    record = json.loads((run / "record.json").read_text())
    assert record["status"] == "complete"
    assert (run / "power.parquet").exists()
    assert "journal      /var/lib/wattload" in told, "the host's own, which others lock too"
    assert run.name in told, "the run started a sampler of its own"
    assert {path.stat().st_uid for path in run.iterdir()} == {os.geteuid() or ORDINARY_USER}
    assert record["hosts"][0]["facts"]["name"] == socket.gethostname()


def test_the_sampler_alone_has_privilege(host: Path) -> None:
    device = {"NVME": "/dev/null:/dev/nvme0", "STATE": str(host / "state")}
    done = compose(host, "config", "--format", "json", power=True, **device)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    run, sampler = services["wattload"], services["sampler"]
    assert run["cap_drop"] == sampler["cap_drop"] == ["ALL"]
    assert sorted(sampler["cap_add"]) == ["KILL", "SETGID", "SETUID", "SYS_ADMIN"]
    assert any(each.startswith("seccomp") for each in sampler["security_opt"])
    assert not {"cap_add", "devices", "privileged"} & set(run)
    assert run["user"].split(":")[0] != "0"
