"""Whole-run energy by feature and log 25h: started, stopped, journalled, and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.model_host.drive import Model, ModelDrive, sent
from tests.model_host.power import Meter, centiwatts, measurement_bytes
from tests.power.energy_facts import window as phase
from tests.power.energy_traces import traces
from tests.power.sources.nvme_models import (
    ModelDriveContract,
    change,
    device,
    meter,
    sources,
    values,
)
from wattload.core.errors import PowerError
from wattload.core.power import Accuracy, Evidence, Integral, PowerBin, PowerSource, WindowEnergy
from wattload.core.record.energy import EnergyRecord
from wattload.core.units import NS_PER_S
from wattload.power.control import power_settings
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal, Key
from wattload.power.control.undo import recover_changes
from wattload.power.energy.drive_integrals import own_record
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.nvme.admin import AdminDevice, DeviceWithTimeout
from wattload.power.nvme.measurement import PowerMeasurementLog, decode_power_measurement
from wattload.power.sources import nvme_measurement as measurement_module
from wattload.power.sources.nvme_measurement import (
    CUT_OFF_S,
    POLL_S,
    SETTLED_S,
    Answers,
    window_energy,
)

FEATURE = 0x25
METER = Meter(
    measures=True,
    aipwr=centiwatts(12.5),
    mipwr=centiwatts(19),
    error_percent=2,
    bins=((1, centiwatts(12.25)), (2, centiwatts(12.5)), (0, 2 << 16)),
)


def make(folder: Path, given: Meter = METER, **options: Any) -> PowerSource:
    return sources(folder, Model(meter=given), **options)["nvme_25h"]


def started(folder: Path, given: Meter = METER) -> PowerSource:
    source = make(folder, given)
    source.open()
    source.start()
    return source


def stopped(source: PowerSource) -> WindowEnergy:
    (energy,) = source.stop()
    return energy


def journalled(folder: Path) -> bool:
    return ChangeJournal(folder / "state").read(Key(device().key, FEATURE, 1), "run") is not None


class TestPowerMeasurement(ModelDriveContract):
    channels = frozenset()

    def make(self) -> PowerSource:
        return make(self.folder)

    def test_failed_read_is_a_sample_without_value(self, source: PowerSource) -> None:
        source.start()
        change(self.folder, gone=True)
        assert source.read() == ()
        assert stopped(source).energy_j is None
        change(self.folder, gone=False)


def test_energy_is_the_mean_power_times_the_time_from_start_to_stop(tmp_path: Path) -> None:
    source = started(tmp_path)
    assert source.read() == ()
    energy = stopped(source)
    seconds = (energy.end_ns - energy.start_ns) / NS_PER_S
    assert seconds > 0
    assert energy.energy_j == pytest.approx(12.5 * seconds)
    assert energy.evidence is Evidence.SELF_REPORTED
    assert (energy.accuracy_percent, energy.resolution_w, energy.max_w) == (2, 0.01, 19.0)
    assert energy.uncovered_s == pytest.approx(seconds)
    assert energy.histogram == (
        PowerBin(lower_w=0.0, count=0),
        PowerBin(lower_w=12.25, count=1),
        PowerBin(lower_w=12.5, count=2),
    )


def test_facts_tell_what_the_drive_states(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    facts = source.facts()
    assert (facts.sensor, facts.accuracy) == (Integral(), Accuracy(reading_percent=2))
    assert facts.evidence is Evidence.SELF_REPORTED


def test_start_is_journalled_until_the_stop(tmp_path: Path) -> None:
    source = started(tmp_path)
    assert meter(tmp_path).setting == 1
    assert journalled(tmp_path)
    source.stop()
    assert meter(tmp_path).setting == 0
    assert not journalled(tmp_path)
    assert sent(tmp_path) == ["0x25 1", "0x25 0"]


def test_run_that_dies_leaves_a_journal_and_restore_stops_the_drive(tmp_path: Path) -> None:
    source = started(tmp_path)
    source.restore()
    source.restore()
    source.close()
    assert meter(tmp_path).setting == 0
    assert not journalled(tmp_path)


def test_drive_that_reports_no_setting_is_judged_by_its_log(tmp_path: Path) -> None:
    source = started(tmp_path, replace(METER, hides_setting=True))
    assert journalled(tmp_path)
    assert stopped(source).energy_j is not None
    assert not journalled(tmp_path)


@pytest.mark.parametrize("setting", [0, 1])
def test_measurement_left_on_a_drive_that_reports_no_setting_is_undone(
    tmp_path: Path, setting: int
) -> None:
    started(tmp_path, replace(METER, hides_setting=True))
    change(tmp_path, setting=setting)
    host = PowerHost(
        journal=ChangeJournal(tmp_path / "state"),
        open_device=lambda name: ModelDrive(tmp_path, name),
        list_names=lambda: ["nvme0"],
    )
    (leftover,) = recover_changes(host)
    assert (leftover.restored, leftover.closed) == (0, True)
    assert meter(tmp_path).setting == 0


def test_drive_that_estimates_gives_an_estimate(tmp_path: Path) -> None:
    energy = stopped(started(tmp_path, replace(METER, estimated=True)))
    assert energy.evidence is Evidence.ESTIMATED


def test_interval_power_is_an_estimate_once_the_started_log_says_so(tmp_path: Path) -> None:
    found = sources(tmp_path, Model(meter=replace(METER, ipm=centiwatts(9))))
    power, whole = found["nvme_ipm"], found["nvme_25h"]
    power.open()
    whole.open()
    change(tmp_path, estimated=True)
    assert power.read()[0].evidence is Evidence.SELF_REPORTED
    whole.start()
    assert power.read()[0].evidence is Evidence.ESTIMATED
    assert values(power.read())
    whole.stop()


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_estimate_at_any_moment_is_an_estimate(moment: int) -> None:
    logs = [log(estimated=at == moment) for at in range(3)]
    assert ended_with(logs).evidence is Evidence.ESTIMATED


def test_largest_error_that_was_stated_counts() -> None:
    stated = [log(error_percent=error) for error in (5, 2, 1)]
    assert ended_with(stated).accuracy_percent == 5
    assert (
        ended_with([log(error_percent=2), log(), log(error_percent=255)]).accuracy_percent is None
    )


def test_stop_comes_just_after_an_interval_of_the_drive(tmp_path: Path) -> None:
    source = started(tmp_path)
    time.sleep(0.4)
    energy = stopped(source)
    seconds = (energy.end_ns - energy.start_ns) / NS_PER_S
    assert seconds >= 1 + SETTLED_S


@pytest.mark.parametrize(("late_s", "phase_s"), [(0.06, 0.0), (0.4, 0.0), (0.0, 0.7), (-0.3, 0.0)])
def test_interval_that_the_drive_s_clock_still_owes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, late_s: float, phase_s: float
) -> None:
    """A drive whose clock is ``late_s`` late or early, or whose seconds start at another time."""
    now_s, start_s = 1800.3, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def header(admin: object) -> PowerMeasurementLog:
        sleep(0.001)
        return log(count=math.floor(now_s - start_s - late_s + phase_s) - math.floor(phase_s))

    monkeypatch.setattr(time, "monotonic_ns", lambda: round(now_s * NS_PER_S))
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(measurement_module, "read_measurement_header", header)
    found = measurement_module._read_at_interval_end(cast("AdminDevice", None), 0)
    owed_s = (now_s - start_s - late_s + phase_s) % 1
    assert abs(found.count - math.floor(now_s)) <= 1
    assert owed_s < CUT_OFF_S + SETTLED_S + POLL_S or late_s < 0 or phase_s


@pytest.mark.parametrize(
    ("during", "reason"),
    [
        ({"generation": 2}, "another program restarted"),
        ({"setting": 0}, "ended before the run did"),
        ({"holes": True}, "has gaps"),
        ({"kind": 12}, "measured type 12"),
        ({"aipwr": 0}, "reports no mean power"),
        ({"count": 3}, "counted 3 intervals of 1 s"),
        ({"measures": False}, "refused Get Log Page 25h"),
    ],
)
def test_answer_of_another_window_is_refused_with_its_reason(
    tmp_path: Path, during: dict[str, object], reason: str
) -> None:
    source = started(tmp_path)
    change(tmp_path, **during)
    energy = stopped(source)
    assert energy.energy_j is None
    assert energy.evidence is Evidence.NONE
    assert reason in energy.reason


def test_device_that_vanishes_is_reported_and_stays_journalled(tmp_path: Path) -> None:
    source = started(tmp_path)
    change(tmp_path, gone=True)
    energy = stopped(source)
    assert energy.energy_j is None
    assert "No such device" in energy.reason
    with pytest.raises(PowerError):
        source.restore()
    assert journalled(tmp_path)


def test_drive_that_hangs_at_the_end_is_waited_for_no_longer(tmp_path: Path) -> None:
    source = make(
        tmp_path,
        open_device=lambda name: DeviceWithTimeout(ModelDrive(tmp_path, name), limit_s=0.05),
    )
    source.open()
    source.start()
    change(tmp_path, hanging=(0x02, 0x09))
    energy = stopped(source)
    assert energy.energy_j is None
    assert "has not answered Get Log Page 25h" in energy.reason
    with pytest.raises(PowerError):
        source.restore()
    source.close()
    assert journalled(tmp_path)
    change(tmp_path, hanging=())


def test_drive_that_refuses_the_start_does_not_end_the_run(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    change(tmp_path, refuses=0x4002)
    source.start()
    energy = stopped(source)
    assert energy.energy_j is None
    assert "refuses power measurement on" in energy.reason
    assert not journalled(tmp_path)


def test_drive_that_takes_the_start_and_measures_nothing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_settings, "GRACE_S", 0.02)
    source = started(tmp_path, replace(METER, deaf=True))
    reason = stopped(source).reason
    assert "accepted power measurement on but reports power measurement off" in reason
    assert not journalled(tmp_path)
    assert meter(tmp_path).setting == 0


def test_measurement_of_another_program_is_left_alone(tmp_path: Path) -> None:
    source = make(tmp_path, replace(METER, setting=1))
    with pytest.raises(PowerError, match="is already measuring its power"):
        source.open()
    assert sent(tmp_path) == []


def test_nothing_is_started_without_a_journal(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="this is started only in a run"):
        make(tmp_path, journalled=False).open()


@pytest.mark.parametrize("holds_system", [True, None])
def test_drive_that_may_hold_the_system_is_left_alone(
    tmp_path: Path, holds_system: bool | None
) -> None:
    with pytest.raises(PowerError, match="hold"):
        make(tmp_path, holds_system=holds_system).open()


def test_drive_without_the_measurement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="no power measurement of its own"):
        make(tmp_path, Meter()).open()


def test_start_and_stop_belong_after_open(tmp_path: Path) -> None:
    source = make(tmp_path)
    assert source.stop() == ()
    with pytest.raises(PowerError, match="started before it was opened"):
        source.start()


def answers(**fields: Any) -> Answers:
    running = replace(METER, setting=1, generation=1, **fields)
    log = decode_power_measurement(measurement_bytes(running))
    ended = decode_power_measurement(measurement_bytes(replace(running, setting=0)))
    return Answers(begun=log, running=log, ended=ended)


def log(**fields: Any) -> PowerMeasurementLog:
    return answers(**fields).begun


def ended_with(logs: Sequence[PowerMeasurementLog]) -> WindowEnergy:
    begun, running, ended = logs
    return window_energy(
        Answers(begun=begun, running=running, ended=ended),
        source="nvme_25h",
        device="D",
        start_ns=0,
        end_ns=0,
    )


def window(seconds: float, **fields: Any) -> WindowEnergy:
    return window_energy(
        answers(**fields),
        source="nvme_25h",
        device="D",
        start_ns=7,
        end_ns=7 + round(seconds * 1e9),
    )


def test_energy_of_five_minutes_is_exact(tmp_path: Path) -> None:
    energy = window(300.25, count=300)
    assert energy.energy_j == pytest.approx(12.5 * 300.25, rel=1e-12)
    assert energy.uncovered_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("seconds", "count"), [(300.0, 299), (300.0, 301), (300.99, 300), (301.058, 300)]
)
def test_count_within_one_of_the_seconds_is_taken(seconds: float, count: int) -> None:
    assert window(seconds, count=count).energy_j is not None


@pytest.mark.parametrize(("seconds", "count"), [(300.0, 298), (300.0, 302), (302.0, 300)])
def test_count_further_off_is_refused(seconds: float, count: int) -> None:
    assert window(seconds, count=count).energy_j is None


def test_two_clocks_may_drift_apart_over_many_hours() -> None:
    assert window(100_000.0, count=99_985).energy_j is not None
    assert window(100_000.0, count=99_975).energy_j is None


def test_record_of_the_whole_run_keeps_the_histogram(tmp_path: Path) -> None:
    source = started(tmp_path)
    energy, facts = stopped(source), source.facts()
    record = own_record(energy, facts.scope, host="box")
    assert record.energy_j == energy.energy_j
    assert record.histogram == energy.histogram
    assert EnergyRecord.model_validate_json(record.model_dump_json()) == record


def test_energy_of_the_whole_run_is_of_no_phase(tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open()
    assert not EnergyLedger(traces([]), [source.facts()], host="box").phase_records(
        [phase("read", 0, 1, host="box")]
    )
