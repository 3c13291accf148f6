"""Every command in the README runs, in the order of the page and in one folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, commands_of

README = ROOT / "README.md"
MOUNTS = ("/mnt/ssd", "/mnt/a", "/mnt/b")
CHECK_FAILED = 3  # on a disk that others use too; the run itself went well

pytestmark = pytest.mark.slow


def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    """One test, since later commands report on what earlier ones ran."""
    for mount in MOUNTS:
        (tmp_path / Path(mount).name).mkdir()
    for command in commands_of(README):
        _run_shown(command, tmp_path)


def _run_shown(command: str, desk: Path) -> None:
    words = [_moved(word, desk) for word in shlex.split(command)]
    match words[0]:
        case "make" if words[1] == "test":
            # This is part of it: running it from here would never end.
            assert "pytest" in _run(["make", "--dry-run", *words[1:]], ROOT).stdout
        case "make":
            _run([*words, f"RUNS={desk / 'runs'}", "SCALE=demo"], ROOT)
        case "wattload":
            _run([*_smaller(words), *_brief(words)], desk)
        case other:
            pytest.fail(f"the README shows {other}, and no test knows how to run it")


def _moved(word: str, desk: Path) -> str:
    for mount in MOUNTS:
        word = word.replace(mount, str(desk / Path(mount).name))
    return word


def _brief(words: list[str]) -> list[str]:
    """Return what makes a run brief: little data, and no wait for drives to cool.

    The drives are folders here, which are compared on purpose.
    """
    if "run" not in words:
        return []
    folders = any(word.startswith("target.path=") and "," in word for word in words)
    return ["scale=demo", "start_wait_max_s=0", *["interleave_by=target.path"] * folders]


def _smaller(words: list[str]) -> list[str]:
    """Return the command with as few repetitions as it takes: more would only be the same."""
    few = "repeat=2" if "interleave=abba" in words else "repeat=1"
    return [few if word.startswith("repeat=") else word for word in words]


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
