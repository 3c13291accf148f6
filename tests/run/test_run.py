"""Whole runs as real processes: how they end well, and how they end otherwise."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.run.running import (
    DEADLINE_S,
    SLOW,
    command,
    record_of,
    run,
    run_folder,
    run_here,
    sampler_of,
    waiting,
)
from wattload.__main__ import main
from wattload.core.record.file import read_record


def test_a_null_run_leaves_a_complete_record(tmp_path: Path) -> None:
    done = run(tmp_path, "workload=null", "power=none", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["record"] == str(run_folder(tmp_path) / "record.json")
    record = record_of(tmp_path)
    assert (record.status, record.workload.name) == ("complete", "null")
    assert record.hosts[0].after is not None
    assert record.limits[0].startswith("Drive energy was not measured")
    names = {path.name for path in run_folder(tmp_path).iterdir()}
    assert names == {
        "record.json",
        "config.yaml",
        "log.jsonl",
        "throughput.parquet",
        "power.parquet",
    }


def test_two_ranks_make_one_record_with_one_sampler(tmp_path: Path) -> None:
    done = run(tmp_path, *SLOW, ranks=2)
    assert done.returncode == 3, "it counts bytes that no device moved, and that is found out"
    record = record_of(tmp_path)
    assert [rank.rank for rank in record.ranks] == [0, 1]
    first = next(window for window in record.windows if window.name == "first")
    assert (first.rank_count, first.read_bytes) == (2, 2000)
    assert len(record.hosts) == len(record.power.sources) == 1
    assert done.stdout.count("  record  ") == 1


@pytest.mark.parametrize("where", ["prepare", "run", "verify"])
def test_ctrl_c_leaves_an_aborted_record_and_status_130(tmp_path: Path, where: str) -> None:
    with waiting(tmp_path, where) as process:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    record = record_of(tmp_path)
    sentence, where_it_is, _ = errors.splitlines()[-3:]
    assert sentence == "wattload: interrupted"
    assert where_it_is.endswith(f"{record.run_id}/record.json")
    assert (record.status, record.status_reason) == ("aborted", "interrupted")


def test_sigkill_of_the_whole_group_still_leaves_a_record(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)
    record = record_of(tmp_path)
    assert record.status == "aborted"
    spans = {span.name: span.read_bytes for span in record.spans}
    assert spans["first"] == 1000
    assert "second" not in spans
    assert any("second" in limit for limit in record.limits)


@pytest.mark.parametrize(("where", "rank"), [("prepare", 0), ("run", 1), ("verify", 1)])
def test_a_killed_rank_ends_all_and_leaves_a_record(tmp_path: Path, where: str, rank: int) -> None:
    with waiting(tmp_path, where, ranks=2) as process:
        victim = int((tmp_path / "target" / f"waiting-{rank}").read_text())
        os.kill(victim, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode != 0
    assert record_of(tmp_path).status == "aborted"


def test_a_rank_that_fails_reports_why_and_ends_all(tmp_path: Path) -> None:
    done = run(tmp_path, *SLOW, ranks=2, WATTLOAD_TEST_FAIL="1", WATTLOAD_TEST_STOP="run")
    assert done.returncode != 0
    assert "rank 1: the record on this rank is torn" in done.stderr
    record = record_of(tmp_path)
    assert record.status == "failed"
    assert "torn" in record.status_reason


def test_a_failure_is_reported_in_the_record(tmp_path: Path) -> None:
    done = run_here(tmp_path, *SLOW, WATTLOAD_TEST_FAIL="0")
    assert done.returncode == 2
    record = record_of(tmp_path)
    sentence, where_it_is, what_next = done.stderr.splitlines()[-3:]
    assert sentence == "wattload: the record on this rank is torn"
    assert where_it_is.endswith(f"{record.run_id}/record.json")
    assert f"{record.run_id} shows how far it got" in what_next
    assert (record.status, record.status_reason) == ("failed", "the record on this rank is torn")


def test_a_killed_sampler_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        sampler = sampler_of(process.pid)
        os.kill(sampler, signal.SIGKILL)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "sampler" in errors
    assert record_of(tmp_path).status == "aborted"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("target.path=/nowhere/at/all",), "/nowhere/at/all"),
        (("target.path=/dev/null",), "/dev/null"),
        (("scale=full",), "root file system"),
        (("workload=nul",), "did you mean null"),
        (("power=nvme",), "power=nvme is not available: there is no NVMe controller"),
        (("power.state=1",), "power.state=1 is not available: there is no NVMe controller"),
        (("runs=/proc/nowhere",), "runs=FOLDER"),
    ],
)
def test_bad_input_is_one_sentence_and_makes_no_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    status = main(command(tmp_path, "workload=null", "power=none", *overrides)[3:])
    if overrides == ("scale=full",) and status == 0:
        pytest.skip("the temporary folder is not on the root file system")
    said = capsys.readouterr().err
    assert status in (1, 2), said
    (sentence,) = [line for line in said.splitlines() if line.startswith("wattload: ")]
    assert words in sentence
    assert "Traceback" not in said
    if "NVMe" in words:
        assert status == 2
        assert not [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]


def test_bad_input_on_two_ranks_is_said_once(tmp_path: Path) -> None:
    done = run(tmp_path, "workload=null", "power=none", "target.path=/nowhere/at/all", ranks=2)
    assert done.returncode == 2
    assert done.stderr.count("wattload: ") == 1
    assert "Traceback" not in done.stderr


def run_lines(printed: str) -> list[str]:
    """Return the lines of the runs of a sweep, by their labels."""
    return [line for line in printed.splitlines() if re.match(r"  [AB] +energy", line)]


def test_a_sweep_runs_each_point_once_and_resumes(tmp_path: Path) -> None:
    sweep = ("-m", "workload=null", "power=none", "label=A,B", "repeat=2")
    done = run_here(tmp_path, *sweep)
    assert done.returncode == 0, done.stderr
    assert len(run_lines(done.stdout)) == 4
    assert "run 4 of 4, about " in done.stderr
    records = [
        read_record(p)
        for p in sorted((tmp_path / "runs").iterdir())
        if p.is_dir() and not p.name.startswith(".")
    ]
    assert sorted((r.label, r.comparison.block) for r in records) == [
        ("A", 0),
        ("A", 1),
        ("B", 0),
        ("B", 1),
    ]
    assert len({r.comparison.session_id for r in records}) == 1
    shutil.rmtree(tmp_path / "runs" / records[-1].run_id)
    again = run_here(tmp_path, *sweep)
    assert len(run_lines(again.stdout)) == 1
    assert "3 of 4 runs are finished and valid and are not repeated" in again.stderr
    report, finding = again.stdout.splitlines()[-2:]
    assert report.endswith(".jsonl")
    assert finding.startswith("  finding ")


def test_two_runs_on_one_target_are_refused(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        second = run_here(tmp_path, "workload=null", "power=none")
        assert second.returncode == 2
        assert f"(process {process.pid})" in second.stderr
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert run_here(tmp_path, "workload=null", "power=none").returncode == 0


def test_a_sweep_takes_another_directory_for_another_run(tmp_path: Path) -> None:
    sweep = ("-m", "workload=null", "power=none", "label=A,B", "target.path=link")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(name)
        done = run_here(tmp_path, *sweep)
        assert len(run_lines(done.stdout)) == 2, done.stderr
