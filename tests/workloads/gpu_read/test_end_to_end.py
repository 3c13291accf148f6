"""Whole runs by the command line, with a reader of its own process and stubs for CUDA."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.gpu.conftest import LIBRARIES, stub_environment, stub_libraries
from tests.loaders.gpu.plans import GPU
from tests.run.running import environment, launched, record_of, run, until
from wattload.core.host.gpus import list_gpus
from wattload.results.reading import judged

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(list_gpus()), reason="the stubs stand in for GPUs of other addresses"),
]

__all__ = ["LIBRARIES", "stub_environment", "stub_libraries"]

WORDS = ("workload=gpu_read", "scale=demo", "power=none", f"workload.gpus=[{GPU}]")
SMALL = ("workload.file_bytes=16777216", "workload.duration_s=0.3")
LEFT_S = 10.0


def children_of(pid: int) -> list[int]:
    """Return the processes below a process, over all levels."""
    found = [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]
    return [*found, *(below for child in found for below in children_of(child))]


def test_a_run_through_pinned_memory(tmp_path: Path, stub_environment: dict[str, Any]) -> None:
    done = run(tmp_path, *WORDS, *SMALL, "workload.threads=8", **stub_environment)
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    (path,) = record.workload.paths
    assert (path.path_requested, path.path_effective) == ("host_bounce", "host_bounce")
    assert "pinned copies" in path.path_evidence
    assert (record.workload.queue_depth_asked, record.workload.block_bytes_asked) == (8, 4096)
    verdicts = {check.name: check.verdict for check in judged(record).checks}
    assert verdicts["data_path"] == verdicts["delivered_bytes"] == "pass"
    assert verdicts["failed_reads"] == "pass"
    assert not [check for check in record.checks if check.verdict == "fail"]
    (window,) = record.timed_windows()
    assert (window.name, window.read_bytes // 4096) == ("gpu_read", window.operations)
    assert record.workload.facts["connections"][0]["gpu"] == GPU


@pytest.mark.thorough
def test_any_path_that_bounces_is_a_warning(
    tmp_path: Path, stub_environment: dict[str, Any]
) -> None:
    words = (*WORDS, *SMALL, "loader=cufile", "loader.mode=auto")
    done = run(tmp_path, *words, **stub_environment)
    record = record_of(tmp_path)
    verdicts = {check.name: check.verdict for check in judged(record).checks}
    assert done.returncode == 0, done.stderr
    assert (record.workload.paths[0].path_effective, verdicts["data_path"]) == (
        "posix_bounce",
        "warn",
    )


def test_a_killed_run_leaves_no_process(tmp_path: Path, stub_environment: dict[str, Any]) -> None:
    words = (*WORDS, "workload.duration_s=60")
    is_reading = "loaders.gpu"
    with launched(tmp_path, *words, **stub_environment) as process:

        def reader() -> list[int]:
            return [pid for pid in children_of(process.pid) if is_reading in command_of(pid)]

        until(lambda: bool(reader()) and bool(list(tmp_path.rglob("*.bin"))), process)
        left = children_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + LEFT_S
        while any(is_reading in command_of(pid) for pid in left):
            assert time.monotonic() < deadline, "a reader outlived its run"
            time.sleep(0.05)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_the_plan_names_the_gpu_and_the_link(
    tmp_path: Path, stub_environment: dict[str, Any]
) -> None:
    words = [word for word in WORDS if not word.startswith("workload=")]
    command = [sys.executable, "-m", "wattload", "plan", "gpu_read", f"target.path={tmp_path}"]
    variables = environment(tmp_path, **stub_environment)
    planned = subprocess.run(
        [*command, *words], env=variables, capture_output=True, text=True, check=True
    )
    assert "reads   as many bytes as the target delivers in 2.00 s" in planned.stdout
    assert "random, of 4096 bytes, by 64 threads from a file of 268.44 MB" in planned.stdout
    assert f"gpu     {tmp_path} into GPU {GPU}, link unknown" in planned.stdout
