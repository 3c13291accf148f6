"""The sampler of batches, with the sanitizers of addresses and of threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.driver import SANITIZERS, Build

TWICE = -2


@pytest.fixture(scope="session", params=SANITIZERS)
def program(request: pytest.FixtureRequest, build: Build) -> Path:
    """The program, with the sanitizers of addresses or of threads."""
    return build(request.param, "draw_batches.c", unusable=())


def test_threads_draw_alike_and_end_together_after_an_error(program: Path) -> None:
    drawn = []
    for threads in (1, 4):
        ran = subprocess.run(
            [program, str(threads)], capture_output=True, text=True, check=True, timeout=120
        )
        assert not ran.stderr
        drawn.append([int(line) for line in ran.stdout.split()])
    assert drawn[0] == drawn[1]
    assert [number == TWICE for number in drawn[0]] == [number % 5 == 3 for number in range(20)]
