"""OLEC as a counter of watt-hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_host.drive import Model
from tests.model_host.power import Meter
from tests.power.sources.nvme_models import ModelDriveContract, sources, values
from wattload.core.errors import PowerError
from wattload.core.power import Channel, Counter, Evidence, PowerSource
from wattload.power.sources import nvme_drive


def make(folder: Path, meter: Meter | None = None) -> PowerSource:
    return sources(folder, Model(meter=meter or Meter(olec=1234)))["nvme_olec"]


class TestLifetimeEnergy(ModelDriveContract):
    channels = frozenset({Channel.ENERGY_J})

    @pytest.fixture(autouse=True)
    def _every_read_is_due(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nvme_drive, "SLOW_PERIOD_S", 1e-9)

    def make(self) -> PowerSource:
        return make(self.folder)


def test_count_is_in_steps_of_a_watt_hour(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    assert values(source.read()) == {Channel.ENERGY_J: 1234 * 3600.0}
    facts = source.facts()
    assert facts.sensor == Counter(quantum_j=3600.0)
    assert (facts.evidence, facts.period_s) == (Evidence.SELF_REPORTED, 1.0)


def test_count_is_read_once_a_second(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    assert source.read()
    assert not source.read()


def test_count_of_a_drive_that_estimates_is_an_estimate(tmp_path: Path) -> None:
    source = make(tmp_path, Meter(olec=1, measures=True, estimated=True))
    source.open()
    assert source.facts().evidence is Evidence.ESTIMATED


def test_drive_that_counts_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="reports no lifetime energy"):
        make(tmp_path, Meter()).open()
