"""The load's process: it ends with the run, and the run learns of its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.run.running import ROOT, family, started_family, until
from wattload.core.errors import RunError
from wattload.core.host.counters import ProcessTree
from wattload.core.interrupts import interruptible
from wattload.core.units import MIB
from wattload.run.host_load.process import LoadProcess

CPUS = sorted(os.sched_getaffinity(0))
PROGRAM = [sys.executable, "-c", "import time; time.sleep(600)"]


def start_threads() -> LoadProcess:
    return LoadProcess(CPUS, thread_bytes=MIB)


def start_program() -> LoadProcess:
    return LoadProcess(CPUS, program=PROGRAM)


@pytest.fixture(params=[start_threads, start_program], ids=["threads", "program"])
def load(request: pytest.FixtureRequest) -> Iterator[LoadProcess]:
    start: Callable[[], LoadProcess] = request.param
    started = start()
    yield started
    started.close()


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def members(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@pytest.mark.parametrize(
    "module", ["wattload.run.host_load.process", "wattload.core.storage.file_system"]
)
def test_no_numpy_is_imported_before_the_load_needs_it(module: str) -> None:
    code = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_process_with_a_program_has_one_thread() -> None:
    load = start_program()
    try:
        assert len(list(Path(f"/proc/{load.pid}/task").iterdir())) == 1
    finally:
        load.close()


def test_it_ends_when_it_is_closed(load: LoadProcess) -> None:
    all_of_it = members(load.pid)
    load.close()
    assert not any(map(lives, all_of_it))
    assert load.death() is None


def test_all_that_its_program_has_started_ends_with_it(tmp_path: Path) -> None:
    load = LoadProcess(CPUS, program=family(tmp_path / "pids"))
    all_of_it = started_family(tmp_path / "pids")
    assert all(map(lives, all_of_it))
    load.close()
    assert not any(map(lives, all_of_it))


def test_a_program_that_fails_leaves_none_of_what_it_has_started(tmp_path: Path) -> None:
    load = LoadProcess(CPUS, program=family(tmp_path / "pids"))
    all_of_it = started_family(tmp_path / "pids")
    os.kill(all_of_it[0], signal.SIGKILL)
    until(lambda: load.death() is not None)
    assert not any(map(lives, all_of_it))
    load.close()


def test_what_its_program_has_started_ends_where_the_load_itself_is_killed(tmp_path: Path) -> None:
    load = LoadProcess(CPUS, program=family(tmp_path / "pids"))
    all_of_it = started_family(tmp_path / "pids")
    os.kill(load.pid, signal.SIGKILL)
    until(lambda: load.death() is not None)
    load.close()
    assert not any(map(lives, all_of_it))


def test_an_orphan_of_a_load_that_does_not_answer_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = LoadProcess(CPUS, program=family(tmp_path / "pids"))
    all_of_it = started_family(tmp_path / "pids")
    monkeypatch.setattr("wattload.run.host_load.process.ANSWER_TIMEOUT_S", 0.2)
    os.kill(load.pid, signal.SIGSTOP)
    with pytest.raises(RunError, match="the load did not answer in"):
        load.counts()
    load.close()
    assert not any(map(lives, all_of_it))


def test_its_work_is_counted_and_its_cpu_time_is_not_the_runs() -> None:
    tree = ProcessTree()
    load = start_threads()
    tree.exclude(load.pid)
    load.set("COMPUTE")
    before_s = tree.cpu_s()
    own = ProcessTree(root=load.pid)
    until(lambda: own.cpu_s() >= 1.0)
    counts = load.counts()
    load.close()
    assert counts is not None
    assert counts.units > 0
    assert tree.cpu_s() - before_s < 0.9


def test_a_program_counts_no_work() -> None:
    load = start_program()
    assert load.counts() is None
    load.close()


def test_its_death_breaks_the_main_thread_off(load: LoadProcess) -> None:
    all_of_it = members(load.pid)
    with interruptible():
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes anywhere after the signal
            os.kill(load.pid, signal.SIGKILL)
            time.sleep(60)
        death = load.death()
    assert death is not None
    assert str(death).startswith("the load died at ")
    assert ": run failed" in str(death)
    until(lambda: not any(map(lives, all_of_it)))


def test_one_that_does_not_answer_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    load = start_threads()
    monkeypatch.setattr("wattload.run.host_load.process.ANSWER_TIMEOUT_S", 0.2)
    os.kill(load.pid, signal.SIGSTOP)
    with pytest.raises(RunError, match="the load did not answer in"):
        load.counts()
    load.close()
    assert not lives(load.pid)


def test_a_program_that_ends_by_itself_is_a_death() -> None:
    load = LoadProcess(CPUS, program=[sys.executable, "-c", "print('no memory')"])
    until(lambda: load.death() is not None)
    with pytest.raises(RunError, match="its last words: the program ended by itself with status 0"):
        load.counts()
    load.close()


def test_what_keeps_it_from_starting_is_in_the_error() -> None:
    with pytest.raises(RunError, match=r"the load can't be started: .*on CPU 100000"):
        LoadProcess([100_000], thread_bytes=MIB)
    with pytest.raises(RunError, match=r"the load can't be started: .*no-such-program"):
        LoadProcess(CPUS, program=["no-such-program"])


OWNER = """
import os, sys, time
from wattload.run.host_load.process import LoadProcess
load = LoadProcess([{cpu}], {arguments})
if not os.fork():  # as a worker of torch does, it keeps the load's pipe open
    os.setsid()
    time.sleep(60)
    os._exit(0)
print(load.pid, flush=True)
time.sleep(600)
"""


def test_what_its_program_has_started_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    program = f"program={family(tmp_path / 'pids')}"
    script = OWNER.format(cpu=CPUS[0], arguments=program)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as owner:
        all_of_it = started_family(tmp_path / "pids")
        os.killpg(owner.pid, signal.SIGKILL)
        until(lambda: not any(map(lives, all_of_it)))


@pytest.mark.parametrize("arguments", ["thread_bytes=1 << 20", f"program={PROGRAM}"])
def test_it_ends_with_a_run_that_is_killed(arguments: str) -> None:
    script = OWNER.format(cpu=CPUS[0], arguments=arguments)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        all_of_it = members(pid)
        workers = [child for child in members(owner.pid)[1:] if child != pid]
        try:
            owner.kill()
            until(lambda: not any(map(lives, all_of_it)))
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
