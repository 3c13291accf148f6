"""A point of a sweep at which an arm has no valid run is named, and no row of it is left blank."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.reports.conftest import render_page
from tests.reports.sessions import turn
from wattload.core.power import Channel
from wattload.core.record.results import Check
from wattload.reports.blocks import Notice, Section, Table
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import PowerTrace, Signal
from wattload.reports.sections.comparison import comparison_section, temperature_table
from wattload.reports.stats.subject import Group, make_subject

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
            "No valid run of A (none of 6 runs is valid) or B (none of 6 runs is valid) "
            "at workers = 4: not compared.",
        ),
        (
            at(4, "A"),
            "No valid run of A (none of 6 runs is valid) at workers = 4: not compared.",
        ),
        (
            at(4, arms="B"),
            "No valid run of A (not run) at workers = 4: not compared.",
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


def warm(run: Run, kelvin: float) -> Run:
    """Return a run whose drive tells ``kelvin`` amid a timed window, and 400 K before it."""
    window = run.record.timed_windows()[0]
    middle_ns = (window.start_ns + window.end_ns) // 2
    signal = Signal(
        source="nvme",
        device="SERIAL",
        channel=Channel.TEMPERATURE_K,
        time_ns=np.array([window.start_ns - 1, middle_ns, middle_ns + 1], dtype=np.int64),
        value=np.array([400.0, kelvin, np.nan]),
    )
    return replace(run, traces=replace(run.traces, power=PowerTrace(signals=(signal,))))


def table_of(arms: Mapping[str, Sequence[Run]]) -> Table | None:
    return temperature_table(
        Group(workload="unet3d", arms={arm: tuple(runs) for arm, runs in arms.items()})
    )


def by_arm(arms: tuple[Run, ...]) -> dict[str, list[Run]]:
    return {name: [run for run in arms if run.record.label == name][:3] for name in ("A", "B")}


def test_the_cooler_arm_is_told_by_how_much(arms: tuple[Run, ...]) -> None:
    found = by_arm(arms)
    table = table_of(
        {
            "PS0": [
                warm(run, kelvin) for run, kelvin in zip(found["A"], (330, 329, 350), strict=True)
            ],
            "PS1": [
                warm(run, kelvin) for run, kelvin in zip(found["B"], (320, 321, 319), strict=True)
            ],
        }
    )
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == [
        "highest temperature",
        "57 °C",
        "47 °C",
        "-10 K",
    ]
    assert [column.title for column in table.columns][1:] == ["A (PS0)", "B (PS1)", "B - A"]


def test_an_arm_without_temperatures_leaves_the_difference_out(arms: tuple[Run, ...]) -> None:
    found = by_arm(arms)
    cold = [replace(run, traces=replace(run.traces, power=None)) for run in found["B"]]
    table = table_of({"A": [warm(run, 330) for run in found["A"]], "B": cold})
    assert table is not None
    assert [cell.text for cell in table.rows[0]][1] == "57 °C"
    assert "K" not in table.rows[0][-1].text


def test_no_temperature_at_all_draws_no_table(arms: tuple[Run, ...]) -> None:
    cold = [replace(run, traces=replace(run.traces, power=None)) for run in arms]
    assert table_of({"A": cold}) is None
