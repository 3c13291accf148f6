"""What the figures rest on: every check by name, every energy figure's evidence, every host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.reports.conftest import arm, one
from wattload.core.record.results import Check
from wattload.reports.blocks import Block, Fold, Paragraph, Section, Table
from wattload.reports.quantity import MISSING
from wattload.reports.runs.load import Run
from wattload.reports.sections.checks import trust_section
from wattload.reports.stats.subject import make_subject


def part(runs: Sequence[Run], name: str) -> Sequence[Block]:
    section = trust_section(make_subject(runs))
    assert section is not None
    parts: dict[str, Section] = {each.anchor: each for each in section.parts}
    return parts[f"trust-{name}"].blocks


def rows(table: Block) -> list[list[str]]:
    assert isinstance(table, Table)
    return [
        [f"{cell.badge}{cell.text} {cell.remark}".strip() for cell in row] for row in table.rows
    ]


def test_the_worst_verdict_of_a_check_leads_with_its_figures(tmp_path: Path) -> None:
    good = Check(name="delivered", verdict="pass", sentence="All agree.", figures={"bad": 0})
    bad = Check(name="delivered", verdict="fail", sentence="3 of 4 differ.", figures={"bad": 3})
    runs = [one(tmp_path, arm("A", 0, checks=(good,))), one(tmp_path, arm("B", 0, checks=(bad,)))]
    said, table, fold = part(runs, "checks")
    assert isinstance(said, Paragraph)
    assert rows(table)[0] == [
        "delivered",
        "failed",
        "2 1 failed, 1 passed",
        "3 of 4 differ. bad = 3",
    ]
    assert isinstance(fold, Fold)
    assert "passed in every run" in fold.summary


def test_each_energy_figure_stands_with_how_it_is_known(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, power="upper", rate=0.6e9))]
    (table,) = part(runs, "energy")
    measured, bound = rows(table)
    assert measured[-1].startswith("measured by a meter or a rail sensor")
    assert "not ranked" not in measured[-1]
    assert bound[3].startswith("≤")
    assert bound[-1].startswith("bounds from power states, not measured")
    assert "not ranked" in bound[-1]


def test_a_missing_energy_has_its_reason(virtual_runs: tuple[Run, ...]) -> None:
    (table,) = part(virtual_runs, "energy")
    for line in rows(table):
        assert line[3] == MISSING
        assert line[-1].startswith("No drive-scope power source")


def test_hosts_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [
        one(tmp_path, arm("A", 0, host="left")),
        one(tmp_path, arm("B", 0, host="right", virtual=True, power="none")),
    ]
    (table,) = part(runs, "hosts")
    found = {line[0]: line[1:] for line in rows(table)}
    assert found["cpu count"] == ["96", "2"]
    assert "kernel" not in found


def test_one_host_is_said_to_be_one(arms: tuple[Run, ...]) -> None:
    (said,) = part(arms, "hosts")
    assert isinstance(said, Paragraph)
    assert said.text.startswith("All runs were made on box")
