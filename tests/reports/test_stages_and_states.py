"""Where the time went, and in which power state the energy was used."""

from __future__ import annotations

import re

import pytest

from tests.records import Scenario, make_run
from wattload.core.record.run import RunRecord
from wattload.reports.charts.stages import stages_figure
from wattload.reports.charts.states import states_figure
from wattload.reports.themes import light

CHECKPOINT: dict[str, object] = {"workload": "checkpoint", "seconds": 10.0, "virtual": False}


def record(**changes: object) -> RunRecord:
    values: dict[str, object] = {"run_id": "run-1", "power": "measured"}
    made, _ = make_run(Scenario(**(CHECKPOINT | values | changes)))  # type: ignore[arg-type]
    return made


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


def test_stages_are_the_timed_phases_and_their_sum_is_the_time_in_them() -> None:
    made = record()
    found = stages_figure("c", "checkpoint", {"A": [made]})
    assert found is not None
    assert [[cell.text for cell in row] for row in found.table.rows] == [
        ["write", "10.00"],
        ["read", "6.000"],
    ]
    assert ">16.0, n = 1<" in found.svg
    assert "Where does the time go?" in found.svg


def test_one_phase_is_no_stack() -> None:
    made, _ = make_run(Scenario(run_id="run-1"))
    assert stages_figure("c", "unet3d", {"A": [made]}) is None


def test_phases_that_share_time_are_never_stacked() -> None:
    made = record()
    timed = [window for window in made.windows if window.timed]
    shared = ((timed[0].start_ns, timed[-1].end_ns),)
    windows = [
        window.model_copy(update={"intervals": shared} if window.timed else {})
        for window in made.windows
    ]
    assert stages_figure("c", "x", {"A": [made.model_copy(update={"windows": windows})]}) is None


def test_each_run_has_its_mark_at_its_own_sum() -> None:
    runs = [record(seconds=10.0), record(seconds=20.0)]
    found = stages_figure("c", "checkpoint", {"A": runs})
    assert found is not None
    assert ">24.0, n = 2<" in found.svg  # medians of 10 and 20, and of 6 and 12
    assert "a mark under a bar is the sum of one run" in found.caption


def test_no_mark_of_a_run_lies_over_a_figure() -> None:
    runs = [record(seconds=seconds) for seconds in (10.0, 12.0, 40.0)]
    found = stages_figure("c", "checkpoint", {"A": runs, "B": runs[:2]})
    assert found is not None
    at = r'transform="translate\([\d.]+,([\d.-]+)\)"'
    dot = rf'<path {at} d="[^"]*" fill="{light("strong")}" stroke="{light("surface")}"'
    marks = [float(y) for y in re.findall(dot, found.svg)]
    words = [float(y) for y in re.findall(rf"<text [^>]*{at}[^>]*>[^<]*\d, n = ", found.svg)]
    words += [float(y) for y in re.findall(rf"<text [^>]*{at}[^>]*>(?:write|read) \d", found.svg)]
    assert len(marks) == 5
    assert len(words) >= 4
    assert min(abs(mark - word) for mark in marks for word in words) > 9  # half a line and a mark


def test_energy_stands_by_state_with_the_time_in_it() -> None:
    made = split(record(), "3", 0.25)
    found = states_figure("c", "checkpoint", {"A": [made]})
    assert found is not None
    rows = [[cell.text.replace("\u00a0", " ") for cell in row] for row in found.table.rows]
    assert [row[1:5] for row in rows] == [
        ["PS0", "1 run", "12.00 s", "75.0 %"],
        ["PS3", "1 run", "4.000 s", "25.0 %"],
    ]
    total = sum(energy.energy_j or 0.0 for energy in made.power.energy)
    assert sum(float(row[5]) for row in rows) == pytest.approx(total / 3600, rel=1e-3)
    assert "measured by a meter or a rail sensor" in found.svg


def test_arms_in_different_states_stand_under_each_other_in_their_own_look() -> None:
    found = states_figure("c", "x", {"PS0": [record()], "PS1": [record(state=1)]})
    assert found is not None
    assert ">A, PS0<" in found.svg
    assert ">B, PS1<" in found.svg
    assert [role for role, _ in found.legend] == ["a", "b"]


def test_a_run_that_stayed_in_one_state_needs_no_such_chart() -> None:
    assert states_figure("c", "x", {"A": [record()]}) is None


def test_a_run_without_a_source_has_no_such_chart() -> None:
    assert states_figure("c", "x", {"A": [record(power="none")], "B": []}) is None


def test_bounds_by_state_are_intervals() -> None:
    found = states_figure("c", "x", {"A": [split(record(power="bounds"), "2", 0.5)]})
    assert found is not None
    assert " to " in found.table.rows[0][5].text
    assert "bounds from power states, no measurement" in found.svg


def test_a_state_that_was_not_seen_is_called_unknown() -> None:
    found = states_figure("c", "x", {"A": [split(record(), "unknown", 0.5)]})
    assert found is not None
    assert found.table.rows[-1][1].text == "state unknown"
