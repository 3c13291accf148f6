"""Codes and graphs of vectors, with the sanitizers; distances are the same without AVX2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.driver import SANITIZERS, SOURCES, Build, build_program

NO_AVX2 = 77
TYPES = (0, 1)


@pytest.fixture(scope="session", params=SANITIZERS)
def program(request: pytest.FixtureRequest, build: Build) -> Path:
    """The program, with the sanitizers of addresses or of threads."""
    return build(request.param, "build_graph.c", unusable=())


@pytest.mark.parametrize("kind", TYPES)
def test_threads_build_the_same_and_end_when_they_are_stopped(program: Path, kind: int) -> None:
    printed = set()
    for threads in (1, 2, 5):
        ran = subprocess.run(
            [program, str(threads), str(kind)], capture_output=True, text=True, check=False
        )
        assert not ran.returncode, ran.stderr
        assert not ran.stderr
        printed.add(ran.stdout)
    assert len(printed) == 1


def test_distances_are_the_same_without_avx2(tmp_path: Path) -> None:
    others = [SOURCES / name for name in ("stamps.c", "errors.c")]
    program = build_program(tmp_path, SANITIZERS["address"], ["same_vectors.c"], *others)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    if ran.returncode == NO_AVX2:
        pytest.skip("this CPU does not have AVX2")
    assert not ran.returncode, ran.stderr
    assert int(ran.stdout) > 1000
