"""OCP's whole watts and vendors' logs, accepted only if plausible."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.model_host import packing
from tests.model_host.drive import Model, RawState
from tests.model_host.power import Meter
from tests.power.sources.nvme_models import ModelDriveContract, change, sources, values
from wattload.core.errors import PowerError
from wattload.core.power import Boxcar, Channel, Evidence, Instant, PowerSource

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
