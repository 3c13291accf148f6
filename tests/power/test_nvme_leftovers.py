from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.power.leftover_host import LEFT, Host
from tests.power.model_drive import NOT_CHANGEABLE, Model, ModelDrive, load, sent
from tests.power.model_knobs import Knobs
from tests.power.model_power import Meter
from wattload.core.errors import PowerError
from wattload.power.journal import Journal, Key, Owner, Setting, boot_id, default_state_folder
from wattload.power.nvme.features import get_command


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_state_of_a_dead_run_is_put_back(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0")
    assert (leftover.restored, leftover.closed) == (0, True)
    assert "put back into power state 0" in leftover.sentence
    assert load(host.folder / "nvme0.json").state == 0
    assert host.undo("nvme0") == []


def test_controller_is_found_by_serial_under_another_name(host: Host) -> None:
    host.drive("nvme0", Model(serial="OTHER", state=1))
    host.drive("nvme3", Model(state=1))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0", "nvme3", "nvme9")
    assert leftover.restored == 0
    assert sent(host.folder, "nvme0") == []
    assert sent(host.folder, "nvme3") == ["0x2 0"]


def test_entry_stays_while_the_controller_is_not_there(host: Host) -> None:
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme7")
    assert not leftover.closed
    assert "no controller of that serial can be opened here: /dev/nvme7" in leftover.sentence
    assert host.journal.read(LEFT.key, "run") == LEFT


def test_running_run_keeps_its_state(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    with host.journal.lock("MODEL0001", needed=True):
        (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert load(host.folder / "nvme0.json").state == 1


def test_state_that_outlived_a_restart_is_put_back_and_told(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme0")
    assert (leftover.restored, leftover.closed) == (0, True)
    assert "before the host restarted: put back into power state 0" in leftover.sentence
    assert load(host.folder / "nvme0.json").state == 0


@pytest.mark.parametrize("owner", ["run", "user"])
def test_drive_that_a_restart_has_reset_is_left_as_it_is(host: Host, owner: Owner) -> None:
    host.drive("nvme0", Model(state=2, default_state=2))
    host.journal.write(replace(LEFT, boot_id="another boot", owner=owner))
    (leftover,) = host.undo("nvme0", owner=owner)
    assert "left at power state 2, where the restart of the host" in leftover.sentence
    assert sent(host.folder) == []
    assert host.undo("nvme0", owner=owner) == []


def test_drive_that_is_gone_since_a_restart_is_told_once(host: Host) -> None:
    host.drive("nvme0", Model(serial="OTHER"))
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme0")
    assert leftover.closed
    assert "the host has restarted since: nothing to undo" in leftover.sentence
    assert host.undo("nvme0") == []


def test_drive_that_can_not_be_opened_since_a_restart_keeps_its_entry(host: Host) -> None:
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme7")
    assert not leftover.closed


def test_what_somebody_else_has_set_since_is_left(host: Host) -> None:
    host.drive("nvme0", Model(state=2))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0")
    assert "somebody else" in leftover.sentence
    assert (leftover.restored, leftover.closed) == (None, True)
    assert load(host.folder / "nvme0.json").state == 2


def test_drive_asleep_is_put_back_all_the_same(host: Host) -> None:
    host.drive("nvme0", Model(state=4))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0


def test_drive_that_a_restart_has_put_back_is_sent_nothing(host: Host) -> None:
    host.drive("nvme0", Model(state=0))
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0
    assert "it is back at power state 0 by itself" in leftover.sentence
    assert sent(host.folder) == []


def test_change_that_a_drive_has_accepted_and_not_made_yet_is_undone(host: Host) -> None:
    late = Knobs(late_s=0.3, pending=(1, time.monotonic() + 0.3))
    host.drive("nvme0", Model(state=0, knobs=late))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0")
    assert (leftover.restored, leftover.closed) == (0, True)
    assert sent(host.folder) == ["0x2 0"]
    drive = ModelDrive(host.folder, "nvme0")
    while load(drive.path).knobs.pending is not None:
        drive.submit(get_command(0x02))
    assert load(drive.path).state == 0


@pytest.mark.parametrize(
    ("then", "closed", "told"),
    [(0, True, "it is back at power state 0 and stays"), (1, False, "refuses power state 0")],
)
def test_drive_that_refuses_the_value_it_has_is_judged_by_what_it_does_next(
    host: Host, monkeypatch: pytest.MonkeyPatch, then: int, closed: bool, told: str
) -> None:
    refusing = Model(state=0, refuses=NOT_CHANGEABLE)
    host.drive("nvme0", refusing)
    host.journal.write(LEFT)
    monkeypatch.setattr("time.sleep", lambda _: host.drive("nvme0", replace(refusing, state=then)))
    (leftover,) = host.undo("nvme0")
    assert leftover.closed is closed
    assert told in leftover.sentence


def test_user_s_own_change_is_no_leftover(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(replace(LEFT, owner="user"))
    assert host.undo("nvme0") == []
    (undone,) = host.undo("nvme0", owner="user")
    assert undone.restored == 0
    assert "`power set` had set from power state 0 to power state 1" in undone.sentence


def test_user_s_restore_goes_back_from_any_state(host: Host) -> None:
    host.drive("nvme0", Model(state=2))
    host.journal.write(replace(LEFT, owner="user"))
    assert host.undo("nvme0", owner="user", serial="OTHER") == []
    (undone,) = host.undo("nvme0", owner="user", serial="MODEL0001")
    assert undone.restored == 0


@pytest.mark.parametrize("number", [None, 0, 0xFFEF])
def test_entries_survive_serials_of_any_letters(host: Host, number: int | None) -> None:
    entry = replace(LEFT, serial="../é /1", controller_id=number)
    host.journal.write(entry)
    assert host.journal.changes("run") == [Key("../é /1", 0x02, number)]
    assert host.journal.read(entry.key, "run") == entry
    assert [path.parent for path in host.journal.folder.iterdir()] == [host.journal.folder]


@pytest.mark.parametrize(
    "text", ['{"schema_version": 1', '{"schema_version": 1, "serial": "x"}', "[]", "7"]
)
def test_spoilt_entry_is_told_and_stays(host: Host, text: str) -> None:
    host.journal.write(LEFT)
    (path,) = host.journal.folder.iterdir()
    path.write_text(text)
    (leftover,) = host.undo("nvme0")
    assert (leftover.serial, leftover.closed) == ("MODEL0001", False)
    assert f"{path} is no journal entry" in leftover.sentence
    with pytest.raises(PowerError, match="wattload power states"):
        host.journal.read(LEFT.key, "run")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"MODEL0001"', '"OTHER"'),
        ('"feature": 2', '"feature": "x"'),
        ('"run",', '"user",'),
        ('"controller_id": null', '"controller_id": 1'),
    ],
)
def test_entry_about_something_else_than_its_name_is_told(
    host: Host, before: str, after: str
) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    (path,) = host.journal.folder.iterdir()
    path.write_text(path.read_text().replace(before, after))
    (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert "is about another drive or feature than its name" in leftover.sentence
    assert sent(host.folder) == []


def test_entry_of_another_schema_is_an_error(host: Host) -> None:
    host.journal.write(LEFT)
    (path,) = host.journal.folder.iterdir()
    path.write_text(path.read_text().replace('"schema_version": 3', '"schema_version": 9'))
    with pytest.raises(PowerError, match="schema version 9"):
        host.journal.read(LEFT.key, "run")


def test_removing_twice_does_no_harm(host: Host) -> None:
    host.journal.write(LEFT)
    host.journal.remove(LEFT)
    host.journal.remove(LEFT)


def test_sampling_goes_on_where_no_lock_can_be_taken(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    journal = Journal(tmp_path / "state")
    with journal.lock("S", needed=False):
        pass
    with pytest.raises(PowerError, match="WATTLOAD_STATE_DIR"), journal.lock("S", needed=True):
        pass


def test_state_folder_is_the_named_one_or_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_state_folder({"WATTLOAD_STATE_DIR": "/x/y"}) == Path("/x/y")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_state_folder({"XDG_STATE_HOME": "/x"}) == Path("/x/wattload")
    assert default_state_folder({}) == Path.home() / ".local/state/wattload"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.access", lambda *_: True)
    assert default_state_folder({}) == Path("/var/lib/wattload")


def test_entry_of_the_first_version_is_still_read(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.folder.mkdir()
    old = {
        "schema_version": 1,
        "serial": "MODEL0001",
        "device_name": "nvme0",
        "owner": "run",
        "old_state": 0,
        "new_state": 1,
        "run_id": "run-1",
        "boot_id": boot_id(),
        "time_utc": "2026-11-21T00:00:00.000+00:00",
    }
    (host.journal.folder / "power-state-MODEL0001.run.json").write_text(json.dumps(old))
    assert host.journal.changes("run") == [LEFT.key]
    assert host.journal.read(LEFT.key, "run") == LEFT
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0
    assert list(host.journal.folder.glob("*.json")) == []


def test_foreign_files_in_the_folder_are_no_entries(host: Host) -> None:
    host.journal.write(LEFT)
    names = ("notes", "feature-zz-S", "feature-23", "feature-23-S@x", "power-state-S@")
    for name in names:
        (host.journal.folder / f"{name}.run.json").write_text("{}")
    assert host.journal.changes("run") == [LEFT.key]


LIMITED = replace(LEFT, feature=0x23, old=Setting(value=0), new=Setting(value=1000 | 2 << 16))


@pytest.mark.parametrize("dword", [11, 13])
def test_power_limit_of_a_dead_run_is_put_back(host: Host, dword: int) -> None:
    knobs = Knobs(limits=True, limit=1000 | 2 << 16, limit_dword=dword)
    host.drive("nvme0", Model(knobs=knobs))
    host.journal.write(replace(LIMITED, old=Setting(value=1500 | 2 << 16)))
    (leftover,) = host.undo("nvme0")
    assert (leftover.feature, leftover.restored) == (0x23, 15.0)
    assert "set from power limit 15 W to power limit 10 W" in leftover.sentence
    assert load(host.folder / "nvme0.json").knobs.limit == 1500 | 2 << 16


def test_measurement_that_a_dead_run_started_is_stopped(host: Host) -> None:
    meter = Meter(measures=True, setting=1 | 60 << 16)
    host.drive("nvme0", Model(meter=meter))
    host.journal.write(
        replace(LEFT, feature=0x25, old=Setting(value=0), new=Setting(value=1 | 90 << 16))
    )
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0
    assert "put back into power measurement off" in leftover.sentence
    assert load(host.folder / "nvme0.json").meter.setting == 0


def test_clock_is_told_and_left(host: Host) -> None:
    host.drive("nvme0", Model(knobs=Knobs(clock=True)))
    host.journal.write(replace(LEFT, feature=0x0E, old=Setting(value=0, data=bytes(8))))
    (leftover,) = host.undo("nvme0")
    assert leftover.closed
    assert "a clock that was set to the host's is left" in leftover.sentence
    assert sent(host.folder) == []


def test_vendor_s_feature_is_put_back_though_it_can_not_be_read(host: Host) -> None:
    host.drive("nvme0", Model())
    host.journal.write(replace(LEFT, feature=0xF1, new=Setting(value=0x2801)))
    (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert "refuses feature F1h 0: Invalid Field" in leftover.sentence
    assert sent(host.folder) == ["0xf1 0"]


def test_every_feature_of_a_dead_run_is_undone(host: Host) -> None:
    knobs = Knobs(limits=True, limit=LIMITED.new.value, apste=0)
    host.drive("nvme0", Model(state=1, apst=True, knobs=knobs))
    table = bytes.fromhex(knobs.apst_table)
    switched = replace(
        LEFT, feature=0x0C, old=Setting(value=1, data=table), new=Setting(value=0, data=table)
    )
    for entry in (LEFT, LIMITED, switched):
        host.journal.write(entry)
    assert [each.closed for each in host.undo("nvme0")] == [True] * 3
    model = load(host.folder / "nvme0.json")
    assert (model.state, model.knobs.limit, model.knobs.apste) == (0, 0, 1)
    assert model.knobs.apst_table == knobs.apst_table
    assert host.journal.changes("run") == []


def test_new_folders_of_the_journal_are_on_disk_before_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    Journal(tmp_path / "one" / "two").write(LEFT)
    assert {str(tmp_path), str(tmp_path / "one"), str(tmp_path / "one" / "two")} <= set(synced)
