"""What a run that died has left is undone, and reported; drives that hang delay no others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model_host.drive import NOT_CHANGEABLE, Model, ModelDrive, load, sent, store
from tests.model_host.power import Meter
from tests.model_host.settings import Knobs
from tests.power.control.recovery_host import LEFT, Host
from tests.power.sampler_bench import wait_for
from wattload.core.errors import PowerError
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.host import PowerHost, controllers_here, holds_system_here, serial_here
from wattload.power.control.journal import ChangeJournal, Entry, Owner, Setting
from wattload.power.control.undo import recover_changes
from wattload.power.nvme import admin as nvme_admin
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, DeviceWithTimeout
from wattload.power.nvme.features import get_command

RESTARTED = replace(LEFT, boot_id="another boot")
LIMITED = replace(LEFT, feature=0x23, old=Setting(value=0), new=Setting(value=1000 | 2 << 16))
MEASURING = replace(LEFT, feature=0x25, old=Setting(value=0), new=Setting(value=1 | 90 << 16))
STARTED = Meter(measures=True, setting=1 | 60 << 16)
CLOCK = replace(LEFT, feature=0x0E, old=Setting(value=0, data=bytes(8)))


@pytest.mark.parametrize("owner", ["run", "user"])
@pytest.mark.parametrize(
    ("model", "entry", "restored", "sentence"),
    [
        (Model(state=1), LEFT, 0, "restored to power state 0"),
        (Model(state=4), LEFT, 0, "restored to power state 0"),  # asleep
        (Model(state=1), RESTARTED, 0, "before the host restarted: restored to power state 0"),
        (Model(state=0), RESTARTED, 0, "it is back at power state 0 without our help"),
        (Model(state=2), RESTARTED, None, "kept at power state 2, as the restart of the host"),
        (Model(serial="OTHER"), RESTARTED, None, "the host has restarted since: nothing to undo"),
        (Model(meter=STARTED), MEASURING, 0, "restored to power measurement off"),
        (Model(knobs=Knobs(clock=True)), CLOCK, None, "set to the host's is not reset"),
    ],
)
def test_what_was_left_behind_is_undone_and_reported_once(
    host: Host, *, owner: Owner, model: Model, entry: Entry, restored: float | None, sentence: str
) -> None:
    host.drive("nvme0", model)
    host.journal.write(replace(entry, owner=owner))
    assert host.undo("nvme0", owner="user" if owner == "run" else "run") == []
    (recovery,) = host.undo("nvme0", owner=owner)
    assert (recovery.restored, recovery.closed) == (restored, True)
    assert sentence in recovery.sentence
    assert ("`power set` had set" in recovery.sentence) is (owner == "user")
    assert bool(sent(host.folder)) is ("restored to" in recovery.sentence)
    found = load(host.folder / "nvme0.json")
    assert restored is None or (found.state, found.meter.setting) == (0, 0)
    assert host.undo("nvme0", owner=owner) == []


@pytest.mark.parametrize("dword", [11, 13])
def test_limit_is_restored_in_the_dword_that_carries_it(host: Host, dword: int) -> None:
    knobs = Knobs(limits=True, limit=1000 | 2 << 16, limit_dword=dword)
    host.drive("nvme0", Model(knobs=knobs))
    host.journal.write(replace(LIMITED, old=Setting(value=1500 | 2 << 16)))
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 15.0
    assert load(host.folder / "nvme0.json").knobs.limit == 1500 | 2 << 16


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


def test_hung_drive_keeps_no_other_from_being_undone(host: Host) -> None:
    host.drive("nvme0", Model(serial="OTHER", hanging=(0x06,)))
    host.drive("nvme3", Model(state=1))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0", "nvme3", patience_s=0.05)
    assert leftover.restored == 0
    host.drive("nvme0", Model(serial="OTHER"))


def test_likeliest_controller_is_asked_first(host: Host) -> None:
    host.drive("nvme0", Model(serial="OTHER"))
    host.drive("nvme3", Model(state=1))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0", "nvme3", serials={"nvme3": "MODEL0001"})
    assert leftover.restored == 0
    assert host.requested == ["nvme3"]


def test_drive_stays_locked_until_it_has_answered_what_was_given_up(host: Host) -> None:
    host.drive("nvme0", Model(state=1, hanging=(0x09,)))
    host.journal.write(LEFT)
    (leftover,) = host.undo("nvme0", patience_s=0.05)
    assert not leftover.closed
    assert "has not answered Set Features 02h" in leftover.sentence
    with (
        pytest.raises(PowerError, match="has answered its last command"),
        host.journal.lock("MODEL0001", needed=True),
    ):
        pass
    host.drive("nvme0", Model(state=1))
    wait_for(lambda: is_free(host.journal))
    (leftover,) = host.undo("nvme0")
    assert leftover.restored == 0


def test_run_that_gave_up_a_command_keeps_the_lock_until_it_is_answered(tmp_path: Path) -> None:
    journal = ChangeJournal(tmp_path / "state")
    store(tmp_path / "nvme0.json", Model())
    device = DeviceWithTimeout(ModelDrive(tmp_path, "nvme0"), limit_s=0.05)
    control = PowerStateControl(device, journal, run_id="run-1")
    control.hold(needed=True)
    store(tmp_path / "nvme0.json", Model(hanging=(0x09,)))
    with pytest.raises(PowerError, match="has not answered"):
        control.apply(PowerConfig(state=1), holds_system=lambda _: False)
    control.close()
    assert not is_free(journal)
    control.close()
    store(tmp_path / "nvme0.json", Model())
    wait_for(lambda: is_free(journal))


def test_lock_of_a_drive_that_has_answered_all_goes_at_once(tmp_path: Path) -> None:
    journal = ChangeJournal(tmp_path / "state")
    store(tmp_path / "nvme0.json", Model())
    control = PowerStateControl(
        DeviceWithTimeout(ModelDrive(tmp_path, "nvme0")), journal, run_id="run-1"
    )
    control.hold(needed=True)
    assert not is_free(journal)
    control.close()
    assert is_free(journal)


def test_command_by_another_handle_keeps_the_lock_too(tmp_path: Path) -> None:
    journal = ChangeJournal(tmp_path / "state")
    for name in ("nvme0", "nvme1"):
        store(tmp_path / f"{name}.json", Model())
    control = PowerStateControl(ModelDrive(tmp_path, "nvme0"), journal, run_id="run-1")
    control.hold(needed=True, other_names=["nvme1"])
    names = ("nvme0", "nvme1")
    others = [DeviceWithTimeout(ModelDrive(tmp_path, name), limit_s=0.05) for name in names]
    for other in others:
        store(tmp_path / f"{other.name}.json", Model(hanging=(0x09,)))
        with pytest.raises(PowerError, match="has not answered"):
            other.submit(AdminCommand(name="change", opcode=SET_FEATURES, cdw10=0x02))
    control.close()
    for name in ("nvme0", "nvme1"):
        assert not is_free(journal)
        store(tmp_path / f"{name}.json", Model())
    wait_for(lambda: is_free(journal))
    for other in others:
        other.close()


def test_controllers_are_opened_with_patience_by_themselves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store(tmp_path / "nvme0.json", Model(hanging=(0x06,)))
    monkeypatch.setattr(nvme_admin, "NvmeAdmin", lambda name: ModelDrive(tmp_path, name))
    monkeypatch.setattr(nvme_admin, "CHANGE_LIMIT_S", 0.05)
    journal = ChangeJournal(tmp_path / "state")
    journal.write(LEFT)
    here = PowerHost(journal=journal, list_names=lambda: ["nvme0"])
    (leftover,) = recover_changes(here)
    assert "nvme0 has not answered Identify Controller" in leftover.sentence
    store(tmp_path / "nvme0.json", Model())


def is_free(journal: ChangeJournal) -> bool:
    try:
        with journal.lock("MODEL0001", needed=True):
            return True
    except PowerError:
        return False


def test_controllers_of_this_host_have_serials() -> None:
    for name in controllers_here():
        assert serial_here(name)
        assert holds_system_here(name) in (True, False, None)
    assert serial_here("nvme99999") == "nvme99999"
    assert holds_system_here("nvme99999") in (False, None)
