"""Reads into GPU memory with the sanitizers, against stand-ins for the driver and cuFile."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.gpu.conftest import build_stubs
from tests.loaders.gpu.plans import stamped_file
from tests.native.driver import SANITIZERS, Build

WAYS = {"bounce": 0, "ring": 1, "cufile": 2}


@pytest.fixture(scope="session", params=SANITIZERS)
def program(request: pytest.FixtureRequest, build: Build) -> Path:
    """The program, with the sanitizers of addresses or of threads."""
    program = build(request.param, "read_gpu.c", unusable=())
    build_stubs(program.parent)
    return program


def run(program: Path, way: str, file: Path, readers: int, **variables: str) -> dict[str, Any]:
    """Return what the program printed."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), **variables}
    command = [str(each) for each in (program, WAYS[way], readers, 2, file, file)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert not done.returncode, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("way", WAYS)
def test_reads_are_clean(program: Path, way: str, tmp_path: Path) -> None:
    file = stamped_file(tmp_path / "file").path
    printed = run(program, way, file, 24)
    assert (printed["code"], printed["bad"]) == (0, 0)
    assert printed["compared"] >= 2 * 24
    assert printed["operations"] > 0


@pytest.mark.parametrize("way", ["bounce", "ring"])
def test_the_loss_of_a_gpu_is_clean(program: Path, way: str, tmp_path: Path) -> None:
    file = stamped_file(tmp_path / "file").path
    # A driver that lost its GPU destroys no stream, so what it holds is no leak of ours.
    lost = {"STUB_CUDA_LOSE_AFTER": "200", "ASAN_OPTIONS": "detect_leaks=0"}
    assert run(program, way, file, 24, **lost)["code"] == -12


@pytest.mark.parametrize("way", WAYS)
def test_refusals_are_clean(program: Path, way: str, tmp_path: Path) -> None:
    file = stamped_file(tmp_path / "file").path
    buffers = {"STUB_CUDA_REGISTER_ERROR": "2", "STUB_CUFILE_BUFFER_ERROR": "5045"}
    assert run(program, way, file, 8, **buffers)["code"] < 0
    assert run(program, way, file, 8, STUB_CUDA_FREE_BYTES="4096")["code"] == -14
