"""Checks of power against power: each is shown a record that passes, and one that must not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.checks.changed_records import (
    check,
    checks,
    record_of,
    with_energy,
    with_power,
    with_source,
)
from wattload.core.power import OTHER_SCOPES, Evidence, Integral, Scope
from wattload.core.record.energy import (
    WHOLE_RUN,
    CalibrationRecord,
    EnergyRecord,
    SensorRecord,
)
from wattload.core.record.results import NO_CALIBRATION
from wattload.core.record.run import RunRecord


def whole(record: RunRecord, source: str, energy_j: float | None) -> EnergyRecord:
    """Return the energy of the whole run by one source, a hundred seconds long."""
    (first, *_) = record.power.energy
    missing = {**first.missing, "lower_j": "-", "upper_j": "-", "change_count": "-"}
    if energy_j is None:
        missing |= dict.fromkeys(("energy_j", "mean_w"), "the meter was away")
    return EnergyRecord.model_validate(
        {
            **first.model_dump(),
            "phase": WHOLE_RUN,
            "source": source,
            "start_ns": 0,
            "end_ns": 100_000_000_000,
            "seconds": 100.0,
            "energy_j": energy_j,
            "mean_w": None if energy_j is None else energy_j / 100,
            "uncertainty_j": 3.0,
            "uncertainty_parts_j": {"gain": 3.0},
            "states": (),
            "change_count": None,
            "missing": missing,
        }
    )


@pytest.mark.parametrize(
    ("other_j", "verdict"), [(1200.0, "pass"), (1211.9, "pass"), (1230.0, "warn"), (1300.0, "fail")]
)
def test_two_sources_of_the_whole_run_must_agree(other_j: float, verdict: str) -> None:
    record = record_of()
    pair = (whole(record, "ipm", 1200.0), whole(record, "nvme_25h", other_j))
    assert check(with_power(record, whole_run=pair), "energy_cross_check").verdict == verdict


@pytest.mark.parametrize("evidence", [Evidence.SELF_REPORTED, Evidence.ESTIMATED])
def test_a_drive_that_reports_otherwise_than_a_meter_is_warned_of(evidence: Evidence) -> None:
    record = record_of()
    other = whole(record, "nvme_ocp", 1300.0).model_copy(update={"evidence": evidence})
    pair = (whole(record, "meter", 1200.0), other)
    assert check(with_power(record, whole_run=pair), "energy_cross_check").verdict == "warn"
    both = tuple(each.model_copy(update={"evidence": Evidence.ESTIMATED}) for each in pair)
    assert check(with_power(record, whole_run=both), "energy_cross_check").verdict == "warn"


def test_one_source_alone_or_without_a_figure_is_not_checked() -> None:
    record = record_of()
    alone = with_power(record, whole_run=(whole(record, "ipm", 1200.0),))
    found = check(alone, "energy_cross_check")
    assert found.verdict == "not_checked"
    assert "ipm is the only source" in found.sentence
    pair = (whole(record, "ipm", 1200.0), whole(record, "nvme_25h", None))
    found = check(with_power(record, whole_run=pair), "energy_cross_check")
    assert found.verdict == "not_checked"
    assert found.sentence == "nvme_25h has no figure: the meter was away."
    assert "there is no source" in check(record, "energy_cross_check").sentence
    elsewhere = whole(record, "nvml", 9.0).model_copy(update={"device": "GPU-1"})
    apart = with_power(record, whole_run=(whole(record, "ipm", 1200.0), elsewhere))
    found = check(apart, "energy_cross_check")
    assert found.sentence.endswith(
        ": ipm and nvml did not read the same device over the same time."
    )


def with_lifetime(record: RunRecord, before_wh: int | None, after_wh: int | None) -> RunRecord:
    (controller,) = record.controllers

    def state(moment: str, value: int | None) -> Any:
        found = getattr(controller, moment)
        reasons = {k: v for k, v in found.smart.missing.items() if k != "lifetime_energy_wh"}
        if value is None:
            reasons["lifetime_energy_wh"] = "the drive does not count it"
        smart = found.smart.model_copy(update={"lifetime_energy_wh": value, "missing": reasons})
        return found.model_copy(update={"smart": smart})

    changed = controller.model_copy(
        update={"before": state("before", before_wh), "after": state("after", after_wh)}
    )
    return record.model_copy(update={"controllers": (changed,)})


@pytest.mark.parametrize(
    ("energy_j", "verdict"), [(9000.0, "pass"), (14399.0, "pass"), (14500.0, "fail")]
)
def test_a_run_uses_no_more_than_the_drive_counted_in_its_life(
    energy_j: float, verdict: str
) -> None:
    record = with_lifetime(record_of(), 100, 103)
    ran = with_power(record, whole_run=(whole(record, "ipm", energy_j),))
    assert check(ran, "energy_lifetime").verdict == verdict


def test_a_run_uses_no_less_than_the_time_around_it_leaves() -> None:
    record = with_lifetime(record_of(), 100, 200)
    ran = with_power(record, whole_run=(whole(record, "ipm", 10.0),))
    assert check(ran, "energy_lifetime").verdict == "fail"


def test_a_drive_that_counts_no_lifetime_energy_is_not_checked() -> None:
    record = record_of()
    ran = with_power(record, whole_run=(whole(record, "ipm", 1200.0),))
    uncounted = check(with_lifetime(ran, None, None), "energy_lifetime")
    assert uncounted.verdict == "not_checked"
    assert "the drive does not count it" in uncounted.sentence
    fallen = check(with_lifetime(ran, 9, 3), "energy_lifetime")
    assert (fallen.verdict, "fell from 9 to 3 Wh" in fallen.sentence) == ("not_checked", True)
    unmeasured = check(with_lifetime(record, 1, 3), "energy_lifetime")
    assert "the whole run's energy is unknown" in unmeasured.sentence
    bare = record.model_copy(update={"controllers": ()})
    assert check(bare, "energy_lifetime").verdict == "not_checked"


@pytest.mark.parametrize(("upper_w", "verdict"), [(25.0, "pass"), (1.0, "warn")])
def test_a_drive_draws_no_more_than_its_power_state_allows(upper_w: float, verdict: str) -> None:
    record = record_of()
    (energy,) = record.power.energy
    missing = dict.fromkeys(
        ("energy_j", "lower_j", "mean_w", "idle_w", "net_j", "uncertainty_j"), "-"
    )
    bound = EnergyRecord.model_validate(
        {
            **energy.model_dump(),
            **dict.fromkeys(missing),
            "source": "nvme",
            "evidence": Evidence.BOUNDS,
            "upper_j": upper_w * energy.seconds,
            "change_count": None,
            "states": (),
            "chosen": False,
            "missing": dict.fromkeys(
                (*missing, "change_count", "statistics", "max_interval_w"), "-"
            ),
        }
    )
    both = with_power(record, energy=(energy, bound))
    assert check(both, "power_within_bounds").verdict == verdict


@pytest.mark.parametrize(
    ("changed", "idle_w", "resolution_w", "verdict"),
    [
        (400, 5.0, 0.01, "pass"),
        (0, 5.0, 0.01, "warn"),
        (0, 5.0, 1.0, "pass"),
        (0, 14.0, 1.0, "warn"),
    ],
)
def test_a_sensor_with_one_power_all_through_the_work_looks_stuck(
    changed: int, idle_w: float, resolution_w: float, verdict: str
) -> None:
    record = with_energy(record_of(), change_count=changed, idle_w=idle_w, mean_w=14.0)
    sources = tuple(
        source.model_copy(
            update={"facts": source.facts.model_copy(update={"resolution_w": resolution_w})}
        )
        for source in record.power.sources
        if source.facts is not None
    )
    assert check(with_power(record, sources=sources), "power_updates").verdict == verdict


def test_readings_whose_changes_nobody_counted_are_not_judged() -> None:
    assert checks(record_of(), "power_updates") == []


def sensor_of(**changes: Any) -> SensorRecord:
    """Return a sensor that was calibrated, and is as declared: a mean over a second."""
    return SensorRecord(
        **{
            "basis": "calibrated",
            "tau_s": 0.5,
            "tau_uncertainty_s": 0.02,
            "kappa_s": 0.125,
            "kappa_uncertainty_s": 0.01,
            "settle_s": 1.0,
            "update_s": 0.0,
            "noise_w": 0.01,
            "train_share": 0.004,
            "train_share_uncertainty": 0.01,
            "responds": True,
            "jump_w": 4.0,
            "jump_most_w": 4.1,
            "declared_tau_s": 0.5,
            **changes,
        }
    )


def with_sensor(record: RunRecord, **changes: Any) -> RunRecord:
    """Return the record with its sensors calibrated and as declared, but for ``changes``."""
    sensor = sensor_of(**changes)
    sources = tuple(
        each.model_copy(update={"sensor": sensor}) for each in record.power.sources if each.facts
    )
    return with_power(record, sources=sources)


def test_a_sensor_that_was_not_calibrated_is_not_checked_and_says_why() -> None:
    record = with_sensor(record_of(), basis="declared", reason="power.idle_s is 5 s", responds=None)
    found = check(record, "sensor_calibrated")
    assert (found.verdict, found.bars_energy) == ("not_checked", False)
    assert found.sentence.endswith("is 0.50 s late as declared (power.idle_s is 5 s).")
    assert found.cause == NO_CALIBRATION
    assert checks(record_of(), "sensor_calibrated") == []


def test_a_calibration_that_failed_is_a_check_that_applies() -> None:
    record = with_sensor(record_of(), basis="declared", reason="it does not settle", responds=None)
    (source,) = record.power.sources
    calibration = CalibrationRecord(
        host=source.host,
        device=source.device,
        source=source.name,
        utc="2026-11-29T07:00:00+00:00",
        run_id=record.run_id,
        key={},
        origin_ns=0,
        pulses=(),
        train=(),
        time_ns=(),
        values=(),
    )
    found = check(with_power(record, calibrations=(calibration,)), "sensor_calibrated")
    assert (found.verdict, found.cause) == ("not_checked", "")


@pytest.mark.parametrize(
    ("tau_s", "uncertainty_s", "seconds", "verdict"),
    [
        (0.9, 0.02, 20.0, "warn"),
        (0.1, 0.02, 20.0, "warn"),
        # The uncertainty is at k = 2: three sigmas are 1.5 times as much.
        (0.9, 0.26, 20.0, "warn"),
        (0.9, 0.27, 20.0, "pass"),
        # The same delay is less than 1 % of a longer phase's energy.
        (0.9, 0.02, 60.0, "pass"),
    ],
)
def test_a_sensor_other_than_declared_is_a_warning_beyond_three_sigmas_and_1_percent(
    tau_s: float, uncertainty_s: float, seconds: float, verdict: str
) -> None:
    record = with_energy(
        record_of(seconds=seconds), mean_w=10.0, idle_w=4.0, energy_j=10.0 * seconds
    )
    found = check(
        with_sensor(record, tau_s=tau_s, tau_uncertainty_s=uncertainty_s), "sensor_calibrated"
    )
    assert found.verdict == verdict
    assert "by its calibration, which its energies use" in found.sentence
    assert ("0.50 s were declared" in found.sentence) == (verdict == "warn")


@pytest.mark.parametrize(
    ("share", "uncertainty", "verdict"),
    [(-0.3, 0.01, "warn"), (0.021, 0.01, "warn"), (0.019, 0.001, "pass"), (0.3, 0.21, "pass")],
)
def test_a_meter_that_fails_the_fast_train_is_a_warning(
    share: float, uncertainty: float, verdict: str
) -> None:
    record = with_sensor(record_of(), train_share=share, train_share_uncertainty=uncertainty)
    found = check(record, "sensor_calibrated")
    assert found.verdict == verdict
    assert ("the meter aliases or is not linear" in found.sentence) == (verdict == "warn")


@pytest.mark.parametrize(("ripple", "verdict"), [(0.5, "warn"), (0.2, "pass")])
def test_a_meter_that_samples_moments_is_a_warning(ripple: float, verdict: str) -> None:
    found = check(with_sensor(record_of(), train_ripple=ripple), "sensor_calibrated")
    assert found.verdict == verdict
    assert ("samples of moments" in found.sentence) == (verdict == "warn")


def test_a_late_fall_that_a_fast_train_shows_is_a_warning() -> None:
    record = with_sensor(record_of(), train_share=0.27, fall_later_s=0.2)
    found = check(record, "sensor_calibrated")
    assert found.verdict == "warn"
    assert "falls 0.20 s later" in found.sentence
    assert "aliases" not in found.sentence


def two_sources(one: SensorRecord, other: SensorRecord) -> RunRecord:
    """Return a record with two sources of one drive."""
    record = record_of()
    (source,) = record.power.sources
    assert source.facts is not None
    facts = source.facts.model_copy(update={"name": "nvme_ipm"})
    changes = {"name": "nvme_ipm", "facts": facts, "sensor": other}
    sources = (
        source.model_copy(update={"sensor": one}),
        source.model_copy(update=changes),
    )
    return with_power(record, sources=sources)


SILENT = {
    "basis": "declared",
    "reason": "it does not respond",
    "responds": False,
    "jump_w": 0.1,
    "jump_most_w": 0.4,
}


def test_a_meter_of_another_drive_fails_where_another_source_responds() -> None:
    record = two_sources(sensor_of(**SILENT), sensor_of())
    meter, ipm = checks(record, "sensor_calibrated")
    assert (meter.verdict, meter.fails_run, ipm.verdict) == ("fail", True, "pass")
    assert "it measures something else" in meter.sentence
    for alone in (
        with_sensor(record_of(), **SILENT),
        two_sources(sensor_of(**SILENT), sensor_of(**SILENT)),
    ):
        assert {each.verdict for each in checks(alone, "sensor_calibrated")} == {"not_checked"}


@pytest.mark.parametrize("most_w", [2.1, 9.0, None])
def test_noise_that_could_hide_the_load_fails_no_run(most_w: float | None) -> None:
    noisy = sensor_of(**{**SILENT, "jump_most_w": most_w})
    found, other = checks(two_sources(noisy, sensor_of()), "sensor_calibrated")
    assert (found.verdict, other.verdict) == ("not_checked", "pass")


@pytest.mark.parametrize("scope", OTHER_SCOPES)
def test_sensors_of_other_devices_are_not_calibrated(scope: Scope) -> None:
    record = with_source(with_sensor(record_of(), **SILENT), scope=scope)
    assert checks(record, "sensor_calibrated") == []


@pytest.mark.parametrize(
    ("other_j", "verdict"), [(1223.0, "pass"), (1226.0, "warn"), (1900.0, "warn")]
)
def test_what_a_drive_integrates_itself_agrees_with_its_power_within_2_percent(
    other_j: float, verdict: str
) -> None:
    record = with_source(record_of(), name="nvme_25h", sensor=Integral())
    pair = (whole(record, "ipm", 1200.0), whole(record, "nvme_25h", other_j))
    assert check(with_power(record, whole_run=pair), "energy_cross_check").verdict == verdict
    unsure = [each.model_copy(update={"uncertainty_parts_j": {"gain": 600.0}}) for each in pair]
    found = check(with_power(record, whole_run=tuple(unsure)), "energy_cross_check")
    assert found.verdict == "pass"


def test_meters_that_disagree_by_more_than_both_uncertainties_are_a_warning() -> None:
    record = record_of()

    def verdict_for(other_j: float) -> str:
        parts = {"gain": 30.0, "noise": 40.0}
        pair = [
            whole(record, source, energy_j).model_copy(update={"uncertainty_parts_j": parts})
            for source, energy_j in (("meter", 1200.0), ("hwmon", other_j))
        ]
        return check(with_power(record, whole_run=tuple(pair)), "energy_cross_check").verdict

    both_j = 50.0 * 2**0.5
    assert verdict_for(1200.0 + 0.99 * both_j) == "pass"
    assert verdict_for(1200.0 + 1.01 * both_j) == "warn"


def test_two_sources_are_failed_only_beyond_three_sigmas() -> None:
    record = record_of()

    def verdict_for(other_j: float) -> str:
        pair = [
            whole(record, source, energy_j).model_copy(
                update={"uncertainty_parts_j": {"noise": 60}}
            )
            for source, energy_j in (("ipm", 1200.0), ("nvme_25h", other_j))
        ]
        found = check(with_power(record, whole_run=tuple(pair)), "energy_cross_check")
        return found.verdict

    # One of them is 60 at k = 2, so their difference has a sigma of 42.4 J.
    assert [verdict_for(1200.0 + sigmas * 42.4) for sigmas in (1.9, 2.9, 3.1)] == [
        "pass",
        "warn",
        "fail",
    ]


def test_a_lifetime_counter_fails_only_beyond_three_sigmas() -> None:
    record = with_lifetime(record_of(), 100, 103)

    def verdict_for(energy_j: float) -> str:
        energy = whole(record, "ipm", energy_j).model_copy(update={"uncertainty_j": 100.0})
        return check(with_power(record, whole_run=(energy,)), "energy_lifetime").verdict

    most_j = 4 * 3600.0
    assert [verdict_for(most_j + over_j) for over_j in (90.0, 140.0, 160.0)] == [
        "pass",
        "warn",
        "fail",
    ]


def stuck(**changes: Any) -> RunRecord:
    """Return a record with two meters of a drive: one shows idle power all the time."""
    record = with_source(
        with_energy(record_of(), change_count=0, idle_w=14.0, mean_w=14.0), resolution_w=0.01
    )
    (energy,) = record.power.energy
    other = {"source": "nvme_ipm", "change_count": 300, "mean_w": 17.0, "chosen": False}
    return with_power(record, energy=(energy, energy.model_copy(update=other | changes)))


def test_a_sensor_that_stood_still_while_another_changed_fails_the_run() -> None:
    found = check(stuck(), "power_updates")
    assert (found.verdict, found.mandatory) == ("fail", True)
    assert "shows the same at idle, but nvme_ipm changed: it was stuck" in found.sentence
    node = with_source(with_energy(stuck(), scope=Scope.NODE), scope=Scope.NODE)
    found = check(node, "power_updates")
    assert (found.verdict, found.mandatory) == ("not_checked", False)


@pytest.mark.parametrize("changes", [{"change_count": 0}, {"device": "OTHER"}, {"phase": "other"}])
def test_without_another_source_that_changed_it_looks_stuck(changes: dict[str, Any]) -> None:
    assert check(stuck(**changes), "power_updates").verdict == "warn"


def test_a_constant_power_other_than_at_idle_fails_no_run() -> None:
    assert check(with_energy(stuck(), idle_w=5.0), "power_updates").verdict == "warn"


@pytest.mark.parametrize(("seconds", "sample_count"), [(29.9, 320), (60.0, 60)])
def test_few_constant_readings_are_not_checked(seconds: float, sample_count: int) -> None:
    record = with_energy(record_of(), change_count=0, seconds=seconds, sample_count=sample_count)
    assert check(record, "power_updates").verdict == "not_checked"
    node = with_energy(record, scope=Scope.NODE)
    assert checks(node, "power_updates") == []


def test_an_energy_without_uncertainty_is_given_a_share() -> None:
    record = with_lifetime(record_of(), 1000, 1100)

    def verdict_for(wh: float) -> str:
        energy = whole(record, "nvme_ipm", wh * 3600)
        unknown = energy.model_copy(
            update={
                "uncertainty_j": None,
                "missing": {**energy.missing, "uncertainty_j": "no accuracy is stated"},
            }
        )
        return check(with_power(record, whole_run=(unknown,)), "energy_lifetime").verdict

    assert verdict_for(101.5) == "pass"
    assert verdict_for(120.0) == "fail"
