from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.energy.simulated_runs import Power
from tests.power.energy_facts import times_of, window
from tests.power.energy_traces import samples_of, traces
from tests.power.sources.sysfs_tree import (
    ACPI,
    AMD_ENERGY,
    AMDGPU,
    INA226,
    INA3221,
    LTC2947,
    NVME,
    Chip,
    hwmon_tree,
)
from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import (
    Accuracy,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Scope,
    SourceFacts,
)
from wattload.core.sysfs import LIVE, Roots
from wattload.power.config import AccuracyConfig, HwmonConfig
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.hwmon import find_channels, list_channels

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
OTHER = PowerDevice(key="SERIAL2", name="nvme1", is_nvme=True)


def found(
    roots: Roots, rails: dict[str, str] | None = None, **settings: Any
) -> Sequence[PowerSource]:
    config = HwmonConfig(
        rails=[f"{key}:{drive}" for key, drive in (rails or {}).items()], **settings
    )
    config.check()
    return find_channels(roots, [DRIVE, OTHER], config, period_s=0.1)


def facts_of(roots: Roots, rails: dict[str, str] | None = None) -> dict[str, SourceFacts]:
    return {source.facts().device: source.facts() for source in found(roots, rails)}


class TestRailsOfADrive(PowerSourceContract):
    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> None:
        self.roots = hwmon_tree(tmp_path, INA3221)

    def make(self) -> PowerSource:
        rails = {"ina3221/curr1": "nvme0", "ina3221/curr2": "SERIAL1"}
        return found(self.roots, rails)[0]

    def break_reads(self, source: PowerSource) -> None:
        (self.roots.sys / "class/hwmon/hwmon0/curr2_input").write_text("")


class TestNodeMeter(PowerSourceContract):
    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> None:
        self.roots = hwmon_tree(tmp_path, ACPI)

    def make(self) -> PowerSource:
        (source,) = found(self.roots)
        return source

    def break_reads(self, source: PowerSource) -> None:
        (self.roots.sys / "class/hwmon/hwmon0/power1_average").write_text("N/A\n")


class TestEnergyRegister(PowerSourceContract):
    channels = frozenset({Channel.ENERGY_J})

    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> None:
        self.roots = hwmon_tree(tmp_path, LTC2947)

    def make(self) -> PowerSource:
        return found(self.roots, {"ltc2947/energy1": "nvme0"})[0]

    def break_reads(self, source: PowerSource) -> None:
        (self.roots.sys / "class/hwmon/hwmon0/energy1_input").write_text("")


def test_rails_of_a_drive_are_read_together_and_summed(tmp_path: Path) -> None:
    roots = hwmon_tree(tmp_path, INA3221)
    rails = {"ina3221/curr1": "nvme0", "ina3221/curr2": "nvme0"}
    accuracy = AccuracyConfig(reading_percent=0.5, range_percent=0.1)
    drive = found(roots, rails, accuracy=accuracy, range_w=50.0)[0]
    drive.open()
    (sample,) = drive.read()
    facts = drive.facts()
    drive.close()
    assert sample.value == pytest.approx(12.0 * 1.0 + 3.3 * 0.2)
    assert (sample.device, facts.scope, facts.evidence) == (
        "SERIAL1",
        Scope.DRIVE,
        Evidence.MEASURED,
    )
    assert facts.accuracy == Accuracy(reading_percent=0.5, range_percent=0.1)
    assert facts.range_w == 50.0
    assert facts.resolution_w == pytest.approx(12.0e-3 + 3.3e-3)
    assert facts.period_s == 0.01
    assert facts.detail == (
        "power of ina3221/curr1, P12V_SSD + ina3221/curr2, P3V3_SSD "
        "(the drive's rails according to power.hwmon.rails; "
        "±(0.5 % of reading + 0.1 % of range))"
    )


@pytest.mark.parametrize(("interval_ms", "period_s"), [(35, 0.0175), (2, 0.01), (1000, 0.1)])
def test_rail_is_read_often_enough_to_see_each_of_its_means(
    tmp_path: Path, interval_ms: int, period_s: float
) -> None:
    roots = hwmon_tree(tmp_path, {**INA226, "update_interval": interval_ms})
    (drive,) = found(roots, {"ina226/power1": "nvme0"})
    assert drive.facts().period_s == pytest.approx(period_s)


def test_sum_with_a_rail_missing_is_not_a_sum(tmp_path: Path) -> None:
    roots = hwmon_tree(tmp_path, INA3221)
    drive = found(roots, {"ina3221/curr1": "nvme0", "ina3221/curr2": "nvme0"})[0]
    drive.open()
    (roots.sys / "class/hwmon/hwmon0/in2_input").write_text("")
    (sample,) = drive.read()
    drive.close()
    assert sample.value is None


def test_what_is_not_mapped_is_never_a_drives(tmp_path: Path) -> None:
    facts = facts_of(hwmon_tree(tmp_path, INA226, ACPI, NVME))
    assert {device: each.scope for device, each in facts.items()} == {
        "ina226/power1": Scope.NODE,
        "power_meter/power1": Scope.NODE,
    }
    assert facts["ina226/power1"].evidence is Evidence.MEASURED
    assert facts["power_meter/power1"].evidence is Evidence.SELF_REPORTED
    assert {each.period_s for each in facts.values()} == {1.0}


def test_rail_of_a_drive_that_is_not_under_the_target_is_nobodys(tmp_path: Path) -> None:
    roots = hwmon_tree(tmp_path, INA226)
    assert found(roots, {"ina226/power1": "nvme7"}) == []


def test_graphics_card_is_of_scope_gpu_and_its_mean_is_late_by_an_unknown_time(
    tmp_path: Path,
) -> None:
    (facts,) = facts_of(hwmon_tree(tmp_path, AMDGPU)).values()
    assert (facts.scope, facts.evidence) == (Scope.GPU, Evidence.SELF_REPORTED)
    assert facts.sensor == Instant(lag_s=0.5)
    assert facts.detail == (
        "power of amdgpu/power1, PPT (not of a drive; no accuracy is stated; "
        "a mean over a time that is not stated, so its delay is uncertain)"
    )


def test_newer_graphics_drivers_offer_the_power_of_a_moment(tmp_path: Path) -> None:
    (facts,) = facts_of(hwmon_tree(tmp_path, {**AMDGPU, "power1_input": 95_000_000})).values()
    assert facts.sensor == Instant()
    assert facts.detail.endswith("; no accuracy is stated)")


@pytest.mark.parametrize("constant_s", [0.0, 0.1, 0.6, 1.2])
def test_the_uncertainty_of_a_graphics_card_allows_for_its_filter(
    tmp_path: Path, constant_s: float
) -> None:
    """Power is read once a second behind filters that the facts know nothing of."""
    (facts,) = facts_of(hwmon_tree(tmp_path, AMDGPU)).values()
    facts = facts.model_copy(update={"accuracy": Accuracy(reading_percent=0.0)})
    within = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        end_s = round(float(rng.uniform(10, 25)), 3)
        power = Power.idle(-10, end_s + 10, 90.0)
        power.part(0, end_s)[:] = 300.0
        seen = power.filtered(constant_s) if constant_s else power
        times_s = np.arange(rng.uniform(-9, -8), end_s + 9, facts.period_s)
        watts = np.round(seen.at(times_s) + rng.normal(0, 0.5, times_s.size))
        samples = samples_of(times_s, watts, source=facts.name, device=facts.device)
        phase = window("read", 0, end_s)
        ledger = EnergyLedger(traces(samples), [facts], host="host1", times=times_of(phase))
        (energy,) = ledger.phase_records([phase])
        assert energy.energy_j is not None
        assert energy.uncertainty_j is not None
        assert energy.uncertainty_j < 0.1 * energy.energy_j
        within += abs(energy.energy_j - 300 * end_s) < energy.uncertainty_j
    assert within >= 9  # at k = 2


def test_update_interval_is_the_window_of_chips_that_average(tmp_path: Path) -> None:
    other: Chip = {"name": "corsairpsu", "power1_input": 1000, "update_interval": 250}
    facts = facts_of(hwmon_tree(tmp_path, INA226, other))
    assert facts["ina226/power1"].sensor == Boxcar(window_s=0.035, update_period_s=0.035)
    assert facts["corsairpsu/power1"].sensor == Instant()


def test_average_interval_is_the_window_of_an_acpi_meter(tmp_path: Path) -> None:
    facts = facts_of(hwmon_tree(tmp_path, ACPI))["power_meter/power1"]
    assert facts.sensor == Boxcar(window_s=1.0)
    assert facts.accuracy == Accuracy(reading_percent=5.0)


def test_average_without_an_interval_is_of_an_unknown_time(tmp_path: Path) -> None:
    plain: Chip = {"name": "zen", "power1_average": 5_000_000, "power1_accuracy": "?"}
    facts = facts_of(hwmon_tree(tmp_path, plain))["zen/power1"]
    assert (facts.sensor, facts.accuracy, facts.resolution_w) == (Instant(lag_s=0.5), None, None)


def test_sum_of_sensors_on_clocks_of_their_own_has_no_common_update(tmp_path: Path) -> None:
    slow: Chip = {**INA226, "update_interval": 140}
    roots = hwmon_tree(tmp_path, INA226, slow, addresses=("1-0040", "1-0041"))
    rails = {"ina226@1-0040/power1": "nvme0", "ina226@1-0041/power1": "nvme0"}
    (facts,) = facts_of(roots, rails).values()
    assert facts.sensor == Boxcar(window_s=0.14, update_period_s=0.0)


def test_sum_of_an_averaging_and_another_sensor_is_instant(tmp_path: Path) -> None:
    other: Chip = {"name": "pmbus", "power1_input": 3_000_000}
    rails = {"ina226/power1": "nvme0", "pmbus/power1": "nvme0"}
    (facts,) = facts_of(hwmon_tree(tmp_path, INA226, other), rails).values()
    assert (facts.sensor, facts.resolution_w) == (Instant(), None)


def test_sum_of_counters_is_a_counter(tmp_path: Path) -> None:
    rails = {"ltc2947/energy1": "nvme0", "ltc2947/energy2": "nvme0"}
    drive = found(hwmon_tree(tmp_path, LTC2947), rails)[0]
    drive.open()
    (sample,) = drive.read()
    drive.close()
    assert sample.channel is Channel.ENERGY_J
    assert sample.value == pytest.approx(75.0)
    assert drive.facts().sensor == Counter(quantum_j=2e-6)


def test_energy_and_power_cannot_be_summed(tmp_path: Path) -> None:
    rails = {"ltc2947/energy1": "nvme0", "ltc2947/power1": "nvme0"}
    with pytest.raises(ConfigError, match="gives nvme0 energy and power channels"):
        found(hwmon_tree(tmp_path, LTC2947), rails)


def test_current_is_paired_with_its_own_bus_voltage(tmp_path: Path) -> None:
    channels = {each.key: each for each in list_channels(hwmon_tree(tmp_path, INA3221))}
    assert list(channels) == ["ina3221/curr1", "ina3221/curr2", "ina3221/curr3"]
    assert [file.name for file in channels["ina3221/curr2"].files] == ["in2_input", "curr2_input"]


def test_current_of_an_unknown_chip_is_not_power(tmp_path: Path) -> None:
    unknown: Chip = {"name": "mystery", "in1_input": 12000, "curr1_input": 100}
    lacking: Chip = {"name": "ina219", "curr1_input": 100}
    assert list_channels(hwmon_tree(tmp_path, unknown, lacking)) == ()


def test_power_register_is_preferred_to_a_product(tmp_path: Path) -> None:
    assert [each.key for each in list_channels(hwmon_tree(tmp_path, INA226))] == ["ina226/power1"]


def test_input_is_preferred_to_an_average(tmp_path: Path) -> None:
    both: Chip = {"name": "x", "power1_average": 1, "power1_input": 2_000_000}
    (source,) = found(hwmon_tree(tmp_path, both))
    source.open()
    (sample,) = source.read()
    source.close()
    assert sample.value == pytest.approx(2.0)


def test_cores_are_within_their_socket_and_not_read(tmp_path: Path) -> None:
    assert list(facts_of(hwmon_tree(tmp_path, AMD_ENERGY))) == ["amd_energy/energy3"]


def test_step_of_a_power_register_is_that_of_the_coarser_driver(tmp_path: Path) -> None:
    fine: Chip = {**INA226, "shunt_resistor": 500}
    none: Chip = {**INA226, "shunt_resistor": "?"}
    ina219: Chip = {**INA226, "name": "ina219"}
    chips = hwmon_tree(
        tmp_path, INA226, fine, none, ina219, addresses=("1-40", "1-41", "1-42", "1-43")
    )
    steps_w = {each.key: each.resolution_w for each in list_channels(chips)}
    assert steps_w == {
        "ina226@1-40/power1": pytest.approx(0.025),
        "ina226@1-41/power1": pytest.approx(0.125),
        "ina226@1-42/power1": None,
        "ina219/power1": pytest.approx(0.02),
    }


def test_rail_that_is_not_here_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'ina226/power2', which does not exist; .* ina226/power1"
    ):
        found(hwmon_tree(tmp_path, INA226), {"ina226/power2": "nvme0"})


def test_host_without_sensors_is_one_sentence(tmp_path: Path) -> None:
    roots = hwmon_tree(tmp_path, NVME)
    with pytest.raises(PowerError, match="no hwmon channel of power or energy; `sudo modprobe"):
        found(roots)
    with pytest.raises(ConfigError, match="hwmon shows no channel of power"):
        found(roots, {"ina226/power1": "nvme0"})


def test_channel_that_has_gone_is_refused_at_open(tmp_path: Path) -> None:
    roots = hwmon_tree(tmp_path, ACPI)
    (source,) = found(roots)
    (roots.sys / "class/hwmon/hwmon0/power1_average").unlink()
    with pytest.raises(PowerError, match="hwmon power_meter/power1 can't be read: the kernel does"):
        source.open()


def test_folder_that_is_not_a_chip_is_passed_over(tmp_path: Path) -> None:
    roots = hwmon_tree(tmp_path, ACPI)
    (roots.sys / "class/hwmon/hwmon-odd").mkdir()
    assert [each.key for each in list_channels(roots)] == ["power_meter/power1"]


def test_this_machines_own_sensors_are_read_where_it_has_any() -> None:
    if not list_channels(LIVE):
        pytest.skip("this machine shows no hwmon channel of power")
    for source in found(LIVE):
        source.open()
        (sample,) = source.read()
        source.close()
        assert sample.value is None or sample.value >= 0


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (HwmonConfig(rails=["power1:nvme0"]), "must be chip/channel:drive, .*'power1:nvme0'"),
        (HwmonConfig(rails=["ina226/temp1:nvme0"]), "must be chip/channel:drive"),
        (HwmonConfig(rails=["ina226/power1"]), "must be chip/channel:drive"),
        (HwmonConfig(rails=["ina226/power1:"]), "must be chip/channel:drive"),
        (HwmonConfig(rails=["ina226/power1:/dev/nvme0"]), "got 'ina226/power1:/dev/nvme0'"),
        (HwmonConfig(rails=["a/power1:nvme0", "a/power1:nvme1"]), "list each channel once, got a/"),
        (
            HwmonConfig(accuracy=AccuracyConfig(reading_percent=-1)),
            r"hwmon\.accuracy\.reading_percent must be 0 to 100 %, got -1",
        ),
        (
            HwmonConfig(accuracy=AccuracyConfig(range_percent=0.1)),
            r"range_percent=0\.1 is a share of the range, .* add power\.hwmon\.range_w=",
        ),
        (HwmonConfig(range_w=0), "range_w must be more than 0 .* W, got 0"),
    ],
)
def test_rails_that_cannot_be_are_one_sentence(config: HwmonConfig, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config.check()
