"""What a call stands on is reported: counts, method, p values, spread, and the noise floor."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.page_text import page_text
from tests.reports.sessions import against_itself, known, run, session
from wattload.core.units import Unit
from wattload.reports.blocks import Notice, Table
from wattload.reports.render.text_export import ratios_report
from wattload.reports.runs.load import Run
from wattload.reports.sections.machine import conditions_section
from wattload.reports.sections.ratios import confidence_fold, noise_section, quantities_table
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


def with_shares(runs: Sequence[Run], shares: Sequence[float]) -> list[Run]:
    """Return the runs with nothing but these shares of time that computed."""
    found = []
    for each, value in zip(runs, shares, strict=True):
        (metric, *_) = (m for m in each.record.metrics if m.unit is Unit.FRACTION)
        metrics = (metric.model_copy(update={"value": value}),)
        found.append(replace(each, record=each.record.model_copy(update={"metrics": metrics})))
    return found


def share_rows(runs: list[Run]) -> tuple[Row, ...]:
    subject = make_subject(runs)
    (group,) = subject.groups
    return tuple(row for row in compare(subject, group) if row.quantity.is_share)


def test_shares_of_three_arms_are_differences_in_points() -> None:
    runs = session({"A": FLAT, "B": FLAT, "C": FLAT, "D": FLAT})
    (row,) = share_rows(with_shares(runs, [0.5] * 6 + [0.75] * 6 + [0.4] * 6 + [0.0] * 6))
    group = Group(workload="unet3d", arms={"A": (), "B": (), "C": (), "D": ()})
    _, _, a, b, c, d = quantities_table([row], group, "x").rows[0]
    assert a.remark.startswith("n = 6")
    assert b.remark.startswith("25\u00a0points above A; n = 6")
    assert c.remark.startswith("10\u00a0points below A; n = 6")
    assert d.remark.startswith("50\u00a0points below A; n = 6")
    (row, *_) = heads(session({"A": FLAT, "B": [1.5 * x for x in FLAT], "C": FLAT}))
    group = Group(workload="unet3d", arms={"A": (), "B": (), "C": ()})
    assert quantities_table([row], group, "x").rows[0][3].remark.startswith("1.50 x A; ")


def test_the_noise_floor_of_a_share_is_in_points_wherever_it_is_printed() -> None:
    halves = against_itself("A", FLAT, FLAT)
    noisy = with_shares(halves, [0.5] * 6 + [0.7] * 6)
    pairs = with_shares(session({"A": FLAT, "B": FLAT}), [0.5] * 6 + [0.6] * 6)
    subject = make_subject([*pairs, *noisy])
    section = page_text([known(noise_section(subject))])
    assert "the halves are up to 20 points apart and their interval excludes 0, so" in section
    assert "Shares have the difference of their means instead" in section
    assert "| 20 points | 20 to 20 points | 20 points" in section
    fold = known(confidence_fold(share_rows([*pairs, *noisy])))
    (table,) = fold.blocks
    assert isinstance(table, Table)
    (cells,) = table.rows
    assert (cells[2].text, cells[2].remark) == ("20\u00a0points", "A/A runs of one setting")
    (ratio,) = csv.DictReader(io.StringIO(ratios_report(subject)))
    assert float(ratio["floor"]) == pytest.approx(0.2)
    assert float(ratio["difference_b_minus_a"]) == pytest.approx(0.1)


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
