"""Runs that are stopped for a while are found; those whose drive stalls are measured."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, SLOW, launched, record_of, until
from wattload.core.checks.conditions import STOPPED_S, STOPPED_SHARE
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S

UNET3D = (
    "workload=unet3d",
    "scale=demo",
    "accelerator=h100",
    "power=none",
    "workload.file_count=112",
    "workload.epochs=1",
)


def begun_ns(folder: Path, phase: str, rank: int = 0) -> int:
    """Return when a phase began by a rank's journal, 0 before."""
    for path in (folder / "runs").glob(f"2*/journal-{rank}.jsonl"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "begin" and event["name"] == phase:
                return int(event["time_ns"])
    return 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def outlast_the_limits(start_ns: int) -> None:
    """Wait for longer than a process may be stopped in a phase that began at ``start_ns``."""
    since_ns = time.monotonic_ns()
    while True:
        now_ns = time.monotonic_ns()
        held_s, phase_s = (now_ns - since_ns) / NS_PER_S, (now_ns - start_ns) / NS_PER_S
        if held_s > 2 * STOPPED_S and held_s > 4 * STOPPED_SHARE * phase_s:
            return
        time.sleep(0.05)


def ran_throughout(record: RunRecord) -> Check:
    (found,) = (check for check in record.checks if check.name == "ran_throughout")
    return found


@pytest.mark.thorough
def test_a_run_that_is_stopped_fails(tmp_path: Path) -> None:
    """Whatever step it falls into; both utilisations leave out the first one."""
    with launched(tmp_path, *UNET3D) as process:
        until(lambda: begun_ns(tmp_path, "read"), process)
        process.send_signal(signal.SIGSTOP)
        until(lambda: state_of(process.pid) == "T", process)
        outlast_the_limits(begun_ns(tmp_path, "read"))
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3, errors
    check = ran_throughout(record_of(tmp_path))
    assert check.verdict == "fail"
    assert check.sentence.startswith("In the phase read, the rank's own process did not run for ")
    assert check.sentence.endswith(": stopped, frozen or without a CPU.")


@pytest.mark.parametrize(("rank", "ranks"), [(0, 1), (1, 2)])
def test_one_rank_that_is_stopped_fails_the_run(tmp_path: Path, rank: int, ranks: int) -> None:
    with launched(tmp_path, *SLOW, ranks=ranks, WATTLOAD_TEST_STOP="nap") as process:
        place = tmp_path / "target" / f"waiting-{rank}"
        until(lambda: place.exists() and place.read_text(), process)
        pid = int(place.read_text())
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T", process)
        (tmp_path / "target" / "go-on").touch()
        outlast_the_limits(begun_ns(tmp_path, "second", rank))
        os.kill(pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3, errors
    check = ran_throughout(record_of(tmp_path))
    assert check.verdict == "fail"
    who = "the rank's own process" if ranks == 1 else "the own process of rank 1"
    assert f"In the phase second, {who} did not run for " in check.sentence


def test_a_drive_that_stalls_is_no_finding(tmp_path: Path) -> None:
    """A pipe stands for the drive. The read keeps Python's lock, as those of some libraries do."""
    (tmp_path / "target").mkdir()
    drive = tmp_path / "target" / "drive"
    os.mkfifo(drive)
    with launched(tmp_path, *SLOW, WATTLOAD_TEST_STOP="stall") as process:
        until((tmp_path / "target" / "waiting-0").exists, process)
        until(lambda: state_of(process.pid) == "S", process)
        outlast_the_limits(begun_ns(tmp_path, "second"))
        with drive.open("wb") as pipe:
            pipe.write(b"1")
        process.communicate(timeout=DEADLINE_S)
    check = ran_throughout(record_of(tmp_path))
    assert check.verdict == "pass", check.sentence
