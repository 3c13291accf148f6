"""A point of a sweep at which an arm has no valid run is named, and no row of it is left blank."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.reports.sessions import turn
from wattload.core.record.check import Check
from wattload.reports.blocks import Notice, Section, Table
from wattload.reports.load import Run
from wattload.reports.page import render_page
from wattload.reports.sections.comparison import comparison_section
from wattload.reports.subject import make_subject

FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


def at(workers: int, *bad: str, arms: str = "AB") -> list[Run]:
    """Return six runs of each arm with so many workers; those of the ``bad`` arms failed."""
    return [
        turn(
            label,
            block,
            1e9 * (1 + 0.001 * block),
            name=f"{label}{workers}-{block}",
            settings={"workload": {"workers": workers}},
            checks=(FAILED,) if label in bad else (),
        )
        for label in arms
        for block in range(6)
    ]


def part(runs: Sequence[Run]) -> Section:
    section = comparison_section(make_subject(runs))
    assert section is not None
    return section.parts[0]


def voids(runs: Sequence[Run]) -> list[str]:
    notices = [block for block in part(runs).blocks if isinstance(block, Notice)]
    return [
        str(text)
        for each in notices
        if "without a valid run" in each.title
        for text in each.sentences
    ]


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (
            at(4, "A", "B"),
            "No valid run of A (none of 6 runs counts) or B (none of 6 runs counts) at workers = 4:"
            " nothing is compared there.",
        ),
        (
            at(4, "A"),
            "No valid run of A (none of 6 runs counts) at workers = 4: nothing is compared there.",
        ),
        (
            at(4, arms="B"),
            "No valid run of A (none was made) at workers = 4: nothing is compared there.",
        ),
    ],
)
def test_a_point_without_a_valid_run_is_named_with_its_arm(runs: list[Run], sentence: str) -> None:
    assert voids([*at(1), *runs]) == [sentence]


def test_a_sweep_with_valid_runs_everywhere_says_nothing_of_it() -> None:
    assert voids([*at(1), *at(4)]) == []


def test_runs_that_were_not_swept_say_nothing_of_points() -> None:
    assert voids(at(1, "A")) == []


def test_no_cell_of_such_a_point_is_blank() -> None:
    tables = [
        block for block in part([*at(1), *at(4, "A", "B")]).blocks if isinstance(block, Table)
    ]
    rows = [row for table in tables for row in table.rows if row[0].text == "4"]
    assert rows
    assert all("no valid run" in cell.remark for row in rows for cell in row[1:3])


def test_the_summary_says_at_how_many_of_the_points_there_is_a_ratio() -> None:
    one = render_page([*at(1), *at(4, "A", "B")])
    assert "at workers = 1, the one of 2 points with a ratio" in one
    two = render_page([*at(1), *at(2), *at(4, "A", "B")])
    assert "at the median of 2 of 3 points of workers" in two
    for page in (one, two):
        ids = set(re.findall(r' id="([^"]+)"', page))
        assert [link for link in re.findall(r'href="#([^"]+)"', page) if link not in ids] == []
