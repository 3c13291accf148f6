"""Signals at any time: one sentence, a record if there was a folder, and nothing left running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mpich import shared_memory_of
from tests.run.running import (
    DEADLINE_S,
    SLOW,
    command,
    environment,
    launched,
    record_of,
    run,
    run_folders,
    sampler_of,
    until,
    waiting,
)

pytestmark = pytest.mark.slow


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have this test's state folder in their environment."""
    mark = f"WATTLOAD_STATE_DIR={folder / 'state'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def is_sampler(pid: int) -> bool:
    try:
        return b"wattload.power.sampler" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def is_listening_rank(pid: int) -> bool:
    """Return whether a process is a rank that handles signals, of which Python leaves SIGTERM.

    Earlier, Ctrl-C is for Python itself, which prints a traceback.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return False
    is_rank = words.startswith(os.fsencode(f"{sys.executable}\0-m\0wattload\0"))
    return is_rank and bool(int(caught, 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_other_signals_end_a_run_like_ctrl_c(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores it, and so would the run
    try:
        with waiting(tmp_path, "run") as process:
            process.send_signal(number)
            _, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        signal.signal(number, before)
    assert process.returncode == 130, errors
    assert f"\nwattload: interrupted by {number.name}\n" in errors
    record = record_of(tmp_path)
    assert (record.status, record.status_reason) == ("aborted", f"interrupted by {number.name}")
    until(lambda: not processes_of(tmp_path))


def test_signals_during_the_clean_up_change_nothing(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    assert errors.count("wattload: interrupted\n") == 1
    assert "Traceback" not in errors
    assert record_of(tmp_path).status_reason == "interrupted"
    until(lambda: not processes_of(tmp_path))


@pytest.mark.parametrize("delay_s", [0.0, 0.5, 1.5])
def test_ctrl_c_at_the_start_ends_two_ranks(tmp_path: Path, delay_s: float) -> None:
    memory: set[Path] = set()

    def has_ended() -> bool:
        memory.update(shared_memory_of(processes_of(tmp_path)))
        return process.poll() is not None

    with launched(tmp_path, *SLOW, ranks=2, WATTLOAD_TEST_STOP="run") as process:
        until(lambda: sum(map(is_listening_rank, processes_of(tmp_path))) == 2, process)
        until(lambda: any(map(is_sampler, processes_of(tmp_path))), process)
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        until(has_ended)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode
    assert "Traceback" not in errors
    until(lambda: not processes_of(tmp_path))
    assert not [path for path in memory if path.exists()]
    assert all((path / "record.json").exists() for path in run_folders(tmp_path / "runs"))


def test_a_job_that_is_killed_leaves_no_shared_memory(tmp_path: Path) -> None:
    with waiting(tmp_path, "run", ranks=2) as process:
        memory = shared_memory_of(processes_of(tmp_path))
        os.kill(sampler_of(int((tmp_path / "target/waiting-0").read_text())), signal.SIGKILL)
        for rank in (0, 1):
            os.kill(int((tmp_path / f"target/waiting-{rank}").read_text()), signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)
    assert memory
    assert not [path for path in memory if path.exists()]


def test_a_failure_of_one_rank_before_mpi_ends_the_others(tmp_path: Path) -> None:
    socket = tmp_path / "nobody-listens"
    done = run(tmp_path, *SLOW, f"power.sampler_socket={socket}", ranks=2)
    assert done.returncode == 1
    assert done.stderr.count("wattload: ") == 1
    assert str(socket) in done.stderr
    assert not run_folders(tmp_path / "runs")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("flaw", "said"),
    [("seed=none", "seed must be an integer"), ("--unknown", "unrecognized arguments: --unknown")],
)
def test_a_rank_that_exits_before_mpi_ends_the_others(
    tmp_path: Path, rank: int, flaw: str, said: str
) -> None:
    """Left alone, the others would wait in MPI_Init for minutes."""
    launcher, of_rank = command(tmp_path, *SLOW, ranks=2)[:1], command(tmp_path, *SLOW)
    ranks = [[*of_rank, flaw] if each == rank else of_rank for each in (0, 1)]
    done = subprocess.run(
        [*launcher, "-n", "1", *ranks[0], ":", "-n", "1", *ranks[1]],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    until(lambda: not processes_of(tmp_path))
