"""A phase that was entered several times: joules, seconds and bytes of its own intervals only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import ns, samples_of
from wattload.core.power import (
    Bounds,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Sample,
    Scope,
    SourceFacts,
)
from wattload.core.record.energy import EnergyRecord, SensorRecord
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.energy.trace import ByteSeries

TIMES_S = np.round(np.arange(-700, 660) / 10, 6)
READ = window("read", 0, 60)
IDLE = (ns(-65), ns(-5))


def power(
    source: str, watts: float, *, evidence: Evidence = Evidence.SELF_REPORTED
) -> list[Sample]:
    """Return readings of 5 W until just before second 0, then ``watts``."""
    values = np.where(TIMES_S < -0.05, 5.0, watts)
    return samples_of(TIMES_S, values, source=source, evidence=evidence)


def bounds(source: str = "nvme", *, state: float = 0, lower_w: float | None = 5.0) -> list[Sample]:
    channels = {Channel.UPPER_W: 25.0, Channel.POWER_STATE: state}
    if lower_w is not None:
        channels[Channel.LOWER_W] = lower_w
    return [
        sample
        for channel, value in channels.items()
        for sample in samples_of(
            TIMES_S,
            np.full(TIMES_S.size, value),
            source=source,
            channel=channel,
            evidence=Evidence.BOUNDS,
        )
    ]


def account(
    samples: Sequence[Sample],
    *sources: SourceFacts,
    idle: tuple[int, int] | None = IDLE,
    requested: str = "auto",
    traffic: dict[tuple[str, str], ByteSeries] | None = None,
    resets_ns: dict[str, list[int]] | None = None,
) -> tuple[EnergyRecord, ...]:
    return EnergyLedger(
        samples,
        sources,
        host="host1",
        activity=activity_of(READ),
        baseline=idle,
        resets_ns=resets_ns,
    ).phase_records([READ], traffic=traffic, requested=requested)


NVME = facts("nvme", Evidence.BOUNDS, Bounds())


def test_measured_window_has_gross_net_and_mean() -> None:
    (record,) = account(power("meter", 20), facts("meter", accuracy_percent=1.0))
    assert record.energy_j == pytest.approx(1200, rel=1e-9)
    assert record.mean_w == pytest.approx(20, rel=1e-9)
    assert record.idle_w == pytest.approx(5, rel=1e-9)
    assert record.net_j == pytest.approx(900, rel=1e-9)
    assert record.uncertainty_j is not None
    assert record.uncertainty_parts_j["gain"] == pytest.approx(12, rel=1e-9)
    assert record.coverage == 1
    assert record.evidence is Evidence.SELF_REPORTED
    assert record.chosen
    assert (record.host, record.device, record.source, record.phase) == (
        "host1",
        "SERIAL1",
        "meter",
        "read",
    )
    assert set(record.missing) == {"lower_j", "upper_j", "max_interval_w"}


def test_net_energy_below_idle_stays_negative() -> None:
    (record,) = account(power("meter", 4), facts("meter"))
    assert record.net_j == pytest.approx(-60, rel=1e-9)


def test_no_idle_baseline_leaves_net_empty_with_its_reason() -> None:
    (record,) = account(power("meter", 20), facts("meter"), idle=None)
    assert record.net_j is None
    assert record.missing["idle_w"] == "no idle baseline was taken"
    assert record.missing["net_j"] == "no idle baseline was taken"


def test_idle_baseline_that_was_not_read_is_no_baseline() -> None:
    (record,) = account(power("meter", 20), facts("meter"), idle=(ns(-300), ns(-200)))
    assert record.idle_w is None
    assert record.missing["idle_w"] == "in the idle baseline, no reading covers the window"


def test_bounds_are_an_interval_without_a_figure() -> None:
    (record,) = account(bounds(), NVME)
    assert record.energy_j is None
    assert record.mean_w is None
    assert record.lower_j == pytest.approx(300, rel=1e-9)
    assert record.upper_j == pytest.approx(1500, rel=1e-9)
    assert record.evidence is Evidence.BOUNDS
    assert record.missing["energy_j"] == "nvme reports bounds only"
    assert record.missing["uncertainty_j"] == "nvme has no power sensor"
    assert record.coverage == 1
    assert record.chosen


def test_maximum_alone_is_an_upper_bound() -> None:
    (record,) = account(bounds(lower_w=None), NVME)
    assert record.lower_j is None
    assert record.missing["lower_j"] == "nvme reports no lower bound"
    assert record.upper_j == pytest.approx(1500, rel=1e-9)


def test_source_without_samples_is_told_not_zero() -> None:
    (record,) = account([], facts("meter"))
    assert record.energy_j is None
    assert record.coverage is None
    assert record.sample_count == 0
    assert record.evidence is Evidence.NONE
    assert record.missing["energy_j"] == "meter has no samples"
    assert not record.chosen


def test_weakest_evidence_of_a_window_is_kept() -> None:
    samples = power("meter", 20)
    samples[710] = samples_of([1.0], [20.0], source="meter", evidence=Evidence.ESTIMATED)[0]
    (record,) = account(samples, facts("meter"))
    assert record.evidence is Evidence.ESTIMATED


def test_smallest_stated_uncertainty_is_chosen() -> None:
    samples = power("coarse", 20) + power("fine", 20.5)
    records = account(
        samples, facts("coarse", accuracy_percent=2.0), facts("fine", accuracy_percent=0.5)
    )
    assert [record.chosen for record in records] == [False, True]


def test_stated_uncertainty_beats_stronger_evidence_without_one() -> None:
    samples = power("silent", 20, evidence=Evidence.MEASURED) + power("stated", 20)
    records = account(
        samples, facts("silent", Evidence.MEASURED), facts("stated", accuracy_percent=5.0)
    )
    assert [record.chosen for record in records] == [False, True]


def test_stronger_evidence_is_chosen_where_no_uncertainty_is_stated() -> None:
    samples = power("estimate", 20, evidence=Evidence.ESTIMATED) + power("report", 20)
    records = account(samples, facts("estimate", Evidence.ESTIMATED), facts("report"))
    assert [record.chosen for record in records] == [False, True]


AS_DECLARED = SensorRecord(
    shape="instant",
    window_s=0,
    window_uncertainty_s=0,
    lag_s=0,
    lag_uncertainty_s=0.05,
    is_declared=True,
    is_known=True,
    is_explained=True,
    residual_w=0.01,
)
LATE = AS_DECLARED.model_copy(update={"lag_s": 0.5})
UNEXPLAINED = AS_DECLARED.model_copy(update={"is_explained": False})


@pytest.mark.parametrize(
    ("fine", "coarse", "chosen"),
    [
        (AS_DECLARED, AS_DECLARED, "fine"),
        (LATE, AS_DECLARED, "coarse"),
        (LATE, LATE, "fine"),
        (UNEXPLAINED, LATE, "coarse"),
        (UNEXPLAINED, UNEXPLAINED, "fine"),
    ],
)
def test_sensor_as_declared_is_chosen_before_a_small_uncertainty_and_bounds_come_last(
    monkeypatch: pytest.MonkeyPatch, fine: SensorRecord, coarse: SensorRecord, chosen: str
) -> None:
    found = {"fine": fine, "coarse": coarse, "nvme": None}
    monkeypatch.setattr(EnergyLedger, "sensor", lambda _, source: found[source.name])
    records = account(
        bounds() + power("coarse", 20) + power("fine", 20.5),
        NVME,
        facts("coarse", accuracy_percent=2.0),
        facts("fine", accuracy_percent=0.5),
    )
    assert [record.source for record in records if record.chosen] == [chosen]


def test_interval_beats_an_upper_bound_alone() -> None:
    samples = bounds("wide", lower_w=None) + bounds("nvme")
    records = account(samples, facts("wide", Evidence.BOUNDS, Bounds()), NVME)
    assert [record.chosen for record in records] == [False, True]


def test_coarse_counter_is_not_chosen() -> None:
    joules = np.floor((TIMES_S + 70) * 20 / 3600) * 3600
    samples = samples_of(TIMES_S, joules, source="lifetime", channel=Channel.ENERGY_J)
    records = account(
        samples + power("meter", 20),
        facts("lifetime", sensor=Counter(quantum_j=3600)),
        facts("meter"),
    )
    assert records[0].energy_j is None
    assert [record.chosen for record in records] == [False, True]


def test_known_restart_of_the_device_reaches_the_counter() -> None:
    samples = samples_of(TIMES_S, 20 * TIMES_S + 5000, source="rapl", channel=Channel.ENERGY_J)
    source = facts("rapl", sensor=Counter(quantum_j=0.001))
    (record,) = account(samples, source, resets_ns={"SERIAL1": [ns(30.04)]})
    assert record.coverage == pytest.approx(59.9 / 60, rel=1e-9)


def test_restart_of_a_drive_is_none_of_the_counter_on_its_rail() -> None:
    samples = samples_of(TIMES_S, 20 * TIMES_S + 5000, source="rail", channel=Channel.ENERGY_J)
    rail = facts("rail", Evidence.MEASURED, sensor=Counter(quantum_j=0.001))
    (record,) = account(samples, rail, resets_ns={"SERIAL1": [ns(30.04)]})
    assert record.coverage == 1


def declared(typical_w: float | None) -> list[Sample]:
    samples = bounds("declared", lower_w=None)
    samples = [sample for sample in samples if sample.channel is Channel.UPPER_W]
    if typical_w is not None:
        samples += power("declared", typical_w, evidence=Evidence.DECLARED)
    return samples


DECLARED = facts("declared", Evidence.DECLARED, Bounds())


def test_data_sheet_is_chosen_only_if_it_was_asked_for() -> None:
    (by_itself,) = account(declared(12), DECLARED)
    assert not by_itself.chosen
    (asked_for,) = account(declared(12), DECLARED, requested="declared")
    assert asked_for.chosen
    assert asked_for.energy_j == pytest.approx(720, rel=1e-9)
    assert asked_for.evidence is Evidence.DECLARED
    assert asked_for.missing["idle_w"] == "declared has no power sensor"
    assert asked_for.missing["uncertainty_j"] == "declared has no power sensor"


def test_declared_maximum_alone_is_an_upper_bound_labelled_declared() -> None:
    (record,) = account(declared(None), DECLARED, requested="declared")
    assert record.energy_j is None
    assert record.lower_j is None
    assert record.upper_j == pytest.approx(1500, rel=1e-9)
    assert record.evidence is Evidence.DECLARED


def test_source_without_evidence_is_left_out() -> None:
    assert account([], facts("none", Evidence.NONE, Bounds())) == ()


def test_gpu_is_chosen_beside_the_drive_never_in_its_place() -> None:
    samples = bounds() + samples_of(
        TIMES_S, np.full(TIMES_S.size, 300.0), source="nvml_power", device="GPU-1"
    )
    gpu = facts("nvml_power", device="GPU-1", scope=Scope.GPU, accuracy_percent=0.1)
    records = account(samples, NVME, gpu)
    assert [(record.scope, record.chosen) for record in records] == [
        (Scope.DRIVE, True),
        (Scope.GPU, True),
    ]
    assert records[1].states == ()


def test_only_timed_windows_of_this_host_are_counted() -> None:
    windows = [
        READ,
        window("prepare", 0, 10, timed=False),
        window("elsewhere", 0, 10, host="host2"),
        window("write", 20, 30),
    ]
    ledger = EnergyLedger(
        power("meter", 20), [facts("meter")], host="host1", activity=activity_of(*windows)
    )
    records = ledger.phase_records(windows)
    assert [record.phase for record in records] == ["read", "write"]


def test_states_of_the_device_divide_the_figure_of_another_source() -> None:
    traffic = {
        ("read", "SERIAL1"): ByteSeries(
            time_ns=np.array([ns(0), ns(60)]), moved_bytes=np.array([0.0, 6e9])
        )
    }
    records = account(bounds(state=1) + power("meter", 20), NVME, facts("meter"), traffic=traffic)
    for record in records:
        (share,) = record.states
        assert share.state == "1"
        assert share.seconds == 60
        assert share.moved_bytes == 6_000_000_000
        assert share.energy_j == record.energy_j
        assert share.lower_j == record.lower_j
        assert share.upper_j == record.upper_j


def test_window_without_length_has_a_record_without_figures() -> None:
    (record,) = EnergyLedger(
        bounds() + power("meter", 20), [facts("meter")], host="host1"
    ).phase_records([window("empty", 10, 10)])
    assert record.energy_j is None
    assert record.missing["energy_j"] == "the window is empty"
    assert record.states == ()


def test_what_was_seen_of_updates_is_in_the_resolved_facts() -> None:
    rng = np.random.default_rng(0)
    seconds = np.floor(TIMES_S + 1e-9).astype(int)
    drawn = rng.uniform(5, 20, seconds.max() - seconds.min() + 1)
    samples = samples_of(TIMES_S, drawn[seconds - seconds.min()], source="ipm")
    source = facts("ipm", sensor=Boxcar(window_s=1.0))
    ledger = EnergyLedger(samples, [source, facts("meter")], host="host1")
    ipm, other = ledger.resolve(source), ledger.resolve(facts("meter"))
    assert isinstance(ipm.sensor, Boxcar)
    assert ipm.sensor.update_period_s == pytest.approx(1.0, abs=1e-4)
    assert other == facts("meter")


PERIOD_S = 0.1


def _samples(watts: Callable[[float], float], *, until_s: float = 20.0) -> list[Sample]:
    """Return a reading every 0.1 s, and power state 0 in the first ten seconds, then 1."""
    made = []
    for step in range(int(until_s / PERIOD_S) + 1):
        time_s = step * PERIOD_S
        for channel, value in (
            (Channel.POWER_W, watts(time_s)),
            (Channel.POWER_STATE, 0.0 if time_s < 10 else 1.0),
        ):
            made.append(
                Sample(
                    time_ns=ns(time_s),
                    spread_ns=0,
                    source="meter",
                    device="SERIAL1",
                    channel=channel,
                    value=value,
                    evidence=Evidence.MEASURED,
                )
            )
    return made


def _record(samples: list[Sample], *intervals: tuple[float, float]) -> EnergyRecord:
    whole = window("read", intervals[0][0], intervals[-1][1])
    phase = whole.model_copy(update={"intervals": tuple((ns(a), ns(b)) for a, b in intervals)})
    series = ByteSeries.from_bins(
        np.array([ns(a) for a, _ in intervals]),
        np.full(len(intervals), 1000),
        bin_ns=100_000_000,
        intervals=phase.intervals,
    )
    (record,) = EnergyLedger(
        samples,
        [facts("meter", Evidence.MEASURED, accuracy_percent=1.0)],
        host="host1",
        activity=activity_of(phase),
        baseline=(ns(0), ns(1)),
    ).phase_records([phase], traffic={("read", "SERIAL1"): series})
    return record


def test_the_pauses_between_intervals_cost_the_phase_nothing() -> None:
    busy = _samples(lambda s: 20.0 if 2 <= s <= 4 or 6 <= s <= 8 else 5.0)
    record = _record(busy, (2.0, 4.0), (6.0, 8.0))
    assert record.energy_j == pytest.approx(80.0, rel=1e-9)
    assert record.seconds == pytest.approx(4.0)
    assert record.mean_w == pytest.approx(20.0)
    assert record.net_j == pytest.approx(80.0 - 4 * 5.0)
    assert (record.start_ns, record.end_ns) == (ns(2.0), ns(8.0))
    assert record.chosen


def test_intervals_that_touch_are_worth_the_whole() -> None:
    ramp = _samples(lambda s: 3.0 + s)
    whole = _record(ramp, (2.0, 8.0))
    parts = _record(ramp, (2.0, 4.5), (4.5, 8.0))
    assert parts.energy_j == pytest.approx(whole.energy_j, rel=1e-9)
    assert parts.coverage == pytest.approx(1.0)


def test_states_and_bytes_sum_over_the_intervals() -> None:
    record = _record(_samples(lambda _: 10.0), (8.0, 9.0), (11.0, 14.0))
    shares = {share.state: share for share in record.states}
    assert shares["0"].seconds == pytest.approx(1.0)
    assert shares["1"].seconds == pytest.approx(3.0)
    assert sum(share.seconds for share in record.states) == pytest.approx(record.seconds)
    assert sum(share.moved_bytes or 0 for share in record.states) == 2000


def test_a_gain_error_is_the_same_in_every_interval() -> None:
    record = _record(_samples(lambda _: 10.0), (2.0, 4.0), (6.0, 8.0))
    assert record.uncertainty_parts_j["gain"] == pytest.approx(0.4)
    assert record.uncertainty_j is not None
    assert record.uncertainty_j >= record.uncertainty_parts_j["gain"]


def test_an_interval_without_samples_leaves_the_sum_missing_with_its_reason() -> None:
    record = _record(_samples(lambda _: 10.0, until_s=5.0), (2.0, 4.0), (16.0, 18.0))
    assert record.energy_j is None
    assert record.missing["energy_j"]
    assert record.coverage == pytest.approx(0.5)
