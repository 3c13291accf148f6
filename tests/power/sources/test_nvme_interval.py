"""Interval power of the SMART log, with the limits that the drive's own log 25h states."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, RawState
from tests.model_host.power import Meter, centiwatts
from tests.power.sources.nvme_models import ModelDriveContract, change, sources, values
from wattload.core.errors import PowerError
from wattload.core.power import Boxcar, Channel, Evidence, PowerSource
from wattload.power.nvme.admin import AdminCommand, Completion
from wattload.power.sources import nvme

METER = Meter(ipm=centiwatts(9.25))


def make(folder: Path, meter: Meter = METER) -> PowerSource:
    return sources(folder, Model(meter=meter))["nvme_ipm"]


class TestIntervalPower(ModelDriveContract):
    def make(self) -> PowerSource:
        return make(self.folder)


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


@pytest.mark.parametrize(("max_w", "step_w"), [(6, 0.0001), (25, 0.01), (0, 0.01)])
def test_resolution_is_that_of_the_largest_power_to_come(
    tmp_path: Path, max_w: int, step_w: float
) -> None:
    model = Model(states=(RawState(mp=100 * max_w),), meter=Meter(ipm=40_000 | 1 << 16))
    source = sources(tmp_path, model)["nvme_ipm"]
    source.open()
    assert source.facts().resolution_w == step_w


def test_drive_that_samples_its_power_is_given_time_for_a_first_mean(tmp_path: Path) -> None:
    source = make(tmp_path, Meter(interval_ms=10))
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
        make(tmp_path, Meter(interval_ms=10)).open()


def test_accuracy_is_what_the_drives_measurement_states(tmp_path: Path) -> None:
    source = make(
        tmp_path, Meter(ipm=centiwatts(9), measures=True, error_percent=3, interval_ms=10)
    )
    source.open()
    assert source.facts().accuracy_percent == 3
    assert source.facts().detail == (
        "mean of the drive's own samples of the last second, taken every 0.01 s or more often; "
        "error at most 3 %"
    )


def test_drive_that_estimates_gives_estimates(tmp_path: Path) -> None:
    source = make(tmp_path, Meter(ipm=centiwatts(9), measures=True, estimated=True))
    source.open()
    assert source.facts().evidence is Evidence.ESTIMATED
    assert {sample.evidence for sample in source.read()} == {Evidence.ESTIMATED}
    assert "estimates according to the drive" in source.facts().detail


@pytest.mark.parametrize("raw", [0, 900, 3 << 16 | 900, 12 << 20 | centiwatts(9)])
def test_drive_that_reports_none_is_refused(tmp_path: Path, raw: int) -> None:
    with pytest.raises(PowerError, match="reports no interval power"):
        make(tmp_path, Meter(ipm=raw)).open()


def test_figure_that_vanishes_is_a_gap(tmp_path: Path) -> None:
    source = make(tmp_path)
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
