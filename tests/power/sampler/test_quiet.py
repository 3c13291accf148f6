"""In a quiet time drives are not read but meters are; the drives' own measurements leave it out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, store
from tests.model_host.power import Meter, centiwatts
from tests.power.energy_facts import facts
from tests.power.fake_source import FakeSource
from tests.power.sampler_bench import RUN_ID, Bench, wait_for
from wattload.core.errors import PowerError
from wattload.core.power import (
    Bounds,
    Channel,
    Evidence,
    Integral,
    PowerSource,
    Sample,
)
from wattload.power.config import PowerConfig
from wattload.power.control.journal import ChangeJournal
from wattload.power.nvme.admin import AdminCommand, Completion, OpenDevice
from wattload.power.sampler.polling import SourceReader
from wattload.power.sampler.samples import read_samples
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.nvme import find

SMART = "Get Log Page 02h (SMART)"


def names(samples: Sequence[Sample]) -> list[str]:
    return [sample.source for sample in samples]


def test_the_quiet_is_for_drives_alone() -> None:
    drive = FakeSource(facts("nvme", Evidence.BOUNDS, Bounds()))
    meter = FakeSource(facts("quarch", Evidence.MEASURED, Bounds()))
    reading = SourceReader([drive, meter])
    reading.start()
    assert names(reading.read()) == ["nvme", "quarch"]
    reading.quiet(is_on=True)
    assert names(reading.read()) == ["quarch"]
    reading.quiet(is_on=False)
    assert names(reading.read()) == ["nvme", "quarch"]


def test_what_a_drive_integrates_is_of_the_time_between_both_quiets() -> None:
    own = FakeSource(facts("nvme_25h", Evidence.SELF_REPORTED, Integral()))
    reading = SourceReader([own])
    reading.quiet(is_on=True)
    reading.start()
    assert own.calls == []
    reading.quiet(is_on=False)
    assert own.calls == []
    reading.read()
    assert own.calls == ["start"]
    reading.quiet(is_on=True)
    assert own.calls == ["start", "stop"]
    reading.quiet(is_on=False)
    reading.read()
    assert [energy.energy_j for energy in reading.stop()] == [1.0]
    assert own.calls == ["start", "stop"]


def test_every_drive_is_read_before_any_begins_to_integrate(tmp_path: Path) -> None:
    """The start of feature 25h is a command, which would wake the drive before its first read."""
    meter = Meter(ipm=centiwatts(3.0), measures=True, interval_ms=10, aipwr=centiwatts(3))
    for name, serial in (("nvme0", "ONE"), ("nvme1", "TWO")):
        store(tmp_path / f"{name}.json", Model(serial=serial, meter=meter))
    requested: list[tuple[str, str]] = []

    class Spy(ModelDrive):
        def submit(self, command: AdminCommand) -> Completion:
            requested.append((self.name, command.name))
            return super().submit(command)

    sources = _readable(tmp_path, lambda name: Spy(tmp_path, name))
    reading = SourceReader(sources)
    reading.quiet(is_on=True)
    reading.start()
    requested.clear()
    reading.read()
    assert requested == []
    reading.quiet(is_on=False)
    assert requested == []
    reading.read()
    for source in sources:
        source.restore()
        source.close()
    names = [command for _, command in requested]
    first_set = next(at for at, name in enumerate(names) if name.startswith("Set Features"))
    for drive in ("nvme0", "nvme1"):
        assert next(command for name, command in requested if name == drive) == SMART
        assert (drive, SMART) in requested[:first_set]


def _readable(folder: Path, open_device: OpenDevice) -> list[PowerSource]:
    """Return the sources of two model drives that could be opened."""
    devices = [
        PowerDevice(
            key=name, name=name, is_nvme=True, journal=ChangeJournal(folder / "state"), run_id="r"
        )
        for name in ("nvme0", "nvme1")
    ]
    found = find(
        devices,
        PowerConfig(source="nvme"),
        open_device=open_device,
        holds_system=lambda _: False,
    )
    opened = []
    for source in found:
        with suppress(PowerError):
            source.open()
            opened.append(source)
    return opened


def test_without_a_quiet_it_is_of_the_whole_run() -> None:
    own = FakeSource(facts("nvme_25h", Evidence.SELF_REPORTED, Integral()))
    reading = SourceReader([own])
    reading.start()
    assert names(reading.read()) == []
    assert len(reading.stop()) == 1
    assert own.calls == ["start", "stop"]


def test_a_source_that_lost_data_is_read_no_more_and_the_others_are() -> None:
    lost = FakeSource(facts("quarch", Evidence.MEASURED, Bounds()), lost_at=2)
    other = FakeSource(facts("nvme", Evidence.BOUNDS, Bounds()))
    reading = SourceReader([lost, other])
    reading.start()
    taken = [names(reading.read()) for _ in range(3)]
    assert taken == [["quarch", "nvme"], ["nvme"], ["nvme"]]
    assert [each.sentence for each in reading.data_lost] == ["quarch overran"]
    assert lost.calls.count("read") == 2


def test_data_may_be_found_lost_at_the_end_only() -> None:
    reading = SourceReader([FakeSource(facts("quarch", Evidence.MEASURED, Bounds()), lost_at=0)])
    reading.start()
    assert reading.stop() == []
    assert [each.sentence for each in reading.data_lost] == ["quarch lost its end"]


def test_a_drive_is_not_asked_in_the_quiet_and_once_at_its_end(bench: Bench) -> None:
    client = bench.spawn()
    with pytest.raises(PowerError, match="there is no run"):
        client.quiet(is_on=True)
    client.open(RUN_ID, PowerConfig(period_s=0.02), devices=["nvme0"], block_devices=[])
    client.quiet(is_on=True)
    client.start()
    time.sleep(0.1)
    assert bench.round_count() == 0
    client.quiet(is_on=False)
    wait_for(lambda: bench.round_count() > 0)
    client.quiet(is_on=True)
    before = len(list(read_samples(bench.samples)))
    finished = client.finish()
    assert finished.cost is not None
    assert finished.cost.sample_count > before
    states = [
        sample for sample in read_samples(bench.samples) if sample.channel is Channel.POWER_STATE
    ]
    assert states
