from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, make_run, write_made_run, write_run
from tests.reports.conftest import arm, one
from tests.reports.sessions import effect_of, known
from wattload.reports.blocks import Cell
from wattload.reports.claims.comparison import (
    ComparedClaims,
    ConditionMatch,
    Match,
    Measured,
    compare_claims,
    conditions_for,
    match_condition,
    unmeasured_claims,
)
from wattload.reports.claims.papers import Condition, Expected, Fact, papers
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.sections.claims import claims_section
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.intervals import t_interval
from wattload.reports.stats.subject import Subject, make_subject

OTHER = "SOLIDIGM D5-P5336 61.44TB"


def arms(ratio: float = 2.35, *, count: int = 5, **changes: Any) -> list[Scenario]:
    """Checkpoints of two drives, B's rate a ``ratio`` of A's, in the arms' paper states."""
    values: dict[str, Any] = {"workload": "checkpoint"} | changes
    of_a = [arm("A", index, **values) for index in range(count)]
    return of_a + [arm("B", index, rate=1.5e9 / ratio, **values) for index in range(count)]


def subject_of(folder: Path, scenarios: Iterable[Scenario], by: str = "label") -> Subject:
    for scenario in scenarios:
        write_run(folder, scenario)
    return make_subject(load_runs([folder]), by)


def measured(subject: Subject, claim: str) -> Measured:
    (part,) = compare_claims(subject)
    ((_, found),) = [each for each in part.claims if each[0].id == claim]
    (one,) = found
    return one


def matched(runs: Sequence[Run], fact: str, expected: Expected) -> ConditionMatch:
    place = "" if fact in set(Fact) else "facts.rank_bytes"
    return match_condition(runs, Condition(fact=fact, place=place, a=expected), expected)


def only(subject: Subject) -> ComparedClaims:
    (part,) = compare_claims(subject)
    return part


def ends(found: Measured) -> tuple[float, float, float]:
    """Return the ratio between the ends of its interval."""
    return known(found.lower), known(found.ratio), known(found.upper)


@pytest.mark.parametrize(("ratio", "verdict"), [(2.35, "agrees"), (2.2, "differs")])
def test_a_published_ratio_agrees_where_the_interval_includes_it(
    tmp_path: Path, ratio: float, verdict: str
) -> None:
    subject = subject_of(tmp_path, arms(ratio))
    found = measured(subject, "checkpoint_rate")
    lower, shown, upper = ends(found)
    assert (found.verdict, found.counts) == (verdict, (5, 5))
    assert shown == pytest.approx(ratio, rel=1e-3)
    assert (lower < 2.35 < upper) == (verdict == "agrees")
    assert ends(measured(subject, "checkpoint_energy"))[1] > 1  # of B over A, the rate of A over B


WIDE = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Factors on the rates of both arms: the interval reaches from a fifth of their ratio to five."""


def scattered(of_a: Sequence[float], of_b: Sequence[float]) -> list[Scenario]:
    """Checkpoints of two drives at these rates, in GB/s."""
    return [
        arm(name, index, rate=rate * 1e9, workload="checkpoint")
        for name, rates in (("A", of_a), ("B", of_b))
        for index, rate in enumerate(rates)
    ]


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        (1.3, "the interval includes both the published value and 1"),
        (0.7, "the published value is in the interval, but 1 is between it and the ratio"),
    ],
)
def test_an_interval_that_holds_1_agrees_with_no_paper(
    tmp_path: Path, factor: float, reason: str
) -> None:
    scenarios = scattered([factor * rate for rate in WIDE], WIDE)
    found = measured(subject_of(tmp_path, scenarios), "checkpoint_rate")
    lower, ratio, upper = ends(found)
    assert lower < 1
    assert upper > 2.35
    assert (ratio < 1) == (factor < 1)
    assert (found.verdict, found.reason) == ("wide", reason)


def test_an_interval_that_spans_more_than_a_quarter_agrees_with_no_paper(tmp_path: Path) -> None:
    noisy = [1.0, 1.2, 0.85, 1.1, 0.9]
    found = measured(
        subject_of(tmp_path, scattered([2.35 * x for x in noisy], noisy)), "checkpoint_rate"
    )
    lower, _, upper = ends(found)
    assert 1 < lower < 2.35 < upper
    assert upper / lower > 1.25
    assert (found.verdict, found.reason) == (
        "wide",
        "the interval includes the published value but spans a factor above 1.25",
    )


def test_the_ratio_lies_in_its_interval_and_that_of_medians_stands_under_it(tmp_path: Path) -> None:
    """Six of A's runs are fast and five slow, of B's it is the other way round."""
    subject = subject_of(tmp_path, scattered([1.0] * 6 + [0.7] * 5, [1.0] * 5 + [0.7] * 6))
    found = measured(subject, "checkpoint_rate")
    lower, ratio, upper = ends(found)
    assert lower < ratio < upper < known(found.medians)
    assert ("1.03", "", "of medians 1.42") in cells(claims_section(subject))


def test_four_runs_per_arm_are_too_few(tmp_path: Path) -> None:
    found = measured(subject_of(tmp_path, arms(count=4)), "checkpoint_rate")
    assert found.verdict == "few"
    assert found.ratio == pytest.approx(2.35, rel=1e-3)
    assert found.lower is None


def test_energy_s_interval_is_widened_by_what_sensors_may_be_off_by(tmp_path: Path) -> None:
    """A ratio of two sensors is no surer than they are, however many runs there are."""
    subject = subject_of(tmp_path, arms(2.35))
    (group,) = subject.groups
    rows = {row.quantity.key: row for row in compare(subject, group)}
    found = measured(subject, "checkpoint_energy")
    (claim,) = [c for c, _ in only(subject).claims if c.id == "checkpoint_energy"]
    effect = effect_of(rows[claim.figure or ""])
    assert effect.accuracy > 0
    by_t = t_interval(known(effect.estimate), 0.95)
    assert found.lower == pytest.approx(by_t.lower / (1 + effect.accuracy))
    assert (found.lower, found.upper) == (effect.lower, effect.upper)  # as the table prints it


def test_a_virtual_drive_shows_nothing_of_a_claim(tmp_path: Path) -> None:
    scenarios = arms(count=1, model="wattload virtual drive")
    found = measured(subject_of(tmp_path, scenarios), "checkpoint_rate")
    assert (found.verdict, found.reason) == (
        "virtual",
        "rates and power of a simulated drive are made up",
    )


def test_a_figure_that_no_run_has_is_not_measured(tmp_path: Path) -> None:
    figure = "write_seconds_per_checkpoint"
    runs = [
        replace(
            run,
            record=run.record.model_copy(
                update={
                    "metrics": tuple(
                        metric for metric in run.record.metrics if metric.name != figure
                    )
                }
            ),
        )
        for run in subject_of(tmp_path, arms(count=1)).runs
    ]
    found = measured(make_subject(runs), "checkpoint_time")
    assert found.verdict == "unmeasured"
    assert found.reason == "no run here has the figure write time per checkpoint"


def test_energy_that_nobody_measured_answers_nothing(tmp_path: Path) -> None:
    found = measured(subject_of(tmp_path, arms(count=1, power="declared")), "checkpoint_energy")
    assert found.verdict == "unmeasured"
    assert found.reason == "not comparable: declared in a data sheet or by the user, not measured"


def test_arms_on_one_drive_in_one_state_say_nothing_of_two_drives(tmp_path: Path) -> None:
    same = arms(count=1, serial="S1", state=0)
    scenarios = [replace(each, loader="direct" if each.label == "A" else "torch") for each in same]
    found = measured(subject_of(tmp_path, scenarios, "loader"), "checkpoint_rate")
    assert found.verdict == "unmeasured"
    assert found.reason == "the arms have the same drive or power state"


def test_arms_of_other_work_are_not_held_against_a_claim(tmp_path: Path) -> None:
    scenarios = [
        replace(each, scale="demo") if each.label == "B" else each for each in arms(count=1)
    ]
    found = measured(subject_of(tmp_path, scenarios), "checkpoint_rate")
    assert found.verdict == "unlike"
    assert "scale" in found.reason


def test_forcing_a_comparison_makes_no_claim_agree(tmp_path: Path) -> None:
    scenarios = [
        replace(each, scale="demo") if each.label == "B" else each for each in arms(count=1)
    ]
    for scenario in scenarios:
        write_run(tmp_path, scenario)
    subject = make_subject(load_runs([tmp_path]), forced=True)
    assert measured(subject, "checkpoint_rate").verdict == "unlike"


def test_a_page_s_arms_stand_as_their_drives_say(tmp_path: Path) -> None:
    """The paper's drives decide before its power states do, and the ratio turns over."""
    scenarios = [
        replace(each, model=OTHER, state=1) if each.label == "A" else replace(each, state=0)
        for each in arms(1 / 2.35)
    ]
    subject = subject_of(tmp_path, scenarios)
    assert not only(subject).straight
    found = measured(subject, "checkpoint_rate")
    assert found.verdict == "agrees"
    assert found.ratio == pytest.approx(2.35, rel=1e-3)
    lower, _, upper = ends(found)
    assert lower < upper


def test_one_drive_s_arms_stand_as_their_power_states_say(tmp_path: Path) -> None:
    crossed = [
        replace(each, serial="S1", state=0 if each.label == "A" else 1) for each in arms(count=1)
    ]
    assert not only(subject_of(tmp_path, crossed)).straight


def test_arms_that_nothing_tells_apart_stand_in_the_page_s_order(tmp_path: Path) -> None:
    assert only(subject_of(tmp_path, arms(count=1, model="SOME DRIVE", state=3))).straight


def with_workers(folder: Path, counts: Iterable[int]) -> Subject:
    for index, workers in enumerate(counts):
        for scenario in (arm("A", 9, workload="dlrm"), arm("B", 9, workload="dlrm", rate=1e9)):
            own: dict[str, Any] = {
                "run_id": f"{scenario.label}-{index}",
                "order": scenario.order + 2 * index,
            }
            record, traces = make_run(replace(scenario, **own))
            workload = {**record.config["workload"], "workers": workers}
            config = {**record.config, "workload": workload}
            changed = record.model_copy(
                update={"config": config, "run_id": f"{scenario.label}-{index}"}
            )
            write_made_run(folder / f"{scenario.label}-{index}", changed, traces)
    return make_subject(load_runs([folder]))


def test_a_claim_at_a_point_is_held_against_that_point_alone(tmp_path: Path) -> None:
    found = measured(with_workers(tmp_path, (1, 24)), "dlrm_energy")
    assert (found.at, found.counts, found.verdict) == ("workers = 24", (1, 1), "few")


def test_a_sweep_without_the_point_is_told(tmp_path: Path) -> None:
    found = measured(with_workers(tmp_path, (1, 2)), "dlrm_energy")
    assert found.verdict == "unmeasured"
    assert found.reason == "the paper has workers = 24; this page has workers = 1 and 2"


def test_runs_that_were_all_set_to_the_point_are_at_it(tmp_path: Path) -> None:
    found = measured(with_workers(tmp_path, (24,)), "dlrm_energy")
    assert (found.at, found.verdict) == ("", "few")


def test_runs_that_do_not_say_where_they_were_are_not_at_it(tmp_path: Path) -> None:
    found = measured(subject_of(tmp_path, arms(count=1, workload="dlrm")), "dlrm_energy")
    assert found.reason == "the paper has workers = 24; this page has workers = not set"


def test_every_claim_is_shown_or_listed(tmp_path: Path) -> None:
    parts = compare_claims(subject_of(tmp_path, arms(count=1)))
    shown = [(part.paper.id, claim.id) for part in parts for claim, _ in part.claims]
    listed = [
        (paper.id, claim.id) for paper, claims in unmeasured_claims(parts) for claim in claims
    ]
    assert sorted(shown + listed) == sorted(
        (paper.id, claim.id) for paper in papers() for claim in paper.claims
    )


def test_one_arm_and_three_arms_have_no_claims(tmp_path: Path) -> None:
    one = subject_of(tmp_path / "one", arms(count=2)[:2])
    three = [*arms(count=1), *[arm("C", index, workload="checkpoint") for index in range(2)]]
    assert claims_section(one) is None
    assert claims_section(subject_of(tmp_path / "three", three)) is None


def cells(part: object) -> set[tuple[str, str, str]]:
    """Return the text, badge and remark of every cell of a section."""
    if isinstance(part, Cell):
        return {(part.text, part.badge, part.remark)}
    if isinstance(part, Sequence) and not isinstance(part, str):
        return {cell for each in part for cell in cells(each)}
    if is_dataclass(part):
        return {cell for each in fields(part) for cell in cells(getattr(part, each.name))}
    return set()


def test_published_figures_are_on_a_page_that_asks_for_them(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, arms(2.35))
    assert "Published figures" not in page_of(subject)
    assert "Published figures" in page_of(subject, claims=True)


MODEL = "MICRON_6550_MTFDLAL61T4TGA"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run in PS1 on the paper's drive, with 275 GB of memory."""
    return one(tmp_path_factory.mktemp("run"), arm("A", 0))


@pytest.mark.parametrize(
    ("found", "alike"),
    [
        ("6550", "alike"),
        ("micron_6550", "alike"),
        ("655", "other name"),
        ("9400", "other name"),
    ],
)
def test_a_drive_is_alike_by_name_and_not_by_part_of_a_number(
    run: Run, found: str, alike: Match
) -> None:
    expected = Expected(words="a drive", found=(found,))
    assert matched([run], "drive", expected) == ConditionMatch(MODEL, alike)


@pytest.mark.parametrize(
    ("number", "alike"),
    [(256e9, "alike"), (275e9, "alike"), (240e9, "differs"), (768e9, "differs")],
)
def test_memory_is_alike_within_a_tenth(run: Run, number: float, alike: Match) -> None:
    found = matched([run], "memory", Expected(words="memory", number=number))
    assert found == ConditionMatch("275\u00a0GB", alike)


def test_what_a_paper_does_not_name_is_not_told_alike(run: Run) -> None:
    assert matched([run], "drive", Expected(words="competitor A")).match == "not stated"


def test_what_no_record_holds_is_not_recorded(run: Run) -> None:
    expected = Expected(words="415 GB", number=415e9)
    assert matched([run], "bytes of a checkpoint", expected) == ConditionMatch(
        "\u2013", "not recorded"
    )


def test_an_arm_of_two_drives_is_not_alike(run: Run, tmp_path: Path) -> None:
    other = one(tmp_path, arm("A", 1, model="SOME DRIVE"))
    found = matched([run, other], "drive", Expected(words="6550", found=("6550",)))
    assert found == ConditionMatch(f"{MODEL} and SOME DRIVE", "differs")


def test_conditions_of_another_workload_are_left_out() -> None:
    paper = papers()[0]
    found = conditions_for(paper.pairs["drives"], paper.conditions, "dlrm")
    words = [each.a.words for each in found]
    assert "768 GB" in words
    assert "256 GB" not in words
    assert found[0].fact is Fact.DRIVE
