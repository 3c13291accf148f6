"""``wattload report`` and ``wattload check`` as they are called from the command line."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.records import (
    Scenario,
    cluster_of,
    make_cluster,
    make_run,
    write_made_run,
    write_run,
)
from tests.reports.conftest import arm
from wattload.cli import check, report
from wattload.core.errors import ConfigError, ForeignFileError, RecordError
from wattload.core.record.file import DRAFT_FILE, OWNER_FILE, RECORD_FILE
from wattload.core.record.results import Check
from wattload.reports.stats.subject import ARMS

GOOD = Scenario(run_id="run-good", seconds=1.0)
BAD = Scenario(
    run_id="run-bad",
    label="B",
    order=1,
    seconds=1.0,
    checks=(Check(name="delivered", verdict="fail", sentence="3 of 4 hashes differ."),),
)


def call(module: ModuleType, *words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    arguments = parser.parse_args([str(word) for word in words])
    return int(module.run(arguments))


def test_report_writes_the_page_and_prints_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert call(report, write_run(tmp_path, GOOD), "-o", page) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "run-good" in page.read_text()


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize(("words", "name"), [((), "report.html"), (("--index",), "index.html")])
def test_a_link_under_a_name_that_nobody_chose_is_not_written_through(
    words: tuple[str, ...],
    name: str,
    plant: Callable[[Path, Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = write_run(tmp_path / "runs", GOOD).parent
    shared, other = tmp_path / "shared", tmp_path / "thesis.tex"
    shared.mkdir()
    other.write_text("mine")
    plant(shared / name, other)
    monkeypatch.chdir(shared)
    with pytest.raises(ForeignFileError, match="-o FILE writes the report to another file"):
        call(report, run, *words)
    assert other.read_text() == "mine"
    assert call(report, run, *words, "-o", "chosen.html") == 0


@pytest.mark.parametrize(
    ("form", "name", "start"),
    [
        ("json", "report.json", "{"),
        ("csv", "report.csv", "run_id,"),
        ("markdown", "report.md", "#"),
    ],
)
def test_every_form_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str, start: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(report, write_run(tmp_path, GOOD), "--format", form) == 0
    assert (tmp_path / name).read_text().startswith(start)


def test_the_ratios_of_two_arms_are_a_second_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write_run(tmp_path, arm(name, 0)) for name in "AB"]
    table = tmp_path / "out.csv"
    assert call(report, *runs, "--format", "csv", "-o", table) == 0
    assert capsys.readouterr().out.splitlines() == [str(table), str(tmp_path / "out-ratios.csv")]
    assert (tmp_path / "out-ratios.csv").read_text().startswith("workload,axis,at,")
    with pytest.raises(ConfigError, match="--full goes with --format markdown"):
        call(report, *runs, "--format", "csv", "--full")


def test_a_dash_is_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(report, write_run(tmp_path, GOOD), "--format", "json", "-o", "-") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["run_id"] == "run-good"


def test_an_index_is_of_one_folder_and_compares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    write_run(runs, GOOD)
    assert call(report, "--index", runs) == 0
    assert 'href="runs/run-good/"' in (tmp_path / "index.html").read_text()
    with pytest.raises(ConfigError, match="one folder of runs, got 2"):
        call(report, "--index", runs, runs)
    for words in (("--force",), ("--format", "csv"), ("--by", "loader")):
        with pytest.raises(ConfigError, match="--index does not compare runs"):
            call(report, "--index", runs, *words)


def test_report_knows_every_way_to_tell_runs_apart(tmp_path: Path) -> None:
    assert tuple(ARMS) == report.BY
    with pytest.raises(ConfigError, match="got 'colour'") as caught:
        call(report, write_run(tmp_path, GOOD), "--by", "colour")
    assert caught.value.exit_code == 2


def test_bad_input_ends_with_status_2(tmp_path: Path) -> None:
    folder = write_run(tmp_path, GOOD)
    file = folder / RECORD_FILE
    file.write_text(file.read_text()[:500])
    for module, path in ((report, folder), (report, tmp_path / "no"), (check, tmp_path / "no")):
        with pytest.raises(RecordError) as caught:
            call(module, path)
        assert caught.value.exit_code == 2


def test_check_of_a_good_run_is_a_table_and_status_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(check, write_run(tmp_path, GOOD)) == 0
    out = capsys.readouterr().out
    assert "run-good" in out
    assert "clocks_agree" in out
    assert "3 of 3 records and traces match their seals and digests" in out
    assert "MLPerf Storage's rules for this workload, v2.0: " in out


def test_check_says_what_is_missing_and_how_a_run_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path, Scenario(run_id="run-short", seconds=1.0, status="aborted"))
    (folder / "power.parquet").unlink()
    assert call(check, folder) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "run-short: aborted: the run was interrupted" in out
    assert out.endswith("1 run: 1 aborted")
    assert "The power trace power.parquet is missing from the run's folder." in out


def test_check_of_an_interrupted_run_says_how_often_a_phase_was_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, traces = make_run(Scenario(status="aborted"))
    spans = (*record.spans, *(span for span in record.spans if span.timed))
    record = record.model_copy(update={"spans": spans, "counters": ()})
    call(check, write_made_run(tmp_path / "run", record, traces))
    out = capsys.readouterr().out
    assert "finished phases: " in out
    assert "read (2 times, " in out
    assert "warned" not in out


def test_check_folds_equal_lines_and_counts_what_became_of_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"run-{'of-a-very-long-label-' * 8}"
    for number in range(3):
        write_run(tmp_path, replace(GOOD, run_id=f"{name}{number}", order=number))
    write_run(tmp_path, replace(BAD, order=3))
    write_run(tmp_path, Scenario(run_id="run-short", seconds=1.0, order=4, status="failed"))
    assert call(check, tmp_path) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(name)] == [
        f"{name}{number}: valid" for number in range(3)
    ]
    assert len([line for line in lines if "clocks_agree" in line]) == 1
    assert any(line.startswith("not checked") and "(4 runs): " in line for line in lines)
    assert lines[-1] == "5 runs: 3 valid, 1 failed check, 1 failed"


def test_check_of_several_hosts_folds_what_they_share_and_names_the_one_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, traces = make_cluster(cluster_of("ada", "bob", "cyd", slow="bob", power="measured"))
    counters = tuple(
        each.model_copy(update={"read_bytes": 0}) if each.host == "cyd" else each
        for each in record.counters
    )
    record = record.model_copy(update={"counters": counters})
    assert call(check, write_made_run(tmp_path / "run", record, traces)) == 3
    lines = capsys.readouterr().out.splitlines()
    assert "bob ended last, " in lines[1]
    assert [line.split(":")[0].strip() for line in lines[2:5]] == ["ada", "bob", "cyd"]
    names: dict[str, list[str]] = {line[:15].strip(): [] for line in lines}
    for line in lines[5:]:
        names[line[:15].strip()].append(line[15:].partition(": ")[0])
    assert names["fail"] == ["device_bytes_read_read_cyd"]
    assert "device_bytes_read_read (ada and bob)" in names["pass"]
    assert "energy_tail_read_meter (all 3 hosts)" in names["pass"]


def test_checks_that_several_hosts_fail_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, traces = make_cluster(cluster_of("ada", "bob", "cyd"))
    counters = tuple(
        each.model_copy(update={"read_bytes": place * 10**9})
        for place, each in enumerate(record.counters)
    )
    record = record.model_copy(update={"counters": counters})
    assert call(check, write_made_run(tmp_path / "run", record, traces)) == 3
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fail ")]
    assert [line[15:].partition(" The device moved ")[0] for line in lines] == [
        "device_bytes_read_read (all 3 hosts): e.g. on ada:"
    ]


def test_check_of_a_run_without_a_mandatory_check_is_unproved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path, GOOD)
    (folder / "throughput.parquet").unlink()
    assert call(check, folder) == 0
    assert capsys.readouterr().out.endswith("1 run: 1 unproved\n")


def test_check_prints_json_for_a_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(check, write_run(tmp_path, BAD), "--json") == 3
    (document,) = json.loads(capsys.readouterr().out)
    assert document["run_id"] == "run-bad"
    assert document["outcome"] == "failed check"
    assert "fail" in {each["verdict"] for each in document["checks"]}
    assert document["mlperf"]["standing"] in {"invalid", "not_checked"}
    assert {each["rule"] for each in document["mlperf"]["findings"]} >= {"steps", "five_runs"}
    assert {item["verdict"] for item in document["files"]} == {"pass"}


def test_check_lets_no_record_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "\x1b[2J\x1b]0;owned\x07 [red]not markup[/red]"
    hostile = Check(name="x", verdict="warn", sentence=sentence)
    call(check, write_run(tmp_path, Scenario(run_id="r", seconds=1.0, checks=(hostile,))))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b[2J\\x1b]0;owned\\x07 [red]not markup[/red]" in out


def unusable(runs: Path) -> dict[str, str]:
    """Fill a folder with what is no usable record of a run; return a part of each line on them."""
    good = write_run(runs, GOOD)
    for name in ("brackets", "cut", "folder", "gone", "newer", "pipe"):
        (runs / name).mkdir()
    (runs / "brackets" / RECORD_FILE).write_text("[" * 100_000)
    (runs / "cut" / RECORD_FILE).write_bytes((good / RECORD_FILE).read_bytes()[:500])
    (runs / "folder" / RECORD_FILE).mkdir()
    (runs / "gone" / RECORD_FILE).symlink_to("moved.json")
    (runs / "newer" / RECORD_FILE).write_text('{"schema_version": 99}')
    os.mkfifo(runs / "pipe" / RECORD_FILE)
    shutil.copytree(good, runs / "twice")
    for name in ("draft", "session/draft"):
        shutil.copytree(good, runs / name)
        (runs / name / RECORD_FILE).rename(runs / name / DRAFT_FILE)
        (runs / name / OWNER_FILE).write_text('{"host": "elsewhere", "boot_id": "b"}')
    return {
        "brackets": "recursion limit",
        "cut": "truncated or not JSON",
        "folder": "has no record.json",
        "gone": "is a link to moved.json, which does not exist",
        "newer": "read it with the version that wrote it",
        "pipe": "is not a regular file",
        "twice": "is a second record of the run run-good; the first is in run-good",
        "draft": "on host 'elsewhere'",
        "session/draft": "on host 'elsewhere'",
    }


@pytest.mark.parametrize("named", ["folder", "each"])
def test_check_says_one_line_of_each_unusable_record_and_judges_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    runs = tmp_path / "runs"
    reasons = unusable(runs)
    edited = write_run(runs, replace(GOOD, run_id="run-edited", order=2)) / RECORD_FILE
    edited.write_text(edited.read_text().replace('"label": "A"', '"label": "C"'))
    folders = [runs] if named == "folder" else [runs / "run-good", *sorted(runs.iterdir())]
    assert call(check, *folders) == 3
    lines = capsys.readouterr().out.splitlines()
    for name, reason in reasons.items():
        (line,) = [line for line in lines if line.startswith(f"{runs / name}: ")]
        assert "left out" in line
        assert reason in line
    assert "run-good: valid" in lines
    assert "run-edited: failed check" in lines
    assert call(check, *folders, "--json") == 3
    found = json.loads(capsys.readouterr().out)
    left = {Path(each["path"]) for each in found if each["outcome"] == check.LEFT_OUT}
    assert left >= {runs / name for name in reasons}


def test_check_of_unusable_records_is_bad_input_unless_a_check_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "session.jsonl")
    os.mkfifo(tmp_path / RECORD_FILE)
    assert call(check, tmp_path / "session.jsonl", tmp_path) == 2
    assert capsys.readouterr().out.splitlines()[-1] == "2 runs: 2 left out"
    good, bad = write_run(tmp_path / "runs", GOOD), write_run(tmp_path / "runs", BAD)
    assert call(check, tmp_path, good) == 2
    assert call(check, tmp_path, good, bad) == 3


def test_check_without_any_record_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"contains no record\.json; name a run folder"):
        call(check, tmp_path)


def test_report_is_made_of_the_usable_records_and_names_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "page.html"
    reasons = unusable(runs)
    assert call(report, *sorted(runs.iterdir()), "-o", page) == 0
    assert f"and {len(reasons) - 1} more" in capsys.readouterr().err
    text = page.read_text()
    assert "run-good" in text
    assert all(Path(name).name in text for name in reasons)
