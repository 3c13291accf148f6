from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model_host.drive import NOT_CHANGEABLE, Model, ModelDrive, load, sent
from tests.model_host.power import Meter
from tests.model_host.settings import Knobs
from tests.power.control.recovery_host import LEFT, Host
from wattload.core.errors import PowerError
from wattload.power.control.journal import Entry, Owner, Setting
from wattload.power.nvme.features import get_command


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_state_of_a_dead_run_is_restored(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0")
    assert (leftover.restored, leftover.closed) == (0, True)
    assert "restored to power state 0" in leftover.sentence
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
    assert "no controller with this serial can be opened here: /dev/nvme7" in leftover.sentence
    assert host.journal.read(LEFT.key, "run") == LEFT


def test_running_run_keeps_its_state(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    with host.journal.lock("MODEL0001", needed=True):
        (leftover,) = host.undo("nvme0")
    assert (leftover.closed, leftover.in_use) == (False, True)
    assert load(host.folder / "nvme0.json").state == 1


def test_state_that_outlived_a_restart_is_restored_and_reported(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme0")
    assert (leftover.restored, leftover.closed) == (0, True)
    assert "before the host restarted: restored to power state 0" in leftover.sentence
    assert load(host.folder / "nvme0.json").state == 0


@pytest.mark.parametrize("owner", ["run", "user"])
def test_drive_that_a_restart_has_reset_is_left_as_it_is(host: Host, owner: Owner) -> None:
    host.drive("nvme0", Model(state=2, default_state=2))
    host.journal.write(replace(LEFT, boot_id="another boot", owner=owner))
    (leftover,) = host.undo("nvme0", owner=owner)
    assert "kept at power state 2, as the restart of the host" in leftover.sentence
    assert sent(host.folder) == []
    assert host.undo("nvme0", owner=owner) == []


def test_drive_that_is_gone_since_a_restart_is_reported_once(host: Host) -> None:
    host.drive("nvme0", Model(serial="OTHER"))
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme0")
    assert leftover.closed
    assert "the host has restarted since: nothing to undo" in leftover.sentence
    assert host.undo("nvme0") == []


def test_drive_that_cannot_be_opened_since_a_restart_keeps_its_entry(host: Host) -> None:
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme7")
    assert not leftover.closed


@pytest.mark.parametrize("owner", ["run", "user"])
def test_what_another_program_has_set_since_is_left_and_journalled(
    host: Host, owner: Owner
) -> None:
    host.drive("nvme0", Model(state=2))
    entry = replace(LEFT, owner=owner)
    host.journal.write(entry)
    for _ in range(2):
        (leftover,) = host.undo("nvme0", owner=owner)
        assert "left at power state 2, which something else has set since" in leftover.sentence
        assert "`wattload power restore nvme0 --keep` accepts it" in leftover.sentence
        assert (leftover.restored, leftover.closed) == (None, False)
    assert sent(host.folder) == []
    left = replace(entry, left=Setting(value=2))
    assert host.journal.read(LEFT.key, owner) == left


def test_change_whose_value_was_left_is_undone_when_the_drive_has_ours_again(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(replace(LEFT, left=Setting(value=2)))
    (undone,) = host.undo("nvme0")
    assert (undone.restored, undone.closed) == (0, True)


@pytest.mark.parametrize("state", [0, 1, 2])
def test_present_value_is_kept_on_request(host: Host, state: int) -> None:
    host.drive("nvme0", Model(state=state))
    host.journal.write(LEFT)
    (kept,) = host.undo("nvme0", keep=True)
    assert f"the present power state {state} is kept, as requested" in kept.sentence
    assert (kept.restored, kept.closed) == (None, True)
    assert sent(host.folder) == []
    assert host.journal.changes("run") == []


def test_drive_asleep_is_restored_anyway(host: Host) -> None:
    host.drive("nvme0", Model(state=4))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0


def test_drive_that_a_restart_has_restored_is_sent_nothing(host: Host) -> None:
    host.drive("nvme0", Model(state=0))
    host.journal.write(replace(LEFT, boot_id="another boot"))
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0
    assert "it is back at power state 0 without our help" in leftover.sentence
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
    ("then", "closed", "reported"),
    [(0, True, "it is back at power state 0 and stays"), (1, False, "refuses power state 0")],
)
def test_drive_that_refuses_the_value_it_has_is_judged_by_what_it_does_next(
    host: Host, monkeypatch: pytest.MonkeyPatch, then: int, closed: bool, reported: str
) -> None:
    refusing = Model(state=0, refuses=NOT_CHANGEABLE)
    host.drive("nvme0", refusing)
    host.journal.write(LEFT)
    monkeypatch.setattr("time.sleep", lambda _: host.drive("nvme0", replace(refusing, state=then)))
    (leftover,) = host.undo("nvme0")
    assert leftover.closed is closed
    assert reported in leftover.sentence


def test_user_s_own_change_is_not_a_leftover(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(replace(LEFT, owner="user"))
    assert host.undo("nvme0") == []
    (undone,) = host.undo("nvme0", owner="user")
    assert undone.restored == 0
    assert "`power set` had set from power state 0 to power state 1" in undone.sentence


def test_user_s_restore_is_limited_to_a_drive(host: Host) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(replace(LEFT, owner="user"))
    assert host.undo("nvme0", owner="user", serial="OTHER") == []
    (undone,) = host.undo("nvme0", owner="user", serial="MODEL0001")
    assert undone.restored == 0


@pytest.mark.parametrize(
    "text", ['{"schema_version": 1', '{"schema_version": 1, "serial": "x"}', "[]", "7"]
)
def test_damaged_entry_is_reported_and_stays(host: Host, text: str) -> None:
    host.journal.write(LEFT)
    (path,) = host.journal.folder.iterdir()
    path.write_text(text)
    (leftover,) = host.undo("nvme0")
    assert (leftover.serial, leftover.closed) == ("MODEL0001", False)
    assert f"{path} is not a valid journal entry" in leftover.sentence
    with pytest.raises(PowerError, match="wattload power states"):
        host.journal.read(LEFT.key, "run")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"MODEL0001"', '"OTHER"'),
        ('"feature":2', '"feature":6'),
        ('"run",', '"user",'),
        ('"controller_id":1', '"controller_id":2'),
    ],
)
def test_entry_about_something_else_than_its_name_is_reported(
    host: Host, before: str, after: str
) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    (path,) = host.journal.folder.iterdir()
    path.write_text(path.read_text().replace(before, after))
    (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert "describes another drive or feature than its name" in leftover.sentence
    assert sent(host.folder) == []


LIMITED = replace(LEFT, feature=0x23, old=Setting(value=0), new=Setting(value=1000 | 2 << 16))


@pytest.mark.parametrize("dword", [11, 13])
def test_power_limit_of_a_dead_run_is_restored(host: Host, dword: int) -> None:
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
    assert "restored to power measurement off" in leftover.sentence
    assert load(host.folder / "nvme0.json").meter.setting == 0


def test_clock_is_reported_and_left(host: Host) -> None:
    host.drive("nvme0", Model(knobs=Knobs(clock=True)))
    host.journal.write(replace(LEFT, feature=0x0E, old=Setting(value=0, data=bytes(8))))
    (leftover,) = host.undo("nvme0")
    assert leftover.closed
    assert "a clock that was set to the host's is not reset" in leftover.sentence
    assert sent(host.folder) == []


@pytest.mark.parametrize(
    "entry",
    [
        replace(LEFT, feature=0xF1, new=Setting(value=0x2801)),
        replace(LEFT, feature=0x06, old=Setting(value=0)),
        replace(LEFT, feature=0xC7, old=Setting(value=9)),
        replace(LEFT, feature=0xC7, old=Setting(value=9), uuid_index=3),
        replace(LEFT, uuid_index=1),
        replace(LEFT, old=Setting(value=0x80000000)),
        replace(LEFT, old=Setting(value=0, data=bytes(4096))),
        replace(LEFT, feature=0x0C, old=Setting(value=1)),
    ],
    ids=lambda entry: f"{entry.feature:02x}-{entry.old.value}-{entry.uuid_index}",
)
def test_forged_entry_sends_no_command_that_wattload_never_sends(host: Host, entry: Entry) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(entry)
    (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert "nothing was sent" in leftover.sentence
    assert sent(host.folder) == []


def test_excluded_drive_is_not_even_opened(host: Host) -> None:
    """After a restart too: it may be there, only this sampler may not look."""
    host.drive("nvme0", Model())
    host.drive("nvme1", Model(serial="OTHER", state=1))
    host.journal.write(replace(LEFT, serial="OTHER", device_name="nvme1", boot_id="earlier"))
    (leftover,) = host.undo("nvme0", "nvme1", devices=frozenset({"nvme0"}))
    assert not leftover.closed
    assert "only nvme0 may be opened" in leftover.sentence
    assert host.requested == ["nvme0"]
    assert sent(host.folder) == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_state_folder_that_others_may_write_to_undoes_nothing(host: Host, mode: int) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    host.journal.folder.chmod(mode)
    (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert f"may be written by other users (mode {mode:04o})" in leftover.sentence
    with pytest.raises(PowerError, match="may be written by other users"):
        host.journal.write(LEFT)
    assert sent(host.folder) == []


def entry_of_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534)


def link_as_entry(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def pipe_as_entry(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def deep_entry(path: Path) -> None:
    path.write_text("[" * 100_000)


def entry_of_bytes(path: Path) -> None:
    path.write_bytes(b"\0\xff\xfe")


def entry_of_a_huge_number(path: Path) -> None:
    path.write_text(path.read_text().replace('"value":0', '"value":' + "9" * 5000))


@pytest.mark.parametrize(
    "plant",
    [
        entry_of_another, link_as_entry, pipe_as_entry, deep_entry, entry_of_bytes,
        entry_of_a_huge_number,
    ],
    ids=lambda plant: plant.__name__,
)  # fmt: skip
def test_entry_that_is_not_ours_or_not_an_entry_undoes_nothing(
    host: Host, plant: Callable[[Path], None]
) -> None:
    host.drive("nvme0", Model(state=1))
    host.journal.write(LEFT)
    (path,) = host.journal.folder.iterdir()
    plant(path)
    (leftover,) = host.undo("nvme0")
    assert not leftover.closed
    assert str(path) in leftover.sentence
    assert sent(host.folder) == []


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
