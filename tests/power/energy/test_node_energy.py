"""Energy of a node or a GPU stands beside a drive's and is never part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import samples_of
from tests.power.sources.sysfs_tree import ACPI, INA226, hwmon_tree, powercap_tree
from tests.records import Scenario, make_run
from wattload.core.checks.energy import power_coverage
from wattload.core.errors import PowerError
from wattload.core.power import (
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
)
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.summary import drive_energy
from wattload.power.config import HwmonConfig, PowerConfig
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.sources import selection
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.hwmon import find_channels
from wattload.power.sources.rapl import find_zones
from wattload.power.sources.selection import Selection, select
from wattload.reports.runs.energy import phase_energies

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)


TIMES_S = np.arange(-2.0, 63.0)
READ = window("read", 0, 60)


def meter(
    name: str,
    device: str,
    scope: Scope,
    *,
    accuracy_percent: float | None = 1.0,
    is_counter: bool = False,
) -> SourceFacts:
    return facts(
        name,
        Evidence.MEASURED if scope is Scope.DRIVE else Evidence.SELF_REPORTED,
        Counter(quantum_j=0.001) if is_counter else Instant(),
        device=device,
        scope=scope,
        accuracy_percent=accuracy_percent,
    ).model_copy(update={"period_s": 1.0})


def readings(source: SourceFacts, watts: float) -> list[Sample]:
    is_counter = isinstance(source.sensor, Counter)
    values = watts * (TIMES_S + 10) if is_counter else np.full(TIMES_S.size, watts)
    return samples_of(
        TIMES_S,
        values,
        channel=source.figure_channel,
        source=source.name,
        device=source.device,
        evidence=source.evidence,
    )


def accounted(sources: dict[float, SourceFacts]) -> tuple[EnergyRecord, ...]:
    samples = [sample for watts, each in sources.items() for sample in readings(each, watts)]
    ledger = EnergyLedger(samples, list(sources.values()), host="host1", activity=activity_of(READ))
    return ledger.phase_records([READ])


def total_j(energy: tuple[EnergyRecord, ...]) -> float | None:
    section = PowerSection(requested="auto", choice="", idle_s=0, energy=energy)
    found: float | None = drive_energy(section, [READ])["energy_in_window_j"]
    return found


def test_total_is_the_drives_whatever_is_read_beside_it() -> None:
    records = accounted(
        {
            12.0: meter("hwmon", "SERIAL1", Scope.DRIVE),
            150.0: meter("rapl", "package-0", Scope.NODE, is_counter=True),
            300.0: meter("rapl", "psys", Scope.NODE, is_counter=True),
            400.0: meter("ipmi", "bmc", Scope.NODE),
            70.0: meter("nvml_power", "GPU-1", Scope.GPU),
        }
    )
    assert total_j(records) == pytest.approx(12 * 60, rel=1e-6)
    chosen = {(each.source, each.device): each.energy_j for each in records if each.chosen}
    assert chosen == {
        ("hwmon", "SERIAL1"): pytest.approx(720),
        ("rapl", "package-0"): pytest.approx(9000),
        ("rapl", "psys"): pytest.approx(18000),
        ("ipmi", "bmc"): pytest.approx(24000),
        ("nvml_power", "GPU-1"): pytest.approx(4200),
    }


def test_node_alone_gives_nodrive_energy() -> None:
    records = accounted({400.0: meter("ipmi", "bmc", Scope.NODE)})
    assert total_j(records) is None
    assert [each.chosen for each in records] == [True]


def test_finer_node_meter_never_stands_for_a_drive_of_the_same_name() -> None:
    records = accounted(
        {
            12.0: meter("hwmon", "nvme0", Scope.DRIVE, accuracy_percent=5.0),
            400.0: meter("redfish_power", "nvme0", Scope.NODE, accuracy_percent=0.1),
        }
    )
    assert total_j(records) == pytest.approx(720)
    assert {(each.source, each.chosen) for each in records} == {
        ("hwmon", True),
        ("redfish_power", True),
    }


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


def test_page_gives_the_drives_energy_whatever_stands_beside_it() -> None:
    record, _ = make_run(Scenario(power="measured"))
    energy = record.power.energy
    beside = [
        each.model_copy(
            update={"scope": scope, "device": device, "source": "x", "energy_j": 1e6, "mean_w": 1e4}
        )
        for each in energy
        for scope, device in ((Scope.NODE, "bmc"), (Scope.GPU, "GPU-1"), (Scope.NODE, each.device))
    ]
    mixed = record.power.model_copy(update={"energy": (*beside, *energy)})
    assert phase_energies(record.model_copy(update={"power": mixed})) == phase_energies(record)
    assert phase_energies(record)[0].energy_j is not None


def test_hole_in_the_nodes_trace_fails_no_run() -> None:
    record, _ = make_run(Scenario(power="measured"))
    node = [
        each.model_copy(
            update={"scope": Scope.NODE, "device": device, "coverage": share, "missing": missing}
        )
        for each in record.power.energy
        for device, share, missing in (
            ("bmc", 0.5, {}),
            ("psys", None, {"coverage": "there is no sample"}),
        )
    ]
    energy = (*record.power.energy, *node)
    power = record.power.model_copy(update={"energy": energy})
    checks = power_coverage(record.model_copy(update={"power": power}))
    beside = {check.verdict for check in checks if check.name.endswith(("_bmc", "_psys"))}
    assert beside == {"not_checked"}
    mandatory = [check for check in checks if check.mandatory]
    assert mandatory == [each for each in power_coverage(record) if each.mandatory]
    assert {check.verdict for check in mandatory} == {"pass"}
