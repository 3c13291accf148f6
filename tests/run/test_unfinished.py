"""Runs that end without a record: killed with their sampler, without space, without a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.running import (
    DEADLINE_S,
    SLOW,
    call_here,
    command,
    environment,
    record_of,
    run_folder,
    run_folders,
    run_here,
    sampler_of,
    until,
    waiting,
)
from tests.tinyfs import SIZE_BYTES, fill, tiny_file_system
from wattload.core.record.file import (
    DRAFT_FILE,
    LOCK_FILE,
    OWNER_FILE,
    RECORD_FILE,
    RESERVE_FILE,
    read_record,
)
from wattload.power.sampler.aborted_record import REASON, finish_abandoned

pytestmark = pytest.mark.slow
MARKS = {LOCK_FILE, OWNER_FILE, RESERVE_FILE}


def kill_with_sampler(process: subprocess.Popen[str]) -> None:
    """Kill a run and its sampler; stopped first, so that neither sees the other's end."""
    both = [sampler_of(process.pid), process.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in both:
            os.kill(pid, number)
    process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Return the folder of a run that was killed together with its sampler."""
    with waiting(tmp_path, "run") as process:
        kill_with_sampler(process)
    folder = run_folder(tmp_path)
    assert not (folder / RECORD_FILE).exists()
    return folder


def test_a_live_run_is_left_alone_and_shown_as_running(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        folder = run_folder(tmp_path)
        assert {path.name for path in folder.iterdir()} >= {DRAFT_FILE, *MARKS}
        done = call_here(tmp_path, "check", str(folder))
        assert done.returncode == 2
        assert f"{folder}: left out: it is running (locked by another process" in done.stdout
        done = call_here(tmp_path, "report", str(folder))
        assert done.returncode == 2
        assert "is running or was interrupted" in done.stderr
        other = tmp_path / "elsewhere"
        other.mkdir()
        elsewhere = (f"target.path={other}", f"runs={folder.parent}")
        done = call_here(tmp_path, "run", "workload=null", "power=none", *elsewhere)
        assert done.returncode == 0, done.stderr
        assert str(folder) not in done.stderr
        done = call_here(tmp_path, "report", str(tmp_path / "runs"), "-o", "page.html")
        assert done.returncode == 0, done.stderr
        assert f"left out {folder.name}: it is running or was interrupted" in done.stderr
        assert not (folder / RECORD_FILE).exists()
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert read_record(folder).status == "aborted"
    assert not {path.name for path in folder.iterdir()} & MARKS


@pytest.mark.parametrize("finisher", ["check", "run", "report"])
def test_the_next_command_records_a_run_that_was_killed_with_its_sampler(
    tmp_path: Path, left: Path, finisher: str
) -> None:
    if finisher == "check":
        done = call_here(tmp_path, "check", str(left))
        assert done.stdout.splitlines() == [
            f"{left.name}: aborted: {REASON}",
            "  finished phases: prepare, first (1.00 kB)",
            "  The run ended with rank 0 in phase second: how much moved there is unknown.",
            "1 of 1 records and traces match their seals and digests",
            "1 run: 1 aborted",
        ]
    elif finisher == "report":
        done = call_here(tmp_path, "report", str(left), "-o", "page.html")
    else:
        done = run_here(tmp_path, "workload=null", "power=none")
    assert f"recorded as aborted: {left}" in done.stderr
    record = read_record(left)
    assert (record.status, record.status_reason) == ("aborted", REASON)
    assert {span.name: span.read_bytes for span in record.spans}["first"] == 1000
    assert any("second" in limit for limit in record.limits)
    assert not {path.name for path in left.iterdir()} & MARKS


def test_a_run_of_another_host_is_left_alone(tmp_path: Path, left: Path) -> None:
    owner = json.loads((left / OWNER_FILE).read_text())
    (left / OWNER_FILE).write_text(json.dumps({**owner, "host": "elsewhere", "boot_id": "other"}))
    done = call_here(tmp_path, "check", str(left))
    assert done.returncode == 2
    assert "on host 'elsewhere'" in done.stdout
    assert f"if that host is gone, delete its {OWNER_FILE} and use it here" in done.stdout
    assert not (left / RECORD_FILE).exists()
    (left / OWNER_FILE).write_text(json.dumps({**owner, "boot_id": "before the power cut"}))
    call_here(tmp_path, "check", str(left))
    assert read_record(left).status == "aborted"


@pytest.mark.parametrize("content", [None, b"", b"[" * 100_000, b'{"host": 1}'])
def test_a_run_that_names_no_host_is_recorded_if_nobody_holds_its_lock(
    tmp_path: Path, content: bytes | None
) -> None:
    with waiting(tmp_path, "run") as process:
        folder = run_folder(tmp_path)
        (folder / OWNER_FILE).unlink()
        if content is not None:
            (folder / OWNER_FILE).write_bytes(content)
        assert "it is running" in finish_abandoned([folder])[folder]
        kill_with_sampler(process)
    assert finish_abandoned([tmp_path / "runs"]) == {folder: ""}
    assert read_record(folder).status == "aborted"


def test_a_draft_that_is_no_draft_is_to_be_deleted(tmp_path: Path) -> None:
    (tmp_path / DRAFT_FILE).write_text("[" * 100_000)
    (reason,) = finish_abandoned([tmp_path]).values()
    assert reason.startswith("it was interrupted, and its draft is unusable: ")
    assert reason.endswith("; delete its folder")


KILLED_AT_ITS_APPEARANCE = """
import os, signal, sys
from wattload.core.files import Folder

rename = Folder.rename

def renamed(folder, name, new):
    is_run = name.endswith(".new")
    if is_run and sys.argv[1] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(folder, name, new)
    if is_run:
        os.kill(os.getpid(), signal.SIGKILL)

Folder.rename = renamed
from wattload.__main__ import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_there_is_no_moment_with_a_folder_and_without_a_record(tmp_path: Path, moment: str) -> None:
    words = command(tmp_path, *SLOW)[3:]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_ITS_APPEARANCE, moment, *words],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    if moment == "after":
        assert record_of(tmp_path).status == "aborted"
    until(lambda: not list((tmp_path / "runs").glob(".*.new")))
    assert len(run_folders(tmp_path / "runs")) == (moment == "after")


def test_a_runs_folder_that_fills_up_keeps_the_record(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as tiny:
        (tmp_path / "runs").symlink_to(tiny)
        status, errors = run_filled(tmp_path, tiny)
        assert status in (0, 3), errors
        (folder,) = run_folders(tiny)
        assert read_record(folder).status == "complete"


def test_a_record_that_has_no_place_is_in_the_state_folder(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as tiny:
        (tmp_path / "runs").symlink_to(tiny)
        status, errors = run_filled(tmp_path, tiny, reserve=False)
        (folder,) = run_folders(tiny)
        assert_spare(tmp_path, folder, status, errors)
        assert not (folder / DRAFT_FILE).exists()


def run_filled(folder: Path, tiny: Path, *, reserve: bool = True) -> tuple[int, str]:
    """Return the status and the errors of a run whose runs folder becomes full while it waits."""
    with waiting(folder, "nap") as process:
        if not reserve:
            next(tiny.glob(f"*/{RESERVE_FILE}")).unlink()
        fill(tiny)
        (folder / "target" / "go-on").touch()
        _, errors = process.communicate(timeout=DEADLINE_S)
    return process.returncode, errors


def test_a_removed_run_folder_does_not_lose_the_record(tmp_path: Path) -> None:
    with waiting(tmp_path, "nap") as process:
        folder = run_folder(tmp_path)
        shutil.rmtree(folder)
        (tmp_path / "target" / "go-on").touch()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert_spare(tmp_path, folder, process.returncode, errors)


def test_a_detached_file_system_of_the_runs_does_not_lose_the_record(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as tiny:
        (tmp_path / "runs").symlink_to(tiny)
        with waiting(tmp_path, "nap") as process:
            (folder,) = run_folders(tiny)
            subprocess.run(["umount", "-l", str(tiny)], check=True)
            (tmp_path / "target" / "go-on").touch()
            _, errors = process.communicate(timeout=DEADLINE_S)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tiny)], check=True)
        assert_spare(tmp_path, folder, process.returncode, errors)


def test_an_interrupted_run_without_a_folder_has_its_record_elsewhere(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        folder = run_folder(tmp_path)
        shutil.rmtree(folder)
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    spare = tmp_path / "state" / "records" / folder.name
    assert f"the record of this run is in {spare}" in errors
    assert read_record(spare).status_reason == "interrupted by SIGTERM"


def test_a_draft_that_can_not_be_read_is_why_the_record_is_elsewhere(tmp_path: Path) -> None:
    with waiting(tmp_path, "run") as process:
        draft = run_folder(tmp_path) / DRAFT_FILE
        draft.write_text("{")
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    spare = tmp_path / "state" / "records" / draft.parent.name
    assert f"the record of this run is in {spare}, because {draft} can't be read" in errors
    assert read_record(spare).status == "aborted"


def assert_spare(top: Path, folder: Path, status: int, errors: str) -> None:
    """Assert that a run's complete record is in the state folder, and that its error says so."""
    spare = top / "state" / "records" / folder.name
    assert status == 1, errors
    assert "Traceback" not in errors
    (sentence,) = (line for line in errors.splitlines() if line.startswith("wattload: "))
    assert str(top / "runs" / folder.name) in sentence
    assert str(spare) in sentence
    assert read_record(spare).status == "complete"
    done = call_here(top, "check", str(spare))
    assert "mismatch" not in done.stdout
    assert done.returncode in (0, 3), done.stderr


def test_a_runs_folder_without_space_for_a_record_is_refused(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as tiny:
        (tmp_path / "runs").symlink_to(tiny)
        with (tiny / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, SIZE_BYTES // 2)
        done = run_here(tmp_path, "workload=null", "power=none")
        assert done.returncode == 2
        assert "reserved for the record: No space left on device" in done.stderr
        assert not run_folders(tiny)
