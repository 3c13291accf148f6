"""Work shared among processes gives the same results in the same order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from errno import EAGAIN
from multiprocessing import util
from pathlib import Path

import pytest

from tests.reports.sessions import known
from wattload.core.errors import RecordError
from wattload.core.record.file import RECORD_FILE
from wattload.reports.render.json_export import document
from wattload.reports.runs import load
from wattload.reports.runs.compact import Compactor
from wattload.reports.runs.load import load_readable, load_runs, share
from wattload.reports.stats.subject import make_subject

ROOT = Path(__file__).parents[3]
REPORT = """
import os, sys
from wattload.__main__ import main
from wattload.reports.runs import load
load.FILES_PER_PROCESS = load.DETAILED_RUNS = 1
os.sched_getaffinity = lambda _: {0, 1}
sys.exit(main(["report", *sys.argv[1:]]))
"""


@pytest.fixture(autouse=True)
def few_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FILES_PER_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may lead to the tests


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number:03d}" for number in range(40)]
    for file in found:
        file.write_text(file.name)
    return found


def dying(file: Path) -> str:
    if multiprocessing.parent_process() is not None and file.name == "020":
        os._exit(1)
    return file.read_text()


def named_by(file: Path) -> tuple[str, int]:
    return file.read_text(), os.getpid()


def test_results_of_other_processes_come_in_the_order_of_the_files(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, processes = zip(*share(files, named_by), strict=True)
    assert list(names) == [file.name for file in files]
    assert os.getpid() not in processes
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert {process for _, process in share(files, named_by)} == {os.getpid()}


def test_a_process_that_dies_costs_no_result(files: list[Path]) -> None:
    assert list(share(files, dying)) == [file.name for file in files]


def test_processes_that_do_not_start_cost_no_result(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(util, "spawnv_passfds", refuse)
    assert list(share(files, Path.read_text)) == [file.name for file in files]


def test_closed_standard_streams_cost_no_report(arms_folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    command: list[str | Path] = [
        sys.executable,
        "-c",
        REPORT,
        arms_folder,
        "--format",
        "csv",
        "-o",
        page,
    ]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert page.stat().st_size > 0


def test_an_error_with_standard_error_closed_is_no_part_of_the_output(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", REPORT, tmp_path / "none"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode > 1
    assert done.stdout == done.stderr == b""


def test_the_processes_end_with_the_reading_that_an_error_ends(
    arms_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    first = sorted(arms_folder.iterdir())[0]
    shutil.copytree(first, tmp_path / "again")
    paths = [first, tmp_path / "again", *sorted(arms_folder.iterdir())[1:]]
    with pytest.raises(RecordError, match="is a second record") as error:
        load_runs(paths, keep=Compactor())
    assert multiprocessing.active_children() == []
    assert error.tb is not None  # the frames of the reading are still held


def test_an_unreadable_record_among_many_is_left_out(
    arms_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    broken = [tmp_path / name / RECORD_FILE for name in ("first", "last")]
    for file in broken:
        file.parent.mkdir()
        file.write_text("[" * 100_000)
    loaded = load_readable([broken[0], arms_folder, broken[1]], keep=Compactor())
    assert len(loaded.runs) == len(list(arms_folder.iterdir()))
    assert [left.path for left in loaded.left_out] == [file.parent for file in broken]


def test_runs_of_two_processes_are_those_of_one(
    monkeypatch: pytest.MonkeyPatch, arms_folder: Path
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    shared = load_runs([arms_folder], keep=Compactor())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    alone = load_runs([arms_folder], keep=Compactor())
    for one, other in zip(shared, alone, strict=True):
        assert one.record == other.record
        assert one.file_checks == other.file_checks
        assert one.traces.digests == other.traces.digests
        assert (one.seal, one.sha256, one.highest_temperature_k) == (
            other.seal,
            other.sha256,
            other.highest_temperature_k,
        )
        traces = [known(each.traces.throughput) for each in (one, other)]
        assert traces[0].read_bytes.sum() == traces[1].read_bytes.sum()
    assert document(make_subject(shared)) == document(make_subject(alone))


def test_an_edited_run_is_found_whichever_process_reads_it(
    monkeypatch: pytest.MonkeyPatch, arms_folder: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    folder = tmp_path / "runs"
    shutil.copytree(arms_folder, folder)
    for file in folder.glob(f"*/{RECORD_FILE}"):
        file.write_bytes(file.read_bytes().replace(b'"complete"', b'"complete" ', 1))
    for run in load_runs([folder], keep=Compactor()):
        assert run.seal == "broken"
        assert run.file_checks is not None
        assert run.file_checks[0].verdict == "fail"


def test_a_light_run_stays_as_it_is_through_pickling_and_when_lightened_again(
    monkeypatch: pytest.MonkeyPatch, arms_folder: Path
) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    keep = Compactor()
    for run in load_runs([arms_folder]):
        light = keep(run)
        again = pickle.loads(pickle.dumps(light.record))
        assert again == light.record
        assert keep(light).record == light.record
        assert keep(light).file_checks == light.file_checks
