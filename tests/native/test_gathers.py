"""Gathers of rows by threads, with the sanitizers of addresses and of threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.native.driver import SANITIZERS, Build

ROWS, BATCH = 2048, 3000
NONE, LOST = 0, 1
HANGS = -19


@pytest.fixture(scope="session", params=SANITIZERS)
def program(request: pytest.FixtureRequest, build: Build) -> Path:
    """The program, with the sanitizers of addresses or of threads."""
    return build(request.param, "gather_rows.c", unusable=())


@pytest.mark.parametrize(("threads", "fault", "code"), [(1, NONE, 0), (4, LOST, HANGS)])
def test_threads_gather_alike_and_leave_a_hanging_file(
    program: Path, tmp_path: Path, threads: int, fault: int, code: int
) -> None:
    files = [tmp_path / "even", tmp_path / "odd"]
    for first, path in enumerate(files):
        numbers = np.arange(first, ROWS, 2, dtype=np.uint64)
        path.write_bytes(np.repeat(numbers, 4096 // 8).tobytes())
    ran = subprocess.run(
        [program, str(threads), str(fault), *files],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert not ran.returncode, ran.stderr
    assert not ran.stderr
    *gathers, last = ran.stdout.splitlines()
    kept = set(range(0, 700, 7))
    for number, line in enumerate(gathers):
        listed = (np.arange(BATCH) * 31 + number) % ROWS
        count = sum(row in kept for row in listed.tolist())
        assert line == f"{count} {BATCH - count} 0"
    assert len(gathers) == 5
    assert int(last) == code
