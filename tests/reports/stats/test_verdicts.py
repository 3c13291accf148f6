"""The text and the reason of a verdict match its intervals and floors."""

from __future__ import annotations

from tests.reports.sessions import against_itself, effect_of, known, session, throughput
from wattload.reports.blocks import Fold
from wattload.reports.render.json_export import document
from wattload.reports.sections.provenance import comparison_rules
from wattload.reports.sections.ratios import quantities_table
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import Group, make_subject

NEAR = [1e9, 1.004e9, 0.997e9, 1.002e9, 0.999e9, 1.001e9]
AB = Group(workload="unet3d", arms={"A": (), "B": ()})


def test_arms_are_not_the_same_within_less_than_a_setting_differs_from_itself() -> None:
    runs = session({"A": NEAR, "B": list(reversed(NEAR))})
    assert throughput(runs).words == "same within 3 %"
    noisy = against_itself("A", NEAR, [1.1 * each for each in NEAR])
    row = throughput([*runs, *noisy])
    assert (row.call, row.words) == ("none", "inconclusive")
    assert row.reason.endswith(
        "(A/A runs of one setting) and the whole interval is within 3 % of 1; "
        "the noise floor is too high to show that arms are the same"
    )


def test_equal_runs_are_told_as_such_by_call_table_and_data() -> None:
    runs = session({"A": [1e9] * 6, "B": [1.1e9] * 6})
    row = throughput(runs)
    reported = "no spread among the runs"
    assert f"{reported}: p is at least 0.031" in row.reason
    assert reported in quantities_table([row], AB, "x").rows[0][5].remark
    (comparison,) = document(make_subject(runs))["comparisons"]
    found = next(each for each in comparison["rows"] if each["quantity"] == "read_bytes_per_s")
    assert found["effect"]["p_value"] == found["effect"]["least_p_value"] == 2**-5


def test_equal_runs_that_are_too_few_for_several_calls_are_not_called() -> None:
    rates = {"A": [1e9] * 6, "B": [1.1e9] * 6}
    points = [
        session(rates, session=f"s{workers}", settings={"workload": {"workers": workers}})
        for workers in (1, 2)
    ]
    row = throughput([run for point in points for run in point])
    assert known(effect_of(row).demand).family > 1
    assert (row.call, row.words) == ("none", "inconclusive")
    assert "too few runs without spread to reach" in row.reason


def test_the_rules_say_how_t_and_bootstrap_are_joined_and_what_a_family_is() -> None:
    fold = comparison_rules()[1]
    assert isinstance(fold, Fold)
    text = " ".join(str(getattr(block, "text", "")) for block in fold.blocks)
    for words in (
        "spans both: from the lower of the lower ends to the higher of the upper ends",
        "All questions of a workload, at all points of its sweep, are one family",
        "have run one after the other",
    ):
        assert words in text


def test_one_quantity_per_question_is_in_the_family() -> None:
    common = {"power": "measured", "virtual": False}
    subject = make_subject(session({"A": STEADY, "B": [1.02 * each for each in STEADY]}, **common))
    (group,) = subject.groups
    found = [row for row in compare(subject, group) if row.quantity.headline]
    asked = [row for row in found if row.effect and row.effect.demand]
    assert [row.quantity.key for row in asked] == ["read_bytes_per_s", "energy for the work, read"]
    derived = {row.quantity.key: row.words for row in found if row.call == "derived"}
    assert derived["rate per watt, read"] == "see energy for the work, read"
    assert all(row.effect for row in found if row.call == "derived")


STEADY = [1e9 * (1 + 0.0005 * (-1) ** index) for index in range(8)]
