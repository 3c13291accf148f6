"""What a call stands on is reported: counts, method, p values, spread, and the noise floor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.sessions import run, session
from wattload.reports.blocks import Notice
from wattload.reports.runs.load import Run
from wattload.reports.sections.machine import conditions_section
from wattload.reports.sections.ratios import quantities_table
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import Group, make_subject
from wattload.results.quantity import TIMES

FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]
AB = Group(workload="unet3d", arms={"A": (), "B": ()})


def heads(runs: list[Run]) -> list[Row]:
    subject = make_subject(runs)
    (group,) = subject.groups
    return [row for row in compare(subject, group) if row.quantity.headline]


@pytest.mark.parametrize(("b", "printed"), [(4e9, "B 2.00"), (1e9, "A 2.00")])
def test_a_ratio_is_at_least_one_and_names_the_arm_it_favours(b: float, printed: str) -> None:
    rates = {"A": [2 * x for x in FLAT], "B": [b / 1e9 * x for x in reversed(FLAT)]}
    cells = quantities_table(heads(session(rates)), AB, "c").rows[0]
    assert cells[4].text == f"{printed}{TIMES}"
    lower, upper = (float(end) for end in cells[5].text.split(" to "))
    assert 1 < lower < 2 < upper


def test_medians_that_differ_from_the_ratio_stand_under_it() -> None:
    slow = [x * 2 for x in FLAT]
    (row, *_) = heads(session({"A": [*FLAT[:5], 1.4e9], "B": slow}, interleave="none"))
    cells = quantities_table([row], AB, "x").rows[0]
    assert row.effect is not None
    assert cells[4].remark == f"medians: {row.effect.medians:.2f}{TIMES}"
    (same, *_) = heads(session({"A": FLAT, "B": slow}, interleave="none"))
    assert quantities_table([same], AB, "x").rows[0][4].remark == ""


def test_t_stands_under_a_bootstrap_that_disagrees() -> None:
    odd = [1e9] * 9 + [1.6e9]
    (row, *_) = heads(session({"A": [1e9, 1.001e9] * 5, "B": odd}, interleave="none"))
    cell = quantities_table([row], AB, "x").rows[0][5]
    assert cell.remark.startswith("by t: ")
    assert cell.remark.removeprefix("by t: ") != cell.text


@pytest.mark.parametrize("field", ["serial", "host"])
def test_runs_of_one_arm_that_are_no_repeats_are_told(field: str) -> None:
    values: list[dict[str, Any]] = [{field: f"x{index % 2}"} for index in range(4)]
    mixed = [
        run(f"A{index}", label="A", virtual=False, order=index, **own)
        for index, own in enumerate(values)
    ]
    blocks = conditions_section(make_subject(mixed)).blocks
    notices = [block for block in blocks if isinstance(block, Notice)]
    reported = [str(text) for notice in notices for text in notice.sentences]
    assert f"The runs of A differ in {field}: x0 and x1." in reported
