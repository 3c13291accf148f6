"""The engine built with sanitizers, once per test run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.driver import ADDRESS, THREAD, Driver, build


@pytest.fixture(scope="session")
def checked_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with AddressSanitizer and UndefinedBehaviorSanitizer."""
    return build(tmp_path_factory.mktemp("address"), "drive.c", ADDRESS)


@pytest.fixture(scope="session")
def threads_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with ThreadSanitizer, where it runs."""
    program = build(tmp_path_factory.mktemp("thread"), "drive.c", THREAD)
    tried = subprocess.run([program, "backend=null"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"ThreadSanitizer does not run here: {tried.stderr.strip()[:200]}")
    return program


@pytest.fixture
def driver(checked_program: Path, tmp_path: Path) -> Driver:
    """Runs plans with the address build."""
    return Driver(checked_program, tmp_path)


@pytest.fixture
def threads_driver(threads_program: Path, tmp_path: Path) -> Driver:
    """Runs plans with the thread build."""
    return Driver(threads_program, tmp_path)
