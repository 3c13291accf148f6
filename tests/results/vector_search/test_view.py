"""How vector search is shown: values at a recall, curves, limits, passes, memory and builds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.reports.vectors import RECALLS, curve, search_record, search_run
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.energy import phase_energies
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import different_work
from wattload.reports.stats.subject import make_subject
from wattload.results.quantity import MISSING
from wattload.results.reading import run_of
from wattload.results.shapes import Grid, Group, PointLines, Row, Shape
from wattload.results.vector_search.facts import BUILD, FIRST_PASS, SEARCH
from wattload.results.vector_search.view import VIEW
from wattload.results.view import Arm, Shown, ShownRun

SPACES = {0xA0: " ", 0x202F: " "}
"""Spaces without line breaks, as a reader sees them."""


def shown_run(record: RunRecord) -> ShownRun[Any]:
    found = run_of(record)
    assert found is not None
    joules = {each.phase: each.energy_j for each in phase_energies(record)}
    return ShownRun(record, found.facts, lambda _, phase: joules.get(phase), lambda _: "")


def shown(runs: Sequence[Run], more: str = "", letter: str = "") -> Shown[Any]:
    """Return runs as points along the list, at the same value of another setting."""
    arms = [
        Arm(
            letter,
            "A",
            f"{letter} (drive)" if letter else "all runs",
            ", ".join(filter(None, (more, f"search list {own.facts.settings.search_list}"))),
            (own,),
        )
        for own in (shown_run(run.record) for run in runs)
    ]
    return Shown(arms, arms)


def cells(row: Sequence[Any]) -> list[str]:
    return [str(getattr(cell, "text", cell)).translate(SPACES) for cell in row]


def grid(shapes: Sequence[Shape], caption: str) -> Grid:
    return next(
        each for each in shapes if isinstance(each, Grid) and each.caption.startswith(caption)
    )


def points(runs: Sequence[Run]) -> list[dict[str, str]]:
    found = grid([*VIEW.opening(shown(runs))], "Every point")
    return [dict(zip(found.columns, cells(row), strict=True)) for row in found.rows]


def test_an_arm_has_its_values_at_each_recall_and_how_they_were_found() -> None:
    found = grid([*VIEW.opening(shown(curve()))], "At equal recall, closed loop")
    assert [cells(row) for row in found.rows] == [
        ["≥ 0.95", "all runs", "1 391", "7.19", "54.0 ms", "11.1 MB",
         "interpolated between L=40 and L=80"],
        ["≥ 0.90", "all runs", "2 083", "4.80", "36.2 ms", "11.1 MB",
         "next point above, L=40: recall 0.9200"],
    ]  # fmt: skip


def test_a_recall_that_is_not_reached_has_no_values() -> None:
    found = grid([*VIEW.opening(shown(curve([10, 20])))], "At equal recall")
    assert {tuple(cells(row)[2:]) for row in found.rows} == {
        (*[MISSING] * 4, "not reached: 0.8100 at L=20")
    }


def test_without_power_there_are_rates_and_no_joules() -> None:
    (first, second) = grid([*VIEW.opening(shown(curve(has_power=False)))], "At equal recall").rows
    assert [cells(row)[2:4] for row in (first, second)] == [["1 391", MISSING], ["2 083", MISSING]]


def test_curves_are_rate_energy_and_latency_over_recall() -> None:
    (row,) = (each for each in VIEW.opening(shown(curve())) if isinstance(each, Row))
    charts = [each for each in row.charts if isinstance(each, PointLines)]
    assert [each.what for each in charts] == ["queries/s", "mJ per query", "p99"]
    for chart in charts:
        (line,) = chart.lines
        assert chart.over_unit is Unit.COUNT
        assert list(line.xs) == pytest.approx(list(RECALLS.values()), abs=1e-3)
    joules = [10 / (100_000 / (size + 8)) * 1e3 for size in RECALLS]
    assert list(charts[1].lines[0].ys) == pytest.approx(joules, rel=1e-3)


def test_one_point_has_tables_and_no_curve() -> None:
    shapes = [*VIEW.opening(shown([search_run()]))]
    assert [type(each) for each in shapes] == [Grid, Grid]


def test_each_value_of_another_setting_has_a_curve_of_its_own() -> None:
    arms = [arm for beam in (2, 8) for arm in shown(curve([20, 40, 80]), f"beam {beam}", "A").arms]
    (row,) = (each for each in VIEW.opening(Shown(arms, arms)) if isinstance(each, Row))
    chart = row.charts[0]
    assert isinstance(chart, PointLines)
    titles = ["A (drive), beam 2", "A (drive), beam 8"]
    assert [line.title for line in chart.lines] == titles
    found = grid([*VIEW.opening(Shown(arms, arms))], "At equal recall")
    assert [cells(row)[1] for row in found.rows] == [*titles, *titles]


def test_a_walk_has_its_costs_and_no_recall() -> None:
    run = search_run(is_walk=True)
    shapes = [*VIEW.opening(shown([run]))]
    assert [each.caption.partition(",")[0] for each in shapes if isinstance(each, Grid)] == [
        "Every point"
    ]
    (point,) = points([run])
    assert (point["#recall"], point["#reads"]) == (MISSING, "44.0")
    assert VIEW.job is not None
    assert "replayed reads, no recall" in VIEW.job([shown_run(run.record)], [])
    assert "replayed reads" in VIEW.lines(shown_run(run.record))["recall"]


def test_a_loader_that_warms_itself_has_a_row_for_each_pass() -> None:
    first, second = points([search_run(reads_directly=False, queries_per_s=3000, watts=6.0)])
    assert (first["arm"], second["arm"]) == ("all runs, first pass", "all runs")
    assert (first["#queries/s"], second["#queries/s"]) == ("500", "3 000")
    assert (first["#mJ per query"], second["#mJ per query"]) == ("18", "2")
    assert (first["limit"], second["limit"] != MISSING) == (MISSING, True)


def test_what_the_page_cache_served_is_said_of_mapped_files_alone() -> None:
    mapped, direct = (
        VIEW.served(shown_run(search_record(reads_directly=value))) for value in (False, True)
    )
    assert "the page cache served 80.0" in mapped.from_memory
    assert not direct.from_memory


@pytest.mark.parametrize(
    ("changes", "text", "is_drive"),
    [
        ({"drive_ceiling": 93_000.0}, "limited by the drive, at 94.6 % of its ceiling", True),
        ({"cpu_share": 0.95}, "limited by the CPU, busy for 95.0 % of the time", False),
        ({}, "limited by waiting for reads, at most 128 in flight", False),
        ({"query_rate": 2000.0}, "limited by arrivals", False),
        ({"query_rate": 2500.0, "cpu_share": 0.95}, "limited by the CPU, busy", False),
        ({"drive_ceiling": None}, "limit unknown: the ceiling of the drive was", False),
        ({"reads_directly": False}, "limit unknown: the page cache served 80.0 %", False),
        (
            {"reads_directly": False, "from_drive": 1.0},
            "limited by waiting for reads, at most 2 in flight",
            False,
        ),
        ({"drive_ceiling": 50_000.0}, "limit unknown: 176 % of a ceiling measured too low", False),
    ],
)
def test_each_point_says_what_limited_it(
    changes: dict[str, Any], text: str, *, is_drive: bool
) -> None:
    assert VIEW.limit is not None
    found = VIEW.limit([shown_run(search_record(**changes))], None)
    assert found is not None
    assert found.text.translate(SPACES).startswith(text)
    assert found.is_drive is is_drive


def test_a_joule_pays_for_queries_and_building_has_none() -> None:
    record = search_record(reads_directly=False, watts=8.0)
    amounts = {each.phase: each.amount_per_j for each in phase_energies(record)}
    assert amounts[SEARCH] == pytest.approx(2000 / 8)
    assert amounts[FIRST_PASS] == pytest.approx(500 / 9)
    assert amounts[BUILD] is None


def work(**changes: Any) -> str:
    runs = [search_run(name="a"), search_run(name="b", label="B", repeat=1, **changes)]
    (group,) = make_subject(runs, "label").groups
    return different_work(group)


def test_drives_are_compared_with_the_same_index_and_the_same_answers_only() -> None:
    answers = search_record().workload.facts["answers"]
    assert not work()
    assert not work(cache_nodes=1000)
    assert work(index_digest="2e" * 32) == "index files differ"
    assert work(facts={"answers": {**answers, "digest": "ff" * 32}}) == "answers differ"
    assert "answers differ" in work(is_walk=True)
    assert "search_list" in work(search_list=80)


def test_a_terminal_has_recall_latency_costs_and_the_limit() -> None:
    lines = {
        name: text.translate(SPACES)
        for name, text in VIEW.lines(shown_run(search_record())).items()
    }
    assert lines["recall"].startswith("0.9200 (0.9")
    assert "at L=40; intrinsic dimension 19.4, recall by codes alone 0.800" in lines["recall"]
    assert lines["latency"].startswith("closed loop: p50 14.8 ms, p90")
    assert lines["a query"] == (
        "44.0 reads in 12.0 rounds, 180 kB, 0.400 ms of CPU; 11.1 MB of memory held"
    )
    assert lines["limit"].endswith("at most 128 in flight; 2 threads x 16 queries")


def test_memory_is_listed_by_part_and_only_own_builds_are_shown() -> None:
    shapes = [*VIEW.closing(shown(curve(cache_nodes=1000)))]
    memory, build = grid(shapes, "Memory"), grid(shapes, "Building")
    assert memory.columns[-1] == "#cached nodes"
    (row,) = memory.rows
    assert cells(row)[1:] == [
        "10, 20, 40, 80, 160 and 320",
        "772 B",
        "164 MB",
        "6.40 MB",
        "131 kB",
        "1.60 MB",
        "3.00 MB",
        "772 kB",
    ]
    assert [cells(row)[1:] for row in build.rows] == [
        ["12.0 s", "100 s", "8.00 s", "120 s", "720 J", "164 MB", "400 MB", "1.25"]
    ]
    assert isinstance(shapes[-1], Group)
    there = [*VIEW.closing(shown([search_run(is_built=False)]))]
    assert not any(isinstance(each, Grid) and "Building" in each.caption for each in there)


def test_a_page_without_valid_runs_has_no_empty_tables() -> None:
    assert not [*VIEW.opening(Shown([], []))]
    assert [type(each) for each in VIEW.closing(Shown([], []))] == [Group]
