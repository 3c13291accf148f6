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
from wattload.core.power import Boxcar, Evidence, Scope
from wattload.core.record.energy import (
    WHOLE_RUN,
    EnergyRecord,
    SensorRecord,
)
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


def with_sensor(record: RunRecord, **found: Any) -> RunRecord:
    """Return the record with sensors declared as a mean over 1 s, and found in their readings."""
    sensor = SensorRecord(
        **{
            "shape": "boxcar",
            "window_s": 1.0,
            "window_uncertainty_s": 0.1,
            "lag_s": 0.0,
            "lag_uncertainty_s": 0.04,
            "is_declared": True,
            "is_known": True,
            "is_explained": True,
            "residual_w": 0.1,
            **found,
        }
    )
    sources = tuple(
        each.model_copy(
            update={
                "facts": each.facts.model_copy(update={"sensor": Boxcar(window_s=1.0)}),
                "found": sensor,
            }
        )
        for each in record.power.sources
        if each.facts is not None
    )
    return with_power(record, sources=sources)


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (
            {"lag_s": 0.17},
            "and reads like a mean over 1.00 s, but 0.17 ± 0.04 s late (declared: 0 s)",
        ),
        ({"window_s": 2.0, "is_declared": False}, "but reads like a mean over 2.00 s, 0.00 ±"),
    ],
)
def test_a_sensor_other_than_declared_is_told_by_what_differs(
    found: dict[str, Any], difference: str
) -> None:
    made = check(with_sensor(record_of(), **found), "sensor_model")
    assert made.verdict == "fail"
    assert f"declared as a mean over 1.00 s {difference}" in made.sentence
    assert made.sentence.endswith("; its energy allows for this.")


LATE = {"lag_s": 2.55, "is_explained": False, "edge_residual_w": 0.2}


@pytest.mark.parametrize(
    ("found", "verdict", "bars"),
    [
        # The uncertainty is at k = 2: three sigmas are 1.5 times as much.
        ({"lag_s": 0.18, "lag_uncertainty_s": 0.05}, "fail", False),
        ({"lag_s": 0.17, "lag_uncertainty_s": 0.05}, "warn", False),
        ({"lag_s": 0.14, "lag_uncertainty_s": 0.05}, "pass", False),
        ({"window_s": 2.0, "window_uncertainty_s": 0.5, "is_declared": False}, "fail", False),
        ({"window_s": 2.0, "window_uncertainty_s": 0.7, "is_declared": False}, "warn", False),
        ({"shape": "rc", "window_uncertainty_s": 0.7, "is_declared": False}, "fail", False),
        (LATE | {"lag_uncertainty_s": 0.26}, "fail", True),
        (LATE | {"lag_uncertainty_s": 1.93}, "not_checked", True),
        (LATE | {"lag_uncertainty_s": 1.93, "edge_residual_w": 0.4}, "fail", True),
    ],
)
def test_a_sensor_fails_its_check_only_beyond_three_sigmas(
    found: dict[str, Any], verdict: str, bars: bool
) -> None:
    made = check(with_sensor(record_of(), **found), "sensor_model")
    assert (made.verdict, made.bars_energy) == (verdict, bars)


def test_two_sources_are_failed_only_beyond_three_sigmas() -> None:
    record = record_of()

    def verdict_for(other_j: float) -> str:
        pair = [
            whole(record, source, energy_j).model_copy(update={"uncertainty_parts_j": {"fit": 60}})
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


def test_a_sensor_that_stood_still_in_the_work_fails_the_run() -> None:
    record = with_energy(
        record_of(),
        change_count=9,
        stale_s=12.0,
        freshness="stale",
        freshness_reason="the drive went from idleness into work or back",
    )
    found = check(record, "power_updates")
    assert (found.verdict, found.mandatory) == ("fail", True)
    assert "did not change for 12.0 s in which the drive went from idleness into work" in (
        found.sentence
    )
    node = with_source(with_energy(record, scope=Scope.NODE), scope=Scope.NODE)
    found = check(node, "power_updates")
    assert (found.verdict, found.mandatory) == ("not_checked", False)


def test_what_is_not_known_of_a_sensor_is_not_checked() -> None:
    reason = "it takes 10 s to tell"
    unjudged = with_energy(
        record_of(), change_count=3, freshness="unjudged", freshness_reason=reason
    )
    found = check(unjudged, "power_updates")
    assert (found.verdict, found.mandatory) == ("not_checked", False)
    assert reason in found.sentence
    fresh = with_energy(record_of(), change_count=3, freshness="fresh", seconds=5.0)
    assert check(fresh, "power_updates").verdict == "pass"


@pytest.mark.parametrize(("seconds", "sample_count"), [(29.9, 320), (60.0, 60)])
def test_few_readings_of_an_older_record_are_not_checked(seconds: float, sample_count: int) -> None:
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
