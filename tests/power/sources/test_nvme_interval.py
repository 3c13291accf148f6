"""Tier B1: interval power of the SMART log, with the limits that the drive's own log 25h states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.model_drive import Model
from tests.power.model_power import Meter, centiwatts
from tests.power.sources.nvme_models import change, sources, values
from wattload.core.errors import PowerError
from wattload.core.power import Boxcar, Channel, Evidence, PowerSource

METER = Meter(ipm=centiwatts(9.25))


def make(folder: Path, meter: Meter = METER, *, freezing: tuple[int, ...] = ()) -> PowerSource:
    return sources(folder, Model(meter=meter, freezing=freezing))["nvme_ipm"]


class TestIntervalPower(PowerSourceContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self) -> PowerSource:
        return make(self.folder)

    def break_reads(self, source: PowerSource) -> None:
        change(self.folder, gone=True)


def test_power_is_the_mean_of_the_last_second(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    assert values(source.read()) == {Channel.POWER_W: 9.25}
    facts = source.facts()
    assert facts.sensor == Boxcar(window_s=1.0)
    assert facts.evidence is Evidence.SELF_REPORTED
    assert (facts.resolution_w, facts.accuracy_percent) == (0.01, None)
    change(tmp_path, ipm=65535 | 1 << 16)
    assert values(source.read()) == {Channel.POWER_W: 6.5535}


def test_resolution_follows_the_scale(tmp_path: Path) -> None:
    source = make(tmp_path, Meter(ipm=40_000 | 1 << 16))
    source.open()
    assert source.facts().resolution_w == 0.0001


def test_accuracy_is_what_the_drives_measurement_states(tmp_path: Path) -> None:
    source = make(
        tmp_path, Meter(ipm=centiwatts(9), measures=True, error_percent=3, interval_ms=10)
    )
    source.open()
    assert source.facts().accuracy_percent == 3
    assert source.facts().detail == (
        "mean of the drive's own samples of the last second, taken every 0.01 s or oftener; off "
        "by 3 % at most"
    )


def test_drive_that_reckons_gives_estimates(tmp_path: Path) -> None:
    source = make(tmp_path, Meter(ipm=centiwatts(9), measures=True, estimated=True))
    source.open()
    assert source.facts().evidence is Evidence.ESTIMATED
    assert {sample.evidence for sample in source.read()} == {Evidence.ESTIMATED}
    assert "which it says are estimates" in source.facts().detail


@pytest.mark.parametrize("raw", [0, 900, 3 << 16 | 900, 12 << 20 | centiwatts(9)])
def test_drive_that_reports_none_is_refused(tmp_path: Path, raw: int) -> None:
    with pytest.raises(PowerError, match="reports no interval power"):
        make(tmp_path, Meter(ipm=raw)).open()


def test_figure_that_vanishes_is_a_hole(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    change(tmp_path, ipm=0)
    assert values(source.read()) == {Channel.POWER_W: None}


def test_log_that_would_stop_io_is_not_sampled(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="so its interval power is not sampled"):
        make(tmp_path, freezing=(0x02,)).open()


def test_log_that_is_refused_is_told(tmp_path: Path) -> None:
    source = make(tmp_path)
    change(tmp_path, failing=(0x02,))
    with pytest.raises(PowerError, match="Internal Error"):
        source.open()
