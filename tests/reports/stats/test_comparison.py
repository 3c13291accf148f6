from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from tests.reports.sessions import effect_of, known, session, throughput, throughputs, turn
from wattload.core.errors import ConfigError
from wattload.core.record.results import Check
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import ARMS, Subject, make_subject
from wattload.reports.stats.sweeps import points
from wattload.results.reading import judged

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


def five(label: str, **changes: Any) -> list[Scenario]:
    rate = 1.5e9 if label == "A" else 0.6e9
    return [arm(label, index, rate=rate, **changes) for index in range(5)]


def test_five_runs_per_arm_and_a_clear_effect_are_called(arms: tuple[Run, ...]) -> None:
    found = rows(make_subject(arms))
    rate, energy = found["read_bytes_per_s"], found["energy for the work, read"]
    assert rate.call == "a"
    assert effect_of(rate).ratio == pytest.approx(0.4, rel=1e-3)
    assert energy.call == "a"
    assert found["rate per watt, read"].words == "see energy for the work, read"


def test_too_few_runs_are_never_called(arms: tuple[Run, ...]) -> None:
    few = [run for run in arms if run.id.endswith(("0", "1", "2", "3"))]
    row = rows(make_subject(few))["read_bytes_per_s"]
    assert row.call == "barred"
    assert row.reason == "4 runs each; 5 needed"
    assert effect_of(row).lower is None


def test_a_mandatory_check_that_was_not_made_bars_a_run(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0, checks=(UNMADE,)))
    assert make_subject([run]).faults(run) == (
        "the mandatory check cold is missing: Nobody looked.",
    )


def test_unmade_power_checks_bar_energy_and_not_throughput(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", checks=(UNPOWERED,)), *five("B"))
    found = rows(subject)
    assert found["read_bytes_per_s"].call == "a"
    assert found["energy for the work, read"].call == "barred"
    assert found["energy for the work, read"].reason == (
        "no figure of A (excluded: checks of power failed or were not made)"
    )


@pytest.mark.parametrize(
    ("status", "words"), [("failed", "the run failed"), ("aborted", "the run was aborted")]
)
def test_a_run_that_did_not_finish_is_not_compared(tmp_path: Path, status: str, words: str) -> None:
    run = one(tmp_path, arm("A", 0, status=status))
    (fault,) = make_subject([run]).faults(run)
    assert fault == f"{words}: the run was interrupted"


def test_a_simulated_drive_is_not_compared_with_a_real_one(tmp_path: Path) -> None:
    subject = folder_of(tmp_path, *five("A", model="QEMU NVMe Ctrl"), *five("B"))
    row = rows(subject)["energy for the work, read"]
    assert row.call == "barred"
    assert row.reason == "only some drives are simulated"


def test_energy_of_all_phases_is_barred_with_any_of_them(tmp_path: Path) -> None:
    changes: dict[str, object] = {"workload": "checkpoint"}
    longer = [replace(s, seconds=s.seconds * 1.05) for s in five("B", **changes)]
    row = rows(folder_of(tmp_path, *five("A", **changes), *longer))[
        "energy for the work, all timed phases"
    ]
    assert row.reason.startswith("different bytes in write")


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
FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


def runs(**changes: Any) -> list[Run]:
    """Return five runs per arm, B's changed."""
    a = session({"A": FAST}, interleave="none")
    return [*a, *session({"B": SLOW}, interleave="none", **changes)]


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
    made = runs(checks=(FAILED,))
    refused = throughput(made)
    assert (refused.words, refused.effect) == ("inconclusive", None)
    let_through = throughput(made, forced=True)
    assert let_through.call == "a"
    assert let_through.forced == "5 runs with a failed or missing check"


def test_a_run_that_did_not_finish_counts_under_no_force() -> None:
    made = [*runs(), turn("B", 9, 5e8, status="aborted", interleave="none")]
    row = throughput(made, forced=True)
    assert effect_of(row).count_b == 5
    assert row.forced == ""


def test_forcing_what_nothing_bars_changes_no_word() -> None:
    plain, forced = throughput(runs()), throughput(runs(), forced=True)
    assert forced.forced == ""
    assert (plain.call, plain.reason) == (forced.call, forced.reason)


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


def test_points_are_not_pooled() -> None:
    rows = throughputs(swept())
    assert [(row.axis, row.at) for row in rows] == [("workers", str(at)) for at in RATIOS]
    for row, (workers, ratio) in zip(rows, RATIOS.items(), strict=True):
        assert abs(effect_of(row).ratio - ratio) < 1e-6
        spread = known(row.spreads["A"])
        assert spread.count == 6
        assert abs(spread.median - workers * 1e8) < 1e6
    assert [row.call for row in rows] == ["none", "b", "b"]


def test_a_point_is_judged_alike_whether_it_is_asked_for_alone_or_with_the_others() -> None:
    subject = make_subject(swept())
    (group,) = subject.groups
    alone = [row for point in points(group) for row in compare(subject, point.group)]
    together = list(compare(subject, group))
    assert sorted(map(repr, alone)) == sorted(map(repr, together))
    demands = [effect_of(row).demand for row in together if row.effect]
    assert {demand.family for demand in demands if demand} == {3}


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
    assert known(effect_of(one).t).excludes_one()
    assert one.call == "b"
    assert {row.call for row in many} == {"none"}
    assert "(Holm, 9 comparisons) includes 1" in many[0].reason


def test_a_point_that_one_arm_ran_is_shown_and_not_called() -> None:
    runs = [run for run in swept() if run.id.split("-")[:2] != ["s8", "B"]]
    rows = throughputs(runs)
    assert [row.reason == "one arm only" for row in rows] == [False, True, False]
    assert {len(row.spreads) for row in rows} == {1, 2}


CLOSE = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001]


@pytest.fixture
def pairs() -> list[Run]:
    """Six pairs in which A is 10 % ahead."""
    return session({"A": [1.1e9 * x for x in CLOSE], "B": [1e9 * x for x in reversed(CLOSE)]})


RATE = "read_bytes_per_s"
UNCLOSED = "au_nominal"
"""A headline figure that no other figure of a record can be held against."""


def figure_of(runs: list[Run], key: str) -> Row:
    return rows(make_subject(runs))[key]


def changed(pairs: list[Run], index: int, **update: Any) -> list[Run]:
    own = pairs[index]
    other = replace(own, record=judged(own.record.model_copy(update=update)))
    return [*pairs[:index], other, *pairs[index + 1 :]]


def with_value(
    pairs: list[Run], index: int, change: Callable[[float], float | None], key: str = UNCLOSED
) -> list[Run]:
    metrics = []
    own = pairs[index]
    for metric in own.record.metrics:
        if metric.name == key and metric.value is not None:
            value = change(metric.value)
            missing = {"value": "it was taken out"} if value is None else {}
            metrics.append(metric.model_copy(update={"value": value, "missing": missing}))
        else:
            metrics.append(metric)
    other = replace(own, record=own.record.model_copy(update={"metrics": tuple(metrics)}))
    return [*pairs[:index], other, *pairs[index + 1 :]]


def test_labels_that_are_exchanged_turn_the_call(pairs: list[Run]) -> None:
    turned = [
        replace(
            run, record=run.record.model_copy(update={"label": "BA"["AB".index(run.record.label)]})
        )
        for run in pairs
    ]
    row, other = throughput(pairs), throughput(turned)
    assert (other.call, other.words) == ("b", "B is better")
    assert effect_of(other).ratio == pytest.approx(1 / effect_of(row).ratio)


def test_a_failed_check_takes_a_pair_away(pairs: list[Run]) -> None:
    (first, *_) = pairs
    found = throughput(changed(pairs, 0, checks=(*first.record.checks, FAILED)))
    assert (effect_of(found).count_a, effect_of(found).pairs) == (5, 0)
    twice = changed(pairs, 0, checks=(*first.record.checks, FAILED))
    twice = changed(twice, 1, checks=(*first.record.checks, FAILED))
    assert throughput(twice).words == "inconclusive"


def test_a_figure_that_is_missing_is_no_zero(pairs: list[Run]) -> None:
    row = figure_of(with_value(pairs, 0, lambda _: None), UNCLOSED)
    assert effect_of(row).count_a == 5
    assert known(row.spreads["A"]).minimum > 0


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_figure_that_is_not_positive_forms_no_ratio(pairs: list[Run], value: float) -> None:
    row = throughput(with_value(pairs, 0, lambda _: value, RATE))
    assert row.effect is None
    assert row.reason == "no ratio: not every figure is positive"


def test_a_share_of_nothing_has_a_difference(pairs: list[Run]) -> None:
    idle = pairs
    for index in range(6):
        idle = with_value(idle, index, lambda _: 0.0)
    row = figure_of(idle, UNCLOSED)
    assert row.leader == "B"
    assert row.centres["A"] == pytest.approx(0.0, abs=1e-9)
    assert math.log(effect_of(row).ratio) == pytest.approx(row.centres["B"])


def test_one_figure_made_ten_times_as_large_calls_nothing(pairs: list[Run]) -> None:
    row = figure_of(with_value(pairs, 6, lambda value: value * 10), UNCLOSED)
    assert row.call not in ("a", "b")
    assert not effect_of(row).differs
    assert known(row.spreads["B"]).gate == "unstable"


def test_a_block_that_is_moved_breaks_its_pair(pairs: list[Run]) -> None:
    place = pairs[0].record.comparison.model_copy(update={"block": 77})
    row = throughput(changed(pairs, 0, comparison=place))
    assert effect_of(row).pairs == 0
