"""Sensors of a node are taken for a drive only if they are mapped to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.power.sources.sysfs_tree import ACPI, INA226, hwmon_tree, powercap_tree
from wattload.core.errors import PowerError
from wattload.core.power import PowerSource, Scope
from wattload.power.config import HwmonConfig, PowerConfig
from wattload.power.sources import selection
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.hwmon import find_channels
from wattload.power.sources.rapl import find_zones
from wattload.power.sources.selection import Selection, select

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)


class Host:
    """What ``find_sources`` returns of a host with rails and zones, by name."""

    def __init__(self, folder: Path, rails: dict[str, str]) -> None:
        self._hwmon = hwmon_tree(folder / "hwmon", INA226, ACPI)
        self._powercap = powercap_tree(folder / "powercap", {"intel-rapl:0": "package-0"})
        self._rails = rails

    def find(self, name: str, devices: list[PowerDevice], config: PowerConfig) -> list[PowerSource]:
        if name == "hwmon":
            settings = HwmonConfig(rails=[f"{key}:{drive}" for key, drive in self._rails.items()])
            return list(find_channels(self._hwmon, devices, settings, period_s=config.period_s))
        if name == "rapl":
            return list(find_zones(self._powercap, period_s=config.period_s))
        raise PowerError(f"no {name} here")


def chosen(host: Host, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> Selection:
    monkeypatch.setattr(selection, "find_sources", host.find)
    found = select([DRIVE], PowerConfig(**asked), host="host1")
    for source in found.sources:
        source.close()
    return found


def scopes(found: Selection) -> dict[str, Scope]:
    return {source.facts().device: source.facts().scope for source in found.sources}


def test_auto_takes_mapped_rails_for_the_drive_and_tells_the_rest_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(Host(tmp_path, {"ina226/power1": "nvme0"}), monkeypatch)
    assert scopes(found) == {
        "SERIAL1": Scope.DRIVE,
        "power_meter/power1": Scope.NODE,
        "package-0": Scope.NODE,
    }
    assert "took hwmon for nvme0 (drive, measured)" in found.choice
    assert found.choice.count("never added to a drive's") == 2


def test_without_a_map_no_sensor_is_a_drives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(Host(tmp_path, {}), monkeypatch)
    assert set(scopes(found).values()) == {Scope.NODE}
    assert "found no source for nvme0 (no nvme here" in found.choice


def test_source_beside_is_read_with_the_one_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, {"ina226/power1": "nvme0"})
    found = chosen(host, monkeypatch, source="hwmon", beside=["rapl"])
    assert scopes(found)["package-0"] is Scope.NODE
    assert "; rapl was requested in addition: rapl for package-0 (node" in found.choice


@pytest.mark.parametrize("source", ["auto", "hwmon"])
def test_source_beside_that_can_not_be_had_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    with pytest.raises(PowerError, match="no ipmi here"):
        chosen(Host(tmp_path, {}), monkeypatch, source=source, beside=["ipmi"])
