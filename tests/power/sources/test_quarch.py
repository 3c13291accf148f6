from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.energy_traces import integrate, traces
from tests.power.sources.qis_mock import GREETING, MODULE, Module, QisMock, qis
from wattload.core.errors import ConfigError, PowerDataLostError, PowerError
from wattload.core.power import Accuracy, Channel, Counter, Evidence, PowerSource, Sample, Scope
from wattload.power.config import AccuracyConfig, PowerConfig, QuarchConfig
from wattload.power.energy.trace import TraceKey
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.quarch import QuarchSource, find

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
OTHER = PowerDevice(key="SERIAL2", name="nvme1", is_nvme=True)
PERIOD_S = 0.001
PER_PERIOD = 250


def config_of(mock: QisMock, **fields: Any) -> QuarchConfig:
    return QuarchConfig(module=MODULE, port=mock.port, **fields)


def source_of(mock: QisMock, **fields: Any) -> QuarchSource:
    return QuarchSource(DRIVE, config_of(mock, **fields), period_s=PERIOD_S)


def drained(source: PowerSource) -> list[Sample]:
    """Return all that has arrived: a read returns what it has after one period."""
    samples: list[Sample] = []
    while got := source.read():
        samples += got
    return samples


def of(samples: Sequence[Sample], channel: Channel) -> list[Sample]:
    return [sample for sample in samples if sample.channel is channel]


@pytest.fixture
def mock() -> Iterator[QisMock]:
    with qis() as server:
        yield server


@pytest.fixture
def source(mock: QisMock) -> Iterator[QuarchSource]:
    opened = source_of(mock)
    opened.open()
    opened.start()
    yield opened
    opened.restore()
    opened.close()


class TestQuarch(PowerSourceContract):
    channels = frozenset({Channel.ENERGY_J, Channel.MIN_W, Channel.MAX_W})
    gathers = True

    @pytest.fixture(autouse=True)
    def server(self) -> Iterator[None]:
        with qis(real_time=True) as self.mock:
            yield

    def make(self) -> PowerSource:
        return source_of(self.mock)

    def break_reads(self, source: PowerSource) -> None:
        self.mock.hang_up()

    def read_some(self, source: PowerSource) -> list[Sample]:
        source.start()
        time.sleep(10 * PERIOD_S)
        return [sample for _ in range(5) for sample in source.read()]

    def test_failed_read_is_a_sample_without_value(self, source: PowerSource) -> None:
        given = {sample.channel for sample in self.read_some(source)}
        self.break_reads(source)
        source.read()  # what had arrived
        for failed in (source.read(), source.read()):
            assert [sample.value for sample in failed] == [None]
            assert {sample.channel for sample in failed} <= given


def bursts(index: int) -> Sequence[int]:
    """Return 6 W, and for a fifth of each millisecond 30 W."""
    milliamperes = 2_400 if index % PER_PERIOD < PER_PERIOD // 5 else 400
    return (5_000, 240_000, 12_000, milliamperes * 1000)


def test_not_a_joule_is_lost_on_the_way_from_the_rails() -> None:
    count = 20 * PER_PERIOD
    with qis(Module(values=bursts)) as mock:
        source = source_of(mock)
        source.open()
        source.start()
        samples: list[Sample] = []
        for part in (1, PER_PERIOD - 1, 3 * PER_PERIOD + 7, count - 4 * PER_PERIOD - 7):
            mock.produce(part)
            samples += drained(source)
        source.stop()
        source.close()
    energy = of(samples, Channel.ENERGY_J)
    assert len(energy) == 20
    assert energy[-1].value == pytest.approx(mock.energy_j(0, count), rel=1e-12)
    assert {round(s.value or 0, 9) for s in of(samples, Channel.MIN_W)} == {6.0}
    assert {round(s.value or 0, 9) for s in of(samples, Channel.MAX_W)} == {30.0}


def test_energy_of_a_window_is_that_of_the_rails() -> None:
    """The window lies between readings: both edges cut a reading."""
    with qis(real_time=True) as mock:
        source = source_of(mock)
        source.open()
        source.start()
        samples: list[Sample] = []
        while len(of(samples, Channel.ENERGY_J)) < 300:
            samples += source.read()
        facts = source.facts()
        source.stop()
        source.close()
    trace = traces(samples)[TraceKey("quarch", "SERIAL1", Channel.ENERGY_J)]
    start_ns = int(trace.time_ns[20]) + 333_333
    result = integrate(
        trace, facts.sensor, start_ns, start_ns + 250_000_000, period_s=facts.period_s
    )
    assert result.coverage == 1
    assert result.energy_j == pytest.approx(13.0 * 0.25, rel=5e-3)


def test_readings_are_steps_of_the_modules_clock(mock: QisMock, source: QuarchSource) -> None:
    mock.produce(10 * PER_PERIOD)
    times = [sample.time_ns for sample in of(source.read(), Channel.ENERGY_J)]
    assert np.diff(times) == pytest.approx(PERIOD_S * 1e9, abs=2)


def test_facts_state_measured_drive_power_with_its_steps(mock: QisMock) -> None:
    accuracy = AccuracyConfig(reading_percent=0.5, watts=0.01)
    source = source_of(mock, accuracy=accuracy, range_w=30.0)
    assert "not opened yet" in source.facts().detail
    source.open()
    facts = source.facts()
    source.close()
    assert (facts.evidence, facts.scope) == (Evidence.MEASURED, Scope.DRIVE)
    assert facts.resolution_w == pytest.approx(17e-6)
    assert facts.accuracy == Accuracy(reading_percent=0.5, watts=0.01)
    assert facts.range_w == 30.0
    assert isinstance(facts.sensor, Counter)
    assert facts.sensor.quantum_j == pytest.approx(17e-6 * 4e-6)
    assert facts.detail == (
        "HD Programmable Power Module +Triggering tcp::qtl1999-02-020: 5V (mV x uA) + "
        "12V (mV x uA) at 250,000 readings per second, kept as joules, least and greatest watts "
        "per 0.001 s; accuracy 0.5 % of reading + 0.01 W"
    )


def test_accuracy_that_nobody_stated_stays_unknown(mock: QisMock) -> None:
    source = source_of(mock)
    source.open()
    facts = source.facts()
    source.close()
    assert facts.accuracy is None
    assert "accuracy not stated (power.quarch.accuracy)" in facts.detail


def test_rails_without_volts_in_their_names_have_no_resolution() -> None:
    channels = (("drive", "voltage", "mV"), ("drive", "current", "uA"))
    with qis(Module(channels=channels, values=lambda _: (12_000, 1_000_000))) as mock:
        source = source_of(mock)
        source.open()
        facts = source.facts()
        source.close()
    assert facts.resolution_w is None
    assert isinstance(facts.sensor, Counter)


def test_named_rails_alone_are_the_drives(mock: QisMock) -> None:
    source = source_of(mock, rails=["12V"])
    source.open()
    source.start()
    mock.produce(PER_PERIOD)
    (energy,) = of(source.read(), Channel.ENERGY_J)
    source.close()
    assert energy.value == pytest.approx(12.0 * PERIOD_S)


def test_overrun_is_lost_data_after_what_came_before(mock: QisMock, source: QuarchSource) -> None:
    mock.produce(3 * PER_PERIOD)
    mock.state = "Stopped: Overrun"
    assert len(of(source.read(), Channel.ENERGY_J)) == 3
    for _ in range(2):
        with pytest.raises(PowerDataLostError, match=r"'Stopped: Overrun': .*no energy"):
            source.read()


def test_overrun_after_the_last_read_is_reported_at_the_end(
    mock: QisMock, source: QuarchSource
) -> None:
    mock.produce(PER_PERIOD)
    source.read()
    mock.state = "Stopped: out of buffer"
    with pytest.raises(PowerDataLostError, match="out of buffer"):
        source.stop()


def test_readings_that_are_missing_without_a_word_are_lost_data(
    mock: QisMock, source: QuarchSource
) -> None:
    mock.produce(2 * PER_PERIOD)
    source.read()
    mock.drop(5)
    mock.produce(PER_PERIOD)
    source.read()
    with pytest.raises(PowerDataLostError, match="jumps by 24 us"):
        source.read()
    with pytest.raises(PowerDataLostError, match="jumps by 24 us"):
        source.stop()


def test_stream_that_ends_otherwise_is_a_gap(mock: QisMock, source: QuarchSource) -> None:
    mock.produce(PER_PERIOD)
    mock.state = "Stopped: Over Temperature"
    assert len(source.read()) == 3
    assert [sample.value for sample in source.read()] == [None]
    source.stop()


def test_answer_that_is_none_is_a_gap(mock: QisMock, source: QuarchSource) -> None:
    mock.faults["stream text all"] = b"FAIL: busy\r\n>"
    source.read()
    assert [sample.value for sample in source.read()] == [None]


def test_server_that_hangs_is_given_up_and_makes_a_hole(
    mock: QisMock, source: QuarchSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.power.sources.quarch_stream._STREAM_TIMEOUT_S", 0.05)
    mock.mute.add("stream text all")
    assert source.read() == []
    requested = len(mock.commands)
    assert [sample.value for sample in source.read()] == [None]
    assert len(mock.commands) == requested
    source.stop()
    assert mock.state == "Stopped: User"


def test_stream_is_ended_and_the_module_left_alone(mock: QisMock) -> None:
    source = source_of(mock)
    source.open()
    assert mock.state == "Stopped: User"
    source.start()
    assert mock.state == "Running"
    source.stop()
    assert mock.state == "Stopped: User"
    source.close()
    requested = {command.removeprefix(MODULE).strip() for command in mock.commands}
    assert requested == {
        "hello?",
        "stream?",
        "stream mode header v3",
        "rec stream",
        "rec stop",
        "stream text header",
    }


def test_restore_ends_a_stream_that_nobody_stopped(mock: QisMock) -> None:
    source = source_of(mock)
    source.open()
    source.start()
    source.restore()
    assert mock.state == "Stopped: User"
    source.close()


def test_another_clients_stream_is_not_disturbed(mock: QisMock) -> None:
    mock.state = "Running"
    with pytest.raises(PowerError, match="another client already streams"):
        source_of(mock).open()
    assert not any("rec" in command for command in mock.commands)


def test_module_that_is_not_there_is_refused_with_those_that_are(mock: QisMock) -> None:
    source = QuarchSource(
        DRIVE, QuarchConfig(module="usb::qtl1847-01-016", port=mock.port), period_s=PERIOD_S
    )
    with pytest.raises(PowerError, match=r"can't reach module usb::.*lists: 1\) tcp::qtl1999"):
        source.open()


def test_module_that_refuses_to_stream_is_quoted() -> None:
    with (
        qis(Module(refuses="FAIL: output is off")) as mock,
        pytest.raises(PowerError, match="refuses to stream: FAIL: output is off"),
    ):
        source_of(mock).open()


def test_header_that_never_comes_is_waited_for_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wattload.power.sources.quarch_stream._HEADER_WAIT_S", 0.05)
    with qis(Module(header_polls=10**6)) as mock:
        with pytest.raises(PowerError, match="sent no header"):
            source_of(mock).open()
        assert mock.state == "Stopped: User"


def test_module_that_was_set_otherwise_since_open_is_refused(mock: QisMock) -> None:
    source = source_of(mock)
    source.open()
    mock.module.period_us = 8
    with pytest.raises(PowerError, match=r"stream settings of .* were changed"):
        source.start()
    source.restore()
    assert mock.state == "Stopped: User"
    source.close()


def test_missing_server_is_reported_with_what_to_do(mock: QisMock) -> None:
    mock.close()
    with pytest.raises(PowerError, match=r"no QIS answers on 127\.0\.0\.1:.*power\.quarch\.host"):
        source_of(mock).open()


def test_greeting_may_come_in_parts_and_with_a_cursor() -> None:
    for parts in ([GREETING[:9], GREETING[9:], ">"], [GREETING + ">"]):
        with qis(greeting_parts=parts) as mock:
            source = source_of(mock)
            source.open()
            source.close()


def test_silence_is_not_a_qis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattload.power.sources.quarch_protocol._CONNECT_TIMEOUT_S", 0.05)
    with (
        qis(greeting_parts=()) as mock,
        pytest.raises(PowerError, match=r"127\.0\.0\.1:\d+ did not send the greeting of QIS"),
    ):
        source_of(mock).open()


def test_server_that_hangs_up_at_once_is_not_a_qis() -> None:
    with (
        qis(greeting_parts=None) as mock,
        pytest.raises(PowerError, match="closed the connection: is QIS"),
    ):
        source_of(mock).open()


def test_read_before_start_is_an_error(mock: QisMock) -> None:
    source = source_of(mock)
    with pytest.raises(PowerError, match="before it was opened"):
        source.read()
    source.open()
    with pytest.raises(PowerError, match="before its stream was started"):
        source.read()
    source.close()


def test_one_drive_under_the_target_needs_no_name() -> None:
    config = PowerConfig(source="quarch", quarch=QuarchConfig(module=MODULE))
    (found,) = find([DRIVE], config)
    assert found.facts().device == "SERIAL1"


@pytest.mark.parametrize("name", ["SERIAL2", "nvme1"])
def test_of_several_drives_the_one_that_is_fed_is_named(name: str) -> None:
    config = PowerConfig(source="quarch", quarch=QuarchConfig(module=MODULE, device=name))
    (found,) = find([DRIVE, OTHER], config)
    assert found.facts().device == "SERIAL2"


@pytest.mark.parametrize("devices", [[], [DRIVE, OTHER]])
def test_unclear_drive_is_refused(devices: list[PowerDevice]) -> None:
    config = PowerConfig(source="quarch", quarch=QuarchConfig(module=MODULE))
    with pytest.raises(
        ConfigError, match=r"power\.quarch\.device must be the serial or name of the measured drive"
    ):
        find(devices, config)


def test_no_module_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"power\.quarch\.module must be a QIS module"):
        find([DRIVE], PowerConfig(source="quarch"))


@pytest.mark.parametrize(
    "fields",
    [
        {"module": "tcp::qtl1999 rec stop"},
        {"module": "qtl1999"},
        {"module": MODULE, "host": "a b"},
        {"module": MODULE, "port": 0},
        {"module": MODULE, "accuracy": AccuracyConfig(watts=-0.1)},
        {"module": MODULE, "accuracy": AccuracyConfig(reading_percent=math.inf)},
        {"module": MODULE, "range_w": 0.0},
    ],
)
def test_settings_that_no_module_can_have_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"power\.quarch\."):
        QuarchConfig(**fields).check()
