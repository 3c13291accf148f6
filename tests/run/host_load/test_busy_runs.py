"""Whole runs on a busy host. Those that settle need two CPUs on which nothing else runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.host_load.test_process import lives, members
from tests.run.running import SLOW, launched, record_of, run, run_here, until
from wattload.core.record.host import CPU_BAND, MEMORY_BAND, LoadLevel
from wattload.core.record.run import RunRecord
from wattload.results.reading import judged

CPUS = sorted(os.sched_getaffinity(0))
# Smaller shares than the default: a shared host's drift is in proportion, and the bands are not.
CPU_SHARE, MEMORY_SHARE = 0.6, 0.2
SETTLE_MAX_S = 240
BUSY = (
    "load=busy",
    f"load.cpu_share={CPU_SHARE}",
    f"load.memory_share={MEMORY_SHARE}",
    "load.alone_s=4",
    f"load.settle_max_s={SETTLE_MAX_S}",
    "power=none",
)
SETTLED_S = SETTLE_MAX_S + 60.0
LONG = ("load=busy", "load.alone_s=3600", "load.settle_max_s=3600", "power=none")
STRESS = ("load=stressapptest", "load.alone_s=1", "load.warm_up_s=0", "load.memory_bytes=67108864")

needs_stressapptest = pytest.mark.skipif(
    shutil.which("stressapptest") is None, reason="stressapptest is not installed"
)


def load_of(run_pid: int) -> int | None:
    """Return the process of a run's load, once it is there."""
    for child in members(run_pid)[1:]:
        try:
            if b"host_load" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        except OSError:
            continue
    return None


def started_load(process: subprocess.Popen[str]) -> list[int]:
    until(lambda: load_of(process.pid), process)
    found = load_of(process.pid)
    assert found is not None
    return members(found)


def level_check(record: RunRecord) -> tuple[str, str]:
    (check,) = [check for check in record.checks if check.name == "load_level"]
    return check.verdict, check.sentence


def is_in_bands(level: LoadLevel) -> bool:
    assert level.cpu_share is not None
    assert level.memory_share is not None
    return (
        abs(level.cpu_share - CPU_SHARE) <= CPU_BAND
        and abs(level.memory_share - MEMORY_SHARE) <= MEMORY_BAND
    )


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_load(tmp_path: Path) -> None:
    with launched(tmp_path, "workload=null", *LONG) as process:
        all_of_it = started_load(process)
        process.kill()
        until(lambda: not any(map(lives, all_of_it)))


@pytest.mark.slow
def test_a_load_that_dies_while_it_settles_fails_the_run(tmp_path: Path) -> None:
    with launched(tmp_path, "workload=null", *LONG) as process:
        os.kill(started_load(process)[0], signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the load died at " in stderr
    record = record_of(tmp_path)
    assert record.status == "failed"
    assert record.status_reason.startswith("the load died at ")
    assert record.loads == ()


@pytest.mark.slow
@needs_stressapptest
@pytest.mark.parametrize("which", ["supervisor", "program"])
def test_a_load_that_dies_under_the_workload_fails_the_run(tmp_path: Path, which: str) -> None:
    # The workload sleeps for two minutes in one call: its death does not wait for the end of it.
    with launched(tmp_path, *SLOW, *STRESS, WATTLOAD_TEST_STOP="run") as process:
        until(lambda: list((tmp_path / "target").glob("waiting-*")), process)
        all_of_it = started_load(process)
        until(lambda: len(members(all_of_it[0])) > 1)
        all_of_it = members(all_of_it[0])
        os.kill(all_of_it[0 if which == "supervisor" else 1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert ": run failed" in stderr
    assert record_of(tmp_path).status == "failed"
    until(lambda: not any(map(lives, all_of_it)))


@pytest.mark.slow
@needs_stressapptest
def test_the_level_of_stressapptest_is_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "workload=null", "power=none", *STRESS)
    assert done.returncode in (0, 3), done.stderr  # 3: something else ran beside this test
    record = record_of(tmp_path)
    (load,) = record.loads
    assert [level.window for level in load.levels] == ["alone", "during", "after"]
    assert load.cpu_share_asked is None
    assert load.missing["kept_fraction"].startswith("a program other than")
    alone = load.level("alone")
    assert alone is not None
    assert alone.load_cpu_share is not None
    assert alone.load_cpu_share > 0
    metric = judged(record).metric("load_kept_fraction")
    assert metric is not None
    assert metric.value is None


@pytest.mark.slow
def test_an_impossible_load_is_refused_before_the_run(tmp_path: Path) -> None:
    missing = run_here(
        tmp_path, "workload=null", "load=stressapptest", "load.binary=no-such-program"
    )
    assert missing.returncode == 2
    assert "needs the program no-such-program, which is not installed" in missing.stderr
    assert not list((tmp_path / "runs").glob("2*"))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("workload", ["null", "unet3d"])
def test_a_busy_run_from_end_to_end(tmp_path: Path, workload: str) -> None:
    done = run(tmp_path, f"workload={workload}", "scale=demo", *BUSY, seconds=SETTLED_S)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    record = record_of(tmp_path)
    (load,) = record.loads
    assert [level.window for level in load.levels] == ["alone", "during", "after"]
    for level in load.levels[::2]:  # `null` is over before the load has done a period's work
        assert None not in (level.cpu_share, level.memory_share, level.work_fraction)
    # It settled, which is in the bands. Whether a shared host stays as fast is not ours to assert.
    alone, _, after = load.levels
    assert is_in_bands(alone)
    verdict, sentence = level_check(record)
    assert (verdict, done.returncode) == (("warn", 0) if is_in_bands(after) else ("fail", 3))
    assert ("less than 10 s" in sentence) == (verdict == "warn")  # it held for 4 s
    names = [span.name for span in record.spans]
    assert names.index("load_settle") < names.index("load_alone") < names.index("load_after")
    kept = judged(record).metric("load_kept_fraction")
    assert kept is not None
    assert kept.value == load.kept_fraction
    (rank,) = record.ranks
    work_s = sum((level.end_ns - level.start_ns) / 1e9 for level in load.levels)
    assert rank.cpu_s is not None
    assert rank.cpu_s < work_s * len(CPUS) * 0.8  # the load's seconds are not the run's


@pytest.mark.alone
@pytest.mark.slow
def test_a_load_that_is_cut_during_the_workload_fails_the_check(tmp_path: Path) -> None:
    with launched(tmp_path, *SLOW, *BUSY, WATTLOAD_TEST_STOP="nap") as process:
        until(lambda: list((tmp_path / "target").glob("waiting-*")), process, SETTLED_S)
        for task in Path(f"/proc/{started_load(process)[0]}/task").iterdir():
            os.sched_setaffinity(int(task.name), CPUS[:1])
        (tmp_path / "target/go-on").touch()
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stderr
    verdict, sentence = level_check(record_of(tmp_path))
    assert verdict == "fail"
    assert "after the workload" in sentence


@pytest.mark.alone
@pytest.mark.slow
def test_a_second_load_outside_fails_the_check(tmp_path: Path) -> None:
    with launched(tmp_path, *SLOW, *BUSY, WATTLOAD_TEST_STOP="nap") as process:
        until(lambda: list((tmp_path / "target").glob("waiting-*")), process, SETTLED_S)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            (tmp_path / "target/go-on").touch()
            _, stderr = process.communicate(timeout=60)
            other.kill()
    assert process.returncode == 3, stderr
    verdict, sentence = level_check(record_of(tmp_path))
    assert verdict == "fail"
    assert "other processes took" in sentence


@pytest.mark.slow
@needs_stressapptest
def test_two_ranks_share_one_load(tmp_path: Path) -> None:
    done = run(tmp_path, "workload=null", "power=none", *STRESS, ranks=2)
    assert done.returncode in (0, 3), done.stderr
    record = record_of(tmp_path)
    assert len(record.loads) == 1
    alone = record.loads[0].level("alone")
    assert alone is not None
    assert alone.run_cpu_share is not None
    assert alone.run_cpu_share < 0.2  # ranks that wait for the load sleep
