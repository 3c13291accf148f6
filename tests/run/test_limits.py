"""Limits of the shell or of a container: refused with one sentence before anything is written."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, command, environment, run_folders

pytestmark = pytest.mark.slow
MIB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "size", "sentence"),
    [
        ("RLIMIT_FSIZE", 8 * MIB, "the limit is 8.39 MB per file; raise it with ulimit -f"),
    ],
)
def test_a_limit_that_no_run_fits_into_is_refused(
    tmp_path: Path, limit: str, size: int, sentence: str
) -> None:
    number = getattr(resource, limit)
    done = subprocess.run(
        command(tmp_path, "workload=null", "power=none"),
        env=environment(tmp_path),
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(number, (size, size)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("wattload: "))
    assert sentence in line
    assert "Traceback" not in done.stderr
    assert not run_folders(tmp_path / "runs")


def test_a_soft_limit_on_open_files_is_raised(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "workload=null", "power=none"),
        env=environment(tmp_path),
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 4096)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
