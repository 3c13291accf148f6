"""Bars of arms: what ratios divide, reasons for missing figures, parts of times, power states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.records import Scenario, make_run, of_windows
from tests.reports.conftest import arm, one
from tests.reports.sessions import checkpoint_record, session
from wattload.core.power import Evidence
from wattload.core.record.results import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.arms import (
    PointRows,
    arm_bar,
    arms_figure,
    parts_figures,
    stages_figure,
    states_figure,
)
from wattload.reports.charts.themes import light
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import LETTERS, make_subject
from wattload.results.quantity import MISSING

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
    found = arms_figure("c", "x", [PointRows("", rows, group.arms)])
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


def test_phases_that_share_time_are_never_stacked() -> None:
    made = checkpoint_record()
    timed = [window for window in made.windows if window.timed]
    shared = ((timed[0].start_ns, timed[-1].end_ns),)
    windows = [
        window.model_copy(update={"intervals": shared} if window.timed else {})
        for window in made.windows
    ]
    assert stages_figure("c", "x", {"A": [made.model_copy(update=of_windows(windows))]}) is None


WHOLE = "a step"


def _part(name: str, value: float | None) -> Metric:
    return Metric.of(name, value, Unit.SECONDS, "lower", "A part.", part_of=WHOLE, reason="untold")


def _record(**parts: float | None) -> RunRecord:
    record, _ = make_run(Scenario(run_id="run-1"))
    metrics = [_part(name, value) for name, value in parts.items()]
    return record.model_copy(update={"metrics": metrics})


def _cells(arms: dict[str, list[RunRecord]]) -> list[list[str]]:
    (figure,) = parts_figures("c", "unet3d", arms)
    return [[cell.text for cell in row] for row in figure.table.rows]


def test_what_an_arm_does_not_tell_is_missing_and_not_zero() -> None:
    runs = [_record(fetch_s=value, barrier_s=0.5) for value in (1.0, 9.0, 2.0)]
    assert _cells({"A": runs, "B": [_record(fetch_s=None)]}) == [
        ["fetch time", "2.00", MISSING],
        ["barrier time", "0.500", MISSING],
        ["sum", "2.50", "0"],
    ]


@pytest.mark.parametrize("parts", [{}, {"fetch_s": None}, {"fetch_s": 0.0}])
def test_of_nothing_there_is_no_chart(parts: dict[str, float | None]) -> None:
    assert parts_figures("c", "unet3d", {"A": [_record(**parts)]}) == ()


def test_a_part_has_its_initial_in_it_where_no_other_has_the_same() -> None:
    found = stages_figure("c", "checkpoint", {"A": [checkpoint_record()]})
    assert found is not None
    assert ">W</text>" in found.svg
    assert ">R</text>" in found.svg
    (alike,) = parts_figures("c", "x", {"A": [_record(wait=1.0, work=2.0)]})
    assert ">W</text>" not in alike.svg


def split(made: RunRecord, state: str, share: float) -> RunRecord:
    """Return the run with that share of every window spent in another state."""
    energies = []
    for energy in made.power.energy:
        (own,) = energy.states
        parts = [
            own.model_copy(
                update={
                    "state": name,
                    "seconds": own.seconds * part,
                    "energy_j": None if own.energy_j is None else own.energy_j * part,
                    "upper_j": None if own.upper_j is None else own.upper_j * part,
                    "lower_j": None if own.lower_j is None else own.lower_j * part,
                }
            )
            for name, part in ((own.state, 1 - share), (state, share))
        ]
        energies.append(energy.model_copy(update={"states": tuple(parts)}))
    power = made.power.model_copy(update={"energy": tuple(energies)})
    return made.model_copy(update={"power": power})


def test_energy_stands_by_state_with_the_time_in_it() -> None:
    made = split(checkpoint_record(), "3", 0.25)
    found = states_figure("c", "checkpoint", {"A": [made]})
    assert found is not None
    rows = [[cell.text.replace("\u00a0", " ") for cell in row] for row in found.table.rows]
    assert [row[1:5] for row in rows] == [
        ["PS0", "1 run", "12.00 s", "75.0 %"],
        ["PS3", "1 run", "4.000 s", "25.0 %"],
    ]
    total = sum(energy.energy_j or 0.0 for energy in made.power.energy)
    assert sum(float(row[5]) for row in rows) == pytest.approx(total, rel=1e-3)
    assert "measured by a meter or a rail sensor" in found.caption


def test_arms_in_different_states_stand_under_each_other_in_their_own_look() -> None:
    found = states_figure(
        "c",
        "x",
        {"first": [split(checkpoint_record(), "2", 0.5)], "other": [checkpoint_record(state=1)]},
    )
    assert found is not None
    assert ">A, PS0<" in found.svg
    assert ">B, PS1<" in found.svg


def test_bounds_by_state_are_intervals() -> None:
    found = states_figure("c", "x", {"A": [split(checkpoint_record(power="bounds"), "2", 0.5)]})
    assert found is not None
    assert " to " in found.table.rows[0][5].text
    assert "bounds from power states, not measured" in found.caption


def test_a_state_that_was_not_seen_is_called_unknown() -> None:
    found = states_figure("c", "x", {"A": [split(checkpoint_record(), "unknown", 0.5)]})
    assert found is not None
    assert found.table.rows[-1][1].text == "state unknown"
