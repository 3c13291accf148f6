"""The figures of drives: interval power, lifetime energy, OCP's whole watts, vendors' logs."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from tests.model_host import packing
from tests.model_host.drive import Model, ModelDrive, RawState
from tests.model_host.power import Meter, centiwatts
from tests.power.sources.nvme_models import ModelDriveContract, change, sources, values
from wattload.core.errors import PowerError
from wattload.core.power import Accuracy, Boxcar, Channel, Counter, Evidence, Instant, PowerSource
from wattload.power.nvme.admin import AdminCommand, Completion
from wattload.power.sources import nvme, nvme_drive

METER = Meter(ipm=centiwatts(9.25))


def interval(folder: Path, meter: Meter = METER) -> PowerSource:
    return sources(folder, Model(meter=meter))["nvme_ipm"]


class TestIntervalPower(ModelDriveContract):
    def make(self) -> PowerSource:
        return interval(self.folder)


def test_power_is_the_mean_of_the_last_second(tmp_path: Path) -> None:
    source = interval(tmp_path)
    source.open()
    assert values(source.read()) == {Channel.POWER_W: 9.25}
    facts = source.facts()
    assert facts.sensor == Boxcar(window_s=1.0)
    assert facts.evidence is Evidence.SELF_REPORTED
    assert (facts.resolution_w, facts.accuracy) == (0.01, None)
    change(tmp_path, ipm=65535 | 1 << 16)
    assert values(source.read()) == {Channel.POWER_W: 6.5535}


@pytest.mark.parametrize(("max_w", "step_w"), [(6, 0.0001), (25, 0.01), (0, 0.01)])
def test_resolution_is_that_of_the_largest_power_to_come(
    tmp_path: Path, max_w: int, step_w: float
) -> None:
    model = Model(states=(RawState(mp=100 * max_w),), meter=Meter(ipm=40_000 | 1 << 16))
    source = sources(tmp_path, model)["nvme_ipm"]
    source.open()
    assert source.facts().resolution_w == step_w


def test_drive_that_samples_its_power_is_given_time_for_a_first_mean(tmp_path: Path) -> None:
    source = interval(tmp_path, Meter(interval_ms=10))
    later = threading.Timer(0.3, change, (tmp_path,), {"ipm": centiwatts(9)})
    later.start()
    source.open()
    later.join()
    assert values(source.read()) == {Channel.POWER_W: 9.0}


def test_drive_that_samples_and_tells_nothing_is_refused_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvme, "FIRST_MEAN_S", 0.05)
    with pytest.raises(PowerError, match="reports no interval power"):
        interval(tmp_path, Meter(interval_ms=10)).open()


def test_accuracy_is_what_the_drives_measurement_states(tmp_path: Path) -> None:
    source = interval(
        tmp_path, Meter(ipm=centiwatts(9), measures=True, error_percent=3, interval_ms=10)
    )
    source.open()
    assert source.facts().accuracy == Accuracy(reading_percent=3)
    assert source.facts().detail == (
        "mean of the drive's own samples of the last second, taken every 0.01 s or more often; "
        "error at most 3 % of reading"
    )


def test_drive_that_estimates_gives_estimates(tmp_path: Path) -> None:
    source = interval(tmp_path, Meter(ipm=centiwatts(9), measures=True, estimated=True))
    source.open()
    assert source.facts().evidence is Evidence.ESTIMATED
    assert {sample.evidence for sample in source.read()} == {Evidence.ESTIMATED}
    assert "estimates according to the drive" in source.facts().detail


@pytest.mark.parametrize("raw", [0, 900, 3 << 16 | 900, 12 << 20 | centiwatts(9)])
def test_drive_that_reports_none_is_refused(tmp_path: Path, raw: int) -> None:
    with pytest.raises(PowerError, match="reports no interval power"):
        interval(tmp_path, Meter(ipm=raw)).open()


def test_figure_that_vanishes_is_a_gap(tmp_path: Path) -> None:
    source = interval(tmp_path)
    source.open()
    change(tmp_path, ipm=0)
    assert values(source.read()) == {Channel.POWER_W: None}


def test_drive_whose_log_was_not_readable_at_open_gives_estimates(tmp_path: Path) -> None:
    """The log may report estimates: a log that was not read is not taken for a measurement."""

    class Refuses(ModelDrive):
        def submit(self, command: AdminCommand) -> Completion:
            if (command.opcode, command.cdw10 & 0xFF) == (0x02, 0x25):
                return Completion(status=6, result=0, data=bytes(command.data_bytes))
            return super().submit(command)

    model = Model(meter=Meter(ipm=centiwatts(3), measures=True, estimated=True))
    found = sources(tmp_path, model, open_device=lambda name: Refuses(tmp_path, name))
    source = found["nvme_ipm"]
    source.open()
    assert source.facts().evidence is Evidence.ESTIMATED
    assert {sample.evidence for sample in source.read()} == {Evidence.ESTIMATED}
    assert "treated as estimates because its log 25h" in source.facts().detail


def lifetime(folder: Path, meter: Meter | None = None) -> PowerSource:
    return sources(folder, Model(meter=meter or Meter(olec=1234)))["nvme_olec"]


class TestLifetimeEnergy(ModelDriveContract):
    channels = frozenset({Channel.ENERGY_J})

    @pytest.fixture(autouse=True)
    def _every_read_is_due(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nvme_drive, "SLOW_PERIOD_S", 1e-9)

    def make(self) -> PowerSource:
        return lifetime(self.folder)


def test_count_is_in_steps_of_a_watt_hour(tmp_path: Path) -> None:
    source = lifetime(tmp_path)
    source.open()
    assert values(source.read()) == {Channel.ENERGY_J: 1234 * 3600.0}
    facts = source.facts()
    assert facts.sensor == Counter(quantum_j=3600.0)
    assert (facts.evidence, facts.period_s) == (Evidence.SELF_REPORTED, 1.0)


def test_count_is_read_once_a_second(tmp_path: Path) -> None:
    source = lifetime(tmp_path)
    source.open()
    assert source.read()
    assert not source.read()


def test_count_of_a_drive_that_estimates_is_an_estimate(tmp_path: Path) -> None:
    source = lifetime(tmp_path, Meter(olec=1, measures=True, estimated=True))
    source.open()
    assert source.facts().evidence is Evidence.ESTIMATED


def test_drive_that_counts_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="reports no lifetime energy"):
        lifetime(tmp_path, Meter()).open()


DERA, MEMBLAZE = 0x1D78, 0x1C5F


def ocp(folder: Path, *, watts: int = 12, version: int = 5, **fields: object) -> PowerSource:
    meter = Meter(ocp_watts=watts, ocp_version=version)
    model = Model(ocp=True, meter=meter)
    for name, value in fields.items():
        setattr(model, name, value)
    return sources(folder, model)["nvme_ocp"]


def dera(milliwatts: int) -> dict[str, str]:
    data = bytearray(512)
    struct.pack_into("<BH", data, 64, 12, milliwatts)
    return {str(0xC0): data.hex()}


def vendor(folder: Path, *, milliwatts: int = 11_500, vendor_id: int = DERA) -> PowerSource:
    model = Model(vendor_id=vendor_id, meter=Meter(pages=dera(milliwatts)))
    return sources(folder, model)["nvme_vendor"]


class TestOcpPower(ModelDriveContract):
    def make(self) -> PowerSource:
        return ocp(self.folder)


class TestVendorPower(ModelDriveContract):
    def make(self) -> PowerSource:
        return vendor(self.folder)


def test_ocp_power_is_in_whole_watts(tmp_path: Path) -> None:
    source = ocp(tmp_path)
    source.open()
    assert values(source.read()) == {Channel.POWER_W: 12}
    facts = source.facts()
    assert facts.sensor == Boxcar(window_s=1.0)
    assert (facts.evidence, facts.resolution_w) == (Evidence.ESTIMATED, 1.0)


def test_ocp_log_before_version_5_has_no_power(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match=r"no plausible average power .*: nothing"):
        ocp(tmp_path, version=4).open()


def test_ocp_power_beyond_twice_the_maximum_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match=r"no plausible average power .*: 51 W"):
        ocp(tmp_path, watts=51).open()
    source = ocp(tmp_path, watts=50)
    source.open()
    change(tmp_path, ocp_watts=4000)
    assert values(source.read()) == {Channel.POWER_W: None}


def test_sleeping_drive_has_the_figure_and_tells_none_now(tmp_path: Path) -> None:
    source = ocp(tmp_path, watts=0)
    source.open()
    assert values(source.read()) == {Channel.POWER_W: None}
    change(tmp_path, ocp_watts=3)
    assert values(source.read()) == {Channel.POWER_W: 3}


def test_ocp_power_of_a_drive_without_a_maximum_is_taken(tmp_path: Path) -> None:
    source = ocp(tmp_path, watts=51, states=(RawState(),))
    source.open()
    assert values(source.read()) == {Channel.POWER_W: 51}


def test_drive_without_the_ocp_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="no OCP log"):
        sources(tmp_path, Model())["nvme_ocp"].open()


def test_vendor_power_is_keyed_by_the_vendor(tmp_path: Path) -> None:
    source = vendor(tmp_path)
    source.open()
    assert values(source.read()) == {Channel.POWER_W: 11.5}
    facts = source.facts()
    assert (facts.evidence, facts.sensor) == (Evidence.ESTIMATED, Instant())
    assert facts.resolution_w == 0.001
    assert facts.detail == "the latest figure of the firmware, in Dera's log C0h"


@pytest.mark.parametrize(("milliwatts", "vendor_id"), [(60_000, DERA), (0, DERA), (9_000, 0x1B36)])
def test_vendor_power_that_cannot_be_true_is_refused(
    tmp_path: Path, milliwatts: int, vendor_id: int
) -> None:
    with pytest.raises(PowerError, match="no vendor log with a known power figure"):
        vendor(tmp_path, milliwatts=milliwatts, vendor_id=vendor_id).open()


def test_vendor_power_that_becomes_absurd_is_a_gap(tmp_path: Path) -> None:
    source = vendor(tmp_path)
    source.open()
    change(tmp_path, pages=dera(65_000))
    assert values(source.read()) == {Channel.POWER_W: None}


def test_vendor_power_is_not_read_before_it_is_found(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="before it was opened"):
        vendor(tmp_path).read()


def test_mean_over_an_unstated_time_is_the_power_of_no_phase(tmp_path: Path) -> None:
    item = bytes([0xE8, 0, 0, 0, 0]) + struct.pack("<HHH", 25, 5, 7) + b"\0"
    pages = {str(0xCB): item.ljust(240, b"\0").hex()}
    model = Model(vendor_id=0x1E3B, meter=Meter(pages=pages))
    with pytest.raises(PowerError, match="a mean over an unstated time in DapuStor's log"):
        sources(tmp_path, model)["nvme_vendor"].open()


def test_figure_of_one_input_says_that_it_is_of_no_more(tmp_path: Path) -> None:
    ring = packing.workload([(9_000_000, *[0] * 7)], config=1 | 5 << 15, period_ms=1000)
    model = Model(vendor_id=0x025E, meter=Meter(pages={str(0xF9): ring.hex()}))
    source = sources(tmp_path, model)["nvme_vendor"]
    source.open()
    assert "input 1 only" in source.facts().detail
    assert values(source.read()) == {Channel.POWER_W: 9.0}
