from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contracts.power_source import PowerSourceContract
from wattload.core.clock import ClockAnchor
from wattload.core.errors import ConfigError, DataError, PowerError
from wattload.core.power import (
    Accuracy,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
)
from wattload.power.config import PowerConfig, ReplayConfig
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.replay import ReplaySource, find, read_trace, stage, stage_again

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
HEAD = "# evidence: measured\n# device: S7\n# note: bench 3\n"
FINE = (
    HEAD
    + "time_s,power_w,temperature_k\n"
    + "".join(f"{row / 10000},{5 + row % 3},300\n" for row in range(20_000))
)
"""Two seconds at 10 kHz."""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
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
        "# sensor: boxcar\n# window_s: 1\n# lag_s: 0.3\n# accuracy: 1 % of reading\n# range_w: 25\n"
        "# evidence: estimated\n" + HEAD.replace("# evidence: measured\n", "")
    )
    source = source_of(written(tmp_path, text + "time_s,power_w\n0,5\n0.5,6\n1,7\n"))
    assert "not read yet" in source.facts().detail
    source.open()
    facts = source.facts()
    assert (facts.name, facts.device, facts.scope) == ("replay", "SERIAL1", Scope.DRIVE)
    assert facts.evidence is Evidence.ESTIMATED
    assert facts.sensor == Boxcar(window_s=1, lag_s=0.3)
    assert (facts.period_s, facts.range_w) == (0.5, 25)
    assert facts.accuracy == Accuracy(reading_percent=1)
    assert facts.detail.startswith(
        "replay, recorded in another run and played from the start of sampling: trace.csv (sha256 "
    )
    assert facts.detail.endswith("), 3 readings of S7 over 1 s; bench 3")


def test_attached_trace_gives_what_a_meter_writes_down_late(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "monotonic_ns,power_w\n")
    source = source_of(path, align="monotonic")
    source.open()
    assert source.facts().detail.endswith(f"monotonic clock: {path.name} of S7; bench 3")
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


MEASURED = "# evidence: measured\n"
WATTS = MEASURED + "time_s,power_w\n0,5\n0.1,7.5\n0.2,\n"


def test_readings_come_in_order_with_gaps_where_there_is_none(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, WATTS))
    assert list(trace.time_ns) == [0, 100_000_000, 200_000_000]
    watts = trace.values[Channel.POWER_W]
    assert list(watts[:2]) == [5.0, 7.5]
    assert watts[2] != watts[2]
    assert (trace.period_s, trace.seconds) == (0.1, 0.2)
    assert trace.head.sensor == Instant()


def test_head_says_what_no_column_can(tmp_path: Path) -> None:
    text = (
        "# evidence: self_reported\n# sensor: boxcar\n# window_s: 1\n# update_period_s: 0.5\n"
        "# device: S1\n# scope: node\n# accuracy: 2 W\n# resolution_w: 0.01\n"
        "# note: cold room\nmonotonic_ns,power_w,power_state,temperature_k\n"
        "123456789012345678,5,0,300\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.head.sensor == Boxcar(window_s=1, update_period_s=0.5)
    assert (trace.head.device, trace.head.scope, trace.head.note) == ("S1", Scope.NODE, "cold room")
    assert (trace.head.accuracy, trace.head.resolution_w) == (Accuracy(watts=2), 0.01)
    assert list(trace.time_ns) == [123456789012345678]
    assert trace.origin.startswith("trace.csv (sha256 ")


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        (
            "0.1 % of reading + 0.05 % of range + 0.01 W",
            Accuracy(reading_percent=0.1, range_percent=0.05, watts=0.01),
        ),
        ("1e-3 W  + 2% of reading", Accuracy(reading_percent=2, watts=1e-3)),
    ],
)
def test_accuracy_is_written_as_in_a_data_sheet(
    tmp_path: Path, text: str, accuracy: Accuracy
) -> None:
    head = f"# accuracy: {text}\n# range_w: 25\n# window_s: 1\n"
    found = read_trace(written(tmp_path, head + WATTS)).head
    assert found.accuracy == accuracy
    assert (found.range_w, found.sensor) == (25, Boxcar(window_s=1))


def test_reading_is_known_no_better_than_its_row_and_the_head_say(tmp_path: Path) -> None:
    rows = "time_s,power_w,evidence\n0,5,measured\n1,5,estimated\n2,5,declared\n"
    trace = read_trace(written(tmp_path, "# evidence: self_reported\n" + rows))
    assert trace.evidence == [
        Evidence.SELF_REPORTED,
        Evidence.ESTIMATED,
        Evidence.DECLARED,
    ]
    assert trace.best_evidence is Evidence.SELF_REPORTED
    assert read_trace(written(tmp_path, rows)).best_evidence is Evidence.MEASURED


def test_readings_that_are_swapped_within_their_period_are_sorted(tmp_path: Path) -> None:
    text = MEASURED + "time_s,power_w,evidence\n0,1,measured\n0.2,3,estimated\n0.1,2,measured\n"
    trace = read_trace(written(tmp_path, text + "0.3,4,measured\n"))
    assert list(trace.time_ns) == [0, 100_000_000, 200_000_000, 300_000_000]
    assert list(trace.values[Channel.POWER_W]) == [1, 2, 3, 4]
    assert trace.evidence[2] is Evidence.ESTIMATED


def test_counter_that_wraps_says_where(tmp_path: Path) -> None:
    head = MEASURED + "# sensor: counter\n# quantum_j: 0.001\n# wrap_j: 100\n"
    trace = read_trace(written(tmp_path, head + "time_s,energy_j\n0,90\n1,99\n2,8\n"))
    assert trace.head.sensor == Counter(quantum_j=0.001, wrap_j=100)
    assert list(trace.values[Channel.ENERGY_J]) == [90, 99, 8]


COUNTER = MEASURED + "# sensor: counter\n# quantum_j: 0.001\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no line that names its columns"),
        (MEASURED, "no line that names its columns"),
        (MEASURED + "time_s,power_w\n", "has no readings"),
        ("time_s,power_w\n0,5\n", "does not state its evidence"),
        ("# evidence: guessed\ntime_s,power_w\n0,5\n", "evidence: Input should be"),
        ("# evidence\ntime_s,power_w\n0,5\n", "a head line must be"),
        ("# volts: 12\n" + WATTS, "unknown head line 'volts'"),
        ("# sensor: instant\n# window_s: 1\n" + WATTS, "sensor.instant.window_s"),
        ("# lag_s: -1\n" + WATTS, "sensor.instant.lag_s: .* got '-1'"),
        ("# phase_s: 1\n" + WATTS, "unknown head line 'phase_s'"),
        ("# accuracy: 0.1\n" + WATTS, "accuracy must be a sum of parts, .* got '0.1'"),
        ("# accuracy: 0.1 % + 1 W\n" + WATTS, "must be a sum of parts, .* got '0.1 % [+] 1 W'"),
        ("# accuracy: 1 W + 2 W\n" + WATTS, "each at most once, .* got '1 W [+] 2 W'"),
        ("# accuracy: x W\n" + WATTS, "accuracy.watts: .* got 'x'"),
        ("# accuracy: nan % of reading\n" + WATTS, "accuracy.reading_percent: .* got 'nan'"),
        ("# accuracy: 1 % of range\n" + WATTS, "a share of the range; add '# range_w: '"),
        ("# range_w: 0\n" + WATTS, "range_w: .* got '0'"),
        ("# sensor: boxcar\n" + WATTS, "sensor.boxcar.window_s: Field required"),
        (MEASURED + "power_w\n5\n", "must have one of time_s, monotonic_ns, unix_s, and has 0"),
        (MEASURED + "time_s,unix_s,power_w\n0,0,5\n", "and has 2"),
        (MEASURED + "time_s,power_w,amps\n0,5,1\n", "has a column 'amps'"),
        (MEASURED + "time_s,power_w,power_w\n0,5,5\n", "has power_w twice"),
        (MEASURED + "time_s,power_state\n0,1\n", "must have power_w or energy_j"),
        (MEASURED + "time_s,power_w,energy_j\n0,5,5\n", "must have power_w or energy_j"),
        (MEASURED + "time_s,energy_j\n0,5\n", "only with it"),
        (COUNTER + "time_s,power_w\n0,5\n", "only with it"),
        (WATTS + "0.3\n", "Expected 2 columns, got 1: 0.3"),
        (WATTS + "0.3,abc\n", "power_w must be a number: Failed to parse string: 'abc'"),
        (WATTS + "0.3,inf\n", "reading 4: power_w must be finite"),
        (WATTS + ",5\n", "reading 4: time_s is empty"),
        (WATTS + "0.05,5\n", "reading 4: time goes back"),
        (
            MEASURED + "monotonic_ns,power_w\n1.5e300,5\n",
            "monotonic_ns must be a number: .* '1.5e300'",
        ),
        (
            MEASURED + "time_s,power_w,power_state\n0,5,32\n",
            "reading 1: power_state must be 0 to 31",
        ),
        (MEASURED + "time_s,power_w,power_state\n0,5,1.5\n", "reading 1: power_state"),
        (MEASURED + "time_s,power_w,temperature_k\n0,5,0\n", "reading 1: temperature_k"),
        ("time_s,power_w,evidence\n0,5,sure\n", "reading 1: evidence must be one of"),
        (COUNTER + "time_s,energy_j\n0,9\n1,8\n", "reading 2: energy_j decreases"),
        (
            COUNTER + "# wrap_j: 5\ntime_s,energy_j\n0,9\n",
            "reading 1: energy_j must be within wrap_j",
        ),
    ],
)
def test_malformed_file_is_one_sentence_with_its_place(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        read_trace(written(tmp_path, text))
    assert "trace.csv" in str(caught.value)
    assert "\n" not in str(caught.value).replace("\\n", "")


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.csv can't be replayed: No such file"):
        read_trace(tmp_path / "none.csv")


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"# evidence: measured\n\xff\xfe")
    with pytest.raises(DataError, match="not a readable trace"):
        read_trace(path)


def test_last_line_that_has_no_end_is_not_there_yet_in_a_growing_file(tmp_path: Path) -> None:
    path = written(tmp_path, WATTS + "0.3,1")
    assert len(read_trace(path).time_ns) == 4
    assert len(read_trace(path, growing=True).time_ns) == 3
    assert (
        len(read_trace(written(tmp_path, MEASURED + "time_s,power_w\n"), growing=True).time_ns) == 0
    )


def parquet(folder: Path, columns: dict[str, list[object]], **head: str) -> Path:
    path = folder / "trace.parquet"
    table = pa.table(columns).replace_schema_metadata({"foreign": "x", **head})
    pq.write_table(table, path)
    return path


def test_parquet_says_the_same_in_its_metadata(tmp_path: Path) -> None:
    path = parquet(
        tmp_path,
        {"unix_s": [1.7e9, 1.7e9 + 1], "power_w": [5.0, None], "power_state": [0, 1]},
        evidence="estimated",
        sensor="boxcar",
        window_s="1",
    )
    trace = read_trace(path)
    assert trace.head.sensor == Boxcar(window_s=1)
    assert trace.best_evidence is Evidence.ESTIMATED
    assert list(trace.time_ns) == [1_700_000_000_000_000_000, 1_700_000_001_000_000_000]
    assert list(trace.values[Channel.POWER_STATE]) == [0, 1]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"time_s": [0, 1], "power_w": ["5", "abc"]}, "power_w must be a number: .*'abc'"),
        ({"time_s": [2, 1, 0], "power_w": [5, 5, 5]}, "reading 2: time goes back"),
        ({"time_s": [0], "power_w": [[5]]}, "power_w must be a number: Unsupported cast"),
        ({"time_s": [None], "power_w": [5]}, "reading 1: time_s is empty"),
    ],
)
def test_malformed_parquet_is_one_sentence_with_its_row(
    tmp_path: Path, columns: dict[str, list[object]], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        read_trace(parquet(tmp_path, columns, evidence="measured"))


def test_parquet_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a readable trace"):
        read_trace(written(tmp_path, "PAR1 but not really", "trace.parquet"))


def requested(path: Path, align: str = "start") -> PowerConfig:
    return PowerConfig(source="replay", replay=ReplayConfig(path=str(path), align=align))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run-1"


def test_trace_is_copied_to_the_runs_folder(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text(MEASURED + "time_s,power_w\n0,5\n")
    staged = stage(requested(path), run).replay
    assert staged is not None
    assert staged.path == str(run / "meter.csv")
    assert Path(staged.path).read_bytes() == path.read_bytes()
    trace = read_trace(Path(staged.path))
    assert trace.origin.startswith("meter.csv (sha256 ")


def test_link_to_a_trace_is_the_users_to_follow(tmp_path: Path, run: Path) -> None:
    (tmp_path / "meter.csv").write_text(MEASURED + "time_s,power_w\n0,5\n")
    (tmp_path / "link.csv").symlink_to("meter.csv")
    stage(requested(tmp_path / "link.csv"), run)
    assert (run / "link.csv").is_file()


def test_log_that_has_grown_is_brought_over(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(MEASURED + "unix_s,power_w\n")
    stage(requested(path, "wall"), run)
    with path.open("a") as file:
        file.write("1700000000.5,5\n")
    assert stage_again(requested(path, "wall"), run) == (
        "The readings of the log are from 2023-11-14 22:13:20 UTC to 2023-11-14 22:13:20 UTC."
    )
    assert list(read_trace(run / "log.csv").time_ns) == [1_700_000_000_500_000_000]


def test_recording_of_another_run_is_brought_over_once(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text(MEASURED + "time_s,power_w\n0,5\n")
    stage(requested(path), run)
    path.unlink()
    stage_again(requested(path), run)


def test_malformed_trace_is_refused_before_the_sampler_hears_of_it(
    tmp_path: Path, run: Path
) -> None:
    path = tmp_path / "meter.csv"
    path.write_text("amps\n")
    with pytest.raises(DataError, match=r"meter\.csv"):
        stage(requested(path), run)
    assert not run.exists()
