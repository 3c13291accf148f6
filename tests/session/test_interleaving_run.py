"""Interleaved sessions as real processes: alone, killed in the middle, and under mpirun."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.run.running import environment, mpirun
from wattload.core.record.file import read_record
from wattload.core.record.run import Comparison, RunRecord

DEADLINE_S = 240.0
LOOK_S = 0.05


def _command(folder: Path, *words: str, ranks: int = 1) -> list[str]:
    for name in ("a", "b"):
        (folder / name).mkdir(exist_ok=True)
    launcher = [mpirun(), "-n", str(ranks)] if ranks > 1 else []
    return [
        *(*launcher, sys.executable, "-m", "wattload", "run", "-m", "power=none"),
        *(f"target.path={folder / 'a'},{folder / 'b'}", f"runs={folder / 'runs'}"),
        *("scale=demo", "interleave=abba", "repeat=2", "start_wait_max_s=0", *words),
        "interleave_by=target.path",
    ]


def _run(folder: Path, *words: str, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(folder, *words, ranks=ranks),
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def _records(folder: Path) -> list[RunRecord]:
    records = [read_record(file) for file in (folder / "runs").glob("*/record.json")]
    return sorted(records, key=lambda record: record.started_utc)


def _turns(records: list[RunRecord]) -> list[tuple[str, int, int]]:
    stood = [record.comparison for record in records if record.status == "complete"]
    return [(each.arm, each.block, each.order) for each in stood]


WHOLE = [("a", -1, 0), ("b", -1, 1), ("a", 0, 2), ("b", 0, 3), ("b", 1, 4), ("a", 1, 5)]


def test_two_directories_take_turns(tmp_path: Path) -> None:
    done = _run(tmp_path, "workload=null", ranks=2)
    assert done.returncode == 0, done.stderr
    records = _records(tmp_path)
    assert _turns(records) == WHOLE
    assert len({record.comparison.session_id for record in records}) == 1
    assert {len(record.ranks) for record in records} == {2}
    assert {record.label: record.targets[0].facts.path for record in records} == {
        name: str(tmp_path / name) for name in ("a", "b")
    }
    assert done.stderr.count("start temperatures are not known") <= 1
    assert done.stderr.count("2 pairs can't show a difference") == 1
    assert done.stderr.count("a and b are on one ") == 1


def _wait_for_entries(folder: Path, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        journals = list((folder / "runs").glob("sweep-*.jsonl"))
        if journals and journals[0].read_text().count("point") >= count:
            return
        time.sleep(LOOK_S)
    pytest.fail(f"no {count} runs within {DEADLINE_S} s")


def test_a_killed_session_goes_on_as_the_same_one(tmp_path: Path) -> None:
    with subprocess.Popen(
        _command(tmp_path, "workload=null"),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as session:
        _wait_for_entries(tmp_path, 3)
        session.send_signal(signal.SIGKILL)
    before = [record.comparison for record in _records(tmp_path) if record.status == "complete"]
    assert _run(tmp_path, "workload=null").returncode == 0
    records = _records(tmp_path)
    compared: dict[tuple[int, str], Comparison] = {
        (record.comparison.block, record.comparison.arm): record.comparison
        for record in records
        if record.status == "complete" and not record.comparison.warm_up
    }
    assert sorted(compared) == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert len({record.comparison.session_id for record in records}) == 1
    assert len(records) >= len(before) + 2  # warm-ups are repeated, as drives have rested


def test_bad_input_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = _run(tmp_path, "workload=null", "label=x")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("wattload: label gives all arms the same name")
    assert not (tmp_path / "runs").exists()
