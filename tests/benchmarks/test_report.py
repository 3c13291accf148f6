"""The runs that the report is timed on are valid and differ from each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import suite
from benchmarks.measure import NotMeasuredError
from wattload.reports.runs.load import load_runs
from wattload.reports.stats.subject import make_subject


def test_every_copy_is_a_valid_run_of_its_own(tmp_path: Path) -> None:
    suite.write_runs(tmp_path, 8)
    runs = load_runs([tmp_path])
    subject = make_subject(runs)
    assert len({run.id for run in runs}) == 8
    assert [subject.faults(run) for run in runs] == [()] * 8
    assert {run.seal for run in runs} == {"holds"}


def test_a_report_that_fails_has_no_cost(tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match="status 3"):
        suite._cost([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "none")
