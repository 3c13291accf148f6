"""The known load of a calibration: real reads by O_DIRECT, and what is kept of them."""

from __future__ import annotations

import math
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from wattload.core.host.counters import ProcessTree
from wattload.core.power import Boxcar, Channel, Evidence, Instant, Sample, Scope, SourceFacts
from wattload.core.record.energy import (
    CalibrationRecord,
    PowerSection,
    PowerSourceRecord,
    PowerStateRecord,
)
from wattload.core.units import MIB, NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.control.calibrations import CalibrationCache, SessionCalibrations
from wattload.power.energy.calibration import calibrate
from wattload.power.sampler.protocol import ControllerReading, FinishReply, OpenReply
from wattload.power.sampler.samples import SampleFile, SampleLines
from wattload.run import power_session, pulses
from wattload.run.calibration_records import calibration_key, calibration_records
from wattload.run.phases import PhaseRecorder
from wattload.run.power_session import PowerReport, PowerSession, Sampling
from wattload.run.pulses import (
    KnownLoad,
    PulsePlan,
    load_drives,
    plan_pulses,
    pulse_times,
)

METER = SourceFacts(
    name="meter",
    device="SERIAL1",
    device_name="nvme0",
    scope=Scope.DRIVE,
    evidence=Evidence.MEASURED,
    sensor=Instant(),
    period_s=0.1,
)
SHORT = PulsePlan(
    sources=(METER,),
    pulses=((0.05, 0.15), (0.2, 0.3)),
    train=((0.4, 0.45), (0.5, 0.55)),
    settle_s=0.05,
)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"data-{number}" for number in range(3)]
    for path in paths:
        path.write_bytes(os.urandom(4 * MIB + 1))
    return paths


def test_drive_is_read_at_the_planned_times(files: list[Path]) -> None:
    load = load_drives(SHORT, files)
    edges = [*load.pulses, *load.train]
    assert [len(load.pulses), len(load.train)] == [2, 2]
    assert edges == sorted(edges)
    for (start_ns, end_ns), (start_s, end_s) in zip(
        edges, (*SHORT.pulses, *SHORT.train), strict=True
    ):
        assert start_ns - load.origin_ns >= start_s * NS_PER_S
        # The last reads are awaited, and a busy host may begin late.
        assert end_ns - start_ns >= (end_s - start_s) * NS_PER_S * 0.99
    assert load.end_ns >= load.train[-1][1] + SHORT.settle_s * NS_PER_S


def test_nothing_is_written(files: list[Path]) -> None:
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in files]
    load_drives(SHORT, files)
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in files] == before


def test_pulses_need_a_live_sensor_data_and_time(files: list[Path]) -> None:
    assert isinstance(plan_pulses([METER], files), PulsePlan)
    recorded = METER.model_copy(update={"is_recorded": True})
    assert "no sensor" in str(plan_pulses([], files))
    assert "no sensor" in str(plan_pulses([recorded], files))
    assert str(plan_pulses([METER], [])).endswith("power calibrate target.path=DIRECTORY first")
    assert "data" in str(plan_pulses([METER], [files[0].parent / "missing"]))
    slow = METER.model_copy(update={"sensor": Boxcar(window_s=30.0), "name": "bmc"})
    assert str(plan_pulses([slow], files)).startswith("bmc is too slow")
    both = plan_pulses([slow, METER], files)
    assert isinstance(both, PulsePlan)
    assert both.sources == (METER,)
    assert str(plan_pulses([METER], files, idle_s=10.0)) == (
        f"power.idle_s is 10 s, and a calibration needs {math.ceil(both.seconds)} s"
    )


@pytest.mark.parametrize(
    ("window_s", "update_s", "least_s", "phase"), [(0.5, 0.4, 2.0, 0.2), (1.0, 1.0, 2.8, 0.1)]
)
def test_pulses_suit_the_sensor(
    window_s: float, update_s: float, least_s: float, phase: float
) -> None:
    times = pulse_times(window_s, update_s)
    assert times is not None
    pulses, train = times
    changes_s = np.array(pulses).ravel()
    assert len(pulses) >= 8
    assert np.diff(changes_s).min() >= least_s
    assert np.diff(np.sort(changes_s / update_s % 1)).max() < phase
    assert train[-1][1] + window_s + update_s <= 60
    assert 4 <= 1 / (train[1][0] - train[0][0]) <= 7
    assert pulse_times(1.5, 1.5) is pulse_times(10.0, 0.1) is None


def test_default_idle_time_suffices_for_usual_meters(files: list[Path]) -> None:
    for sensor in (
        Instant(),
        Boxcar(window_s=1.0),
        Boxcar(window_s=1.0, update_period_s=1.0),
        Boxcar(window_s=0.5, update_period_s=0.5),
    ):
        plan = plan_pulses([METER.model_copy(update={"sensor": sensor})], files, idle_s=60.0)
        assert isinstance(plan, PulsePlan), plan


def samples_of(load: KnownLoad, device: str = "SERIAL1") -> Iterator[Sample]:
    """Yield readings from before a load until after it: about 5 W, and 9 W in the pulses."""
    for time_ns in range(load.origin_ns - NS_PER_S, load.end_ns + NS_PER_S, NS_PER_S // 10):
        is_on = any(start <= time_ns < end for start, end in (*load.pulses, *load.train))
        yield Sample(
            time_ns=time_ns,
            spread_ns=0,
            source="meter",
            device=device,
            channel=Channel.POWER_W,
            value=9.0 if is_on else 5.0 + 0.01 * (time_ns // 10**8 % 3),
            evidence=Evidence.MEASURED,
        )


def planned(plan: PulsePlan, origin_ns: int = 5 * NS_PER_S) -> KnownLoad:
    """Return the load of a plan that was kept exactly."""

    def moved(times: Sequence[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
        return tuple(
            (origin_ns + round(start * NS_PER_S), origin_ns + round(end * NS_PER_S))
            for start, end in times
        )

    return KnownLoad(
        utc="2026-01-01T00:00:00Z",
        origin_ns=origin_ns,
        end_ns=origin_ns + round(plan.seconds * NS_PER_S),
        pulses=moved(plan.pulses),
        train=moved(plan.train),
    )


def test_record_holds_what_the_calibration_needs(files: list[Path]) -> None:
    plan = plan_pulses([METER], files)
    assert isinstance(plan, PulsePlan)
    load = planned(plan)
    samples = [*samples_of(load), *samples_of(load, "SERIAL2")]
    (record,) = calibration_records(load, samples, {METER: {"device": "SERIAL1"}}, host="box")
    assert len(record.pulses) == 8
    assert record.pulses[0][0] == round(plan.pulses[0][0] * NS_PER_S)
    assert 0 <= record.time_ns[0] < NS_PER_S // 10
    assert len(record.values) == pytest.approx(10 * plan.seconds, abs=2)
    again = CalibrationRecord.model_validate_json(record.model_dump_json())
    assert again == record
    assert calibrate(again, METER).basis == "calibrated"


def opened(*, firmware: str = "1.0", state: int | None = 0, host: str = "box") -> OpenReply:
    fields = {"firmware": firmware, "power_state": state}
    reading = ControllerReading(
        serial="SERIAL1", fields=fields, missing={}, nvme_version=None, power_states=None
    )
    return OpenReply(
        host=host, choice="", sources=(), states=(), controllers={"nvme0": reading}, recovered=()
    )


def test_each_part_of_the_key_counts(tmp_path: Path) -> None:
    cache = CalibrationCache(tmp_path / "state")
    key = calibration_key(METER, opened())
    record = calibration_records(planned(SHORT), [], {METER: key}, host="box")[0]
    cache.store(METER, record)
    assert cache.find(METER, key) == record
    set_state = PowerStateRecord(
        host="box",
        serial="SERIAL1",
        requested=2,
        before=0,
        verified=2,
        after=None,
        restored=None,
        sentence="",
        saved=None,
        saved_after=None,
        knob="power.state",
        missing={"after": "-", "restored": "-", "saved": "-", "saved_after": "-"},
    )
    others = [
        calibration_key(METER.model_copy(update={"device": "SERIAL2"}), opened()),
        calibration_key(METER.model_copy(update={"name": "other"}), opened()),
        calibration_key(METER.model_copy(update={"period_s": 1.0}), opened()),
        calibration_key(METER.model_copy(update={"device_name": "nvme1"}), opened()),
        calibration_key(METER, opened(firmware="1.1")),
        calibration_key(METER, opened(state=1)),
        calibration_key(METER, opened().model_copy(update={"states": (set_state,)})),
        calibration_key(METER, opened(host="other")),
        {**key, "wattload": "0.0.1"},
    ]
    assert all(cache.find(METER, other) is None for other in others)
    for changed in ({"sensor": Boxcar(window_s=0.5)}, {"range_w": 25.0}, {"detail": "two rails"}):
        assert cache.find(METER.model_copy(update=changed), key) is None
    assert cache.find(METER.model_copy(update={"device_name": "nvme9"}), key) == record


def test_cache_that_is_damaged_or_not_ours_has_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    cache = CalibrationCache(folder)
    assert cache.all() == []
    record = calibration_records(planned(SHORT), [], {METER: {"source": "meter"}}, host="box")[0]
    cache.store(METER, record)
    (path,) = folder.iterdir()
    assert [each.record for each in cache.all()] == [record]
    path.write_text("{")
    assert cache.find(METER, record.key) is None
    cache.store(METER, record)
    folder.chmod(stat.S_IRWXU | stat.S_IRWXO)
    assert cache.all() == []
    cache.store(METER, record)


class Meter:
    """Answers as a sampler does that has read a meter during a load."""

    def __init__(
        self, folder: Path, calibrations: SessionCalibrations, *, state: int, is_noisy: bool
    ) -> None:
        self._folder = folder
        self._state, self._is_noisy = state, is_noisy
        self.calibrations = calibrations
        self.load: KnownLoad | None = None

    def client(self) -> Any:
        return self

    def open(self, run_id: str, config: PowerConfig, **devices: Any) -> OpenReply:
        source = PowerSourceRecord(
            host="box", facts=METER, name="meter", device="SERIAL1", used=True, sentence="-"
        )
        return opened(state=self._state).model_copy(update={"sources": (source,)})

    def start(self) -> None:
        pass

    def finish(self) -> FinishReply:
        file = SampleFile.create(self._folder, host="box", period_s=0.1)
        if self.load is not None:
            samples = list(samples_of(self.load))
            if self._is_noisy:
                samples = [
                    replace(each, value=1e3 * (n * n % 97)) for n, each in enumerate(samples)
                ]
            file.write(SampleLines().of(samples))
        file.close()
        return FinishReply(states=(), controllers={}, own_energies=())


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(power_session, "LEAD_S", 0.0)
    monkeypatch.setattr(time, "sleep", lambda _: None)


def run_once(
    folder: Path,
    files: Sequence[Path],
    *,
    calibrates: bool,
    idle_s: float = 60.0,
    session: SessionCalibrations | None = None,
    state: int = 0,
    is_noisy: bool = False,
) -> tuple[list[str], PowerReport]:
    """Make a run that only measures power; return its phases and its report.

    ``session`` is what it is a run of, ``None``: a run of its own.
    """
    folder.mkdir()
    kept = session or SessionCalibrations()
    meter = Meter(folder, kept, state=state, is_noisy=is_noisy)

    def load(plan: PulsePlan, data: Sequence[Path]) -> KnownLoad:
        assert list(data) == list(files)
        meter.load = planned(plan, time.monotonic_ns())
        return meter.load

    recorder = PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=dict)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(power_session, "load_drives", load)
        power = PowerSession.open(
            cast("Sampling", meter),
            PowerConfig(idle_s=idle_s),
            folder,
            host="box",
            devices=["nvme0"],
            block_devices=[],
            calibrates=calibrates,
        )
        power.up(recorder, files)
        report = power.down(recorder)
    return [item.span.name for item in recorder.spans], report


@pytest.mark.usefixtures("_quick")
def test_first_run_calibrates_and_later_ones_use_it(files: list[Path], tmp_path: Path) -> None:
    phases, report = run_once(tmp_path / "run1", files, calibrates=True)
    assert phases[:2] == ["calibration", "idle"]
    (record,) = report.calibrations
    assert record.run_id == "run1"
    assert calibrate(record, METER).basis == "calibrated"
    phases, later = run_once(tmp_path / "run2", files, calibrates=False)
    assert phases[0] == "idle"
    assert later.calibrations == (record,)
    phases, later = run_once(tmp_path / "run3", files, calibrates=True)
    assert "calibration" not in phases
    assert later.calibrations == (record,)
    assert later.not_calibrated == ""


@pytest.mark.usefixtures("_quick")
def test_all_runs_of_a_session_use_the_same_calibration(files: list[Path], tmp_path: Path) -> None:
    session = SessionCalibrations()
    _, warm_up = run_once(tmp_path / "run1", files, calibrates=True, session=session)
    _, other = run_once(tmp_path / "run2", files, calibrates=False, session=session, state=2)
    assert len(other.calibrations) == 1
    assert other.calibrations == warm_up.calibrations


@pytest.mark.usefixtures("_quick")
def test_sweep_of_power_states_uses_what_was_calibrated_before_it(
    files: list[Path], tmp_path: Path
) -> None:
    _, alone = run_once(tmp_path / "run1", files, calibrates=True)
    session = SessionCalibrations()
    for state in (1, 2):
        _, swept = run_once(
            tmp_path / f"run{state + 1}", files, calibrates=False, session=session, state=state
        )
        assert swept.calibrations == alone.calibrations
    phases, _ = run_once(tmp_path / "run4", files, calibrates=True, state=1)
    assert phases[0] == "calibration"


@pytest.mark.usefixtures("_quick")
def test_no_run_of_a_session_uses_one_that_the_first_had_not(
    files: list[Path], tmp_path: Path
) -> None:
    session = SessionCalibrations()
    _, first = run_once(tmp_path / "run1", files, calibrates=False, session=session, state=2)
    assert "makes none" in first.not_calibrated
    _, made = run_once(tmp_path / "run2", files, calibrates=True)
    assert made.calibrations
    _, other = run_once(tmp_path / "run3", files, calibrates=False, session=session)
    assert (first.calibrations, other.calibrations) == ((), ())


def section_of(report: PowerReport) -> PowerSection:
    """Return what the record of a run has of its meter."""
    own = report.calibrations
    unread = calibration_records(planned(SHORT), [], {METER: {}}, host="box")
    source = PowerSourceRecord(
        host="box",
        facts=METER.model_copy(update={"device_name": "nvme9"}),
        name="meter",
        device="SERIAL1",
        used=True,
        sentence="-",
        sensor=calibrate((own or unread)[0], METER),
    )
    return PowerSection(
        requested="auto", choice="-", idle_s=60.0, sources=(source,), calibrations=own
    )


@pytest.mark.usefixtures("_quick")
def test_resumed_session_uses_the_calibration_of_its_earlier_runs(
    files: list[Path], tmp_path: Path
) -> None:
    _, first = run_once(tmp_path / "run1", files, calibrates=True)
    shutil.rmtree(tmp_path / "state")
    resumed = SessionCalibrations()
    resumed.recall(section_of(first))
    phases, warm_up = run_once(tmp_path / "run2", files, calibrates=True, session=resumed)
    _, other = run_once(tmp_path / "run3", files, calibrates=False, session=resumed, state=2)
    assert "calibration" not in phases
    assert first.calibrations == warm_up.calibrations == other.calibrations
    assert len(other.calibrations) == 1


@pytest.mark.usefixtures("_quick")
def test_resumed_session_uses_no_calibration_if_its_earlier_runs_had_none(
    files: list[Path], tmp_path: Path
) -> None:
    _, first = run_once(tmp_path / "run1", files, calibrates=False)
    _, alone = run_once(tmp_path / "run2", files, calibrates=True)
    resumed = SessionCalibrations()
    resumed.recall(section_of(first))
    phases, warm_up = run_once(tmp_path / "run3", files, calibrates=True, session=resumed)
    _, other = run_once(tmp_path / "run4", files, calibrates=False, session=resumed)
    assert len(alone.calibrations) == 1
    assert "calibration" not in phases
    assert "earlier runs of this session" in warm_up.not_calibrated
    assert first.calibrations == warm_up.calibrations == other.calibrations == ()


@pytest.mark.usefixtures("_quick")
def test_calibration_that_failed_is_not_kept(files: list[Path], tmp_path: Path) -> None:
    _, failed = run_once(tmp_path / "run1", files, calibrates=True, is_noisy=True)
    assert [calibrate(each, METER).basis for each in failed.calibrations] == ["declared"]
    assert CalibrationCache().all() == []
    phases, _ = run_once(tmp_path / "run2", files, calibrates=True)
    assert phases[0] == "calibration"


@pytest.mark.usefixtures("_quick")
def test_run_without_time_or_data_is_not_calibrated(files: list[Path], tmp_path: Path) -> None:
    phases, report = run_once(tmp_path / "run1", files, calibrates=True, idle_s=20.0)
    assert phases[0] == "idle"
    assert report.calibrations == ()
    assert "power.idle_s is 20 s" in report.not_calibrated
    _, report = run_once(tmp_path / "run2", [], calibrates=True)
    assert "data" in report.not_calibrated


def calibrating(folder: Path) -> PowerSession:
    """Return a session, in a new folder, that calibrates a good meter."""
    folder.mkdir()
    return PowerSession.open(
        cast("Sampling", Meter(folder, SessionCalibrations(), state=0, is_noisy=False)),
        PowerConfig(),
        folder,
        host="box",
        devices=["nvme0"],
        block_devices=[],
        calibrates=True,
    )


@pytest.mark.usefixtures("_quick")
def test_drive_that_refuses_reads_does_not_fail_the_run(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "direct_alignment", lambda _: 3)
    session = calibrating(tmp_path / "run1")
    recorder = PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=dict)
    session.up(recorder, files)
    assert "could not be loaded" in session.down(recorder).not_calibrated


@pytest.mark.usefixtures("_quick")
def test_idle_baseline_follows_a_load_that_failed_late(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, slept_s = time.monotonic_ns, list[float]()

    def fail(plan: PulsePlan, data: Sequence[Path]) -> KnownLoad:
        monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns() + 60 * NS_PER_S)
        raise OSError("it was unplugged")

    monkeypatch.setattr(power_session, "load_drives", fail)
    monkeypatch.setattr(time, "sleep", slept_s.append)
    session = calibrating(tmp_path / "run1")
    session.up(PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=dict), files)
    assert max(slept_s) == pulses.BASELINE_S
