"""Bars of arms: what the ratios divide, runs as dots, reasons in place of missing figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports.conftest import arm, one
from tests.reports.sessions import session
from wattload.core.power import Evidence
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.arms import Place, arm_bar, arms_figure
from wattload.reports.charts.themes import light
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import LETTERS, make_subject

FAST, SLOW = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9], [5e8, 5.05e8, 4.95e8, 5e8, 5.1e8]
PAST = "forced despite: different work: scale differ"


def known_as(run: Run, evidence: Evidence) -> Run:
    """Return a run whose energies are known in another way."""
    energies = [each.model_copy(update={"evidence": evidence}) for each in run.record.power.energy]
    power = run.record.power.model_copy(update={"energy": tuple(energies)})
    return replace(run, record=run.record.model_copy(update={"power": power}))


def figure(runs: Sequence[Run], *, forced: bool = False) -> Figure:
    subject = make_subject(runs, forced=forced)
    (group,) = subject.groups
    rows = [row for row in compare(subject, group) if row.quantity.headline]
    found = arms_figure("c", "x", [Place("", rows, group.arms)])
    assert found is not None
    return found


def test_a_bar_is_what_the_ratio_divides_without_failed_runs(tmp_path: Path) -> None:
    rates = {0: 1e9, 1: 4e9, 2: 50e9}
    scenarios = [
        arm("A", index, rate=rate, status="failed" if index == 2 else "complete")
        for index, rate in rates.items()
    ]
    runs = [one(tmp_path, each) for each in scenarios]
    subject = make_subject(runs)
    (group,) = subject.groups
    row = next(r for r in compare(subject, group) if r.quantity.unit is Unit.BYTES_PER_SECOND)
    found = arm_bar(row, "A", "A", runs)
    assert found.value == pytest.approx(2e9, rel=5e-3)  # the geometric mean of 1 and 4 GB/s
    assert found.value == row.centres["A"]
    assert [dot.in_mean for dot in found.dots] in ([True, True, False], [True, True])
    assert "A hollow dot is an excluded run." in figure(runs).caption


def test_an_arm_without_a_figure_says_why_where_others_have_one(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, power="none"))]
    assert "No drive-scope power source: the" in figure(runs).svg


def test_bounds_have_no_rate_per_watt_and_the_chart_says_so(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, power="bounds"))]
    assert "only bounds of energy are known" in figure(runs).svg


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
    assert words in figure(runs).caption


def test_six_arms_have_six_colours_and_their_letters(tmp_path: Path) -> None:
    found = figure([one(tmp_path, arm(letter, 0)) for letter in LETTERS])
    assert [role for role, _ in found.legend] == ["a", "b", "c", "d", "e", "f"]
    for letter in LETTERS:
        assert f'fill="{light(letter.lower())}"' in found.svg
        assert f">{letter}<" in found.svg


@pytest.mark.parametrize("forced", [False, True])
def test_a_chart_of_a_forced_comparison_says_so(*, forced: bool) -> None:
    a = session({"A": FAST}, interleave="none")
    runs = [*a, *session({"B": SLOW}, interleave="none", scale="full")]
    assert (PAST in figure(runs, forced=forced).caption) == forced
