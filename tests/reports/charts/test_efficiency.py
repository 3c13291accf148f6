"""Power against rate: where runs and lines are, what the title says, and what is not drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.reports.sessions import session
from wattload.core.power import Evidence
from wattload.reports.blocks import Figure, FigureRow
from wattload.reports.charts.efficiency import Spot, efficiency_figure, spot
from wattload.reports.charts.plot import AREA
from wattload.reports.runs.energy import Energy
from wattload.reports.runs.load import Run
from wattload.reports.sections.power import energy_section
from wattload.reports.stats.subject import make_subject

ENERGY = Energy(
    phase="read",
    seconds=10.0,
    moved_bytes=20_000_000_000,
    evidence=Evidence.MEASURED,
    energy_j=100.0,
    mean_w=10.0,
)
MEASURED = {"power": "measured", "virtual": False}


def at(gb_per_s: float, watts: float, place: str = "") -> Spot:
    return Spot(run="r", at=place, bytes_per_s=gb_per_s * 1e9, watts=watts, evidence="measured")


def drawn(*arms: Sequence[Spot]) -> Figure:
    found = efficiency_figure("x", "Job", "read", dict(zip("AB", arms, strict=False)), "AB")
    assert found is not None
    return found


def test_a_run_is_on_the_line_of_its_energy_per_byte() -> None:
    svg = drawn([at(2.0, 10.0)]).svg
    assert "5 J/GB" in svg
    marked = re.findall(r'<circle cx="([\d.]+)%" cy="([\d.]+)"', svg)
    (share, y), top = map(float, marked[0]), float(re.findall(r'"area" x="0" y="([\d.]+)"', svg)[0])
    paths = re.findall(r'd="M0\.0 ([\d.]+)L([\d.]+) ([\d.]+)"', svg)
    heights = []
    for bottom, end, height in (map(float, each) for each in paths):
        along = share / 100 * AREA / end
        heights.append(top + bottom + (height - bottom) * along)
    assert min(abs(height - y) for height in heights) < 0.2


def test_the_title_has_the_geometric_means_of_each_arm() -> None:
    figure = drawn([at(1.0, 4.0), at(4.0, 16.0)], [at(1.0, 8.0)])
    assert figure.title.replace("\xa0", " ") == (
        "Job: A 4.00 J/GB at 2.00 GB/s and B 8.00 J/GB at 1.00 GB/s"
    )


def test_of_many_arms_the_title_has_the_lowest_and_the_highest() -> None:
    arms = {letter: [at(1.0, watts)] for letter, watts in zip("ABCD", (7, 5, 9, 6), strict=True)}
    figure = efficiency_figure("x", "Job", "read", arms, "ABCD")
    assert figure is not None
    title = "Job: B 5.00 J/GB at 1.00 GB/s to C 9.00 J/GB at 1.00 GB/s"
    assert figure.title.replace("\xa0", " ") == title


def test_points_of_a_sweep_are_not_pooled_in_the_title() -> None:
    figure = drawn([at(1.0, 4.0, "depth 1"), at(4.0, 8.0, "depth 8")])
    assert figure.title == "Job: 2.00 to 4.00 J/GB"
    assert [cells[2].text for cells in figure.table.rows] == ["depth 1", "depth 8"]


def test_energies_that_nobody_measured_have_no_place() -> None:
    assert spot("r", "", ENERGY) is not None
    for changes in (
        {"evidence": Evidence.DECLARED},
        {"energy_j": None},
        {"replayed": True},
        {"moved_bytes": 0},
        {"mean_w": 12.0},  # the drives of hosts that end apart
    ):
        assert spot("r", "", replace(ENERGY, **changes)) is None, changes
    assert efficiency_figure("x", "Job", "read", {"A": []}, "A") is None


def _efficiencies(runs: Sequence[Run]) -> list[Figure]:
    found = energy_section(make_subject(runs))
    rows = found.blocks if found is not None else []
    figures = [each for row in rows if isinstance(row, FigureRow) for each in row.figures]
    return [each for each in figures if each.name.endswith("efficiency")]


@pytest.mark.parametrize("power", ["none", "bounds", "declared"])
def test_a_page_without_measured_energy_has_no_such_chart(power: str) -> None:
    assert _efficiencies(session({"A": [1e9] * 2, "B": [2e9] * 2}, power=power)) == []


def test_a_page_has_a_dot_for_each_run_whose_energy_counts() -> None:
    (figure,) = _efficiencies(session({"A": [1e9] * 3, "B": [2e9] * 3}, **MEASURED))
    assert figure.svg.count("<circle") == len(figure.table.rows) == 6
    assert [meaning for _, meaning in figure.legend] == ["A", "B"]
