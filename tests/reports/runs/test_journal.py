"""The runs of a session, found by its journal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from wattload.core.errors import RecordError
from wattload.reports.runs.load import load_runs
from wattload.reports.runs.search import find_records


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
