"""The readings that are shown while a run is under way, from the end of its samples file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from wattload.core.power import (
    Channel,
    Counter,
    Evidence,
    Instant,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.power.sampler.sample_writer import SampleFile, SampleLines
from wattload.power.sampler.samples import LatestReadings, Reading


def facts(name: str, device: str, evidence: Evidence, sensor: Sensor | None = None) -> SourceFacts:
    return SourceFacts(
        name=name,
        device=device,
        device_name=device,
        scope=Scope.DRIVE,
        evidence=evidence,
        sensor=sensor or Instant(),
        period_s=0.1,
    )


def sample(source: str, device: str, channel: Channel, value: float, ago_s: float = 0.0) -> Sample:
    return Sample(
        time_ns=time.monotonic_ns() - int(ago_s * 1e9),
        spread_ns=0,
        source=source,
        device=device,
        channel=channel,
        value=value,
        evidence=Evidence.MEASURED,
    )


def written(path: Path, *samples: Sample) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    file = SampleFile(descriptor, host="box", period_s=0.1)
    file.write(SampleLines().of(samples))
    file.close()
    return path


A, B = "S1", "S2"
METERS = [
    facts("meter", A, Evidence.MEASURED),
    facts("own", A, Evidence.ESTIMATED),
    facts("meter", B, Evidence.MEASURED),
]


def test_the_last_readings_of_the_best_source_of_each_drive_are_summed(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s",
        sample("meter", A, Channel.POWER_W, 5.0, 0.2),
        sample("meter", A, Channel.POWER_W, 6.0, 0.1),
        sample("own", A, Channel.POWER_W, 60.0),
        sample("meter", B, Channel.POWER_W, 4.0),
        sample("own", A, Channel.TEMPERATURE_K, 310.0, 0.1),
        sample("own", A, Channel.TEMPERATURE_K, 311.0),
        sample("smart", B, Channel.TEMPERATURE_K, 320.0),
        sample("nvml", "GPU-1", Channel.POWER_W, 700.0),
        sample("nvml", "GPU-1", Channel.TEMPERATURE_K, 360.0),
    )
    assert LatestReadings(lambda: path, METERS).read() == Reading(10.0, 320.0)


def test_a_drive_without_a_current_reading_leaves_no_total(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s",
        sample("meter", A, Channel.POWER_W, 6.0),
        sample("meter", B, Channel.POWER_W, 4.0, 60.0),
    )
    assert LatestReadings(lambda: path, METERS).read() == Reading(None, None)


def test_a_counter_has_the_power_between_its_readings(tmp_path: Path) -> None:
    source = facts("counter", A, Evidence.MEASURED, Counter(quantum_j=0.1))
    joules = [sample("counter", A, Channel.ENERGY_J, 100.0 + 7 * s, 2.0 - s) for s in (0, 1, 2)]
    found = LatestReadings(lambda: written(tmp_path / "s", *joules), [source]).read()
    assert found.power_w is not None
    assert abs(found.power_w - 7.0) < 0.1


def test_a_file_that_is_missing_cut_short_or_foreign_shows_nothing(tmp_path: Path) -> None:
    assert LatestReadings(lambda: None, METERS).read() == Reading(None, None)
    assert LatestReadings(lambda: tmp_path / "none", METERS).read() == Reading(None, None)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"head\n[1,2]\n\xff\xfe\n" + b"[" * 100_000)
    assert LatestReadings(lambda: foreign, METERS).read() == Reading(None, None)
    path = written(
        tmp_path / "s",
        sample("meter", A, Channel.POWER_W, 5.0),
        sample("meter", B, Channel.POWER_W, 5.0),
    )
    with path.open("ab") as file:
        file.write(b"[123,")
    assert LatestReadings(lambda: path, METERS).read().power_w == 10.0


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    rows = [sample("meter", each, Channel.POWER_W, 1.0) for each in (A, B)] * 5000
    path = written(tmp_path / "s", *rows, sample("meter", A, Channel.POWER_W, 9.0))
    assert LatestReadings(lambda: path, METERS).read().power_w == 10.0
