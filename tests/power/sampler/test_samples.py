from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattload.core.errors import PowerError, RecordError
from wattload.core.power import Channel, Evidence, Sample
from wattload.power.sampler.sample_writer import BackgroundWriter, SampleFile, SampleLines
from wattload.power.sampler.samples import read_samples

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


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
