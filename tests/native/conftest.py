"""The engine built with sanitizers, once per test run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.driver import ADDRESS, THREAD, Driver, build_library, build_program


@pytest.fixture(scope="session")
def checked_objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The engine with AddressSanitizer and UndefinedBehaviorSanitizer."""
    return build_library(tmp_path_factory.mktemp("address"), ADDRESS)


@pytest.fixture(scope="session")
def checked_program(checked_objects: list[Path]) -> Path:
    """The program with both of them."""
    return build_program(checked_objects[0].parent, ADDRESS, ["drive.c"], *checked_objects)


@pytest.fixture(scope="session")
def fuzz_program(checked_objects: list[Path]) -> Path:
    """The fuzz of the parser, with our own driver."""
    mains = ["fuzz_main.c", "fuzz_plan.c"]
    return build_program(checked_objects[0].parent, ADDRESS, mains, *checked_objects)


@pytest.fixture(scope="session")
def fuzz_rows_program(checked_objects: list[Path]) -> Path:
    """The fuzz of Criteo's rows, with our own driver."""
    mains = ["fuzz_rows.c", "fuzz_main.c"]
    return build_program(checked_objects[0].parent, ADDRESS, mains, *checked_objects)


@pytest.fixture(scope="session")
def blocks_program(checked_objects: list[Path]) -> Path:
    """What prints the blocks of single operations."""
    return build_program(checked_objects[0].parent, ADDRESS, ["blocks.c"], *checked_objects)


@pytest.fixture(scope="session")
def same_synthetic_program(checked_objects: list[Path]) -> Path:
    """The comparison of both builds of the generator."""
    return build_program(checked_objects[0].parent, ADDRESS, ["same_synthetic.c"], *checked_objects)


@pytest.fixture(scope="session")
def threads_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with ThreadSanitizer, where it runs."""
    folder = tmp_path_factory.mktemp("thread")
    program = build_program(folder, THREAD, ["drive.c"], *build_library(folder, THREAD))
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
