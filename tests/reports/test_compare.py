from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm, one
from wattload.core.errors import ConfigError
from wattload.core.record.check import Check
from wattload.reports.compare import Row, compare, sentence
from wattload.reports.conditions import differences, unlike_work
from wattload.reports.load import Run, load_runs
from wattload.reports.subject import ARMS, Subject, make_subject

FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)
UNMADE = Check(name="cold", verdict="not_checked", sentence="Nobody looked.", mandatory=True)
UNPOWERED = Check(
    name="power_coverage", verdict="not_checked", sentence="No source.", mandatory=True
)


def rows(subject: Subject) -> dict[str, Row]:
    (group,) = subject.groups
    return {row.quantity.key: row for row in compare(subject, group)}


def folder_of(folder: Path, *scenarios: Scenario) -> Subject:
    for scenario in scenarios:
        write_run(folder, scenario)
    return make_subject(load_runs([folder]))


def five(label: str, **changes: object) -> list[Scenario]:
    rate = 1.5e9 if label == "A" else 0.6e9
    return [arm(label, index, rate=rate, **changes) for index in range(5)]  # type: ignore[arg-type]


def test_five_runs_per_arm_and_a_clear_effect_are_called(arms: tuple[Run, ...]) -> None:
    found = rows(make_subject(arms))
    rate, energy = found["throughput_bytes_per_s"], found["energy, train"]
    assert rate.call == "a"
    assert rate.effect is not None
    assert rate.effect.ratio == pytest.approx(0.4, rel=1e-3)
    assert energy.call == "a"
    assert found["rate per watt, train"].call == "a"


def test_the_ratio_is_said_as_a_share_and_never_as_slower(arms: tuple[Run, ...]) -> None:
    found = rows(make_subject(arms))
    assert sentence(found["train_s"], "A", "B") == (
        "A takes 40.0 % of B's time in train (B/A = 2.50)"
    )
    assert sentence(found["throughput_bytes_per_s"], "A", "B") == (
        "A reaches 250 % of B's rate in train (B/A = 0.400)"
    )


def test_mean_power_is_shown_and_no_direction_of_it_is_better(arms: tuple[Run, ...]) -> None:
    row = rows(make_subject(arms))["mean power, train"]
    assert (row.call, row.reason) == ("barred", "neither direction is better")


def test_figures_that_are_no_headlines_are_not_called(arms: tuple[Run, ...]) -> None:
    row = rows(make_subject(arms))["train_s"]
    assert (row.call, row.reason) == ("barred", "not called: only headline figures are")


def test_too_few_runs_are_never_called(arms: tuple[Run, ...]) -> None:
    few = [run for run in arms if run.id.endswith(("0", "1", "2", "3"))]
    row = rows(make_subject(few))["throughput_bytes_per_s"]
    assert row.call == "barred"
    assert row.reason == "too few runs to call: n = 4 and 4; 5 per arm are the floor"
    assert row.effect is not None
    assert row.effect.lower is None


def test_equal_arms_show_no_difference(tmp_path: Path) -> None:
    subject = folder_of(
        tmp_path,
        *five("A"),
        *[replace(s, label="B", run_id=s.run_id + "b", order=s.order + 1) for s in five("A")],
    )
    row = rows(subject)["throughput_bytes_per_s"]
    assert row.call == "none"
    assert "under 1.0 %" in row.reason


def test_a_run_with_a_failed_check_is_shown_and_not_compared(tmp_path: Path) -> None:
    scenarios = five("A")
    scenarios[2] = replace(scenarios[2], checks=(FAILED,))
    subject = folder_of(tmp_path, *scenarios, *five("B"))
    row = rows(subject)["throughput_bytes_per_s"]
    assert [figure.valid for figure in row.figures["A"]] == [True, True, False, True, True]
    assert row.spreads["A"] is not None
    assert row.spreads["A"].count == 4
    assert row.reason == "too few runs to call: n = 4 and 5; 5 per arm are the floor"


def test_a_mandatory_check_that_was_not_made_bars_a_run(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0, checks=(UNMADE,)))
    assert make_subject([run]).faults(run) == (
        "the mandatory check cold was not made: Nobody looked.",
    )


def test_an_unmade_check_that_is_not_mandatory_bars_nothing(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0))
    assert any(check.verdict == "not_checked" for check in run.record.checks)
    assert make_subject([run]).faults(run) == ()


def test_unmade_power_checks_bar_energy_and_not_throughput(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", checks=(UNPOWERED,)), *five("B"))
    found = rows(subject)
    assert found["throughput_bytes_per_s"].call == "a"
    assert found["energy, train"].call == "barred"
    assert found["energy, train"].reason.startswith("too few runs to call: n = 0 and 5")


@pytest.mark.parametrize("status", ["failed", "aborted"])
def test_a_run_that_did_not_finish_is_not_compared(tmp_path: Path, status: str) -> None:
    run = one(tmp_path, arm("A", 0, status=status))
    (fault,) = make_subject([run]).faults(run)
    assert fault == f"it is {status}: the run was interrupted"


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("declared", "declared by a data sheet or the user"),
        ("bounds", "bounds from power states"),
        ("upper", "bounds from power states"),
    ],
)
def test_weak_evidence_ranks_nothing_and_says_so(tmp_path: Path, power: str, words: str) -> None:
    subject = folder_of(tmp_path, *five("A", power=power), *five("B"))
    row = rows(subject)["energy, train"]
    assert row.call == "barred"
    assert row.reason.startswith(f"ranks nothing: {words}")
    assert rows(subject)["throughput_bytes_per_s"].call == "a"


def test_a_simulated_drive_ranks_nothing(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", model="QEMU NVMe Ctrl"), *five("B"))
    row = rows(subject)["energy, train"]
    assert row.call == "barred"
    assert "of a simulated drive" in row.reason


def test_time_and_energy_of_other_bytes_are_not_called(tmp_path: Path) -> None:
    longer = [replace(s, seconds=s.seconds * 1.05) for s in five("B")]
    found = rows(folder_of(tmp_path, *five("A"), *longer))
    assert found["energy, train"].reason.startswith("not the same bytes in train: 6.00")
    assert found["throughput_bytes_per_s"].call == "a"


def test_energy_of_all_phases_is_barred_with_any_of_them(tmp_path: Path) -> None:
    changes: dict[str, object] = {"workload": "checkpoint"}
    longer = [replace(s, seconds=s.seconds * 1.05) for s in five("B", **changes)]
    row = rows(folder_of(tmp_path, *five("A", **changes), *longer))["energy, all timed phases"]
    assert row.reason.startswith("not the same bytes in write")


def test_other_work_bars_every_call(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", scale="full"), *five("B"))
    (group,) = subject.groups
    assert unlike_work(group) == "not the same work: scale differ"
    assert {row.call for row in compare(subject, group)} == {"barred"}


def test_unequal_conditions_are_listed_and_equal_ones_are_not(arms: tuple[Run, ...]) -> None:
    (group,) = make_subject(arms).groups
    found = {item.name: item.values for item in differences(group)}
    assert found == {
        "serial": {"A": "SERIALA01", "B": "SERIALB01"},
        "power state": {"A": "PS1", "B": "PS0"},
    }


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("label", ("x", "y")),
        ("target", ("MICRON", "RIVAL")),
        ("power_state", ("PS1", "PS0")),
        ("loader", ("direct", "torch")),
    ],
)
def test_runs_are_told_apart_by(tmp_path: Path, by: str, expected: tuple[str, ...]) -> None:
    first = arm("A", 0, label="x", model="MICRON", loader="direct", order=0)
    second = arm("B", 0, label="y", model="RIVAL", loader="torch", order=1)
    runs = [one(tmp_path, first), one(tmp_path, second)]
    assert make_subject(runs, by).arms == expected


def test_without_controllers_and_states_arms_are_named_by_what_is_known(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="v", seconds=1.0))
    assert ARMS["target"](run.record) == "/mnt/ssd"
    assert ARMS["power_state"](run.record) == "power state unknown"
    bare = run.record.model_copy(update={"targets": ()})
    assert ARMS["target"](bare) == "no target"


def test_an_unknown_way_to_tell_runs_apart_names_the_known_ones(arms: tuple[Run, ...]) -> None:
    with pytest.raises(ConfigError, match="or a configuration key of the runs, got 'colour'"):
        make_subject(arms, "colour")


def test_arms_called_a_and_b_keep_their_letters(arms: tuple[Run, ...]) -> None:
    assert make_subject(tuple(reversed(arms))).arms == ("A", "B")


def test_the_first_run_named_decides_which_arm_is_a(tmp_path: Path) -> None:
    old, new = one(tmp_path, arm("B", 0, label="old")), one(tmp_path, arm("A", 0, label="new"))
    assert make_subject([old, new]).arms == ("old", "new")
    assert make_subject([new, old]).arms == ("new", "old")


def test_a_workload_that_one_arm_ran_is_not_compared(tmp_path: Path) -> None:
    subject = make_subject(
        [
            one(tmp_path, arm("A", 0)),
            one(tmp_path, arm("B", 0, workload="checkpoint")),
        ]
    )
    assert not subject.compares
    for group in subject.groups:
        assert {row.reason for row in compare(subject, group)} == {"one arm only"}
