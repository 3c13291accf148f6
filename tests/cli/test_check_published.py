"""``wattload check`` of published results: lines, totals, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mlperf_sets import changed, hosts_of, training_set
from tests.mlperf_trees import SYSTEM, write_set
from tests.records import Scenario, write_run
from wattload.__main__ import main
from wattload.core.mlperf.published import PublishedSet
from wattload.core.mlperf.store import write_sets

Captured = pytest.CaptureFixture[str]


def stored(folder: Path, *sets: PublishedSet) -> str:
    write_sets(sets, folder)
    return str(folder)


@pytest.fixture
def bad() -> PublishedSet:
    """Return a set with too much memory for its data."""
    other = changed(training_set(), host_memory_bytes=hosts_of(512), sources={}, started_s=None)
    return other.model_copy(update={"path": "closed/org/results/other"})


def test_imported_sets_that_keep_all_rules_pass(tmp_path: Path, capsys: Captured) -> None:
    assert main(["check", stored(tmp_path / "runs", training_set())]) == 0
    out = capsys.readouterr().out
    assert "data_set_size [3]" in out
    assert "org, system, unet3d h100" not in out
    edition = "1 set by v1.0 (Submission_guidelines.md @7f3cd4f): its parameters are those of v1.0"
    assert f"{edition}; the tree is named v1.0" in out
    assert "1 set, 5 runs: 1 fail no rule, 0 fail one" in out
    table = [line for line in out.splitlines() if not line.startswith("1 set")]
    assert max(map(len, table)) <= 80


def test_a_failed_rule_of_the_edition_is_the_exit_status(
    tmp_path: Path, bad: PublishedSet, capsys: Captured
) -> None:
    runs = stored(tmp_path / "runs", training_set(), bad)
    assert main(["check", runs, "--edition", "auto"]) == 3
    out = capsys.readouterr().out
    assert "invalid     data_set_size [3]: 14000 files per epoch, at least 375" in out
    assert "fails data_set_size: org, system, unet3d h100 (closed/org/results/other)" in out
    assert main(["check", runs, "--edition", "v1.0", "--verbose"]) == 3
    assert "kept        run_count [1, Definitions]: Runs: 5 of 5." in capsys.readouterr().out


def test_notes_are_no_failure(tmp_path: Path, capsys: Captured) -> None:
    copied = training_set().model_copy(update={"path": "closed/org/results/copy"})
    assert main(["check", stored(tmp_path / "runs", training_set(), copied)]) == 0
    out = capsys.readouterr().out
    assert "[wl-copies]: closed/org/results/copy/run0 has files or times of" in out


def test_json_has_all_findings(tmp_path: Path, bad: PublishedSet, capsys: Captured) -> None:
    assert main(["check", stored(tmp_path / "runs", bad), "--json"]) == 3
    (each,) = json.loads(capsys.readouterr().out)["sets"]
    assert (each["edition"], each["tree_edition"]) == ("v1.0", "v1.0")
    fails = {finding["rule"] for finding in each["findings"] if finding["fails"]}
    assert fails == {"data_set_size"}
    assert {finding["standing"] for finding in each["findings"]} >= {"closed", "invalid"}


def test_a_tree_is_read_as_downloaded(tmp_path: Path, capsys: Captured) -> None:
    write_set(tmp_path / "results_v1.0", f"{SYSTEM}/unet3d_h100")
    assert main(["check", str(tmp_path / "results_v1.0")]) in (0, 3)
    assert "run_count [1, Definitions]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--edition", "v9"], "unknown edition v9; --edition takes auto, v1.0, v2.0, v3.0"),
        (["--edition", "auto"], "found no run of MLPerf Storage"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["check", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_runs_of_ours_and_published_results_are_checked_in_one_call(
    tmp_path: Path, bad: PublishedSet, capsys: Captured
) -> None:
    runs = stored(tmp_path / "published", bad)
    own = write_run(tmp_path / "own", Scenario())
    assert main(["check", runs, str(own)]) == 3
    out = capsys.readouterr().out
    assert "1 set, 5 runs: 0 fail no rule, 1 fail one or more" in out
    assert "1 run: 1 " in out
    assert main(["check", runs, str(own), "--json"]) == 2
    assert "--json takes runs of wattload or published results" in capsys.readouterr().err
