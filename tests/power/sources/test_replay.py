from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.contracts.power_source import PowerSourceContract
from wattload.core.clock import ClockAnchor
from wattload.core.errors import ConfigError, DataError, PowerError
from wattload.core.power import Boxcar, Channel, Evidence, PowerSource, Sample, Scope
from wattload.power.config import PowerConfig, ReplayConfig
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.replay import ReplaySource, find

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
HEAD = "# evidence: measured\n# device: S7\n# note: bench 3\n"
FINE = (
    HEAD
    + "time_s,power_w,temperature_k\n"
    + "".join(f"{row / 10000},{5 + row % 3},300\n" for row in range(20_000))
)
"""Two seconds at 10 kHz."""


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def source_of(path: Path, **fields: str) -> ReplaySource:
    return ReplaySource(DRIVE, ReplayConfig(path=str(path), **fields), period_s=0.1)


class TestReplay(PowerSourceContract):
    channels = frozenset({Channel.POWER_W, Channel.TEMPERATURE_K})
    gathers = True

    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path) -> None:
        self.path = written(tmp_path, FINE)

    def make(self) -> PowerSource:
        return source_of(self.path)


class TestAttached(TestReplay):
    channels = frozenset({Channel.POWER_W})

    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path) -> None:
        now_ns = time.monotonic_ns()
        # A minute, so that a slow test still reads within the trace.
        rows = "".join(f"{now_ns + row * 3_000_000},5\n" for row in range(20_000))
        self.path = written(tmp_path, HEAD + "monotonic_ns,power_w\n" + rows)

    def make(self) -> PowerSource:
        return source_of(self.path, align="monotonic")

    def read_some(self, source: PowerSource) -> list[Sample]:
        source.start()
        time.sleep(0.005)
        return [sample for _ in range(5) for sample in source.read()]


def replayed(source: ReplaySource, seconds: float) -> list[Sample]:
    source.open()
    source.start()
    end_s = time.monotonic() + seconds
    samples: list[Sample] = []
    while time.monotonic() < end_s:
        samples += source.read()
        time.sleep(0.005)
    samples += source.read()
    source.close()
    return samples


def test_every_reading_comes_once_at_its_time(tmp_path: Path) -> None:
    rows = "".join(f"{row / 100},{row}\n" for row in range(10))
    samples = replayed(source_of(written(tmp_path, HEAD + "time_s,power_w\n" + rows)), 0.15)
    assert [sample.value for sample in samples] == list(range(10))
    times = [sample.time_ns - samples[0].time_ns for sample in samples]
    assert times == [row * 10_000_000 for row in range(10)]


def test_first_reading_is_played_at_the_start_whatever_zero_the_file_has(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "unix_s,power_w\n1700000000,5\n1700000000.02,6\n")
    start_ns = time.monotonic_ns()
    samples = replayed(source_of(path), 0.05)
    assert [sample.value for sample in samples] == [5, 6]
    assert samples[0].time_ns >= start_ns
    assert samples[1].time_ns - samples[0].time_ns == 20_000_000


def test_end_of_the_trace_is_a_gap_and_no_figure(tmp_path: Path) -> None:
    source = source_of(written(tmp_path, HEAD + "time_s,power_w\n0,5\n"))
    assert len(replayed(source, 0.02)) == 1


def test_empty_reading_is_a_failed_one_and_an_empty_state_says_nothing(tmp_path: Path) -> None:
    text = HEAD + "time_s,power_w,power_state\n0,,\n0,5,1\n"
    samples = replayed(source_of(written(tmp_path, text)), 0.01)
    assert [(sample.channel, sample.value) for sample in samples] == [
        (Channel.POWER_W, None),
        (Channel.POWER_W, 5),
        (Channel.POWER_STATE, 1),
    ]


def test_facts_say_replay_and_what_the_file_says(tmp_path: Path) -> None:
    text = (
        "# sensor: boxcar\n# window_s: 1\n# accuracy_percent: 1\n"
        "# evidence: estimated\n" + HEAD.replace("# evidence: measured\n", "")
    )
    source = source_of(written(tmp_path, text + "time_s,power_w\n0,5\n0.5,6\n1,7\n"))
    assert "not read yet" in source.facts().detail
    source.open()
    facts = source.facts()
    assert (facts.name, facts.device, facts.scope) == ("replay", "SERIAL1", Scope.DRIVE)
    assert facts.evidence is Evidence.ESTIMATED
    assert facts.sensor == Boxcar(window_s=1)
    assert (facts.period_s, facts.accuracy_percent) == (0.5, 1)
    assert facts.detail.startswith(
        "replay, recorded in another run and played from the start of sampling: trace.csv (sha256 "
    )
    assert facts.detail.endswith("), 3 readings of S7 over 1 s; bench 3")


def test_reading_keeps_the_evidence_of_its_row(tmp_path: Path) -> None:
    text = "time_s,power_w,evidence\n0,5,measured\n0,6,declared\n"
    samples = replayed(source_of(written(tmp_path, text)), 0.01)
    assert [sample.evidence for sample in samples] == [Evidence.MEASURED, Evidence.DECLARED]


def test_attached_trace_gives_what_a_meter_writes_down_late(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "monotonic_ns,power_w\n")
    source = source_of(path, align="monotonic")
    source.open()
    source.start()
    assert source.read() == []
    taken_ns = time.monotonic_ns()
    time.sleep(0.002)
    source.read()
    with path.open("a") as file:
        file.write(f"{taken_ns},5\n{taken_ns + 1},6")
    assert [(each.time_ns, each.value) for each in source.read()] == [(taken_ns, 5.0)]
    with path.open("a") as file:
        file.write(".5\n")
    assert [(each.time_ns, each.value) for each in source.read()] == [(taken_ns + 1, 6.5)]
    assert source.read() == []


def test_attached_trace_leaves_out_what_was_before_the_run(tmp_path: Path) -> None:
    past_ns = time.monotonic_ns() - 1
    path = written(tmp_path, HEAD + f"monotonic_ns,power_w\n{past_ns},5\n")
    source = source_of(path, align="monotonic")
    source.open()
    source.start()
    assert source.read() == []


def test_attached_trace_that_spoils_is_a_gap_from_then_on(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "monotonic_ns,power_w\n")
    source = source_of(path, align="monotonic")
    source.open()
    source.start()
    path.write_text("spoilt\n")
    for _ in range(2):
        assert source.read() == []


def test_wall_clock_that_steps_during_the_run_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns()
    start = ClockAnchor(monotonic_ns=time.monotonic_ns(), realtime_ns=real)
    taken_ns = real + 10_000  # in a float, seconds since 1970 are known to 0.2 us
    path = written(tmp_path, HEAD + f"unix_s,power_w\n{taken_ns / 10**9:.9f},5\n")
    monkeypatch.setattr("wattload.power.sources.replay.anchor", lambda: start)
    source = source_of(path, align="wall")
    source.open()
    source.start()
    monkeypatch.setattr(time, "time_ns", lambda: real - 3600 * 10**9)
    (sample,) = source.read()
    assert abs(sample.time_ns - start.monotonic_ns - 10_000) < 1000


@pytest.mark.parametrize(("align", "column"), [("monotonic", "monotonic_ns"), ("wall", "unix_s")])
def test_alignment_needs_times_of_its_clock(tmp_path: Path, align: str, column: str) -> None:
    source = source_of(written(tmp_path, FINE), align=align)
    with pytest.raises(ConfigError, match=f"needs a column {column}; trace.csv has time_s"):
        source.open()


def test_malformed_file_is_refused_at_open(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a head line must be"):
        source_of(written(tmp_path, "# nonsense\ntime_s,power_w\n")).open()
    with pytest.raises(DataError, match="can't be replayed"):
        source_of(tmp_path / "none.csv").open()


def test_read_before_start_is_an_error(tmp_path: Path) -> None:
    source = source_of(written(tmp_path, FINE))
    with pytest.raises(PowerError, match="before it was opened"):
        source.read()
    source.open()
    with pytest.raises(PowerError, match="before its replay was started"):
        source.read()


def test_trace_is_the_one_drives(tmp_path: Path) -> None:
    config = PowerConfig(source="replay", replay=ReplayConfig(path=str(tmp_path / "x.csv")))
    (found,) = find([DRIVE], config)
    assert found.facts().device == "SERIAL1"
    with pytest.raises(
        ConfigError, match=r"power\.replay\.device must be the serial or name of the measured drive"
    ):
        find([DRIVE, PowerDevice(key="S2", name="nvme1", is_nvme=True)], config)


def test_no_trace_and_unknown_alignment_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"power\.replay\.path="):
        find([DRIVE], PowerConfig(source="replay"))
    with pytest.raises(ConfigError, match=r"power\.replay\.path="):
        PowerConfig(source="replay").check()
    with pytest.raises(ConfigError, match="align must be one of start, monotonic, wall"):
        ReplayConfig(path="x.csv", align="utc").check()


def test_trace_that_is_played_from_the_start_is_of_another_run(tmp_path: Path) -> None:
    played = source_of(written(tmp_path, FINE))
    played.open()
    assert played.facts().is_of_another_run
    path = written(tmp_path, HEAD + f"monotonic_ns,power_w\n{time.monotonic_ns()},5\n")
    attached = source_of(path, align="monotonic")
    attached.open()
    assert (attached.facts().is_recorded, attached.facts().is_of_another_run) == (True, False)
