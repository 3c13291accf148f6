from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from tests.power.control.recovery_host import LEFT
from wattload.core.errors import PowerError
from wattload.power.control.journal import ChangeJournal, Key, Setting, default_state_folder


@pytest.fixture
def journal(tmp_path: Path) -> ChangeJournal:
    return ChangeJournal(tmp_path / "state")


@pytest.mark.parametrize("number", [0, 0xFFEF])
def test_entries_survive_serials_of_any_letters(journal: ChangeJournal, number: int) -> None:
    entry = replace(LEFT, serial="../é /1", controller_id=number)
    journal.write(entry)
    assert journal.changes("run") == [Key("../é /1", 0x02, number)]
    assert journal.read(entry.key, "run") == entry
    assert [path.parent for path in journal.folder.iterdir()] == [journal.folder]


def test_entry_of_another_schema_is_an_error(journal: ChangeJournal) -> None:
    journal.write(LEFT)
    (path,) = journal.folder.iterdir()
    path.write_text(path.read_text().replace('"schema_version":1', '"schema_version":9'))
    with pytest.raises(PowerError, match=r"entry \(schema_version: Input should be 1"):
        journal.read(LEFT.key, "run")


def test_value_that_was_left_is_in_the_entry(journal: ChangeJournal) -> None:
    entry = replace(LEFT, left=Setting(value=2, data=b"\x01"))
    journal.write(entry)
    assert journal.read(LEFT.key, "run") == entry


def test_removing_twice_does_no_harm(journal: ChangeJournal) -> None:
    journal.write(LEFT)
    journal.remove(LEFT)
    journal.remove(LEFT)


def test_sampling_goes_on_where_no_lock_can_be_taken(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    journal = ChangeJournal(tmp_path / "state")
    with journal.lock("S", needed=False):
        pass
    with pytest.raises(PowerError, match="WATTLOAD_STATE_DIR"), journal.lock("S", needed=True):
        pass


def test_lock_that_is_only_tested_refuses_no_run(journal: ChangeJournal) -> None:
    testing = ExitStack()
    testing.enter_context(journal.lock("S", needed=True))
    end = Timer(0.03, testing.close)
    end.start()
    with journal.lock("S", needed=True):
        pass
    end.join()
    with (
        journal.lock("S", needed=True, run_id="run-1"),
        pytest.raises(PowerError, match="in use by run run-1"),
        journal.lock("S", needed=True),
    ):
        pass


def test_state_folder_is_the_named_one_or_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_state_folder({"WATTLOAD_STATE_DIR": "/x/y"}) == Path("/x/y")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_state_folder({"XDG_STATE_HOME": "/x"}) == Path("/x/wattload")
    assert default_state_folder({}) == Path.home() / ".local/state/wattload"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.access", lambda *_: True)
    assert default_state_folder({}) == Path("/var/lib/wattload")


def test_foreign_files_in_the_folder_are_no_entries(journal: ChangeJournal) -> None:
    journal.write(LEFT)
    names = ("notes", "feature-zz-S", "feature-23", "feature-23-S@x", "feature-02-S")
    for name in names:
        (journal.folder / f"{name}.run.json").write_text("{}")
    assert journal.changes("run") == [LEFT.key]


def test_new_folders_of_the_journal_are_on_disk_before_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    ChangeJournal(tmp_path / "one" / "two").write(LEFT)
    assert {str(tmp_path), str(tmp_path / "one"), str(tmp_path / "one" / "two")} <= set(synced)
