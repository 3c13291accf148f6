"""Docker as a user runs it: the project's compose files on folders of this host.

The engine is whatever ``docker`` reaches. ``WATTLOAD_TEST_BASE`` names another base image than the
Dockerfile's own, ``WATTLOAD_TEST_BUILD_NETWORK=host`` builds on an engine without a bridge. Only
with ``WATTLOAD_TEST_ENGINE=required``, which ``make docker-test`` sets, the tests run; then they
fail where no engine answers.

Images, containers, networks and volumes have names of this process, and are removed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDINARY_USER = 1000
STRANGER = 12345
REVISION = "0123456789abcdef0123456789abcdef01234567"
IMAGE = f"wattload-test-{os.getpid()}"
CLUSTER_IMAGE = f"{IMAGE}-cluster"
"""Also the names of the projects: neither replaces or deletes what a user of this host has."""
PLAIN, POWER, CLUSTER = "compose.yaml", "compose.power.yaml", "compose.cluster.yaml"


def require_engine() -> None:
    """Skip the test unless an engine is required; then fail it if none answers."""
    if os.environ.get("WATTLOAD_TEST_ENGINE") != "required":
        pytest.skip("WATTLOAD_TEST_ENGINE is not `required`; make docker-test")
    if shutil.which("docker") is None or not answers("docker", "compose", "version"):
        pytest.fail("there is no docker with compose here; make docker-test")
    if not answers("docker", "info"):
        pytest.fail("no container engine answers (docker info fails); make docker-test")


def answers(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)


def compose(
    host: Path, *arguments: str, files: tuple[str, ...] = (PLAIN,), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run docker compose with some of the project's files on the user's folders."""
    project = CLUSTER_IMAGE if CLUSTER in files else IMAGE
    options = [word for file in files for word in ("-f", str(ROOT / "docker" / file))]
    return subprocess.run(
        ["docker", "compose", *options, *arguments],
        env=os.environ | settings(host) | {"COMPOSE_PROJECT_NAME": project} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def settings(host: Path) -> dict[str, str]:
    """Return what a user would export; an ordinary user builds on the network that there is."""
    chosen = {
        "IMAGE": IMAGE,
        "CLUSTER_IMAGE": CLUSTER_IMAGE,
        "TARGET": str(host / "target"),
        "RUNS": str(host / "runs"),
        "UID": str(os.geteuid() or ORDINARY_USER),
        "GID": str(os.getegid() or ORDINARY_USER),
        "REVISION": REVISION,
        "BUILD_NETWORK": os.environ.get("WATTLOAD_TEST_BUILD_NETWORK", "default"),
    }
    base = os.environ.get("WATTLOAD_TEST_BASE")
    return chosen | ({"BASE": base} if base else {})


def make_folders(host: Path) -> None:
    """Make the folders that compose mounts, for the user of the containers."""
    host.chmod(0o755)
    for name in ("target", "runs"):
        (host / name).mkdir()
        if os.geteuid() == 0:
            os.chown(host / name, ORDINARY_USER, ORDINARY_USER)
