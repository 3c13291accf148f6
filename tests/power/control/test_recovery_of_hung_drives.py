"""Recovery with drives that hang: others don't wait, and locks stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, store
from tests.power.control.recovery_host import LEFT, Host
from tests.power.sampler_bench import wait_for
from wattload.core.errors import PowerError
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.control.undo import recover_changes
from wattload.power.nvme import admin as nvme_admin
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, DeviceWithTimeout


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


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
