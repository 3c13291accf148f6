"""Worker processes: order, failures, and that none outlives its rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.context import context_at
from wattload.core.errors import DataError, RunError
from wattload.core.workload import Accelerator
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import ConverterConfig
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm import workers
from wattload.workloads.dlrm.config import Config
from wattload.workloads.dlrm.workers import WorkerPool
from wattload.workloads.dlrm.workload import Dlrm

Moved = Callable[[int, int, int], None]

SPIN_S = 0.05


class UntransportableError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def double(task: int, moved: Moved) -> int:
    for _ in range(task):
        moved(10, 1, 1)
    return 2 * task


def which(_: int, moved: Moved) -> int:
    time.sleep(SPIN_S)
    return os.getpid()


def spin(seconds: float, moved: Moved) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def sleep(seconds: float, moved: Moved) -> None:
    time.sleep(seconds)


def refuse(task: int, moved: Moved) -> None:
    raise DataError(f"task {task} is bad")


def refuse_badly(task: int, moved: Moved) -> None:
    raise UntransportableError("one", "two")


def die(task: int, moved: Moved) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def nowhere(*_: int) -> None:
    pass


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pids: list[int], within_s: float = 20.0) -> bool:
    end_s = time.monotonic() + within_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def test_results_come_in_the_order_of_the_tasks_with_every_byte_told() -> None:
    reported = [0, 0, 0]

    def moved(*counts: int) -> None:
        for index, count in enumerate(counts):
            reported[index] += count

    with WorkerPool(2) as pool:
        done = pool.run(double, list(range(20)), moved)
        assert [item.result for item in done] == [2 * task for task in range(20)]
        assert pool.run(double, [], moved) == []
    total = sum(range(20))
    assert reported == [10 * total, total, total]


def test_tasks_are_shared_by_all_workers_and_none_stays() -> None:
    with WorkerPool(2) as pool:
        pids = {done.result for done in pool.run(which, list(range(6)), nowhere)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert gone(list(pids))


def test_a_cost_tells_work_from_waiting() -> None:
    with WorkerPool(1) as pool:
        (busy,) = pool.run(spin, [0.2], nowhere)
        (idle,) = pool.run(sleep, [0.2], nowhere)
    assert busy.cost.cpu_s >= 0.2
    assert idle.cost.cpu_s < 0.1
    assert idle.cost.wall_s >= 0.2
    assert busy.cost.peak_bytes > 10e6
    assert busy.cost.run_queue_s is not None


def test_a_failed_task_raises_its_own_error_and_ends_the_workers() -> None:
    pids: list[int] = []

    def fail_late() -> None:
        with WorkerPool(2) as pool:
            pids.extend(done.result for done in pool.run(which, [0, 1], nowhere))
            pool.run(refuse, [0], nowhere)

    with pytest.raises(DataError, match="task 0 is bad"):
        fail_late()
    assert gone(pids)


def test_an_error_that_can_not_travel_arrives_as_text() -> None:
    with pytest.raises(RunError, match="one two"), WorkerPool(1) as pool:
        pool.run(refuse_badly, [0], nowhere)


def test_a_killed_worker_is_an_error_that_says_how() -> None:
    with pytest.raises(RunError, match="ended by signal 9 during a task"), WorkerPool(2) as pool:
        pool.run(die, [0], nowhere)


def test_a_worker_that_is_gone_before_its_task_is_an_error() -> None:
    with WorkerPool(1) as pool:
        (done,) = pool.run(which, [0], nowhere)
        os.kill(done.result, signal.SIGKILL)
        assert gone([done.result])
        with pytest.raises(RunError, match="ended by signal 9"):
            pool.run(which, [0], nowhere)


def test_no_run_queue_is_none_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert workers.run_queue_s() is None


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.context import context_at
from wattload.core.workload import Accelerator
from {module} import Config as Loader
from wattload.workloads.dlrm.workload import Config, Dlrm

if __name__ == "__main__":
    config = Config(row_count=400000, day_count=2, rounds=1, workers=2, block_bytes=1 << 16)
    workload = Dlrm(config, Loader(), Accelerator())
    context = context_at(Path({target!r}))
    workload.prepare(context)
    print("prepared", flush=True)
    workload.run(context)
"""


def started(folder: Path, loader: type[ConverterConfig]) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own session and return it in the middle of a phase."""
    target = folder / "target"
    target.mkdir()
    script = folder / "child.py"
    root = str(Path(__file__).parents[3])
    script.write_text(CHILD.format(root=root, target=str(target), module=loader.__module__))
    child = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=root,
    )
    end_s = time.monotonic() + 120
    while not any(path.stat().st_size for path in target.rglob("*.parquet")):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return child


def session(child: subprocess.Popen[bytes]) -> list[int]:
    """Return the processes of the child's session, itself included."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == child.pid:
                found.append(int(path.name))
    return found


@pytest.mark.thorough
def test_ctrl_c_leaves_no_worker_and_no_half_output(tmp_path: Path) -> None:
    child = started(tmp_path, ArrowConfig)
    pids = session(child)
    assert len(pids) >= 3
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, stderr = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in stderr
    assert stderr.count(b"Traceback") == 1  # the rank's own; no worker was interrupted
    assert gone(pids)
    left = {path.name for path in (tmp_path / "target").rglob("*") if path.is_file()}
    assert not [name for name in left if name.endswith((".parquet", ".bin"))]
    assert {"day_0", "day_1"} <= left


@pytest.mark.thorough
def test_workers_die_with_a_killed_rank_and_the_next_run_completes(tmp_path: Path) -> None:
    child = started(tmp_path, NativeConfig)
    pids = session(child)
    assert len(pids) >= 3
    child.kill()
    child.communicate(timeout=60)  # returns only when nobody holds its standard output any more
    assert gone(pids)
    config = Config(row_count=400_000, day_count=2, rounds=1, workers=2, block_bytes=1 << 22)
    workload, context = Dlrm(config, NativeConfig(), Accelerator()), context_at(tmp_path / "target")
    assert workload.prepare(context).reused
    workload.run(context)
    assert {check.verdict for check in workload.verify(context)} == {"pass"}
    assert not list((tmp_path / "target").glob("wattload-data/dlrm-output-*"))
