"""Mounts for tests: skipped where this user can't mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only(source: Path, place: Path) -> Iterator[Path]:
    """Mount a folder read-only at a place, which is created, on the same file system."""
    place.mkdir()
    bind: list[str | Path] = ["mount", "--bind", source, place]
    if subprocess.run(bind, check=False, capture_output=True).returncode:
        pytest.skip("this user can't mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
