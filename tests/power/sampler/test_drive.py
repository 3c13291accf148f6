"""A run's drive is locked against other runs, even if it can't be opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, load, store
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.config import PowerConfig
from wattload.power.control.journal import ChangeJournal, Key
from wattload.power.nvme.admin import (
    GET_FEATURES,
    GET_LOG_PAGE,
    IDENTIFY,
    SET_FEATURES,
    AdminDevice,
    DeviceWithTimeout,
)
from wattload.power.sampler.drive import Drive, hold_all


def deny(name: str) -> AdminDevice:
    raise PowerPermissionError(f"{name} may not be opened")


def closed_to_us(folder: Path, name: str = "nvme0") -> Drive:
    drive = Drive(name, serial="S1", journal=ChangeJournal(folder), run_id="run")
    drive.open(deny)
    return drive


def test_second_run_on_a_drive_that_neither_may_open_is_refused(tmp_path: Path) -> None:
    first, second = closed_to_us(tmp_path), closed_to_us(tmp_path)
    hold_all([first], needed=False)
    with pytest.raises(PowerError, match="S1"):
        hold_all([second], needed=False)
    first.close()
    hold_all([second], needed=False)
    second.close()


def test_two_controllers_of_one_drive_are_one_lock(tmp_path: Path) -> None:
    both = [closed_to_us(tmp_path), closed_to_us(tmp_path, "nvme1")]
    hold_all(both, needed=False)
    for drive in both:
        drive.close()


def test_a_name_without_a_drive_leaves_no_lock(tmp_path: Path) -> None:
    drive = Drive("nvme77", serial="nvme77", journal=ChangeJournal(tmp_path), run_id="run")
    drive.open(deny)
    hold_all([drive], needed=False)
    drive.close()
    assert not list(tmp_path.iterdir())


ALL = (GET_FEATURES, GET_LOG_PAGE, IDENTIFY, SET_FEATURES)


@pytest.fixture
def drive(tmp_path: Path) -> Drive:
    store(tmp_path / "nvme0.json", Model())
    drive = Drive("nvme0", serial="?", journal=ChangeJournal(tmp_path / "state"), run_id="run-1")
    drive.open(lambda name: DeviceWithTimeout(ModelDrive(tmp_path, name), limit_s=0.3))
    return drive


def hang(folder: Path, *opcodes: int) -> None:
    path = folder / "nvme0.json"
    store(path, replace(load(path), hanging=opcodes))


def test_state_of_a_drive_that_hangs_is_missing_with_the_reason(
    drive: Drive, tmp_path: Path
) -> None:
    hang(tmp_path, *ALL)
    reading = drive.read()
    assert not reading.fields
    assert "has not answered" in reading.missing["power_state"]
    drive.restore()
    drive.close()
    hang(tmp_path)


def test_change_of_a_drive_that_hangs_stays_journalled(drive: Drive, tmp_path: Path) -> None:
    drive.hold(needed=True)
    drive.apply(PowerConfig(state=1), holds_system=lambda name: False)
    hang(tmp_path, *ALL)
    drive.restore()
    record = drive.record("box")
    assert record.restored is None
    assert "has not answered" in record.sentence
    drive.close()
    hang(tmp_path)
    assert ChangeJournal(tmp_path / "state").read(Key("MODEL0001", 0x02, 1), "run") is not None
