"""Drives are left alone while it is quiet, meters are not; their own integrals leave it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.power.energy_facts import facts
from tests.power.sampler_bench import RUN_ID, Bench, wait_for
from wattload.core.errors import PowerDataLostError, PowerError
from wattload.core.power import (
    Bounds,
    Channel,
    Evidence,
    Integral,
    Sample,
    Sensor,
    SourceFacts,
    WindowEnergy,
)
from wattload.power.config import PowerConfig
from wattload.power.sampler.protocol import Quiet, encode, parse
from wattload.power.sampler.reading import Reading
from wattload.power.samples import read_samples


class Source:
    """Gives one sample a read, and keeps what was asked of it; may lose its data."""

    def __init__(self, name: str, evidence: Evidence, sensor: Sensor, *, lost_at: int = -1) -> None:
        self.calls: list[str] = []
        self._facts = facts(name, evidence, sensor)
        self._lost_at = lost_at

    def facts(self) -> SourceFacts:
        return self._facts

    def open(self) -> None:
        self.calls.append("open")

    def start(self) -> None:
        self.calls.append("start")

    def read(self) -> Sequence[Sample]:
        self.calls.append("read")
        if self.calls.count("read") == self._lost_at:
            raise PowerDataLostError(f"{self._facts.name} overran")
        return [
            Sample(
                time_ns=len(self.calls),
                spread_ns=0,
                source=self._facts.name,
                device="SERIAL1",
                channel=Channel.POWER_W,
                value=1.0,
                evidence=self._facts.evidence,
            )
        ]

    def stop(self) -> Sequence[WindowEnergy]:
        self.calls.append("stop")
        if self._lost_at == 0:
            raise PowerDataLostError(f"{self._facts.name} lost its end")
        if not isinstance(self._facts.sensor, Integral):
            return ()
        return [
            WindowEnergy(
                source=self._facts.name,
                device="SERIAL1",
                start_ns=0,
                end_ns=1,
                energy_j=1.0,
                evidence=Evidence.SELF_REPORTED,
            )
        ]

    def restore(self) -> None:
        self.calls.append("restore")

    def close(self) -> None:
        self.calls.append("close")


def names(samples: Sequence[Sample]) -> list[str]:
    return [sample.source for sample in samples]


def test_the_quiet_is_for_drives_alone() -> None:
    drive = Source("nvme", Evidence.BOUNDS, Bounds())
    meter = Source("quarch", Evidence.MEASURED, Bounds())
    reading = Reading([drive, meter])
    reading.start()
    assert names(reading.read()) == ["nvme", "quarch"]
    reading.quiet(is_on=True)
    assert names(reading.read()) == ["quarch"]
    reading.quiet(is_on=False)
    assert names(reading.read()) == ["nvme", "quarch"]


def test_what_a_drive_integrates_is_of_the_time_between_both_quiets() -> None:
    own = Source("nvme_25h", Evidence.SELF_REPORTED, Integral())
    reading = Reading([own])
    reading.quiet(is_on=True)
    reading.start()
    assert own.calls == []
    reading.quiet(is_on=False)
    assert own.calls == ["start"]
    reading.quiet(is_on=True)
    assert own.calls == ["start", "stop"]
    reading.quiet(is_on=False)
    assert [energy.energy_j for energy in reading.stop()] == [1.0]
    assert own.calls == ["start", "stop"]


def test_without_a_quiet_it_is_of_the_whole_run() -> None:
    own = Source("nvme_25h", Evidence.SELF_REPORTED, Integral())
    reading = Reading([own])
    reading.start()
    assert names(reading.read()) == []
    assert len(reading.stop()) == 1
    assert own.calls == ["start", "stop"]


def test_a_source_that_lost_data_is_read_no_more_and_the_others_are() -> None:
    lost = Source("quarch", Evidence.MEASURED, Bounds(), lost_at=2)
    other = Source("nvme", Evidence.BOUNDS, Bounds())
    reading = Reading([lost, other])
    reading.start()
    taken = [names(reading.read()) for _ in range(3)]
    assert taken == [["quarch", "nvme"], ["nvme"], ["nvme"]]
    assert reading.data_lost == ("quarch overran",)
    assert lost.calls.count("read") == 2


def test_data_may_be_found_lost_at_the_end_only() -> None:
    reading = Reading([Source("quarch", Evidence.MEASURED, Bounds(), lost_at=0)])
    reading.start()
    assert reading.stop() == []
    assert reading.data_lost == ("quarch lost its end",)


def test_quiet_says_on_or_off_and_nothing_else() -> None:
    assert parse(encode({"command": "quiet", "on": True})) == Quiet(is_on=True)
    for wrong in (None, 1, "yes"):
        with pytest.raises(PowerError, match="on must be true or false"):
            parse(encode({"command": "quiet", "on": wrong}))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    bench.set_up()
    yield bench
    bench.clean()


def test_a_drive_is_not_asked_in_the_quiet_and_once_at_its_end(bench: Bench) -> None:
    client = bench.spawn()
    client.hello(RUN_ID)
    with pytest.raises(PowerError, match="belongs after open or sampling"):
        client.quiet(is_on=True)
    client.open(PowerConfig(period_s=0.02), devices=["nvme0"], block_devices=[])
    client.quiet(is_on=True)
    client.start()
    wait_for(lambda: client.status().tick_count >= 5)
    assert client.status().sample_count == 0
    client.quiet(is_on=False)
    wait_for(lambda: client.status().sample_count > 0)
    client.quiet(is_on=True)
    before = client.status().sample_count
    finished = client.finish()
    assert finished.sample_count > before
    assert finished.samples_file is not None
    states = [
        sample
        for sample in read_samples(bench.run / finished.samples_file)
        if sample.channel is Channel.POWER_STATE
    ]
    assert states
