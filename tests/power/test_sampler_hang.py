"""A drive that stops answering amid a run: what is told of it, and that nobody waits for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.power.model_drive import Model, ModelDrive, load, store
from wattload.power.config import PowerConfig
from wattload.power.journal import Journal, Key
from wattload.power.nvme.admin import GET_FEATURES, GET_LOG_PAGE, IDENTIFY, SET_FEATURES
from wattload.power.sampler import drive as sampler_drive
from wattload.power.sampler.drive import Drive

ALL = (GET_FEATURES, GET_LOG_PAGE, IDENTIFY, SET_FEATURES)


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    monkeypatch.setattr(sampler_drive, "ANSWER_LIMIT_S", 0.3)
    store(tmp_path / "nvme0.json", Model())
    drive = Drive("nvme0", serial="?", journal=Journal(tmp_path / "state"), run_id="run-1")
    drive.open(lambda name: ModelDrive(tmp_path, name))
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
    assert Journal(tmp_path / "state").read(Key("MODEL0001", 0x02, 1), "run") is not None
