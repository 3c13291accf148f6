"""Bars of arms: medians over their runs, bounds as lines, reasons in place of missing figures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import Scenario
from tests.reports.conftest import arm, one
from wattload.core.power import Evidence
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.arms import arm_bar, arms_figure, short_names
from wattload.reports.charts.bars import Bar, Dot, Panel
from wattload.reports.charts.captions import question
from wattload.reports.charts.marks import linear_ticks
from wattload.reports.charts.themes import light, tint
from wattload.reports.quantity import MISSING, Scale
from wattload.reports.runs.energy import ALL_PHASES
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.figures import Quantity
from wattload.reports.stats.subject import LETTERS, make_subject

JOULES = Scale(1, "J")


def panel(*bars: Bar) -> Panel:
    return Panel(
        key="k", bars=bars, scale=JOULES, question="How much?", remark=["energy, J"],
        better="lower", width=400,
    )  # fmt: skip


def bar(**changes: Any) -> Bar:
    return Bar(label="A", role="a", **changes)


def known_as(run: Run, evidence: Evidence) -> Run:
    """Return a run whose energies are known in another way."""
    energies = [each.model_copy(update={"evidence": evidence}) for each in run.record.power.energy]
    power = run.record.power.model_copy(update={"energy": tuple(energies)})
    return replace(run, record=run.record.model_copy(update={"power": power}))


def figure(runs: list[Run]) -> Figure:
    subject = make_subject(runs)
    (group,) = subject.groups
    rows = [row for row in compare(subject, group) if row.quantity.headline]
    found = arms_figure("c", "x", rows, group.arms)
    assert found is not None
    return found


def reported(found: Figure) -> str:
    """Return what the chart says to who hears it."""
    (text,) = re.findall(r"<desc[^>]*>(.*?)</desc>", found.svg)
    return str(text)


@given(st.floats(min_value=1e-42, max_value=1e40))
def test_ticks_are_round_begin_at_nought_and_end_with_the_marks(largest: float) -> None:
    found = linear_ticks(largest)
    assert found[0] == 0
    assert 3 <= len(found) <= 7
    assert found == sorted(set(found))
    assert found[-1] <= largest * 1.021


def test_a_missing_figure_is_its_reason_and_no_bar_of_nought() -> None:
    own = panel(bar(reason="the meter was unplugged"), bar(value=2.0))
    first, second = own.data()["kbars"]
    assert "v" not in first
    assert first["reason"] == "the meter was unplugged"
    assert "text" not in first
    assert second["v"] == 2.0


def test_bounds_are_a_line_and_no_bar() -> None:
    (row,) = panel(bar(lower=1.0, upper=3.0)).data()["kbars"]
    assert "v" not in row
    assert (row["from"], row["to"], row["open"]) == (1.0, 3.0, False)
    assert row["text"] == "1.00 to 3.00"


def test_a_lone_maximum_is_open_below_and_printed_with_its_sign() -> None:
    (row,) = panel(bar(upper=3.0)).data()["kbars"]
    assert row["open"] is True
    assert row["text"] == "≤ 3.00"


def test_a_run_that_does_not_count_is_hollow() -> None:
    good, bad = panel(bar(value=2.0, dots=[Dot(2.0), Dot(9.0, valid=False)])).data()["kdots"]
    assert (good["fill"], good["stroke"]) == (light("strong"), light("surface"))
    assert (bad["fill"], bad["stroke"]) == (light("surface"), light("strong"))


def test_uncertainty_is_drawn_to_both_sides_of_the_figure() -> None:
    (row,) = panel(bar(value=10.0, error=2.0)).data()["kbars"]
    assert (row["low"], row["high"], row["end"]) == (8.0, 12.0, 12.0)


def test_a_failed_run_is_in_no_median_and_is_counted_apart(tmp_path: Path) -> None:
    rates = {0: 1e9, 1: 2e9, 2: 50e9}
    runs = [
        one(tmp_path, arm("A", index, rate=rate, status="failed" if index == 2 else "complete"))
        for index, rate in rates.items()
    ]
    subject = make_subject(runs)
    (group,) = subject.groups
    row = next(r for r in compare(subject, group) if r.quantity.unit is Unit.BYTES_PER_SECOND)
    found = arm_bar(row, "A", "A", "A", runs)
    assert found.value == pytest.approx(1.502e9, rel=1e-3)
    assert found.count == "n = 2 of 3"
    assert [dot.valid for dot in found.dots] == [True, True, False]


def test_an_arm_without_a_figure_says_why_where_others_have_one(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, power="none"))]
    found = figure(runs)
    assert "No drive-scope power source: the…" in found.svg
    reasons = {cell.remark for row in found.table.rows for cell in row if cell.remark}
    assert reasons == {runs[1].record.power.choice}


def test_bounds_tell_no_rate_per_watt_and_the_chart_says_so(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, power="bounds"))]
    assert "only bounds of energy are known" in figure(runs).svg


def test_evidence_stands_beside_every_figure_of_energy(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, power="declared"))]
    found = figure(runs)
    remarks = [text for text in re.findall(r">([^<>]*)<", found.svg) if "A: measured by" in text]
    assert len(remarks) == 3  # energy, mean power, rate per watt
    assert remarks[0] == "A: measured by a meter or a rail sensor; B: declared in a data"
    known = {row[0].text: row[5].text for row in found.table.rows if row[2].text == "B"}
    assert known["energy, train"] == "declared in a data sheet or by the user, not measured"
    assert known["throughput"] == ""


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (Evidence.BOUNDS, "an interval from the drive's power states;"),
        (Evidence.DECLARED, "an interval from declared watts, which were not measured"),
    ],
)
def test_an_interval_is_called_what_its_evidence_allows(
    tmp_path: Path, evidence: Evidence, words: str
) -> None:
    runs = [known_as(one(tmp_path, arm(name, 0, power="bounds")), evidence) for name in "AB"]
    found = figure(runs)
    assert words in found.caption
    assert "truth" not in found.caption


def test_six_arms_stand_side_by_side_each_with_its_hatch(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm(letter, 0)) for letter in LETTERS]
    found = figure(runs)
    assert [role for role, _ in found.legend] == ["a", "b", "c", "d", "e", "f"]
    assert f'fill="{light("a")}"' in found.svg  # plain
    for role in ("b", "c", "d", "e", "f"):
        assert f'fill="{tint(role).light}"' in found.svg
        assert f'fill="{light(role)}"' not in found.svg


def test_every_panel_says_which_way_is_better(tmp_path: Path) -> None:
    found = figure([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0))])
    assert found.svg.count("higher is better →") == 3  # rate, utilisation, rate per watt
    assert found.svg.count("← lower is better") == 1  # energy


def test_a_chart_is_told_to_who_does_not_see_it(tmp_path: Path) -> None:
    found = figure([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, rate=0.6e9))])
    assert "How fast is training? In GB/s: A 1.50; B 0.600." in reported(found)


def test_figures_that_no_run_has_are_named_and_not_drawn(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0))
    subject = make_subject([run])
    (group,) = subject.groups
    found = arms_figure("c", "x", compare(subject, group), group.arms)
    assert found is not None
    assert "No run has a figure for batch latency p99." in found.caption
    row = next(row for row in found.table.rows if row[0].text == "batch latency p99")
    assert row[4].text == f"{MISSING} (1000 batches are the least for a p99; this run had 112)"


@pytest.mark.parametrize(
    ("unit", "phase", "requested"),
    [
        (Unit.SECONDS, "write", "How long does writing take?"),
        (Unit.BYTES_PER_SECOND, "read", "How fast is reading?"),
        (Unit.JOULES, ALL_PHASES, "How much energy does the whole job use?"),
        (Unit.BYTES_PER_JOULE, "train", "How fast is training per watt?"),
        (Unit.SECONDS, "", "How long does conversion take?"),
        (Unit.JOULES, "to_parquet", "How much energy does the phase “to_parquet” use?"),
        (Unit.FRACTION, "train", "How high is conversion time?"),
    ],
)
def test_a_title_is_the_question_that_the_panel_answers(
    unit: Unit, phase: str, requested: str
) -> None:
    own = Quantity(
        key="k", label="conversion time", unit=unit, better="lower", headline=True, phase=phase
    )
    assert question(own) == requested


def test_bars_bear_names_where_all_are_short_and_letters_where_one_is_long() -> None:
    assert short_names(["PS0", "PS1"]) == ["A PS0", "B PS1"]
    assert short_names(["A", "B"]) == ["A", "B"]
    assert short_names(["PS0", "MICRON_6550_MTFDLAL61T4TGA"]) == ["A", "B"]
    assert short_names(["PS0"]) == ["PS0"]


def test_a_scenario_of_one_run_has_a_mark_and_its_count(tmp_path: Path) -> None:
    found = figure([one(tmp_path, Scenario(run_id="run-1"))])
    assert "n = 1" in found.svg
