"""A run whose power is printed by a program: its joules, its end, and its secrets."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.power.sources.test_command import processes_with
from tests.run.running import family as family_of
from tests.run.running import launched, run, sampler_of, started_family, until
from tests.run.test_replay_run import record_of
from wattload.core.power import Evidence

SECRET = "s3cr3t-of-the-run"
METER = """
import sys, time
sys.stderr.write(f"logged in with {sys.argv[1]}\\n")
while True:
    print(time.time(), 9.5, flush=True)
    time.sleep(0.02)
"""


def metered(folder: Path, *, lines: str = METER) -> list[str]:
    meter = folder / "meter.py"
    meter.write_text(lines)
    return [
        "workload=null",
        "power=command",
        f"power.command.run={sys.executable} {meter} --token=$METER_TOKEN",
        "power.command.scope=drive",
        "power.command.accuracy.reading_percent=1",
        "power.idle_s=0",
        "power.rest_max_s=1",
    ]


@pytest.mark.slow
def test_joules_of_a_run_are_those_that_its_program_prints(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", *metered(tmp_path), METER_TOKEN=SECRET)
    record = record_of(done)
    (energy,) = [each for each in record.power.whole_run if each.source == "command"]
    assert energy.evidence is Evidence.MEASURED
    assert energy.mean_w == pytest.approx(9.5)
    assert energy.uncertainty_j is not None
    assert energy.coverage == pytest.approx(1.0, abs=0.05)
    assert not processes_with(str(tmp_path / "meter.py"))
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    log = "".join(each.read_text() for each in files if each.name == "sampler.log")
    assert "logged in with --token=$METER_TOKEN" in log
    assert not [each for each in files if SECRET.encode() in each.read_bytes()]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_program_that_ends_fails_the_run_that_it_met(tmp_path: Path) -> None:
    ending = "import sys, time\nfor _ in range(30): print(9.5, flush=True); time.sleep(0.02)\n"
    lines = f"{ending}sys.exit('USB device lost by ' + sys.argv[1])"
    record = record_of(run(tmp_path, "--json", *metered(tmp_path, lines=lines), METER_TOKEN=SECRET))
    failed = [check.sentence for check in record.checks if check.verdict == "fail"]
    (lost,) = [each for each in failed if "exited with status 1 after " in each]
    assert "USB device lost by --token=$METER_TOKEN" in lost


@pytest.mark.slow
def test_nothing_of_a_program_is_left_when_the_sampler_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    started = f"import subprocess\nsubprocess.Popen({family_of(pids)!r}, stdout=2)\n"
    words = metered(tmp_path, lines=started + METER)
    slow = ["workload._target_=tests.run.slow.Slow"]
    with launched(tmp_path, *words, *slow, METER_TOKEN=SECRET, WATTLOAD_TEST_STOP="run") as process:
        until(lambda: list((tmp_path / "target").glob("waiting-*")), process)
        everything = [*started_family(pids), *processes_with(str(tmp_path / "meter.py"))]
        os.kill(sampler_of(process.pid), signal.SIGKILL)
        until(
            lambda: (
                not [
                    pid
                    for pid in everything
                    if pid != process.pid and Path(f"/proc/{pid}").exists()
                ]
            )
        )
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_a_program_that_can_not_be_read_ends_the_run_with_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, *metered(tmp_path, lines="print('twelve watts')"), METER_TOKEN=SECRET)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("wattload: ")]
    assert len(said) == 1, done.stderr
    assert "printed 'twelve watts': each line must be `unix_seconds watts` or `watts`" in said[0]
