"""The engine built with sanitizers, once per test run and sanitizer, and programs with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.building import made_once
from tests.native.driver import SANITIZERS, Build, Driver, build_library, build_program


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds a program of this folder with a sanitizer.

    With the arguments ``unusable`` the program ends with status 2; where they are given and it does
    not, the sanitizer does not run here, and the test is skipped.
    """

    def make(sanitizer: str, *mains: str, unusable: tuple[str, ...] | None = None) -> Path:
        flags = SANITIZERS[sanitizer]
        library = made_once(
            tmp_path_factory, f"engine-{sanitizer}", lambda folder: build_library(folder, flags)
        )
        folder = tmp_path_factory.mktemp(Path(mains[0]).stem)
        program = build_program(folder, flags, mains, *sorted(library.glob("*.o")))
        if unusable is not None:
            tried = subprocess.run(
                [program, *unusable], capture_output=True, text=True, check=False
            )
            if tried.returncode != 2:
                pytest.skip(f"the sanitizer does not run here: {tried.stderr.strip()[:200]}")
        return program

    return make


@pytest.fixture(scope="session")
def checked_program(build: Build) -> Path:
    """The program that runs plans, with AddressSanitizer and UndefinedBehaviorSanitizer."""
    return build("address", "drive.c")


@pytest.fixture(scope="session")
def threads_program(build: Build) -> Path:
    """The program with ThreadSanitizer, where it runs."""
    program = build("thread", "drive.c")
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
