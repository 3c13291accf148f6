"""Which runs a report has, and which it leaves out: it never fails for one folder among many."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from wattload.core.errors import RecordError
from wattload.core.record.file import DRAFT_FILE, OWNER_FILE, RECORD_FILE
from wattload.reports.render.index import render_index
from wattload.reports.render.output import FORMS, make_report
from wattload.reports.runs import load, traces
from wattload.reports.runs.load import (
    DEEPEST,
    find_records,
    load_readable,
    load_runs,
    search_records,
)


def short(name: str, order: int = 0) -> Scenario:
    return Scenario(run_id=name, seconds=1.0, order=order)


def test_runs_of_sessions_are_found_below_a_folder(tmp_path: Path) -> None:
    write_run(tmp_path, short("run-a"))
    write_run(tmp_path / "session", short("run-b", 1))
    write_run(tmp_path / "session/inner", short("run-c", 2))
    found = find_records([tmp_path])
    assert [file.parent.name for file in found.files] == ["run-a", "run-c", "run-b"]
    page = render_index(tmp_path, output=tmp_path / "index.html")
    assert ">session/<wbr>inner/<wbr>run-c<" in page
    assert 'href="session/inner/run-c/"' in page


def test_folders_below_the_deepest_level_are_listed_and_data_is_not_searched(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, short("run-a"))
    deep = tmp_path.joinpath(*(f"d{level}" for level in range(DEEPEST + 2)))
    write_run(deep, short("run-b", 1))
    write_run(tmp_path / "wattload-data", short("run-c", 2))
    (tmp_path / "circle").symlink_to(tmp_path)
    found = load_readable([tmp_path])
    assert [run.id for run in found.runs] == ["run-a"]
    (left,) = found.left_out
    assert (left.name, left.reason) == (
        f"d{DEEPEST - 1}",
        f"not searched for runs: it is {DEEPEST} levels below the folder named",
    )


def test_a_folder_of_far_more_than_runs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MOST_ENTRIES", 10)
    for index in range(11):
        (tmp_path / str(index)).touch()
    with pytest.raises(RecordError, match="more than 10 files and folders; name the folder of"):
        search_records(tmp_path)


def damaged(tmp_path: Path) -> Path:
    """Return a folder with one good run, and one of every kind that has no usable record."""
    runs = tmp_path / "runs"
    good = write_run(runs, short("run-good"))
    for name in ("cut", "foreign", "deep", "huge", "folder", "gone", "zero"):
        (runs / name).mkdir()
    (runs / "cut" / RECORD_FILE).write_bytes((good / RECORD_FILE).read_bytes()[:500])
    (runs / "foreign" / RECORD_FILE).write_text('{"hello": "world"}')
    (runs / "deep" / RECORD_FILE).write_text("[" * 100_000)
    with (runs / "huge" / RECORD_FILE).open("wb") as file:
        file.truncate(1 << 40)  # a hole: no memory holds it
    (runs / "folder" / RECORD_FILE).mkdir()
    (runs / "gone" / RECORD_FILE).symlink_to("moved.json")
    (runs / "zero" / RECORD_FILE).touch()
    for name, owner in (("running", None), ("elsewhere", {"host": "elsewhere", "boot_id": "b"})):
        shutil.copytree(good, runs / name)
        (runs / name / RECORD_FILE).rename(runs / name / DRAFT_FILE)
        if owner:
            (runs / name / OWNER_FILE).write_text(json.dumps(owner))
    shutil.copytree(good, runs / "run-good-again")
    os.mkfifo(runs / "pipe")
    (runs / "piped").mkdir()
    os.mkfifo(runs / "piped" / RECORD_FILE)
    return runs


@pytest.mark.parametrize("form", FORMS)
def test_one_unusable_record_among_many_is_left_out_with_its_reason(
    tmp_path: Path, form: str
) -> None:
    report = make_report([damaged(tmp_path)], form=form)
    reasons = {each.name: each.reason for each in report.left_out}
    unusable = {"cut", "foreign", "deep", "huge", "folder", "gone", "zero", "piped"}
    assert set(reasons) == {*unusable, "running", "elsewhere", "run-good-again"}
    assert reasons["running"] == (
        "it is running or was interrupted; `wattload check` on its folder records an interrupted "
        "run"
    )
    assert "on host 'elsewhere'; use `wattload check` on its folder there" in reasons["elsewhere"]
    assert reasons["run-good-again"] == (
        "is a second record of the run run-good; the first is in run-good"
    )
    assert reasons["foreign"].startswith("is not a record: it has no schema_version")
    assert all(str(tmp_path) not in reason and "\n" not in reason for reason in reasons.values())
    assert "run-good" in report.text or form in ("markdown", "svg")
    if form == "json":
        assert {each["name"] for each in json.loads(report.text)["left_out"]} == set(reasons)
    if form == "html":
        assert "Left out: no usable record" in report.text
        assert "it is running or was interrupted" in report.text


def test_the_index_has_a_row_for_each_unusable_record(tmp_path: Path) -> None:
    runs = damaged(tmp_path)
    page = render_index(runs, output=tmp_path / "index.html")
    assert "running or was interrupted" in page
    assert page.count("<tbody>") == 1
    assert "12 runs" in page


def test_masked_reports_name_no_folder_that_is_left_out(tmp_path: Path) -> None:
    report = make_report([damaged(tmp_path)], redact=True)
    assert {each.name for each in report.left_out} == {"unnamed run"}


def test_a_running_run_alone_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / DRAFT_FILE).write_text("{")
    for path in (tmp_path / "run", tmp_path):
        with pytest.raises(RecordError, match=r"run has no usable record: it is running or was in"):
            make_report([path])


@pytest.mark.parametrize("path", ["nope", "x" * 300, "a\0b"])
def test_a_path_that_is_no_run_is_one_sentence(tmp_path: Path, path: str) -> None:
    with pytest.raises(RecordError, match="does not exist; name a run folder"):
        find_records([tmp_path / path])


def test_a_record_that_vanishes_after_it_was_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, short("run-a"))
    second = write_run(tmp_path, short("run-b", 1))
    listed = load.search_records

    def vanishing(folder: Path) -> load.FoundRecords:
        found = listed(folder)
        shutil.rmtree(second)
        return found

    monkeypatch.setattr(load, "search_records", vanishing)
    (left,) = load_readable([tmp_path]).left_out
    assert left.name == "run-b"
    assert left.reason.startswith("has no record.json")


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_BYTES"])
def test_a_trace_that_fills_the_memory_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    folder = write_run(tmp_path, short("run-a"))
    monkeypatch.setattr(traces, limit, 3)
    (run,) = load_readable([folder]).runs
    assert run.traces.throughput is None
    (note,) = [note for note in run.traces.notes if "throughput" in note]
    assert "can't be read: it has" in note


def entry(point: str, folder: str) -> str:
    return json.dumps({"point": point, "folder": folder}) + "\n"


def runs_at(folder: Path, *names: str) -> list[Path]:
    files = [folder / name / "record.json" for name in names]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    return files


def test_a_journal_names_the_last_run_of_each_point(tmp_path: Path) -> None:
    _, second, again = runs_at(tmp_path, "one", "two", "one-again")
    journal = tmp_path / "sweep-1.jsonl"
    journal.write_text(
        json.dumps({"session": "s1"})
        + "\n"
        + entry("p1", "one")
        + entry("p2", "two")
        + entry("p1", "one-again")
        + entry("p3", "deleted")
        + '{"point": "p4", "fol'
    )
    assert find_records([journal]).files == [again, second]


def test_the_journal_of_a_search_is_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (found,) = runs_at(tmp_path, "one")
    journal = tmp_path / "search-1" / "journal.jsonl"
    journal.parent.mkdir()
    journal.write_text(entry("p1", "one"))
    assert find_records([journal]).files == [found]


@pytest.mark.parametrize("text", ["", "[" * 100_000, "\x00\xff", entry("p", "../../etc")])
def test_a_journal_without_runs_is_refused(tmp_path: Path, text: str) -> None:
    journal = tmp_path / "runs" / "sweep-1.jsonl"
    journal.parent.mkdir()
    journal.write_text(text)
    with pytest.raises(RecordError, match=r"sweep-1\.jsonl lists no run"):
        load_runs([journal])


def test_a_pipe_in_place_of_a_journal_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sweep-1.jsonl")
    with pytest.raises(RecordError, match=r"sweep-1\.jsonl is not a regular file"):
        load_runs([tmp_path / "sweep-1.jsonl"])
