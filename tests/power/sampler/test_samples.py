"""The samples file: what is written comes back, also while a run is under way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattload.core.errors import PowerError, RecordError
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
from wattload.power.sampler.samples import (
    BackgroundWriter,
    LatestReadings,
    Reading,
    SampleFile,
    SampleLines,
    read_samples,
)

SAMPLES = st.builds(
    Sample,
    time_ns=st.integers(0, 2**63),
    spread_ns=st.integers(0, 10**9),
    source=st.text(min_size=1),
    device=st.text(min_size=1),
    channel=st.sampled_from(Channel),
    value=st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    evidence=st.sampled_from(Evidence),
)


def sample(value: float | None = 1.5) -> Sample:
    return Sample(
        time_ns=10, spread_ns=1, source="s", device="d", channel=Channel.POWER_W, value=value,
        evidence=Evidence.MEASURED,
    )  # fmt: skip


LINES = SampleLines()


def create(path: Path) -> SampleFile:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
    return SampleFile(os.open(path, flags), host="host-1", period_s=0.1)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SAMPLES))
def test_samples_come_back(tmp_path: Path, samples: list[Sample]) -> None:
    file = create(tmp_path / "samples")
    file.write(LINES.of(samples))
    file.close()
    file.close()
    assert list(read_samples(tmp_path / "samples")) == samples


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_is_not_a_figure_is_a_gap(tmp_path: Path, value: float | None) -> None:
    file = create(tmp_path / "samples")
    file.write(LINES.of([sample(value)]))
    file.close()
    assert [each.value for each in read_samples(tmp_path / "samples")] == [None]


def test_cut_last_line_is_left_out_wherever_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    file = create(path)
    file.write(LINES.of([sample(1.0), sample(2.0)]))
    file.close()
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length])
        assert [each.value for each in read_samples(path)] == [1.0]
    for length in range(10):
        path.write_bytes(whole[:length])
        assert list(read_samples(path)) == []


@pytest.mark.parametrize(
    "spoilt",
    ["{", "[1,2]", "[]", "7", '["a",1,"s","d","power_w",1,"measured"]',
     '[1,1,"s","d","power_w","1","measured"]', '[1,1,"s","d","volts",1,"measured"]',
     '[1,1,"s","d","power_w",1,"sure"]'],
)  # fmt: skip
def test_damaged_line_inside_the_file_is_an_error_with_its_number(
    tmp_path: Path, spoilt: str
) -> None:
    path = tmp_path / "samples"
    file = create(path)
    file.write(LINES.of([sample()]))
    file.close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], spoilt, lines[1], ""]))
    with pytest.raises(RecordError, match="line 2: not a sample"):
        list(read_samples(path))


def test_file_of_another_schema_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    create(path).close()
    path.write_text(path.read_text().replace('"schema_version":1', '"schema_version":2'))
    with pytest.raises(RecordError, match="schema version 2"):
        list(read_samples(path))


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't be read"):
        list(read_samples(tmp_path / "samples"))


def test_full_disk_loses_whole_rounds_and_says_how_many(tmp_path: Path) -> None:
    file = create(tmp_path / "samples")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._descriptor)
    os.close(full)
    writer = BackgroundWriter(file)
    writer.write(LINES.of([sample(), sample()]))
    assert writer.close() == (0, 2)


def test_disk_that_is_full_from_the_start_is_an_error_and_leaves_nothing_open() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(PowerError, match="is the disk of the runs folder full"):
        SampleFile(full, host="host-1", period_s=0.1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(full)


def test_round_that_is_cut_by_a_full_disk_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = create(tmp_path / "samples")
    file.write(LINES.of([sample(1.0)]))
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
    assert not file.write(LINES.of([sample(2.0), sample(3.0)]))
    monkeypatch.undo()
    file.write(LINES.of([sample(4.0)]))
    file.close()
    assert [each.value for each in read_samples(tmp_path / "samples")] == [1.0, 4.0]


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


def taken(source: str, device: str, channel: Channel, value: float, ago_s: float = 0.0) -> Sample:
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
        taken("meter", A, Channel.POWER_W, 5.0, 0.2),
        taken("meter", A, Channel.POWER_W, 6.0, 0.1),
        taken("own", A, Channel.POWER_W, 60.0),
        taken("meter", B, Channel.POWER_W, 4.0),
        taken("own", A, Channel.TEMPERATURE_K, 310.0, 0.1),
        taken("own", A, Channel.TEMPERATURE_K, 311.0),
        taken("smart", B, Channel.TEMPERATURE_K, 320.0),
        taken("nvml", "GPU-1", Channel.POWER_W, 700.0),
        taken("nvml", "GPU-1", Channel.TEMPERATURE_K, 360.0),
    )
    assert LatestReadings(lambda: path, METERS).read() == Reading(10.0, 320.0)


def test_a_drive_without_a_current_reading_leaves_no_total(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s",
        taken("meter", A, Channel.POWER_W, 6.0),
        taken("meter", B, Channel.POWER_W, 4.0, 60.0),
    )
    assert LatestReadings(lambda: path, METERS).read() == Reading(None, None)


def test_a_counter_has_the_power_between_its_readings(tmp_path: Path) -> None:
    source = facts("counter", A, Evidence.MEASURED, Counter(quantum_j=0.1))
    joules = [taken("counter", A, Channel.ENERGY_J, 100.0 + 7 * s, 2.0 - s) for s in (0, 1, 2)]
    found = LatestReadings(lambda: written(tmp_path / "s", *joules), [source]).read()
    assert found.power_w is not None
    assert abs(found.power_w - 7.0) < 0.1


def test_of_equal_sources_one_of_power_is_shown_rather_than_a_counter(tmp_path: Path) -> None:
    """A counter of whole watt-hours stands still while its drive works."""
    sources = [
        facts("interval", A, Evidence.MEASURED),
        facts("lifetime", A, Evidence.MEASURED, Counter(quantum_j=3600)),
    ]
    path = written(
        tmp_path / "s",
        taken("lifetime", A, Channel.ENERGY_J, 7200.0, 1.0),
        taken("interval", A, Channel.POWER_W, 6.0),
        taken("lifetime", A, Channel.ENERGY_J, 7200.0),
    )
    assert LatestReadings(lambda: path, sources).read().power_w == 6.0


def test_a_file_that_is_missing_cut_short_or_foreign_shows_nothing(tmp_path: Path) -> None:
    assert LatestReadings(lambda: None, METERS).read() == Reading(None, None)
    assert LatestReadings(lambda: tmp_path / "none", METERS).read() == Reading(None, None)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"head\n[1,2]\n\xff\xfe\n" + b"[" * 100_000)
    assert LatestReadings(lambda: foreign, METERS).read() == Reading(None, None)
    path = written(
        tmp_path / "s",
        taken("meter", A, Channel.POWER_W, 5.0),
        taken("meter", B, Channel.POWER_W, 5.0),
    )
    with path.open("ab") as file:
        file.write(b"[123,")
    assert LatestReadings(lambda: path, METERS).read().power_w == 10.0


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    rows = [taken("meter", each, Channel.POWER_W, 1.0) for each in (A, B)] * 5000
    path = written(tmp_path / "s", *rows, taken("meter", A, Channel.POWER_W, 9.0))
    assert LatestReadings(lambda: path, METERS).read().power_w == 10.0
