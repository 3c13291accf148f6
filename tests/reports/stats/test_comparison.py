from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm, one, render_page, with_made_figures
from tests.reports.parsing import Page
from tests.reports.sessions import session, turn
from wattload.core.errors import ConfigError
from wattload.core.record.results import Check
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.sections.ratios import points_table
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.conditions import differences, different_work
from wattload.reports.stats.subject import ARMS, Group, Subject, make_subject
from wattload.reports.stats.sweeps import points
from wattload.results.quantity import TIMES

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
    return make_subject(with_made_figures(load_runs([folder]), scenarios))


def five(label: str, **changes: Any) -> list[Scenario]:
    rate = 1.5e9 if label == "A" else 0.6e9
    return [arm(label, index, rate=rate, **changes) for index in range(5)]


def test_five_runs_per_arm_and_a_clear_effect_are_called(arms: tuple[Run, ...]) -> None:
    found = rows(make_subject(arms))
    rate, energy = found["throughput_bytes_per_s"], found["energy, train"]
    assert rate.call == "a"
    assert rate.effect is not None
    assert rate.effect.ratio == pytest.approx(0.4, rel=1e-3)
    assert energy.call == "a"
    assert found["rate per watt, train"].words == "see energy, train"


def test_mean_power_is_shown_and_no_direction_of_it_is_better(arms: tuple[Run, ...]) -> None:
    row = rows(make_subject(arms))["mean power, train"]
    assert (row.call, row.reason) == ("barred", "neither direction is better")


def test_figures_that_are_no_headlines_are_not_called(arms: tuple[Run, ...]) -> None:
    row = rows(make_subject(arms))["train_s"]
    assert (row.call, row.reason) == ("barred", "only headline figures get a verdict")


def test_too_few_runs_are_never_called(arms: tuple[Run, ...]) -> None:
    few = [run for run in arms if run.id.endswith(("0", "1", "2", "3"))]
    row = rows(make_subject(few))["throughput_bytes_per_s"]
    assert row.call == "barred"
    assert row.reason == "4 runs each; 5 needed"
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
    assert "below 1.0 %" in row.reason


def test_a_run_with_a_failed_check_is_shown_and_not_compared(tmp_path: Path) -> None:
    scenarios = five("A")
    scenarios[2] = replace(scenarios[2], checks=(FAILED,))
    subject = folder_of(tmp_path, *scenarios, *five("B"))
    row = rows(subject)["throughput_bytes_per_s"]
    assert [figure.valid for figure in row.figures["A"]] == [True, True, False, True, True]
    assert row.spreads["A"] is not None
    assert row.spreads["A"].count == 4
    assert row.reason == "4 and 5 runs; 5 each needed"


def test_a_mandatory_check_that_was_not_made_bars_a_run(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0, checks=(UNMADE,)))
    assert make_subject([run]).faults(run) == (
        "the mandatory check cold is missing: Nobody looked.",
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
    assert found["energy, train"].reason.startswith("0 and 5 runs")


@pytest.mark.parametrize(
    ("status", "words"), [("failed", "the run failed"), ("aborted", "the run was aborted")]
)
def test_a_run_that_did_not_finish_is_not_compared(tmp_path: Path, status: str, words: str) -> None:
    run = one(tmp_path, arm("A", 0, status=status))
    (fault,) = make_subject([run]).faults(run)
    assert fault == f"{words}: the run was interrupted"


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("declared", "declared in a data sheet or by the user"),
        ("bounds", "bounds from power states"),
        ("upper", "bounds from power states"),
    ],
)
def test_weak_evidence_ranks_nothing_and_says_so(tmp_path: Path, power: str, words: str) -> None:
    subject = folder_of(tmp_path, *five("A", power=power), *five("B"))
    row = rows(subject)["energy, train"]
    assert row.call == "barred"
    assert row.reason.startswith(f"not comparable: {words}")
    assert rows(subject)["throughput_bytes_per_s"].call == "a"


def test_a_simulated_drive_is_not_compared_with_a_real_one(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", model="QEMU NVMe Ctrl"), *five("B"))
    row = rows(subject)["energy, train"]
    assert row.call == "barred"
    assert row.reason == "only some drives are simulated"


def test_time_and_energy_of_other_bytes_are_not_called(tmp_path: Path) -> None:
    longer = [replace(s, seconds=s.seconds * 1.05) for s in five("B")]
    found = rows(folder_of(tmp_path, *five("A"), *longer))
    assert found["energy, train"].reason.startswith("different bytes in train: 6.00")
    assert found["throughput_bytes_per_s"].call == "a"


def test_energy_of_all_phases_is_barred_with_any_of_them(tmp_path: Path) -> None:
    changes: dict[str, object] = {"workload": "checkpoint"}
    longer = [replace(s, seconds=s.seconds * 1.05) for s in five("B", **changes)]
    row = rows(folder_of(tmp_path, *five("A", **changes), *longer))["energy, all timed phases"]
    assert row.reason.startswith("different bytes in write")


def test_other_work_bars_every_call(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", scale="full"), *five("B"))
    (group,) = subject.groups
    assert different_work(group) == "different work: scale differs"
    assert {row.call for row in compare(subject, group)} == {"barred", "derived"}


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


FAST, SLOW = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9], [5e8, 5.05e8, 4.95e8, 5e8, 5.1e8]
FAILED_CHECK = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


def runs(**changes: Any) -> list[Run]:
    """Return five runs per arm, B's changed."""
    a = session({"A": FAST}, interleave="none")
    return [*a, *session({"B": SLOW}, interleave="none", **changes)]


def throughput(made: list[Run], *, forced: bool = False, by: str = "label") -> Row:
    subject = make_subject(made, by, forced=forced)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if "throughput" in row.quantity.key)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scale": "full"}, "different work: scale differs"),
        (
            {"settings": {"workload": {"file_count": 9}}},
            "different work: config workload.file_count differs",
        ),
        ({"ranks": 2}, "different work: processes differs"),
        (
            {"settings": {"accelerator": {"count": 3}}},
            "different work: config accelerator.count differs",
        ),
    ],
)
def test_other_work_is_refused_unless_forced(changes: dict[str, object], reason: str) -> None:
    refused = throughput(runs(**changes))
    assert (refused.call, refused.words, refused.reason) == ("barred", "inconclusive", reason)
    let_through = throughput(runs(**changes), forced=True)
    assert let_through.call == "a"
    assert let_through.forced == refused.reason


def test_another_data_set_is_refused() -> None:
    made = runs()
    data = made[-1].record.workload.data
    assert data is not None
    other = [
        Run(
            record=run.record.model_copy(
                update={
                    "workload": run.record.workload.model_copy(
                        update={"data": data.model_copy(update={"key": "unet3d-other"})}
                    )
                }
            ),
            traces=run.traces,
        )
        if run.record.label == "B"
        else run
        for run in made
    ]
    assert throughput(other).reason == "different work: data set differs"
    assert throughput(other, forced=True).call == "a"


def test_runs_with_a_failed_check_count_only_where_forced() -> None:
    made = runs(checks=(FAILED_CHECK,))
    refused = throughput(made)
    assert (refused.words, refused.effect) == ("inconclusive", None)
    let_through = throughput(made, forced=True)
    assert let_through.call == "a"
    assert let_through.forced == "5 runs with a failed or missing check"


def test_a_run_that_did_not_finish_counts_under_no_force() -> None:
    made = [*runs(), turn("B", 9, 5e8, status="aborted", interleave="none")]
    row = throughput(made, forced=True)
    assert row.effect is not None
    assert row.effect.count_b == 5
    assert row.forced == ""


def test_forcing_what_nothing_bars_changes_no_word() -> None:
    plain, forced = throughput(runs()), throughput(runs(), forced=True)
    assert forced.forced == ""
    assert (plain.call, plain.reason) == (forced.call, forced.reason)


def test_force_makes_no_evidence_and_no_runs() -> None:
    few = [run for run in runs(scale="full") if run.id[-1] in "012"]
    row = throughput(few, forced=True)
    assert (row.call, row.words) == ("barred", "inconclusive")


def test_what_was_forced_stands_beside_every_call_it_lets_through() -> None:
    text = Page(render_page(runs(scale="full"), forced=True)).text().replace("\u00a0", " ")
    assert "Forced comparison" in text
    assert "Different work: scale differ" in text
    subject = make_subject(runs(scale="full"), forced=True)
    (group,) = subject.groups
    called = [row for row in compare(subject, group) if row.call != "barred"]
    assert called
    assert text.count("; forced: different work") >= len(called)
    assert "defines the work: forced" in text
    assert "Forced comparison" not in Page(render_page(runs(), forced=True)).text()


def test_what_arms_are_told_apart_by_is_what_is_compared_and_no_other_work() -> None:
    made = [
        *session({"x": FAST}, interleave="none", settings={"workload": {"workers": 1}}),
        *session({"y": SLOW}, interleave="none", settings={"workload": {"workers": 8}}),
    ]
    assert "config workload.workers differ" in throughput(made).reason
    assert throughput(made, by="workload.workers").call == "a"


AB = Group(workload="unet3d", arms={"A": (), "B": ()})
RATIOS = {1: 1.0, 8: 1.1, 24: 2.0}
NEAR = [1.0, 1.001, 0.999, 1.002, 1.0, 0.998]


def swept(ratios: dict[int, float] | None = None, runs: int = 6) -> list[Run]:
    """Return runs of A and B at several numbers of workers, B so many times as fast as A."""
    return [
        run
        for workers, ratio in (ratios or RATIOS).items()
        for run in session(
            {
                "A": [workers * 1e8 * each for each in NEAR[:runs]],
                "B": [workers * 1e8 * ratio * each for each in NEAR[:runs]],
            },
            interleave="none",
            session=f"s{workers}",
            settings={"workload": {"workers": workers}},
        )
    ]


def throughputs(runs: list[Run]) -> list[Row]:
    subject = make_subject(runs)
    (group,) = subject.groups
    return [row for row in compare(subject, group) if "throughput" in row.quantity.key]


def test_points_are_not_pooled() -> None:
    rows = throughputs(swept())
    assert [(row.axis, row.at) for row in rows] == [("workers", str(at)) for at in RATIOS]
    for row, (workers, ratio) in zip(rows, RATIOS.items(), strict=True):
        assert row.effect is not None
        assert abs(row.effect.ratio - ratio) < 1e-6
        assert row.spreads["A"] is not None
        assert row.spreads["A"].count == 6
        assert abs(row.spreads["A"].median - workers * 1e8) < 1e6
    assert [row.call for row in rows] == ["none", "b", "b"]


def test_a_point_is_judged_alike_whether_it_is_asked_for_alone_or_with_the_others() -> None:
    subject = make_subject(swept())
    (group,) = subject.groups
    alone = [row for point in points(group) for row in compare(subject, point.group)]
    together = list(compare(subject, group))
    assert sorted(map(repr, alone)) == sorted(map(repr, together))
    assert {row.effect.demand.family for row in together if row.effect and row.effect.demand} == {3}


def test_the_more_points_are_called_the_surer_each_has_to_be() -> None:
    wide = [1.0, 1.05, 0.97, 1.03, 0.99]

    def runs(points: int) -> list[Run]:
        return [
            run
            for workers in range(1, points + 1)
            for run in session(
                {
                    "A": [1e9 * each for each in wide],
                    "B": [1.075e9 * each for each in wide],
                },
                interleave="none",
                session=f"s{workers}",
                settings={"workload": {"workers": workers}},
            )
        ]

    (one,) = throughputs(runs(1))
    many = throughputs(runs(9))
    assert one.effect is not None
    assert one.effect.t is not None
    assert one.effect.t.excludes_one()
    assert one.call == "b"
    assert {row.call for row in many} == {"none"}
    assert "(Holm, 9 comparisons) includes 1" in many[0].reason


def test_a_point_that_one_arm_ran_is_shown_and_not_called() -> None:
    runs = [run for run in swept() if run.id.split("-")[:2] != ["s8", "B"]]
    rows = throughputs(runs)
    assert [row.reason == "one arm only" for row in rows] == [False, True, False]
    assert {len(row.spreads) for row in rows} == {1, 2}


def test_the_median_over_the_points_is_said_before_the_largest_of_them() -> None:
    rows = throughputs(swept())
    first = points_table(rows, AB).rows[0]
    assert first[0].text == "median of 3 points"
    assert first[3].text == f"B {statistics.median(RATIOS.values()):.2f}{TIMES}"
    assert first[3].remark == "points: 1.00 to 2.00"


def test_a_swept_page_has_a_table_per_figure_and_pools_nothing() -> None:
    text = Page(render_page(swept())).text()
    assert "throughput by workers (GB/s, higher is better)" in text
    assert "median of 3 points" in text
    assert "n = 18" not in text
    assert "n = 6" in text
