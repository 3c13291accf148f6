"""A session whose runs folder becomes full: the finished run is neither lost nor repeated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.core.storage.mounting import mounted
from tests.run.running import (
    DEADLINE_S,
    SLOW,
    command,
    environment,
    until,
)
from tests.tinyfs import fill, tiny_file_system
from wattload.core.record.file import RESERVE_FILE, read_record
from wattload.reports.runs.load import journal_runs

pytestmark = pytest.mark.slow


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder, "-m", "repeat=2", *SLOW),
        env=environment(folder, WATTLOAD_TEST_STOP="nap"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_whose_record_has_no_place_stays_part_of_its_session(tmp_path: Path) -> None:
    target = tmp_path / "target"  # without a device whose other users decide the checks
    with mounted(target, "-t", "tmpfs", "none"), tiny_file_system(tmp_path) as tiny:
        (tmp_path / "runs").symlink_to(tiny)
        with start(tmp_path) as first:
            until((target / "waiting-0").exists, first)
            next(tiny.glob(f"*/{RESERVE_FILE}")).unlink()
            filler = fill(tiny)
            (target / "go-on").touch()
            _, errors = first.communicate(timeout=DEADLINE_S)
        assert first.returncode == 1
        assert "Traceback" not in errors
        (sentence,) = (line for line in errors.splitlines() if line.startswith("wattload: "))
        assert "the run is complete" in sentence
        assert "1 of 2 runs finished; the same command resumes it" in errors
        (spare,) = (tmp_path / "state" / "records").glob("*/record.json")
        assert read_record(spare).status == "complete"
        filler.unlink()
        with start(tmp_path) as second:
            out, errors = second.communicate(timeout=DEADLINE_S)
        assert second.returncode in (0, 3), errors
        assert "1 of 2 runs are finished and valid" in errors
        assert "2 runs; geometric means of valid runs" in out
        (journal,) = tiny.glob("sweep-*.jsonl")
        assert str(spare.parent) in journal.read_text()
        assert not list((tmp_path / "state" / "records").glob("*.jsonl"))
        assert len(journal_runs(journal)) == 2
