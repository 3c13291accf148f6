"""What a call stands on is told: counts, method, p values, spread, and the noise floor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.sessions import against_itself, run, session, turn
from wattload.reports.blocks import Fold, Notice, Section, Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.conditions import conditions_section
from wattload.reports.sections.ratios import confidence_fold, noise_section, quantities_table
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import Group, Subject, make_subject
from wattload.results.quantity import TIMES

FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]
AB = Group(workload="unet3d", arms={"A": (), "B": ()})


def heads(runs: list[Run]) -> list[Row]:
    subject = make_subject(runs)
    (group,) = subject.groups
    return [row for row in compare(subject, group) if row.quantity.headline]


def test_arms_show_the_geometric_means_that_their_ratio_divides() -> None:
    runs = session({"A": [1e9, 1e9, 4e9] * 2, "B": [2e9] * 6})
    table = quantities_table(heads(runs), AB, "c")
    a, b = (float(cell.text) for cell in table.rows[0][2:4])
    letter, ratio = table.rows[0][4].text.rstrip(TIMES).split()
    assert a == pytest.approx(4 ** (1 / 3), rel=1e-3)
    assert letter == "B"
    assert b / a == pytest.approx(float(ratio), rel=5e-3)
    assert table.note.startswith("Figures are geometric means")


@pytest.mark.parametrize(("b", "printed"), [(4e9, "B 2.00"), (1e9, "A 2.00")])
def test_a_ratio_is_at_least_one_and_names_the_arm_it_favours(b: float, printed: str) -> None:
    rates = {"A": [2 * x for x in FLAT], "B": [b / 1e9 * x for x in reversed(FLAT)]}
    cells = quantities_table(heads(session(rates)), AB, "c").rows[0]
    assert cells[4].text == f"{printed}{TIMES}"
    lower, upper = (float(end) for end in cells[5].text.split(" to "))
    assert 1 < lower < 2 < upper


def first_row(runs: list[Run]) -> list[str]:
    fold = confidence_fold(heads(runs))
    assert isinstance(fold, Fold)
    (table,) = fold.blocks
    assert isinstance(table, Table)
    return [f"{cell.badge} {cell.text}".strip() for cell in table.rows[0]]


def note(rows: list[Row]) -> str:
    fold = confidence_fold(rows)
    assert isinstance(fold, Fold)
    (table,) = fold.blocks
    assert isinstance(table, Table)
    return table.note


def test_a_run_without_a_partner_is_told() -> None:
    runs = session({"A": [*FLAT, 1e9], "B": [x * 1.2 for x in FLAT]})
    assert first_row(runs)[1] == "6 pairs, t on pairs, 1 run without a partner left out"


def test_one_arm_has_nothing_to_be_sure_of() -> None:
    assert confidence_fold(heads(session({"A": FLAT}))) is None


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


def noise_tables(subject: Subject) -> list[list[str]]:
    section = noise_section(subject)
    assert isinstance(section, Section)
    tables = [block for block in section.blocks if isinstance(block, Table)]
    return [[cell.text for cell in row] for table in tables for row in table.rows]


def test_a_setting_against_itself_is_told_with_its_floor() -> None:
    second = [x * (1.004 + 0.0004 * (-1) ** at) for at, x in enumerate(FLAT)]
    subject = make_subject(against_itself("A", FLAT, second))
    (first, *_) = noise_tables(subject)
    assert first[:4] == ["unet3d", "throughput", "aa", "6"]
    assert first[4] == "1.004\u00d7"
    assert float(first[6].removesuffix("\u00a0%")) > 0.4
    assert float(first[5].split(" to ")[1]) >= 1.004


def test_a_setting_that_surely_differs_from_itself_is_a_warning() -> None:
    quiet = make_subject(against_itself("A", FLAT, list(reversed(FLAT))))
    loud = make_subject(against_itself("A", FLAT, [x * 1.05 for x in FLAT]))
    for subject, reported in ((quiet, False), (loud, True)):
        section = noise_section(subject)
        assert section is not None
        assert any(isinstance(block, Notice) for block in section.blocks) == reported


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


def confounders(runs: list[Run]) -> str:
    blocks = conditions_section(make_subject(runs)).blocks
    notices = [block for block in blocks if isinstance(block, Notice)]
    return " ".join(str(text) for notice in notices for text in notice.sentences)


def test_arms_that_were_run_one_after_the_other_say_so() -> None:
    a = session({"A": FLAT[:3]}, interleave="none")
    later = [turn("B", at, 9e8, interleave="none", name=f"B{at}", order=at + 20) for at in range(3)]
    assert "The arms did not alternate" in confounders([*a, *later])
    assert "The arms did not alternate" not in confounders(session({"A": FLAT[:3], "B": FLAT[:3]}))
