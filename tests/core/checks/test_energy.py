"""Checks of whether a figure is this run's, live, and of the state asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.checks.test_sensors import check, checks, record_of, whole, with_energy, with_power
from tests.core.checks.test_sensors import with_lifetime as lifetime
from wattload.core.power import Evidence, PowerBin, Scope
from wattload.core.record.energy import EnergyRecord, PowerStatistics
from wattload.core.record.run import RunRecord


def with_source(record: RunRecord, **facts: Any) -> RunRecord:
    sources = tuple(
        source.model_copy(update={"facts": source.facts.model_copy(update=facts)})
        for source in record.power.sources
        if source.facts is not None
    )
    return with_power(record, sources=sources)


def test_a_recording_of_another_run_bars_the_energy() -> None:
    found = check(with_source(record_of(), is_recorded=True), "power_of_this_run")
    assert (found.verdict, found.mandatory) == ("not_checked", True)
    assert "so its energy is not compared" in found.sentence


def test_a_recording_of_this_run_and_a_live_meter_need_no_check() -> None:
    assert checks(record_of(), "power_of_this_run") == []
    attached = with_source(record_of(), is_recorded=True, is_attached=True)
    assert checks(attached, "power_of_this_run") == []
    other = with_source(record_of(), is_recorded=True, scope=Scope.NODE)
    assert checks(other, "power_of_this_run") == []


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
    assert (found.verdict, found.mandatory) == ("warn", False)


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


def _meter_and_bounds(record: RunRecord, coverage: float) -> tuple[EnergyRecord, EnergyRecord]:
    (energy,) = record.power.energy
    lost = energy.model_copy(update={"coverage": coverage, "chosen": False})
    bound = energy.model_copy(
        update={"source": "nvme", "evidence": Evidence.BOUNDS, "coverage": 1.0}
    )
    return lost, bound


def test_the_check_of_a_meter_that_failed_is_mandatory_with_bounds() -> None:
    record = record_of()
    found = checks(with_power(record, energy=_meter_and_bounds(record, 0.6)), "power_coverage")
    assert [(each.verdict, each.mandatory) for each in found] == [("pass", True), ("fail", True)]
    assert found[1].name.endswith("_meter")


def test_a_counter_that_covers_all_does_not_hide_the_meter_that_failed() -> None:
    record = record_of()
    lost, bound = _meter_and_bounds(record, 0.6)
    counter = lost.model_copy(update={"source": "nvme_olec", "coverage": 1.0})
    both = with_power(record, energy=(lost, counter, bound))
    assert sorted(each.verdict for each in checks(both, "power_coverage")) == [
        "fail",
        "pass",
        "pass",
    ]
    alone = with_power(record, energy=(lost, counter))
    assert check(alone, "power_coverage").verdict == "fail"


def test_a_tail_that_the_meter_missed_is_only_reported() -> None:
    record = record_of()
    parts = tuple(
        each.model_copy(update={"phase": "tail"}) for each in _meter_and_bounds(record, 0.6)
    )
    found = checks(with_power(record, energy=parts), "power_coverage_tail")
    assert [(each.verdict, each.mandatory) for each in found] == [("pass", True), ("warn", False)]


def test_an_energy_without_uncertainty_is_given_a_share() -> None:
    record = lifetime(record_of(), 1000, 1100)

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


def with_states(record: RunRecord, **seconds: float) -> RunRecord:
    """Return the record with its timed phase spent in the states named ``ps0``, ``transition``."""
    (energy,) = record.power.energy
    (share,) = energy.states
    states = tuple(
        share.model_copy(update={"state": name.removeprefix("ps"), "seconds": spent})
        for name, spent in seconds.items()
    )
    return with_energy(record, states=states)


def held(record: RunRecord) -> str:
    return check(record, "power_state_held").verdict


def test_timed_seconds_in_another_working_state_fail_the_run() -> None:
    record = record_of(state=1)
    assert held(record) == "pass"
    found = check(with_states(record, ps0=32.0), "power_state_held")
    assert (found.verdict, found.mandatory) == ("fail", True)
    assert found.sentence == (
        "PS1 was requested, but the drive spent timed work in other states: 32 s in PS0."
    )
    assert held(with_states(record, ps1=30.0, ps0=2.0)) == "fail"


def test_transitions_sleep_and_what_was_not_read_are_no_other_working_state() -> None:
    record = record_of(state=1)
    assert held(with_states(record, ps1=30.0, transition=1.0, unknown=1.0)) == "pass"
    dozed = with_states(record, ps1=30.0, ps2=2.0)
    assert held(dozed) == "fail"
    (controller,) = record.controllers
    states = tuple(
        each.model_copy(update={"operational": each.index != 2})
        for each in controller.facts.power_states or ()
    )
    facts = controller.facts.model_copy(update={"power_states": states})
    sleeper = controller.model_copy(update={"facts": facts})
    assert held(dozed.model_copy(update={"controllers": (sleeper,)})) == "pass"


def test_states_before_or_after_the_timed_work_are_not_held_to_it() -> None:
    record = with_states(record_of(state=1), ps0=32.0)
    assert held(with_energy(record, phase="tail")) == "pass"


def with_statistics(**changes: Any) -> RunRecord:
    """Return a record whose sensor was read ten times a second; 100 of 1000 readings are high."""
    record = record_of(seconds=100.0)
    mean_w = record.power.energy[0].mean_w or 0.0
    values: dict[str, Any] = {
        "resolution_s": 0.1,
        "reading_count": 1000,
        "peak_100us_w": mean_w + 9.0,
        "peak_100ms_w": mean_w + 8.5,
        "peak_1s_w": mean_w + 8.0,
        "p99_w": mean_w + 8.0,
        "slew_w_per_s": 5.0,
        "slew_over_s": 0.1,
        "fifths_w": (mean_w,) * 5,
        "bin_w": 5.0,
        "histogram": (
            PowerBin(lower_w=mean_w - 2.0, count=900),
            PowerBin(lower_w=mean_w + 3.0, count=0),
            PowerBin(lower_w=mean_w + 8.0, count=100),
        ),
    }
    values |= {name: mean_w + shift for name, shift in changes.items() if name.endswith("_w")}
    values |= {name: value for name, value in changes.items() if not name.endswith("_w")}
    return with_energy(record, statistics=PowerStatistics(**values))


def test_peaks_that_agree_with_the_mean_pass() -> None:
    assert check(with_statistics(), "power_statistics").verdict == "pass"
    assert checks(record_of(), "power_statistics") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"peak_1s_w": -3.0}, "the mean power is"),
        ({"peak_100ms_w": 2.0}, "a mean over 1 s reached"),
        ({"peak_100us_w": 2.0}, "a mean over 0.1 s reached"),
    ],
)
def test_a_peak_below_a_longer_mean_fails(changes: dict[str, Any], says: str) -> None:
    found = check(with_statistics(**changes), "power_statistics")
    assert found.verdict == "fail"
    assert says in found.sentence


def attached(align: str = "wall", **sync: float | None) -> RunRecord:
    """Return a run of 100 s with a meter's own log, on a host whose clock NTP judges so."""
    record = with_source(record_of(seconds=100.0), is_recorded=True, is_attached=True)
    (host,) = record.hosts
    reason = "the kernel's clock is not synchronised (no NTP)"
    missing = {**host.before.missing} | {name: reason for name in sync if sync[name] is None}
    state = host.before.model_copy(update={**sync, "missing": missing})
    return record.model_copy(
        update={
            "hosts": (host.model_copy(update={"before": state, "after": state}),),
            "config": {**record.config, "power": {"replay": {"align": align}}},
        }
    )


@pytest.mark.parametrize(
    ("offset_s", "verdict"), [(0.002, "pass"), (-0.6, "warn"), (0.6, "warn"), (-8.0, "fail")]
)
def test_the_wall_clock_that_attaches_a_log_is_judged(offset_s: float, verdict: str) -> None:
    record = attached(ntp_offset_s=offset_s, ntp_error_s=0.001, ntp_max_error_s=0.02)
    found = check(record, "wall_clock")
    assert found.verdict == verdict
    assert found.figures["shift_s"] == pytest.approx(abs(offset_s) + 0.001)


def test_an_unsynchronised_clock_is_not_checked_and_without_need_not_named() -> None:
    unknown = attached(ntp_offset_s=None, ntp_error_s=None, ntp_max_error_s=None)
    found = check(unknown, "wall_clock")
    assert found.verdict == "not_checked"
    assert "not synchronised (no NTP)" in found.sentence
    assert checks(attached("monotonic"), "wall_clock") == []
    assert checks(record_of(), "wall_clock") == []
