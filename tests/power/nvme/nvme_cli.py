"""nvme-cli in front of the drives of the corpus: a stand-in answers its ioctl, see answers.c."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.power.nvme.dumps import DUMPS, Dump

NVME = shutil.which("nvme") or "/usr/sbin/nvme"
COMPILER = shutil.which("cc") or shutil.which("gcc")
SOURCE = Path(__file__).with_name("answers.c")

NEEDED = [
    pytest.mark.skipif(not Path(NVME).exists(), reason="nvme-cli is not installed"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
]

BY_NAME = {dump.name: dump for dump in DUMPS}
DRIVES = [name for name in BY_NAME if name != "synthetic-all-ones"]


def build(library: Path) -> Path:
    """Compile the stand-in."""
    command = [str(COMPILER), "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return library


class Cli:
    """nvme-cli on one dump; ``/dev/null`` is the device that it opens."""

    def __init__(self, library: Path, folder: Path, dump: Dump) -> None:
        self.dump = dump
        dump.write(folder)
        (folder / "admin-c0").write_bytes(bytes(4))  # Dera's plugin asks for a status first
        self._environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "WATTLOAD_ANSWERS": str(folder),
        }

    def text(self, command: str, *arguments: str) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            [NVME, *command.split(), "/dev/null", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def json(self, command: str, *arguments: str) -> dict[str, Any]:
        """Return what a command prints as JSON."""
        parsed: dict[str, Any] = json.loads(self.text(command, *arguments, "-o", "json"))
        return parsed


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on these dumps, each by way of the fixture ``cli``."""
    return pytest.mark.parametrize("cli", names, indirect=True)


def having(log: int) -> list[str]:
    """Return the dumps with a log page."""
    return [name for name in DRIVES if log in BY_NAME[name].logs]


def with_feature(number: int) -> list[str]:
    """Return the dumps with the current value of a feature."""
    return [name for name in DRIVES if (number, 0) in BY_NAME[name].features]
