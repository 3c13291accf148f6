"""Power states and bounds, and what all sources of a drive share: temperature, one handle."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model_host.drive import INVALID_FIELD, Model, ModelDrive, RawState, store
from tests.model_host.power import Meter, centiwatts
from tests.power.sources.nvme_models import ModelDriveContract, change, device, sources, values
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Bounds, Channel, Evidence, PowerSource
from wattload.power.config import PowerConfig
from wattload.power.nvme.admin import IDENTIFY, AdminCommand, Completion, DeviceWithTimeout
from wattload.power.sources import nvme_drive
from wattload.power.sources.base import PowerDevice, find_sources

ONCE_A_SECOND = {
    Channel.TEMPERATURE_K,
    Channel.THERMAL_TRANSITIONS,
    Channel.THROTTLED_S,
}


def make(folder: Path, model: Model) -> PowerSource:
    return sources(folder, model)["nvme"]


class TestNvmeSource(ModelDriveContract):
    channels = frozenset({Channel.POWER_STATE, Channel.UPPER_W, Channel.LOWER_W, *ONCE_A_SECOND})

    def make(self) -> PowerSource:
        return make(self.folder, Model())


def test_bounds_follow_the_power_state(tmp_path: Path) -> None:
    source = make(tmp_path, Model())
    source.open()
    first = values(source.read())
    assert first[Channel.POWER_STATE] == 0
    assert (first[Channel.LOWER_W], first[Channel.UPPER_W]) == (5.0, 25.0)
    assert first[Channel.TEMPERATURE_K] == 310
    change(tmp_path, state=1)
    assert values(source.read()) == {
        Channel.POWER_STATE: 1,
        Channel.UPPER_W: 18.0,
        Channel.LOWER_W: 5.0,
    }
    source.close()


def test_sensor_says_how_long_a_change_of_state_takes(tmp_path: Path) -> None:
    source = make(tmp_path, Model())
    source.open()
    sensor = source.facts().sensor
    assert isinstance(sensor, Bounds)
    assert sensor.settle_s == pytest.approx(0.048)
    assert sensor.highest_w == 25.0


def test_drive_that_sleeps_autonomously_may_draw_less_than_its_state_says(tmp_path: Path) -> None:
    source = make(tmp_path, Model(apst=True))
    source.open()
    assert values(source.read())[Channel.LOWER_W] == 0.0


def test_thermal_counts_come_with_the_temperature(tmp_path: Path) -> None:
    source = make(tmp_path, Model(meter=Meter(throttled=(3, 41))))
    source.open()
    got = values(source.read())
    assert (got[Channel.THERMAL_TRANSITIONS], got[Channel.THROTTLED_S]) == (3, 41)


def test_temperature_is_read_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path, Model())
    source.open()
    assert values(source.read()).keys() >= ONCE_A_SECOND
    assert not values(source.read()).keys() & ONCE_A_SECOND
    monkeypatch.setattr(nvme_drive, "SLOW_PERIOD_S", 0.0)
    source.close()
    source.open()
    source.read()
    assert values(source.read()).keys() >= ONCE_A_SECOND


def test_changes_of_state_that_polling_misses_are_counted(tmp_path: Path) -> None:
    source = make(tmp_path, Model(ocp=True, meter=Meter(state_changes=7)))
    source.open()
    assert values(source.read())[Channel.POWER_STATE_CHANGES] == 7


def test_state_beyond_the_table_has_no_watts(tmp_path: Path) -> None:
    source = make(tmp_path, Model(state=9))
    source.open()
    got = values(source.read())
    assert (got[Channel.POWER_STATE], got[Channel.UPPER_W]) == (9, None)


def test_drive_without_figures_reports_its_state_alone(tmp_path: Path) -> None:
    source = make(tmp_path, Model(states=(RawState(),), temperature_k=0))
    source.open()
    got = values(source.read())
    assert got[Channel.POWER_STATE] == 0
    assert got[Channel.TEMPERATURE_K] is None
    assert not got.keys() & {Channel.UPPER_W, Channel.LOWER_W}
    assert source.facts().detail == "no watts from the descriptors of 1 power states"


LOGGED = Model(ocp=True, meter=Meter(ipm=centiwatts(9), olec=12, ocp_watts=9, ocp_version=5))


@pytest.mark.parametrize(
    ("name", "freezing", "reason"),
    [
        ("nvme", 0x0A, "Linux would stop its I/O at every sample"),
        ("nvme_ipm", 0x02, "so its interval power is not sampled"),
        ("nvme_olec", 0x02, "so its lifetime energy is not sampled"),
        ("nvme_ocp", 0x02, "is not sampled"),
    ],
)
def test_drive_whose_samples_would_stop_io_is_not_sampled(
    tmp_path: Path, name: str, freezing: int, reason: str
) -> None:
    with pytest.raises(PowerError, match=reason):
        sources(tmp_path, replace(LOGGED, freezing=(freezing,)))[name].open()


@pytest.mark.parametrize("name", ["nvme_ipm", "nvme_olec"])
def test_log_that_is_refused_is_reported(tmp_path: Path, name: str) -> None:
    source = sources(tmp_path, LOGGED)[name]
    change(tmp_path, failing=(0x02,))
    with pytest.raises(PowerError, match="Internal Error"):
        source.open()


def test_drive_whose_log_page_would_stop_io_gives_no_temperature(tmp_path: Path) -> None:
    source = make(tmp_path, Model(freezing=(0x02,), ocp=True))
    source.open()
    assert values(source.read()).keys() == {
        Channel.POWER_STATE,
        Channel.UPPER_W,
        Channel.LOWER_W,
    }
    assert "no temperature" in source.facts().detail


def test_reading_needs_the_permission(tmp_path: Path) -> None:
    with pytest.raises(PowerPermissionError, match="CAP_SYS_ADMIN"):
        make(tmp_path, Model(privileged=False)).open()


def test_reading_before_opening_gives_no_value(tmp_path: Path) -> None:
    samples = make(tmp_path, Model()).read()
    assert {sample.value for sample in samples} == {None}


def test_evidence_is_bounds(tmp_path: Path) -> None:
    source = make(tmp_path, Model())
    source.open()
    assert source.facts().evidence is Evidence.BOUNDS
    assert {sample.evidence for sample in source.read()} == {Evidence.BOUNDS}


def test_drive_that_answers_with_an_error_goes_on_when_it_recovers(tmp_path: Path) -> None:
    source = make(tmp_path, Model())
    source.open()
    change(tmp_path, failing=(0x0A,))
    assert values(source.read())[Channel.POWER_STATE] is None
    change(tmp_path, failing=())
    assert values(source.read())[Channel.POWER_STATE] == 0


def test_hung_command_leaves_gaps_and_ends(tmp_path: Path) -> None:
    found = sources(
        tmp_path,
        Model(meter=Meter(ipm=centiwatts(9))),
        open_device=lambda name: DeviceWithTimeout(ModelDrive(tmp_path, name), limit_s=0.05),
    )
    power, state = found["nvme_ipm"], found["nvme"]
    power.open()
    state.open()
    change(tmp_path, hanging=(0x02,))
    assert values(power.read()) == {Channel.POWER_W: None}
    assert values(state.read())[Channel.POWER_STATE] is None
    change(tmp_path, hanging=())
    got: float | None = None
    deadline_s = time.monotonic() + 10
    while got is None and time.monotonic() < deadline_s:
        time.sleep(0.001)
        got = values(power.read())[Channel.POWER_W]
    assert got == 9.0
    power.close()
    state.close()


def test_only_controllers_are_found() -> None:
    disk = PowerDevice(key="vda", name="vda", is_nvme=False)
    found = find_sources("nvme", [disk, device()], PowerConfig())
    assert {source.facts().device_name for source in found} == {"nvme0"}
    assert [source.facts().name for source in found] == [
        "nvme_ipm",
        "nvme_ocp",
        "nvme_vendor",
        "nvme_olec",
        "nvme",
        "nvme_25h",
    ]


class Counting(ModelDrive):
    """A model that records the commands it receives."""

    def __init__(self, folder: Path, name: str, sent: list[AdminCommand]) -> None:
        super().__init__(folder, name)
        self._sent = sent
        self.closed = 0

    def submit(self, command: AdminCommand) -> Completion:
        self._sent.append(command)
        return super().submit(command)

    def close(self) -> None:
        self.closed += 1


def requested(command: AdminCommand) -> tuple[int, int]:
    """Return opcode, and identifier of log or feature."""
    return command.opcode, command.cdw10 & 0xFF


def test_no_log_read_clears_the_events_that_the_kernel_waits_for(tmp_path: Path) -> None:
    sent: list[AdminCommand] = []
    model = Model(ocp=True, freezing=(0x80,), meter=Meter(ipm=centiwatts(9), measures=True))
    found = sources(tmp_path, model, open_device=lambda name: Counting(tmp_path, name, sent))
    for name in ("nvme_ipm", "nvme", "nvme_25h"):
        found[name].open()
        found[name].start()
        found[name].read()
        found[name].stop()
    logs = {each.cdw10 & 0xFF: each.cdw10 >> 15 & 1 for each in sent if each.opcode == 0x02}
    assert logs == {0x02: 1, 0x05: 1, 0x25: 1, 0xC0: 1}


def test_one_smart_read_serves_all_sources_of_a_round(tmp_path: Path) -> None:
    sent: list[AdminCommand] = []
    drives: list[Counting] = []

    def open_device(name: str) -> Counting:
        drives.append(Counting(tmp_path, name, sent))
        return drives[-1]

    model = Model(meter=Meter(ipm=centiwatts(9), olec=12))
    found = sources(tmp_path, model, open_device=open_device)
    used = [found[name] for name in ("nvme_ipm", "nvme_olec", "nvme")]
    for source in used:
        source.open()
    sent.clear()
    times = {
        sample.time_ns
        for source in used
        for sample in source.read()
        if sample.channel in {Channel.POWER_W, Channel.ENERGY_J, Channel.TEMPERATURE_K}
    }
    assert sorted(requested(each) for each in sent) == [(0x02, 0x02), (0x0A, 0x02)]
    assert len(times) == 1
    used[0].read()
    assert [requested(each) for each in sent].count((0x02, 0x02)) == 2
    assert len(drives) == 1
    for source in used:
        assert drives[0].closed == 0
        source.close()
    assert drives[0].closed == 1


def test_drive_that_is_not_there_is_tried_once_for_all_its_sources(tmp_path: Path) -> None:
    tried: list[str] = []

    def open_device(name: str) -> ModelDrive:
        tried.append(name)
        return ModelDrive(tmp_path, name)

    found = sources(tmp_path, Model(), open_device=open_device)
    (tmp_path / "nvme0.json").unlink()
    for source in found.values():
        with pytest.raises(PowerError, match="can't be opened"):
            source.open()
    assert len(tried) == 1
    with pytest.raises(PowerError, match="can't be opened"):
        found["nvme"].open()
    assert len(tried) == 2
    store(tmp_path / "nvme0.json", Model())
    found["nvme"].open()
    assert values(found["nvme"].read())[Channel.POWER_STATE] == 0


def test_drive_that_hangs_when_it_is_opened_is_waited_for_once(tmp_path: Path) -> None:
    opened: list[DeviceWithTimeout] = []

    def open_device(name: str) -> DeviceWithTimeout:
        opened.append(DeviceWithTimeout(ModelDrive(tmp_path, name), limit_s=0.05))
        return opened[-1]

    found = sources(tmp_path, Model(hanging=(IDENTIFY,)), open_device=open_device)
    for source in found.values():
        with pytest.raises(PowerError, match="has not answered Identify Controller"):
            source.open()
    assert len(opened) == 1
    change(tmp_path, hanging=())


class Lister(ModelDrive):
    """A model that claims a list of UUIDs (bit 9 of CTRATT) and refuses to return it."""

    def submit(self, command: AdminCommand) -> Completion:
        if command.opcode == IDENTIFY and command.cdw10 & 0xFF == 0x17:
            return Completion(status=INVALID_FIELD, result=0, data=bytes(command.data_bytes))
        completion = super().submit(command)
        if command.opcode != IDENTIFY:
            return completion
        data = bytearray(completion.data)
        data[97] |= 2
        return Completion(status=completion.status, result=0, data=bytes(data))


def test_list_of_uuids_that_is_refused_is_done_without(tmp_path: Path) -> None:
    found = sources(
        tmp_path,
        Model(ocp=True, meter=Meter(state_changes=7)),
        open_device=lambda name: Lister(tmp_path, name),
    )
    found["nvme"].open()
    assert values(found["nvme"].read())[Channel.POWER_STATE_CHANGES] == 7
