"""What the runs mean: figures of a year and a day, and what they may not claim."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reports.random_writes import writes_run
from tests.reports.sessions import session, simulated
from wattload.reports.blocks import Cell, Paragraph, Projection, Setting
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import leading
from wattload.reports.sections.consequences import Formula, consequences_section
from wattload.reports.stats.bars import shown_point
from wattload.reports.stats.consequences import Cost, costs
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen
from wattload.results.quantity import MISSING, number

REAL: dict[str, Any] = {"power": "measured", "virtual": False}
FAST, SLOW = [2.4e9, 2.42e9, 2.38e9, 2.4e9] * 2, [1.0e9, 1.01e9, 0.99e9, 1.0e9] * 2
YEAR_H, DAY = 365 * 24, 24
KWH_J = 3.6e6


def projection(runs: list[Run]) -> Projection:
    found = consequences_section(make_subject(runs))
    assert found is not None
    (block,) = (each for each in found.blocks if isinstance(each, Projection))
    return block


def cells(runs: list[Run], title: str) -> list[Cell]:
    table = projection(runs).table
    (place,) = (at for at, column in enumerate(table.columns) if column.title.startswith(title))
    return [row[place] for row in table.rows]


def known(runs: list[Run]) -> list[Cost]:
    subject = make_subject(runs)
    return costs(shown_point(subject, subject.groups[0]))


@pytest.fixture(scope="module")
def pair() -> list[Run]:
    return session({"A": FAST, "B": SLOW}, workload="checkpoint", **REAL)


def test_energy_and_stall_follow_from_joules_and_seconds_of_a_unit(pair: list[Run]) -> None:
    for cost, energy, stall in zip(
        known(pair), cells(pair, "energy"), cells(pair, "stall"), strict=False
    ):
        assert cost.energy_j is not None
        assert cost.io_s is not None
        kwh = cost.energy_j.value * YEAR_H * 8 / KWH_J
        assert float(energy.text) == pytest.approx(kwh, rel=5e-3)
        assert float(stall.text) == pytest.approx(cost.io_s.value * DAY, rel=5e-3)


def test_the_unit_of_work_costs_what_the_first_screen_prints(pair: list[Run]) -> None:
    screen = first_screen(make_subject(pair))
    for cost, energy, rate in zip(
        known(pair), screen.rows[0].energies.bars, screen.rows[0].rates.bars, strict=True
    ):
        assert cost.energy_j is not None
        assert cost.io_s is not None
        assert number(screen.energy_scale.shown(cost.energy_j.value), 3) == energy.text
        written = sum(each.written_bytes for each in leading(pair[0].record))
        assert number(written / cost.io_s.value / 1e9, 3) == rate.text


def test_a_year_with_idling_is_the_work_and_idle_power_for_the_rest(pair: list[Run]) -> None:
    *found, difference = cells(pair, "with idle")
    for cost, cell in zip(known(pair), found, strict=True):
        assert cost.energy_j is not None
        kwh = [8 * YEAR_H * (joules + 3600 * watts) / KWH_J for joules, watts in cost.idling]
        assert float(cell.text) == pytest.approx(sum(kwh) / len(kwh), rel=5e-3)
        ends = [float(end) for end in cell.remark.split(" to ")]
        assert ends == pytest.approx([min(kwh), max(kwh)], rel=5e-3)
        work_j = [joules + watts * cost.unit_s for joules, watts in cost.idling]
        assert sum(work_j) / len(work_j) == pytest.approx(cost.energy_j.value, rel=1e-3)
    assert difference.text == "not compared"
    assert "No verdict compares it" in projection(pair).table.note
    (alone,) = cells(pair[:1], "with idle")
    assert (alone.text != MISSING, alone.remark) == (True, "")


def test_units_are_said_in_full(pair: list[Run]) -> None:
    table = projection(pair).table
    assert "Wh per TB read + written" in [column.title for column in table.columns]
    assert "365 days, 8760 hours" in table.note


def test_intervals_hold_the_mean_and_need_five_runs(pair: list[Run]) -> None:
    for cost in known(pair):
        for mean in (cost.energy_j, cost.io_s, cost.j_per_byte):
            assert mean is not None
            assert len(mean.ends) == 3
            assert mean.ends[1] <= mean.value <= mean.ends[2]
    few = session({"A": FAST[:4], "B": SLOW[:4]}, workload="checkpoint", **REAL)
    assert [len(cost.io_s.ends) for cost in known(few) if cost.io_s] == [1, 1]
    assert {cell.remark for cell in cells(few, "stall")} == {""}


def test_a_difference_is_that_of_the_verdict_and_else_is_not_shown(pair: list[Run]) -> None:
    assert cells(pair, "stall")[2].text.startswith("A ")
    assert cells(pair, "stall")[2].text.endswith(" less")
    alike = session({"A": SLOW, "B": SLOW[::-1]}, workload="checkpoint", **REAL)
    few = session({"A": FAST[:3], "B": SLOW[:3]}, workload="checkpoint", **REAL)
    for runs in (alike, few):
        assert cells(runs, "stall")[2].text == "no difference shown"
        assert cells(runs, "energy")[2].text == "no difference shown"


def test_simulated_drives_are_an_illustration() -> None:
    runs = simulated(FAST, SLOW)
    found = consequences_section(make_subject(runs))
    assert found is not None
    first = found.blocks[0]
    assert isinstance(first, Paragraph)
    assert first.text.startswith("Illustration: simulated drives")
    assert [cell.text for cell in cells(runs, "arm")] == ["A", "B", "difference, no verdict"]


@pytest.mark.parametrize("power", ["none", "bounds", "declared"])
def test_energy_that_nobody_measured_is_not_projected(power: str) -> None:
    block = projection(session({"A": FAST, "B": SLOW}, workload="checkpoint", power=power))
    assert [column.title for column in block.table.columns] == ["workload", "arm", "stall, s a day"]
    settings = [part.name for part in block.sentence if isinstance(part, Setting)]
    assert settings == ["Minutes between units of work"]


def test_energy_of_some_runs_is_missing_with_a_reason() -> None:
    runs = [
        *session({"A": FAST}, workload="checkpoint", **REAL),
        *session({"B": SLOW}, workload="checkpoint", session="t"),
    ]
    a, b, *_ = cells(runs, "energy")
    assert a.text != MISSING
    assert b.text == MISSING
    assert b.remark


def test_units_that_overlap_have_no_figure() -> None:
    formula = Formula(per_unit=(10.0, 9.0, 11.0), unit_minutes=5.0, is_per_drive=True)
    assert formula.numbers(5.0, 2.0) == [4.0, 3.6, 4.4]
    assert formula.numbers(4.9, 2.0) == []
    over_runs = Formula(per_unit=(1.0, 2.0, 0.0), always=(5.0, 4.0, 6.0), unit_minutes=0.1)
    assert over_runs.numbers(1.0, 8.0) == [6.0, 6.0, 6.0]
    assert over_runs.numbers(0.5, 8.0) == [7.0, 6.0, 8.0]
    assert Formula(per_unit=(1.0,), unit_minutes=61.0).cell().text == MISSING


def test_a_cell_carries_what_makes_it_again() -> None:
    cell = Formula(per_unit=(120.0, 60.0, 180.0), unit_minutes=1.0, text="A {0} less").cell()
    assert (cell.text, cell.remark) == ("A 2.00 less", "1.00 to 3.00")
    assert json.loads(cell.formula)["perUnit"] == [120.0, 60.0, 180.0]


def test_work_without_a_size_has_no_consequences() -> None:
    assert consequences_section(make_subject([writes_run()])) is None
