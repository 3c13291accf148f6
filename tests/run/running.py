"""Starts whole runs as real processes, and finds what they leave."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from wattload.__main__ import main
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord

ROOT = Path(__file__).parents[2]
SLOW = ("workload=null", "workload._target_=tests.run.slow.Slow", "power=none")
DEADLINE_S = 240.0
"""When what hangs is ended; a busy machine is slow long before."""
MPIRUN = Path(sys.executable).parent / "mpirun"


def mpirun() -> str:
    found = str(MPIRUN) if MPIRUN.exists() else shutil.which("mpirun")
    if found is None:
        pytest.skip("no mpirun in this environment: pip install 'wattload[mpi]'")
    return found


def command(folder: Path, *overrides: str, ranks: int = 1) -> list[str]:
    target = folder / "target"
    target.mkdir(exist_ok=True)
    is_given = any(text.startswith("target.path=") for text in overrides)
    launcher = [mpirun(), "-n", str(ranks)] if ranks > 1 else []
    return [
        *launcher,
        sys.executable,
        "-m",
        "wattload",
        "run",
        *([] if is_given else [f"target.path={target}"]),
        f"runs={folder / 'runs'}",
        *overrides,
    ]


def environment(folder: Path, **extra: str) -> Mapping[str, str]:
    state = folder / "state"
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests/plugin'}"
    return {**os.environ, "WATTLOAD_STATE_DIR": str(state), "PYTHONPATH": path, **extra}


def run(
    folder: Path,
    *overrides: str,
    ranks: int = 1,
    seconds: float = DEADLINE_S,
    **extra: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *overrides, ranks=ranks),
        env=environment(folder, **extra),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def run_here(folder: Path, *overrides: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run within this process: what a run imports and parses costs more CPU time than the run."""
    words = command(folder, *overrides)
    words = words[words.index("run") :]
    return call_here(folder, *words, **variables)


def call_here(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call ``wattload`` within this process."""
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
        patch.chdir(folder)
        for name, value in environment(folder, **variables).items():
            patch.setenv(name, value)
        try:
            status = main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return subprocess.CompletedProcess(words, status, out.getvalue(), error.getvalue())


@contextmanager
def waiting(folder: Path, where: str, ranks: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Start a run in a process group of its own and wait until it waits."""
    with launched(folder, *SLOW, ranks=ranks, WATTLOAD_TEST_STOP=where) as process:
        until(lambda: len(list((folder / "target").glob("waiting-*"))) == ranks, process)
        yield process


@contextmanager
def launched(
    folder: Path, *words: str, ranks: int = 1, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a run in a process group of its own, which is killed if the block leaves it behind."""
    with subprocess.Popen(
        command(folder, *words, ranks=ranks),
        env=environment(folder, **variables),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def until(
    condition: Callable[[], object],
    process: subprocess.Popen[str] | None = None,
    seconds: float = DEADLINE_S,
) -> None:
    deadline_s = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail(f"the run ended early: {process.communicate()}")
        if time.monotonic() > deadline_s:
            pytest.fail("the run did not get there in time")
        time.sleep(0.05)


FAMILY = """
trap '' TERM
sleep 600 &
setsid --fork sh -c 'echo $$ > "$0.orphan"; exec sleep 600' "$1" > /dev/null 2>&1
until [ -s "$1.orphan" ]; do sleep 0.02; done
echo $$ $! $(cat "$1.orphan") > "$1.new"
mv "$1.new" "$1"
wait
"""
"""A wrapper that starts a child, and an orphan in a session of its own; it writes their ids."""


def family(pids: Path) -> list[str]:
    return ["/bin/sh", "-c", FAMILY, "family", str(pids)]


def started_family(pids: Path) -> list[int]:
    until(pids.exists)
    return [int(pid) for pid in pids.read_text().split()]


def run_folders(runs: Path) -> list[Path]:
    """Return the folders of runs, whose names begin with the year."""
    return sorted(path for path in runs.glob("2*-*-*") if path.is_dir())


def run_folder(folder: Path) -> Path:
    (found,) = run_folders(folder / "runs")
    return found


def record_of(folder: Path) -> RunRecord:
    path = run_folder(folder)
    until((path / "record.json").exists)
    return read_record(path)


def sampler_of(pid: int) -> int:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(
        int(word) for word in words if b"sampler" in Path(f"/proc/{word}/cmdline").read_bytes()
    )
