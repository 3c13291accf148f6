"""Energies get a verdict only beyond the accuracy of the sensors of both arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import hypot

import pytest

from tests.reports.sessions import turn
from wattload.core.record.energy import EnergyRecord
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.figures import accuracy
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen

PARTS = {"gain": 0.09, "noise": 0.003, "edges": 0.004, "offset": 0.0, "gap": 0.0}
"""Shares of an energy; all of them together are just over 0.09."""


def runs(
    watts: Mapping[str, float],
    *,
    serials: Mapping[str, str],
    power: Mapping[str, str] | str = "measured",
) -> list[Run]:
    """Return eight pairs of runs that drew these watts."""
    kinds = dict.fromkeys(watts, power) if isinstance(power, str) else power
    return [
        turn(arm, block, 1e9, power=kinds[arm], virtual=False, serial=serials[arm],
             busy_w=watts[arm] * (1 + 0.001 * ((block * 7 + 3 * (arm == "B")) % 5)))
        for arm in watts
        for block in range(8)
    ]  # fmt: skip


def stating(run: Run, share: float | None, parts: Mapping[str, float]) -> Run:
    """Return a run whose energies state an uncertainty and its parts, as shares of each."""

    def stated(energy: EnergyRecord) -> EnergyRecord:
        whole_j = energy.energy_j or 0.0
        stated_j = None if share is None else share * whole_j
        parts_j = {name: part * whole_j for name, part in parts.items()}
        names = ("uncertainty_j", "work_uncertainty_j")
        missing = {k: v for k, v in energy.missing.items() if k not in names}
        update = {
            "uncertainty_j": stated_j,
            "uncertainty_parts_j": parts_j,
            "work_uncertainty_j": stated_j,
            "work_uncertainty_parts_j": parts_j,
            "missing": missing | (dict.fromkeys(names, "not stated") if share is None else {}),
        }
        return energy.model_copy(update=update)

    power = run.record.power
    reported = power.model_copy(update={"energy": tuple(map(stated, power.energy))})
    return replace(run, record=run.record.model_copy(update={"power": reported}))


TWO_DRIVES = {"A": "SA", "B": "SB"}
ONE_DRIVE = {"A": "SA", "B": "SA"}


FOR_WORK, IN_WINDOW = "energy for the work, read", "energy in the window, read"


def energy(made: list[Run], key: str = FOR_WORK) -> Row:
    subject = make_subject(made)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if row.quantity.key == key)


def test_an_effect_within_what_two_sensors_may_be_off_by_is_not_called() -> None:
    made = runs({"A": 18.0, "B": 18.6}, serials=TWO_DRIVES)
    exact = energy([stating(each, 0.005, {}) for each in made])
    assert exact.call == "a"
    row = energy([stating(each, 0.1, {}) for each in made])
    assert row.effect is not None
    assert row.effect.floor == pytest.approx(hypot(0.1, 0.1))
    assert row.call == "none"
    assert "below 14 % (stated uncertainty of both energies)" in row.reason


def test_two_sensors_that_know_no_better_show_nothing_to_be_the_same() -> None:
    made = runs({"A": 18.0, "B": 18.0}, serials=TWO_DRIVES)
    assert energy([stating(each, 0.001, {}) for each in made]).words == "same within 3 %"
    assert energy([stating(each, 0.05, {}) for each in made]).words == "inconclusive"


def test_rate_per_watt_and_mean_power_are_of_the_same_sensors() -> None:
    made = [stating(each, 0.1, {}) for each in runs({"A": 18.0, "B": 18.6}, serials=TWO_DRIVES)]
    subject = make_subject(made)
    (group,) = subject.groups
    found = {row.quantity.key: row.effect for row in compare(subject, group) if row.effect}
    for key in (FOR_WORK, IN_WINDOW, "mean power, read", "rate per watt, read"):
        assert found[key].floor == pytest.approx(hypot(0.1, 0.1))
    assert found["read_bytes_per_s"].accuracy == 0.0


def test_the_gain_of_one_sensor_in_both_arms_cancels() -> None:
    made = runs({"A": 18.0, "B": 18.6}, serials=ONE_DRIVE)
    row = energy([stating(each, 0.0902, PARTS) for each in made])
    assert row.effect is not None
    assert row.effect.accuracy == pytest.approx(hypot(0.005, 0.005))
    assert row.call == "a"


def test_without_parts_all_that_one_sensor_states_counts() -> None:
    made = runs({"A": 18.0, "B": 18.6}, serials=ONE_DRIVE)
    row = energy([stating(each, 0.1, {}) for each in made])
    assert row.effect is not None
    assert row.effect.accuracy == pytest.approx(hypot(0.1, 0.1))
    assert row.call == "none"


def test_what_states_no_accuracy_is_not_called_across_drives() -> None:
    made = runs({"A": 18.0, "B": 36.0}, serials=TWO_DRIVES)
    row = energy([stating(each, None, {"noise": 0.003}) for each in made])
    assert (row.call, row.words) == ("barred", "inconclusive")
    assert row.reason.startswith("sensor accuracy not stated")


def test_one_run_that_states_nothing_is_enough_to_bar() -> None:
    made = runs({"A": 18.0, "B": 36.0}, serials=TWO_DRIVES)
    row = energy([stating(made[0], None, {}), *made[1:]])
    assert row.reason.startswith("sensor accuracy not stated")


def test_one_drive_whose_gain_alone_is_not_stated_is_called_against_itself() -> None:
    but_gain = {name: part for name, part in PARTS.items() if name != "gain"}
    made = runs({"A": 18.0, "B": 36.0}, serials=ONE_DRIVE)
    assert energy([stating(each, None, but_gain) for each in made]).call == "a"
    row = energy([stating(each, None, {"edges": 0.001}) for each in made])
    assert row.reason.startswith("sensor resolution not stated")


def test_energy_that_is_known_in_two_ways_is_not_called_and_both_are_told() -> None:
    kinds = {"A": "measured", "B": "self_reported"}
    row = energy(runs({"A": 18.0, "B": 36.0}, serials=TWO_DRIVES, power=kinds))
    assert row.call == "barred"
    assert row.reason == (
        "different kinds of evidence: A measured by a meter or a rail sensor; B measured and "
        "reported by the device"
    )


def test_each_arm_counts_with_the_mean_of_what_its_runs_state() -> None:
    made = [stating(each, 0.01, {}) for each in runs({"A": 18.0, "B": 18.0}, serials=TWO_DRIVES)]
    arms = [[each.record for each in made if each.record.label == arm] for arm in "AB"]
    assert accuracy(arms, "read").share == pytest.approx(hypot(0.01, 0.01))
    arms[0][3] = stating(made[3], 0.05, {}).record
    mean = 0.01 + 0.04 / len(arms[0])
    assert accuracy(arms, "read").share == pytest.approx(hypot(mean, 0.01))
    assert accuracy([[], arms[1]], "read").reason == ""


def moved(run: Run, meter: str) -> Run:
    """Return a run that was read by an external meter."""
    power = run.record.power
    sources = tuple(
        source.model_copy(
            update={"facts": source.facts and source.facts.model_copy(update={"meter": meter})}
        )
        for source in power.sources
    )
    power = power.model_copy(update={"sources": sources})
    return replace(run, record=run.record.model_copy(update={"power": power}))


def share(made: Sequence[Run]) -> float:
    arms = [[each.record for each in made if each.record.label == arm] for arm in "AB"]
    found = accuracy(arms, "read")
    assert not found.reason
    return found.share


LAGGING = {"gain": 0.01, "noise": 0.001, "edges": 0.02}


def test_gain_of_one_meter_cancels_and_what_is_unknown_of_its_lag_does_not() -> None:
    made = [
        stating(each, 0.03, LAGGING) for each in runs({"A": 18.0, "B": 18.6}, serials=ONE_DRIVE)
    ]
    assert share(made) == pytest.approx(hypot(0.001, 0.001, 0.02, 0.02))


def test_a_meter_that_was_moved_between_drives_has_one_gain() -> None:
    made = [
        stating(each, 0.03, LAGGING) for each in runs({"A": 18.0, "B": 18.6}, serials=TWO_DRIVES)
    ]
    assert share(made) == pytest.approx(hypot(0.03, 0.03))
    one = [moved(each, "QTL1999-02-020") for each in made]
    assert share(one) == pytest.approx(hypot(0.001, 0.001, 0.02, 0.02))
    two = [moved(each, f"QTL1999-02-{each.record.label}") for each in made]
    assert share(two) == pytest.approx(hypot(0.03, 0.03))


def with_tails(made: Sequence[Run], joules: Mapping[str, float], **changes: object) -> list[Run]:
    """Return runs whose drives used so many joules above idle in the rest, by arm."""
    found = []
    for each in made:
        power = each.record.power
        tail_j = joules.get(each.record.label)
        update = {"tail_j": tail_j, **changes}
        energies = tuple(
            one.model_copy(
                update=update
                if tail_j is not None
                else {"tail_j": None, "missing": {**one.missing, "tail_j": "no rest followed it"}}
            )
            for one in power.energy
        )
        power = power.model_copy(update={"energy": energies})
        found.append(replace(each, record=each.record.model_copy(update={"power": power})))
    return found


def test_energy_for_the_work_is_compared_and_includes_the_tail() -> None:
    made = with_tails(runs({"A": 18.0, "B": 27.0}, serials=ONE_DRIVE), {"A": 10.0, "B": 20.0})
    work, window = energy(made), energy(made, IN_WINDOW)
    assert (work.call, window.call) == ("a", "derived")
    assert window.words == f"see {FOR_WORK}"
    (first,) = [each for each in work.figures["A"] if each.run == made[0].id]
    assert first.value == pytest.approx((made[0].record.power.energy[0].energy_j or 0.0) + 10.0)


def test_a_verdict_that_depends_on_the_measurand_is_not_given() -> None:
    made = with_tails(runs({"A": 18.0, "B": 27.0}, serials=ONE_DRIVE), {"A": 2000.0, "B": 0.0})
    row = energy(made)
    assert (row.call, row.words) == ("barred", "inconclusive")
    assert row.reason == (
        "the verdict depends on the measurand: B is better for the work, A is better in the window"
    )


def test_runs_without_a_tail_or_with_another_rest_are_compared_in_the_window() -> None:
    made = runs({"A": 18.0, "B": 27.0}, serials=ONE_DRIVE)
    without = with_tails(made, {"A": 1.0})
    assert (energy(without).call, energy(without, IN_WINDOW).call) == ("derived", "a")
    other = [
        replace(
            each,
            record=each.record.model_copy(
                update={"power": each.record.power.model_copy(update={"rest_s": 10.0})}
            ),
        )
        if each.record.label == "B"
        else each
        for each in made
    ]
    assert energy(other, IN_WINDOW).call == "a"
    work = energy(other)
    assert work.call == "derived"
    assert work.reason.startswith("the drives rested for 30 s and 10 s after the job")
    measurand = first_screen(make_subject(other)).measurand
    assert measurand.startswith("Energy is in the timed window only: the drives rested for")
    assert "plus the tail" in first_screen(make_subject(made)).measurand


def test_an_offset_does_not_cancel_between_arms_of_one_meter() -> None:
    parts = {"gain": 0.03, "offset": 0.02, "noise": 0.001}
    made = [stating(each, 0.04, parts) for each in runs({"A": 18.0, "B": 18.6}, serials=ONE_DRIVE)]
    assert share(made) == pytest.approx(hypot(0.02, 0.02, 0.001, 0.001))
