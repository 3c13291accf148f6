"""Every command in the README runs, in the order of the page and in one folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, commands_of

README = ROOT / "README.md"
CONTAINER_COMMANDS = [each for each in commands_of(README) if each.startswith("docker")]
COMMANDS = [each for each in commands_of(README) if each not in CONTAINER_COMMANDS]
MOUNTS = ("/mnt/ssd", "/mnt/a", "/mnt/b")
CHECK_FAILED = 3  # on a disk that others use too; the run itself went well

pytestmark = pytest.mark.slow


def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    """One test, since later commands report on what earlier ones ran."""
    for mount in MOUNTS:
        (tmp_path / Path(mount).name).mkdir()
    made: set[tuple[str, ...]] = set()
    for command in COMMANDS:
        _run_shown(command, tmp_path, made)


def test_the_compose_file_of_the_readme_is_valid() -> None:
    """A test of its own: without an engine it is skipped, and the other commands still run."""
    assert CONTAINER_COMMANDS
    for command in CONTAINER_COMMANDS:
        _compose_file_is_valid(shlex.split(command))


def _run_shown(command: str, desk: Path, made: set[tuple[str, ...]]) -> None:
    """Run a command, but `make run` with and without a target once: here both have the same."""
    words = [_moved(word, desk) for word in shlex.split(command)]
    match words[0]:
        case "make" if words[1] == "test":
            # This is part of it: running it from here would never end.
            assert "pytest" in _run(["make", "--dry-run", *words[1:]], ROOT).stdout
        case "make" if words[1] == "image":  # tests/containers build it, where there is an engine
            assert "docker compose" in _run(["make", "--dry-run", *words[1:]], ROOT).stdout
        case "make":
            targets = [] if _has_target(words) else [f"TARGET={desk / 'ssd'}"]
            whole = (*words, *targets, f"RUNS={desk / 'runs'}", "SCALE=demo")
            if whole not in made:
                _run(list(whole), ROOT)
            made.add(whole)
        case "mkdir":
            _run(words, desk)
        case "wattload" | "mpirun":
            _run([*_smaller(words), *_brief(words)], desk)
        case other:
            pytest.fail(f"the README shows {other}, and no test knows how to run it")


def _moved(word: str, desk: Path) -> str:
    for mount in MOUNTS:
        word = word.replace(mount, str(desk / Path(mount).name))
    return word


def _has_target(words: list[str]) -> bool:
    return any(word.startswith("TARGET=") for word in words)


def _brief(words: list[str]) -> list[str]:
    """Return what makes a run brief: little data, and no wait for drives to cool."""
    return ["scale=demo", "start_wait_max_s=0"] if "run" in words else []


def _smaller(words: list[str]) -> list[str]:
    """Return the command with as few repetitions as it takes: more would only be the same."""
    few = "repeat=2" if "interleave=abba" in words else "repeat=1"
    return [few if word.startswith("repeat=") else word for word in words]


def _compose_file_is_valid(words: list[str]) -> None:
    """Let compose read its file; ``tests/containers`` runs it, where there is an engine."""
    docker = shutil.which("docker")
    if docker is None or not _has_compose(docker):
        pytest.skip("there is no docker compose here (apt-get install docker-compose-plugin)")
    upto = words.index("run")
    _run([*words[:upto], "config", "--quiet"], ROOT)
    services = _run([*words[:upto], "config", "--services"], ROOT).stdout.split()
    assert words[upto + 1] == "--rm"
    assert words[upto + 2] in services


def _has_compose(docker: str) -> bool:
    asked = [docker, "compose", "version"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    binaries = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    # A `make` that runs these tests hands its own settings down; they are not the reader's.
    environment = {key: text for key, text in environment.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, CHECK_FAILED), done.stdout + done.stderr
    return done
