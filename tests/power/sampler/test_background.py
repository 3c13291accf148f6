"""Slow sources: no tick waits for them, and their traces extend past the end of the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.contracts.power_source import PowerSourceContract
from wattload.core.errors import PowerDataLostError
from wattload.core.power import (
    Channel,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
)
from wattload.power.sampler.polling import BackgroundSource, in_background, take_last_readings
from wattload.power.sources.base import PolledSource

PATIENCE_S = 10.0


class Meter(PolledSource):
    """Answers while ``gate`` is open; ``asked`` counts the queries."""

    is_slow: ClassVar[bool] = True

    def __init__(self, *, period_s: float = 0.001) -> None:
        super().__init__(
            SourceFacts(
                name="bmc",
                device="bmc",
                device_name="the node",
                scope=Scope.NODE,
                evidence=Evidence.SELF_REPORTED,
                sensor=Instant(),
                period_s=period_s,
                detail="power of the node",
            )
        )
        self.gate = threading.Event()
        self.gate.set()
        self.requested = threading.Semaphore(0)
        self.is_broken = False
        self.has_lost_data = False
        self.has_a_bug = False
        self.breaks_late = False
        self.close_count = 0
        self.stop_count = 0

    def _prepare(self) -> SourceFacts:
        return self._facts

    def _query(self) -> float | None:
        self.requested.release()
        self.gate.wait(PATIENCE_S)
        if self.breaks_late:
            raise ZeroDivisionError("a bug")
        if self.has_lost_data:
            raise PowerDataLostError("the meter says that it dropped readings")
        return None if self.is_broken else 212.0

    def read(self) -> Sequence[Sample]:
        if self.has_a_bug:
            raise ZeroDivisionError("a bug")
        if self.has_lost_data:
            raise PowerDataLostError("the meter says that it dropped readings")
        return super().read()

    def stop(self) -> Sequence[WindowEnergy]:
        self.stop_count += 1
        return ()

    def close(self) -> None:
        super().close()
        self.close_count += 1


class Quick(Meter):
    is_slow: ClassVar[bool] = False


def started(meter: Meter) -> BackgroundSource:
    (source,) = in_background([meter])
    assert isinstance(source, BackgroundSource)
    source.open()
    source.start()
    return source


def gathered(source: PowerSource, count: int = 1) -> list[Sample]:
    """Return at least ``count`` samples as they arrive."""
    samples: list[Sample] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(samples) < count and time.monotonic() < deadline_s:
        samples += source.read()
        time.sleep(0.001)
    return samples


class TestBackground(PowerSourceContract):
    gathers = True

    def make(self) -> PowerSource:
        self.meter = Meter()
        return BackgroundSource(self.meter)

    def break_reads(self, source: PowerSource) -> None:
        self.meter.is_broken = True

    def read_some(self, source: PowerSource) -> list[Sample]:
        source.start()
        return gathered(source, 3)

    def test_failed_read_is_a_sample_without_value(self, source: PowerSource) -> None:
        source.start()
        assert gathered(source)[0].value == 212.0
        self.break_reads(source)
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if None in {sample.value for sample in source.read()}:
                return
        pytest.fail("no failed read was reported")


def test_only_slow_sources_are_read_in_the_background() -> None:
    quick, slow = Quick(), Meter()
    first, second = in_background([quick, slow])
    assert first is quick
    assert isinstance(second, BackgroundSource)


def test_read_never_waits_for_an_answer() -> None:
    meter = Meter()
    meter.gate.clear()
    source = started(meter)
    assert meter.requested.acquire(timeout=PATIENCE_S)
    assert source.read() == []
    meter.gate.set()
    assert gathered(source)
    source.close()


def test_last_reading_begins_after_the_end_of_the_work() -> None:
    meter = Meter(period_s=60.0)
    source = started(meter)
    assert len(gathered(source)) == 1
    end_ns = time.monotonic_ns()
    take_last_readings([source, meter])
    (sample,) = source.read()
    assert sample.time_ns - sample.spread_ns // 2 >= end_ns - 1
    assert source.stop() == ()
    assert meter.stop_count == 1
    source.close()


def test_reading_under_way_at_the_end_is_not_the_last() -> None:
    meter = Meter(period_s=60.0)
    meter.gate.clear()
    source = started(meter)
    assert meter.requested.acquire(timeout=PATIENCE_S)
    source.finish()
    meter.gate.set()
    source.wait(PATIENCE_S)
    assert len(source.read()) == 2
    source.close()


def test_meter_that_hangs_does_not_hold_up_the_end_and_closes_when_it_answers() -> None:
    meter = Meter()
    meter.gate.clear()
    source = started(meter)
    assert meter.requested.acquire(timeout=PATIENCE_S)
    take_last_readings([source], wait_s=0.01)
    assert source.stop() == ()
    source.restore()
    source.close()
    assert (meter.stop_count, meter.close_count) == (0, 0)
    meter.gate.set()
    source.wait(PATIENCE_S)
    assert meter.close_count == 1


def test_lost_data_reaches_the_reader() -> None:
    meter = Meter()
    source = started(meter)
    taken = gathered(source)
    meter.has_lost_data = True
    source.wait(PATIENCE_S)
    with pytest.raises(PowerDataLostError, match="dropped readings"):
        taken += gathered(source, len(taken) + 1000)
    assert source.read() == []
    source.close()
    assert meter.close_count == 1


def test_bug_in_a_reading_is_reported_and_the_source_is_stopped_and_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    meter = Meter()
    source = started(meter)
    taken = gathered(source)
    meter.has_a_bug = True
    source.wait(PATIENCE_S)
    with pytest.raises(
        PowerDataLostError, match=r"bmc of bmc is not read any more.*ZeroDivisionError"
    ):
        taken += gathered(source, len(taken) + 1000)
    assert source.stop() == ()
    source.close()
    assert (meter.stop_count, meter.close_count) == (1, 1)
    assert "bug while reading a slow power source" in caplog.text


def test_bug_in_a_reading_that_was_left_behind_still_closes_its_source() -> None:
    meter = Meter()
    meter.gate.clear()
    source = started(meter)
    assert meter.requested.acquire(timeout=PATIENCE_S)
    source.close()
    assert meter.close_count == 0
    meter.breaks_late = True
    meter.gate.set()
    source.wait(PATIENCE_S)
    assert meter.close_count == 1


def test_channel_follows_the_sensor() -> None:
    source = started(Meter())
    assert {sample.channel for sample in gathered(source)} == {Channel.POWER_W}
    source.close()
