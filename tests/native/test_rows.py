"""Criteo's rows in C: with AVX2 and without it they are read, and generated, the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.driver import Build
from tests.native.seeds import rows, write_seeds

RUNS = 20_000
NO_AVX2 = 77


@pytest.mark.thorough
def test_mutated_rows_are_those_of_a_plain_reading(build: Build, tmp_path: Path) -> None:
    program = build("address", "fuzz_rows.c", "fuzz_main.c")
    files = write_seeds(tmp_path / "corpus", rows())
    ran = subprocess.run([program, str(RUNS), *files], capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr


def test_synthetic_rows_are_the_same_without_avx2(build: Build) -> None:
    program = build("address", "same_synthetic.c")
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    if ran.returncode == NO_AVX2:
        pytest.skip("this CPU does not have AVX2")
    assert not ran.returncode, ran.stderr
    assert int(ran.stdout) > RUNS
