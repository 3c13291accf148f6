"""How many bytes each level writes for one that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.redundancy import btrfs_redundancy, dm_redundancy, md_redundancy


@pytest.mark.parametrize(
    ("level", "numbers", "factor"),
    [
        ("raid0", {"raid_disks": 4}, 1.0),
        ("linear", {"raid_disks": 2}, 1.0),
        ("raid1", {"raid_disks": 3, "degraded": 0}, 3.0),
        ("raid1", {"raid_disks": 3, "degraded": 1}, 2.0),
        ("raid4", {"raid_disks": 3}, 1.5),
        ("raid5", {"raid_disks": 4}, 4 / 3),
        ("raid6", {"raid_disks": 6}, 1.5),
        ("raid10", {"raid_disks": 4, "layout": 0x102}, 2.0),
        ("raid10", {"raid_disks": 6, "layout": 0x203}, 6.0),
    ],
)
def test_md_level_and_members_give_the_factor(
    tmp_path: Path, level: str, numbers: dict[str, int], factor: float
) -> None:
    for name, value in numbers.items():
        write(tmp_path / "md" / name, f"{value}\n")
    write(tmp_path / "md/level", f"{level}\n")
    found, reason = md_redundancy(tmp_path)
    assert (found, reason) == (factor, "")


def test_an_unknown_md_level_has_a_reason(tmp_path: Path) -> None:
    write(tmp_path / "md/level", "container\n")
    write(tmp_path / "md/raid_disks", "2\n")
    factor, reason = md_redundancy(tmp_path)
    assert factor is None
    assert "container" in reason


def test_an_md_array_that_can_not_be_read_has_a_reason(tmp_path: Path) -> None:
    assert md_redundancy(tmp_path) == (None, "the kernel does not show level")


@pytest.mark.parametrize(
    ("uuid", "below", "factor"),
    [("LVM-abc", 1, 1.0), ("CRYPT-LUKS2-x", 2, 1.0), ("mpath-3600", 2, 1.0), ("LVM-abc", 4, None)],
)
def test_a_mapping_over_several_devices_is_not_guessed(
    tmp_path: Path, uuid: str, below: int, factor: float | None
) -> None:
    write(tmp_path / "dm/uuid", uuid)
    for number in range(below):
        (tmp_path / f"slaves/sd{number}").mkdir(parents=True)
    found, reason = dm_redundancy(tmp_path)
    assert found == factor
    assert bool(reason) is (factor is None)


def test_a_mapping_without_uuid_over_one_device_writes_once(tmp_path: Path) -> None:
    (tmp_path / "slaves/sda").mkdir(parents=True)
    assert dm_redundancy(tmp_path) == (1.0, "")


@pytest.mark.parametrize(
    ("profiles", "factor"),
    [
        (["single"], 1.0),
        (["dup"], 2.0),
        (["raid1c3"], 3.0),
        (["raid1", "single"], None),
        ([], None),
    ],
)
def test_btrfs_takes_the_one_data_profile(
    tmp_path: Path, profiles: list[str], factor: float | None
) -> None:
    for profile in profiles:
        (tmp_path / "allocation/data" / profile).mkdir(parents=True)
    write(tmp_path / "allocation/data/flags", "1\n")
    found, reason = btrfs_redundancy(tmp_path)
    assert found == factor
    assert bool(reason) is (factor is None)
