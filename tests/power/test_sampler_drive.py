"""A drive of a run is locked against other runs, whether it may be opened or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.journal import Journal
from wattload.power.nvme.admin import AdminDevice
from wattload.power.sampler.drive import Drive, hold_all


def deny(name: str) -> AdminDevice:
    raise PowerPermissionError(f"{name} may not be opened")


def closed_to_us(folder: Path, name: str = "nvme0") -> Drive:
    drive = Drive(name, serial="S1", journal=Journal(folder), run_id="run")
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
    drive = Drive("nvme77", serial="nvme77", journal=Journal(tmp_path), run_id="run")
    drive.open(deny)
    hold_all([drive], needed=False)
    drive.close()
    assert not list(tmp_path.iterdir())
