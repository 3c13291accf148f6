"""Runs that nobody finished, in folders that other users may write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.records import Scenario, make_run
from tests.second_user import OTHER, as_other, need_second_user, shared_folder
from wattload.core.files import Folder, choose_folder
from wattload.core.record import file as record_file
from wattload.core.record.file import DRAFT_FILE, read_record
from wattload.power.sampler.aborted_record import finish_abandoned, finish_in

MARKS = (record_file.LOCK_FILE, record_file.OWNER_FILE, record_file.RESERVE_FILE)


def left(runs: Path, name: str) -> Path:
    """Make the folder of a run that was killed together with its sampler."""
    record, _ = make_run(Scenario(run_id=name.strip(".")))
    with choose_folder(runs) as above, above.make(name) as folder:
        record_file.write_owner(folder)
        folder.write(DRAFT_FILE, record.model_copy(update={"spans": ()}).model_dump_json())
        folder.write(record_file.RESERVE_FILE, "")
        folder.lock(record_file.LOCK_FILE).release()
    return runs / name


def test_what_others_plant_among_the_runs_keeps_none_from_its_record() -> None:
    need_second_user()
    with shared_folder() as runs:

        def plant() -> None:
            for name in ("0", ".0.new"):
                (runs / name).mkdir(mode=0)
                (runs / f"1{name}").mkdir()
                os.mkfifo(runs / f"1{name}" / DRAFT_FILE)
                (runs / f"2{name}").symlink_to("/proc/self/fd")
                (runs / f"3{name}").symlink_to(runs / f"3{name}")

        as_other(plant)
        folder = left(runs, "run")
        unborn = left(runs, ".run.new")
        # This one may not look into the folders of the other, as root may.
        os.chown(runs, 0, 0)
        runs.chmod(0o1777)
        assert finish_abandoned([runs])[folder] == ""
        assert read_record(folder).status == "aborted"
        assert not unborn.exists()


def test_a_closed_folder_hides_no_other_run() -> None:
    need_second_user()
    with shared_folder() as runs:
        (runs / "0").mkdir(mode=0)

        def find() -> None:
            folder = left(runs, "run")
            assert record_file.unfinished_runs([runs, runs / "0"]) == [folder]
            assert finish_abandoned([runs, runs / "0" / "below"]) == {folder: ""}

        as_other(find)


def test_a_run_s_folder_that_is_replaced_meanwhile_gets_its_own_record_and_no_other(
    tmp_path: Path,
) -> None:
    """The owner of the runs folder may rename whatever is in it, also while root works there."""
    need_second_user()
    victim = left(tmp_path, "victim")
    with shared_folder() as runs:
        os.chown(runs, OTHER, OTHER)
        folder = left(runs, "run")

        def swap() -> None:
            folder.rename(runs / "moved")
            folder.symlink_to(victim)

        with record_file.abandoned(folder) as opened:
            as_other(swap)
            assert isinstance(opened, Folder)
            finish_in(opened, "aborted", "killed")
        assert read_record(runs / "moved").status == "aborted"
        assert {path.name for path in victim.iterdir()} == {DRAFT_FILE, *MARKS}


@pytest.mark.parametrize("name", ["run", ".run.new"])
def test_a_folder_of_root_is_not_touched_for_another_user(name: str) -> None:
    need_second_user()
    with shared_folder() as runs:
        folder = left(runs, name)
        as_other(lambda: finish_abandoned([runs, folder]))
        assert {path.name for path in folder.iterdir()} == {DRAFT_FILE, *MARKS}
