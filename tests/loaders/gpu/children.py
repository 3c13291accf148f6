"""The readers' processes that a test has started, told from those of tests beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MARK = "WATTLOAD_TEST"


@pytest.fixture(autouse=True)
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark the processes that a test starts."""
    monkeypatch.setenv(MARK, str(tmp_path))


def children(module: str) -> set[int]:
    """Return the processes of a module that this test has started, of any parent."""
    own = f"{MARK}={os.environ[MARK]}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if module.encode() in command and own in variables:
            found.add(int(folder.name))
    return found
