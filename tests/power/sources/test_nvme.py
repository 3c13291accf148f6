from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.model_drive import Model, ModelDrive, RawState, load, store
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Channel, Evidence, PowerSource, Sample
from wattload.power.config import PowerConfig
from wattload.power.sources import PowerDevice, find_sources
from wattload.power.sources import nvme as nvme_source
from wattload.power.sources.nvme import NvmeSource

DRIVE = PowerDevice(key="MODEL0001", name="nvme0", is_nvme=True)


def make(folder: Path, model: Model) -> NvmeSource:
    store(folder / "nvme0.json", model)
    return NvmeSource(DRIVE, period_s=0.1, open_device=lambda name: ModelDrive(folder, name))


def change(folder: Path, **fields: object) -> None:
    model = load(folder / "nvme0.json")
    for name, value in fields.items():
        setattr(model, name, value)
    store(folder / "nvme0.json", model)


def values(samples: object) -> dict[Channel, float | None]:
    assert isinstance(samples, list)
    return {sample.channel: sample.value for sample in samples if isinstance(sample, Sample)}


class TestNvmeSource(PowerSourceContract):
    channels = frozenset(
        {Channel.POWER_STATE, Channel.UPPER_W, Channel.LOWER_W, Channel.TEMPERATURE_K}
    )

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self) -> PowerSource:
        return make(self.folder, Model())

    def break_reads(self, source: PowerSource) -> None:
        change(self.folder, gone=True)


def test_bounds_follow_the_power_state(tmp_path: Path) -> None:
    source = make(tmp_path, Model())
    source.open()
    first = values(source.read())
    assert first == {
        Channel.POWER_STATE: 0,
        Channel.UPPER_W: 25.0,
        Channel.LOWER_W: 5.0,
        Channel.TEMPERATURE_K: 310,
    }
    change(tmp_path, state=1)
    assert values(source.read()) == {
        Channel.POWER_STATE: 1,
        Channel.UPPER_W: 18.0,
        Channel.LOWER_W: 5.0,
    }
    change(tmp_path, state=3)
    assert values(source.read())[Channel.LOWER_W] is None
    source.close()


def test_temperature_is_read_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path, Model())
    source.open()
    assert Channel.TEMPERATURE_K in values(source.read())
    assert Channel.TEMPERATURE_K not in values(source.read())
    monkeypatch.setattr(nvme_source, "TEMPERATURE_PERIOD_S", 0.0)
    source.close()
    source.open()
    source.read()
    assert Channel.TEMPERATURE_K in values(source.read())


def test_state_beyond_the_table_has_no_watts(tmp_path: Path) -> None:
    source = make(tmp_path, Model(state=9))
    source.open()
    got = values(source.read())
    assert (got[Channel.POWER_STATE], got[Channel.UPPER_W]) == (9, None)


def test_drive_without_figures_tells_its_state_alone(tmp_path: Path) -> None:
    source = make(tmp_path, Model(states=(RawState(),), temperature_k=0))
    source.open()
    assert values(source.read()) == {Channel.POWER_STATE: 0, Channel.TEMPERATURE_K: None}
    assert source.facts().detail == "no watts from the descriptors of 1 power states"


def test_drive_whose_samples_would_stop_io_is_not_sampled(tmp_path: Path) -> None:
    source = make(tmp_path, Model(freezing=(0x0A,)))
    with pytest.raises(PowerError, match="stop its I/O"):
        source.open()


def test_drive_whose_log_page_would_stop_io_gives_no_temperature(tmp_path: Path) -> None:
    source = make(tmp_path, Model(freezing=(0x02,)))
    source.open()
    assert Channel.TEMPERATURE_K not in values(source.read())
    assert "no temperature" in source.facts().detail


def test_reading_needs_the_permission(tmp_path: Path) -> None:
    with pytest.raises(PowerPermissionError, match="CAP_SYS_ADMIN"):
        make(tmp_path, Model(privileged=False)).open()


def test_reading_before_opening_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="before it was opened"):
        make(tmp_path, Model()).read()


def test_evidence_is_bounds(tmp_path: Path) -> None:
    source = make(tmp_path, Model())
    source.open()
    assert source.facts().evidence is Evidence.BOUNDS
    assert {sample.evidence for sample in source.read()} == {Evidence.BOUNDS}


def test_only_controllers_are_found() -> None:
    disk = PowerDevice(key="vda", name="vda", is_nvme=False)
    (source,) = find_sources("nvme", [disk, DRIVE], PowerConfig())
    assert source.facts().device_name == "nvme0"
