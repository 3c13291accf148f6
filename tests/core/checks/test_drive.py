"""Checks on a drive: its link and writes, its settings, its heat."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.checks.changed_records import check, record_of, with_energy
from tests.records import Scenario, make_run
from wattload.core.checks.drive import write_granularity
from wattload.core.checks.evaluation import evaluate
from wattload.core.record.energy import PowerSettingRecord, ThrottlingRecord
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerState, PowerCapabilities


@pytest.mark.parametrize(
    ("preferred_bytes", "verdict"), [(16384, "pass"), (65536, "warn"), (None, None)]
)
def test_writes_smaller_than_a_drive_prefers_warn(
    preferred_bytes: int | None, verdict: str | None
) -> None:
    record, _ = make_run(Scenario(workload="checkpoint", power="measured", virtual=False))
    workload = record.workload.model_copy(update={"block_bytes_asked": 16384})
    (controller,) = record.controllers
    assert controller.before is not None
    before = controller.before.model_copy(update={"preferred_write_bytes": preferred_bytes})
    changed = record.model_copy(
        update={
            "workload": workload,
            "controllers": (controller.model_copy(update={"before": before}),),
        }
    )
    assert [each.verdict for each in write_granularity(changed)] == ([verdict] if verdict else [])


def test_a_link_that_is_not_known_is_not_checked() -> None:
    record = record_of()
    (controller,) = record.controllers
    facts = controller.facts.model_copy(
        update={
            "link_width_max": None,
            "missing": {**controller.facts.missing, "link_width_max": "it is no PCIe device"},
        }
    )
    bare = record.model_copy(
        update={"controllers": (controller.model_copy(update={"facts": facts}),)}
    )
    found = check(bare, "link_at_maximum")
    assert (found.verdict, "it is no PCIe device" in found.sentence) == ("not_checked", True)
    assert check(record.model_copy(update={"controllers": ()}), "link_at_maximum").verdict == (
        "not_checked"
    )


def record_of_a_drive() -> RunRecord:
    record, _ = make_run(Scenario(power="bounds", virtual=False, state=1))
    return record


def with_after(record: RunRecord, *, smart: dict[str, Any]) -> RunRecord:
    """Return the record with counters of its drive after the run changed."""
    (controller,) = record.controllers
    after = controller.after
    assert after is not None
    assert after.smart is not None
    changed = after.model_copy(update={"smart": after.smart.model_copy(update=smart)})
    return record.model_copy(
        update={"controllers": (controller.model_copy(update={"after": changed}),)}
    )


def with_state(record: RunRecord, **changes: Any) -> RunRecord:
    (state,) = record.power.states
    power = record.power.model_copy(update={"states": (state.model_copy(update=changes),)})
    return record.model_copy(update={"power": power})


def test_cool_drive_passes() -> None:
    found = check(record_of_a_drive(), "throttled_")
    assert found.verdict == "pass"
    assert "counted no throttling during the run." in found.sentence


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        ("thermal_transitions_1", "3 entries into light throttling"),
        ("thermal_transitions_2", "3 entries into heavy throttling"),
        ("thermal_seconds_1", "3 s of light throttling"),
        ("thermal_seconds_2", "3 s of heavy throttling"),
        ("critical_temperature_minutes", "3 min above the critical temperature"),
    ],
)
def test_any_counter_of_throttling_fails_the_run(counter: str, words: str) -> None:
    found = check(with_after(record_of_a_drive(), smart={counter: 3}), "throttled_")
    assert found.verdict == "fail"
    assert f"{words} during the run: it was throttled." in found.sentence
    assert found.figures[counter] == 3


def test_hot_drive_is_a_warning() -> None:
    found = check(
        with_after(record_of_a_drive(), smart={"warning_temperature_minutes": 2}), "throttled_"
    )
    assert found.verdict == "warn"
    assert "2 min above the warning temperature" in found.sentence


def ocp(record: RunRecord, before: int, after: int, status: int) -> RunRecord:
    (controller,) = record.controllers
    states = [
        ControllerState.model_validate(
            {
                **state.model_dump(),
                "missing": {
                    name: reason
                    for name, reason in state.missing.items()
                    if not name.startswith("throttle_")
                },
                "throttle_events": events,
                "throttle_status": status,
            }
        )
        for state, events in ((controller.before, before), (controller.after, after))
        if state is not None
    ]
    changed = controller.model_copy(update={"before": states[0], "after": states[1]})
    return record.model_copy(update={"controllers": (changed,)})


@pytest.mark.parametrize(
    ("before", "after", "status", "verdict", "words"),
    [
        (4, 4, 0, "pass", "no throttling"),
        (4, 6, 0, "fail", "2 throttling events by the OCP counter"),
        (4, 4, 1, "fail", "throttling in progress at the end"),
        (4, 1, 0, "not_checked", "throttle_events fell, so it was reset"),
    ],
)
def test_ocp_s_own_count_is_heard(
    before: int, after: int, status: int, verdict: str, words: str
) -> None:
    found = check(ocp(record_of_a_drive(), before, after, status), "throttled_")
    assert found.verdict == verdict
    assert words in found.sentence


def by_phase(record: RunRecord, **counted: int | None) -> RunRecord:
    """Return the record with what its drive counted in each timed phase."""
    facts = record.controllers[0].facts
    values = {"transition_count": 0, "throttled_s": 0, **counted}
    throttling = tuple(
        ThrottlingRecord(
            host=facts.host,
            device=facts.serial,
            phase=window.name,
            transition_count=values["transition_count"],
            throttled_s=values["throttled_s"],
            missing={name: "unread" for name, value in values.items() if value is None},
        )
        for window in record.timed_windows()
    )
    power = record.power.model_copy(update={"throttling": throttling})
    return record.model_copy(update={"power": power})


def heated(record: RunRecord) -> RunRecord:
    return with_after(record, smart={"thermal_transitions_1": 2, "thermal_seconds_1": 40})


def test_heat_of_generating_data_does_not_fail_cool_timed_phases() -> None:
    found = check(by_phase(heated(record_of_a_drive())), "throttled_")
    assert found.verdict == "pass"
    assert "40 s of light throttling during the run, none in a timed phase." in found.sentence


def test_heat_in_a_timed_phase_fails_and_names_it() -> None:
    record = record_of_a_drive()
    found = check(by_phase(heated(record), transition_count=1, throttled_s=7), "throttled_")
    assert found.verdict == "fail"
    phase = record.timed_windows()[0].name
    assert f"1 entries into throttling and 7 s of throttling in {phase}" in found.sentence
    assert found.figures[f"{phase}_throttled_s"] == 7
    assert found.figures["thermal_seconds_1"] == 40


def test_what_is_not_counted_by_phase_is_a_separate_warning() -> None:
    found = check(by_phase(ocp(heated(record_of_a_drive()), 4, 6, 1)), "throttled_")
    assert found.verdict == "warn"
    assert "2 throttling events by the OCP counter" in found.sentence
    assert "in progress at the end were in one is unknown" in found.sentence


def test_throttling_that_the_sampled_counters_do_not_know_fails_all_the_same() -> None:
    record = by_phase(ocp(record_of_a_drive(), 4, 6, 0))
    assert check(record, "throttled_").verdict == "fail"


def test_phase_whose_counters_were_not_read_leaves_the_run_as_a_whole_to_be_judged() -> None:
    found = check(by_phase(heated(record_of_a_drive()), throttled_s=None), "throttled_")
    assert (found.verdict, "during the run: it was throttled" in found.sentence) == ("fail", True)


def test_counter_that_fell_proves_nothing() -> None:
    found = check(with_after(record_of_a_drive(), smart={"thermal_seconds_1": -1}), "throttled_")
    assert found.verdict == "not_checked"
    assert "thermal_seconds_1 fell" in found.sentence


def test_drive_that_keeps_no_count_reports_it() -> None:
    record = record_of_a_drive()
    (controller,) = record.controllers
    names = [name for name in PowerCapabilities.model_fields if name != "missing"]
    flags = names[:6]
    power = PowerCapabilities.model_validate(
        {
            **dict.fromkeys(flags, False),
            **dict.fromkeys(names[6:]),
            "missing": dict.fromkeys(names[6:], "the drive reports 0"),
        }
    )
    facts = controller.facts.model_copy(update={"power": power})
    cool = record.model_copy(
        update={"controllers": (controller.model_copy(update={"facts": facts}),)}
    )
    found = check(cool, "throttled_")
    assert found.verdict == "pass"
    assert "it has no such counter" in found.sentence


def test_run_without_its_end_or_its_log_is_not_judged() -> None:
    record = record_of_a_drive()
    (controller,) = record.controllers
    unended = record.model_copy(
        update={"controllers": (controller.model_copy(update={"after": None}),)}
    )
    assert "the run did not finish" in check(unended, "throttled_").sentence
    after = controller.after
    assert after is not None
    closed = after.model_copy(
        update={"smart": None, "missing": {**after.missing, "smart": "closed"}}
    )
    unread = record.model_copy(
        update={"controllers": (controller.model_copy(update={"after": closed}),)}
    )
    assert "was not read after the run (closed)" in check(unread, "throttled_").sentence


def test_log_without_thermal_counters_is_not_judged() -> None:
    names = ("transitions_1", "transitions_2", "seconds_1", "seconds_2")
    bare = with_after(record_of_a_drive(), smart={f"thermal_{name}": None for name in names})
    assert "has no such counters" in check(bare, "throttled_").sentence


def test_host_without_a_controller_counts_nothing() -> None:
    record = record_of_a_drive().model_copy(update={"controllers": ()})
    assert check(record, "throttled").verdict == "not_checked"


def test_state_that_was_held_passes_and_another_fails() -> None:
    record = record_of_a_drive()
    assert check(record, "power_state_held").verdict == "pass"
    for changes in ({"verified": 0}, {"after": 0}, {"verified": None, "after": 0}):
        found = check(with_state(record, **changes), "power_state_held")
        assert (found.verdict, found.mandatory) == ("fail", True)


def test_state_that_was_not_read_at_the_end_is_not_judged() -> None:
    unread = with_state(record_of_a_drive(), after=None, missing={"after": "the drive is gone"})
    found = check(unread, "power_state_held")
    assert (found.verdict, found.mandatory) == ("not_checked", True)
    assert "the drive is gone" in found.sentence


def asleep(record: RunRecord, *, apst: bool) -> RunRecord:
    (controller,) = record.controllers
    assert controller.facts.power_states is not None
    assert controller.before is not None
    table = [each.model_copy(update={"operational": each.index < 2}) for each in
             controller.facts.power_states]  # fmt: skip
    changed = controller.model_copy(
        update={
            "facts": controller.facts.model_copy(update={"power_states": tuple(table)}),
            "before": controller.before.model_copy(update={"apst_enabled": apst}),
        }
    )
    return with_state(record.model_copy(update={"controllers": (changed,)}), after=2)


def test_drive_that_fell_asleep_by_its_own_rules_is_a_warning() -> None:
    found = check(asleep(record_of_a_drive(), apst=True), "power_state_held")
    assert found.verdict == "warn"
    assert "power.apst=false keeps it awake" in found.sentence


def test_drive_that_sleeps_without_rules_did_not_keep_its_state() -> None:
    assert check(asleep(record_of_a_drive(), apst=False), "power_state_held").verdict == "fail"
    elsewhere = asleep(record_of_a_drive(), apst=True).model_copy(update={"controllers": ()})
    assert check(elsewhere, "power_state_held").verdict == "fail"


@pytest.mark.parametrize(("found", "is_on", "verdict"), [(True, 0, "fail"), (False, 1, "warn")])
def test_rules_by_which_a_drive_sleeps_are_those_that_the_run_has_set(
    *, found: bool, is_on: int, verdict: str
) -> None:
    record = asleep(record_of_a_drive(), apst=found)
    switched = limited(option="power.apst", requested=is_on, verified=is_on)
    held = check(with_state(record, settings=(switched,)), "power_state_held")
    assert held.verdict == verdict


def limited(**changes: Any) -> PowerSettingRecord:
    values = {
        "option": "power.limit_w",
        "feature": 0x23,
        "name": "power limit",
        "unit": "W",
        "requested": 12.5,
        "before": 20.0,
        "verified": 12.5,
        "after": 12.5,
        "restored": 20.0,
        "saved": 20.0,
        "saved_after": 20.0,
    } | changes
    gaps = {name: "it was not read" for name, value in values.items() if value is None}
    return PowerSettingRecord.model_validate({**values, "missing": gaps})


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, "pass", "12.5 W was read before the run and 12.5 W after it."),
        ({"after": 20.0}, "fail", "20 W after it: the drive did not keep it."),
        ({"verified": None, "after": None}, "fail", "nothing was read before"),
        ({"after": None}, "not_checked", "it was not read"),
    ],
)
def test_other_settings_are_held_too(
    changes: dict[str, float | None], verdict: str, words: str
) -> None:
    record = with_state(record_of_a_drive(), settings=(limited(**changes),))
    found = check(record, "power_setting_held_limit_w_")
    assert (found.verdict, found.mandatory) == (verdict, True)
    assert words in found.sentence


def test_clock_is_held_to_no_value() -> None:
    clock = limited(option="power.set_timestamp", after=None)
    record = with_state(record_of_a_drive(), settings=(clock,))
    assert not [each for each in evaluate(record) if each.name.startswith("power_setting_held")]


def test_saved_value_that_changed_fails_the_run() -> None:
    kept = with_state(
        record_of_a_drive(), knob="power.state", saved=0, saved_after=0, settings=(limited(),)
    )
    found = check(kept, "saved_settings_kept")
    assert found.verdict == "pass"
    assert "(power state, power limit) did not change" in found.sentence
    assert found.figures["power_state_after"] == 0
    changed = with_state(kept, saved_after=1)
    found = check(changed, "saved_settings_kept")
    assert found.verdict == "fail"
    assert "own saved power state changed" in found.sentence


def test_drive_whose_saved_values_are_not_known_is_not_checked() -> None:
    record = with_state(record_of_a_drive(), knob="power.state")
    found = check(record, "saved_settings_kept")
    assert found.verdict == "not_checked"
    assert "power state (it was not read)" in found.sentence


def test_one_saved_value_that_is_known_is_judged_and_the_other_named() -> None:
    record = with_state(record_of_a_drive(), knob="power.state", settings=(limited(),))
    found = check(record, "saved_settings_kept")
    assert found.verdict == "pass"
    assert "saved values (power limit) did not change" in found.sentence
    assert "Unknown saved values: power state (it was not read)" in found.sentence
    lost = with_state(
        record_of_a_drive(),
        knob="power.limit_w",
        saved=0,
        saved_after=0,
        settings=(limited(saved_after=None),),
    )
    assert "power limit (it was not read)" in check(lost, "saved_settings_kept").sentence


def test_run_that_set_nothing_or_a_clock_alone_needs_no_saved_state() -> None:
    clock = limited(option="power.set_timestamp")
    for record in (record_of_a_drive(), with_state(record_of_a_drive(), settings=(clock,))):
        assert not [each for each in evaluate(record) if each.name.startswith("saved_settings")]


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
    assert held(with_energy(record, phase="rest")) == "pass"
