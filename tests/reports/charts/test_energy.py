"""Energy by arm and observed power state."""

from __future__ import annotations

import pytest

from tests.reports.sessions import checkpoint_record
from wattload.core.record.run import RunRecord
from wattload.reports.charts.arms import states_figure


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
