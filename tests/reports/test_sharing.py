"""Work shared with a second process gives what one process gives, in the same order."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from wattload.core.errors import RecordError
from wattload.core.record.run import RECORD_FILE, read_record
from wattload.reports import load, sharing
from wattload.reports.exports.document import document
from wattload.reports.load import Run, load_runs
from wattload.reports.many import Lightener
from wattload.reports.sharing import share
from wattload.reports.subject import make_subject


@pytest.fixture(autouse=True)
def few_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SHARED_FROM", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may lead to the tests


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number:03d}" for number in range(40)]
    for file in found:
        file.write_text(file.name)
    return found


def marked(text: str) -> str:
    return f"{text}, adopted"


def here(file: Path) -> str:
    """Can't be unpickled by the second process, which knows no tests."""
    return file.read_text()


def test_results_come_in_the_order_of_the_files(files: list[Path]) -> None:
    found = list(share(files, Path.read_text, marked))
    assert [text.removesuffix(", adopted") for text in found] == [file.name for file in files]


def test_what_the_second_process_made_is_adopted_and_nothing_else(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(share(files[:1], Path.read_text, marked)) == ["000, adopted"]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert list(share(files[:1], Path.read_text, marked)) == ["000"]


def test_a_second_process_that_is_lost_costs_no_result(files: list[Path]) -> None:
    assert list(share(files, here, marked)) == [file.name for file in files]


def test_the_error_of_the_first_file_that_has_one_is_raised(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "whole", Scenario(run_id="run-short", seconds=1.0))
    found = [folder / RECORD_FILE, *(tmp_path / f"no-{number}" for number in range(9))]
    runs = share(found, read_record, lambda record: record)
    assert next(runs).run_id == "run-short"
    with pytest.raises(RecordError, match="no-0 "):
        next(runs)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, arms_folder: Path) -> tuple[tuple[Run, ...], ...]:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    shared = load_runs([arms_folder], keep=Lightener())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    return shared, load_runs([arms_folder], keep=Lightener())


def test_runs_of_two_processes_are_those_of_one(both: tuple[tuple[Run, ...], ...]) -> None:
    shared, alone = both
    for one, other in zip(shared, alone, strict=True):
        assert one.record == other.record
        assert one.closures == other.closures
        assert one.traces.digests == other.traces.digests
        assert (one.seal, one.sha256, one.highest_k) == (other.seal, other.sha256, other.highest_k)
    assert document(make_subject(shared)) == document(make_subject(alone))


def test_traces_of_a_shared_run_are_there_when_asked(both: tuple[tuple[Run, ...], ...]) -> None:
    for one, other in zip(*both, strict=True):
        assert one.traces.throughput is not None
        assert other.traces.throughput is not None
        assert one.traces.throughput.read_bytes.sum() == other.traces.throughput.read_bytes.sum()


def test_an_edited_run_is_found_whichever_process_reads_it(
    monkeypatch: pytest.MonkeyPatch, arms_folder: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    folder = tmp_path / "runs"
    shutil.copytree(arms_folder, folder)
    for file in folder.glob(f"*/{RECORD_FILE}"):
        file.write_bytes(file.read_bytes().replace(b'"complete"', b'"complete" ', 1))
    for run in load_runs([folder], keep=Lightener()):
        assert run.seal == "broken"
        assert run.closures is not None
        assert run.closures[0].verdict == "fail"


def test_a_light_run_stays_as_it_is_through_pickling_and_when_lightened_again(
    monkeypatch: pytest.MonkeyPatch, arms_folder: Path
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    keep = Lightener()
    for run in load_runs([arms_folder]):
        light = keep(run)
        again = pickle.loads(pickle.dumps(light.record))
        assert again == light.record
        assert keep(light).record == light.record
        assert keep(light).closures == light.closures
