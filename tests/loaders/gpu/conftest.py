"""A CUDA driver and a cuFile library that need no GPU, built once per session from ``stubs``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.building import made_once

SOURCES = Path(__file__).parent / "stubs"
LIBRARIES = {"libcuda.c": "libcuda.so.1", "libcufile.c": "libcufile.so.0"}


def build_stubs(folder: Path) -> None:
    """Compile ``libcuda.so.1`` and ``libcufile.so.0`` into a folder."""
    for source, name in LIBRARIES.items():
        build = ["cc", "-shared", "-fPIC", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(
            [*build, f"-Wl,-soname,{name}", "-o", folder / name, SOURCES / source, "-ldl"],
            check=True,
        )


@pytest.fixture(scope="session")
def stub_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``libcuda.so.1`` and ``libcufile.so.0``."""
    return made_once(tmp_path_factory, "stubs", build_stubs)


@pytest.fixture
def stub_environment(stub_libraries: Path) -> dict[str, str]:
    """Return this process's environment, in which a program finds the stubs and no other."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("STUB_", "CUFILE_", "CUDA_"))}
    return {**plain, "LD_LIBRARY_PATH": str(stub_libraries)}


@pytest.fixture
def stubs(stub_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the processes that a test starts find the stubs; call it to set how they behave.

    ``stubs(STUB_CUFILE_PATH="p2p")`` sets variables that the head of each source documents.
    """
    for name in set(os.environ) - set(stub_environment):
        monkeypatch.delenv(name)
    monkeypatch.setenv("LD_LIBRARY_PATH", stub_environment["LD_LIBRARY_PATH"])

    def behave(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return behave
