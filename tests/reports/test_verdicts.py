"""A call's words and its reason stand by the intervals and floors that it was made with."""

from __future__ import annotations

from tests.reports.sessions import against_itself, session
from wattload.reports.blocks import Fold
from wattload.reports.compare import Row, compare
from wattload.reports.exports.document import document
from wattload.reports.load import Run
from wattload.reports.sections.figuretables import quantities_table
from wattload.reports.sections.rules import rules
from wattload.reports.subject import Group, make_subject

NEAR = [1e9, 1.004e9, 0.997e9, 1.002e9, 0.999e9, 1.001e9]
AB = Group(workload="unet3d", arms={"A": (), "B": ()})


def throughput(runs: list[Run]) -> Row:
    subject = make_subject(runs)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if "throughput" in row.quantity.key)


def test_arms_are_not_the_same_within_less_than_a_setting_differs_from_itself() -> None:
    runs = session({"A": NEAR, "B": list(reversed(NEAR))})
    assert throughput(runs).words == "same within 3 %"
    noisy = against_itself("A", NEAR, [1.1 * each for each in NEAR])
    row = throughput([*runs, *noisy])
    assert (row.call, row.words) == ("none", "no difference shown")
    assert row.reason.endswith(
        "(one setting against itself) and the whole interval lies within 3 % of 1; "
        "a noise floor above that shows no arms to be the same"
    )


def test_equal_runs_are_told_as_such_by_call_table_and_data() -> None:
    runs = session({"A": [1e9] * 6, "B": [1.1e9] * 6})
    row = throughput(runs)
    told = "no spread among the runs"
    assert f"{told}: p can't be under 0.031" in row.reason
    assert told in quantities_table([row], AB, "x").rows[0][5].remark
    (comparison,) = document(make_subject(runs))["comparisons"]
    found = next(each for each in comparison["rows"] if "throughput" in each["quantity"])
    assert found["effect"]["p_value"] == found["effect"]["p_value_without_spread"] == 2**-5


def test_equal_runs_that_are_too_few_for_several_calls_are_not_called() -> None:
    common = {"power": "self_reported", "virtual": False}
    row = throughput(session({"A": [1e9] * 6, "B": [1.1e9] * 6}, **common))
    assert row.effect is not None
    assert row.effect.demand is not None
    assert row.effect.demand.family > 1
    assert (row.call, row.words) == ("none", "no difference shown")
    assert "so few runs without spread can't reach" in row.reason


def test_the_rules_say_how_t_and_bootstrap_are_joined_and_what_a_family_is() -> None:
    fold = rules()[1]
    assert isinstance(fold, Fold)
    text = " ".join(str(getattr(block, "text", "")) for block in fold.blocks)
    for words in (
        "the wider of both, from the lower of the lower ends to the higher of the upper ends",
        "Each workload is a family of its own",
        "ran one after the other",
    ):
        assert words in text
