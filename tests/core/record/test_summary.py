"""The energies in a record's summary: in the window and for the work, each named as such."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.core.checks.changed_records import record_of, with_energy, with_power
from tests.records import cluster_of, make_cluster, of_windows
from wattload.core.record.run import RunRecord
from wattload.core.record.summary import drive_energy, summary_of

NO_TAIL = dict.fromkeys(
    ("tail_j", "tail_uncertainty_j", "work_uncertainty_j"), "work of another phase followed"
)


def phases(*tails_j: float | None) -> RunRecord:
    """Return a record whose phases take 100 J +- 3 J each, and have these tails of +- 4 J."""
    record = record_of(workload="checkpoint")
    assert len(record.power.energy) == len(tails_j)
    energies = []
    for energy, tail_j in zip(record.power.energy, tails_j, strict=True):
        changes: dict[str, Any] = {"energy_j": 100.0, "uncertainty_j": 3.0, "tail_j": tail_j}
        changes |= {"tail_uncertainty_j": 4.0, "work_uncertainty_j": 5.0}
        if tail_j is None:
            changes |= dict.fromkeys(NO_TAIL)
            changes["missing"] = {**energy.missing, **NO_TAIL}
        energies.append(energy.model_copy(update=changes))
    return with_power(record, energy=tuple(energies))


def total(record: RunRecord) -> dict[str, Any]:
    return drive_energy(record)


def test_energy_for_the_work_is_that_in_the_windows_and_all_tails() -> None:
    assert total(phases(10.0, 2.0)) == {
        "energy_in_window_j": 200.0,
        "energy_in_window_uncertainty_j": 6.0,
        "energy_for_work_j": 212.0,
        "energy_for_work_uncertainty_j": 10.0,
        "missing": {},
    }


def test_what_an_earlier_phase_left_behind_is_in_the_next_ones_window() -> None:
    found = total(phases(None, 2.0))
    assert (found["energy_for_work_j"], found["energy_for_work_uncertainty_j"]) == (202.0, 8.0)


def test_without_a_rest_at_the_end_energy_for_the_work_is_unknown() -> None:
    found = total(phases(2.0, None))
    assert found["energy_in_window_j"] == 200.0
    assert found["energy_for_work_j"] is None
    assert found["missing"]["energy_for_work_j"] == "work of another phase followed"


def test_an_energy_without_a_figure_leaves_no_sum() -> None:
    record = record_of(power="bounds")
    found = total(record)
    assert {value for name, value in found.items() if name != "missing"} == {None}
    assert found["missing"]["energy_in_window_j"] == record.power.energy[0].missing["energy_j"]
    none = record_of(power="none")
    assert total(none)["missing"]["energy_for_work_j"] == none.power.choice


def test_phases_that_ran_at_the_same_time_have_no_sum() -> None:
    record = phases(1.0, 1.0)
    first = next(window for window in record.windows if window.timed)
    windows = tuple(
        window.model_copy(update={"intervals": first.intervals}) if window.timed else window
        for window in record.windows
    )
    found = total(record.model_copy(update=of_windows(windows)))
    assert found["missing"]["energy_in_window_j"] == "phases ran at the same time"


def test_a_host_whose_drive_has_no_figure_leaves_no_sum() -> None:
    first, *others = cluster_of("ada", "bob", "cyd", power="measured")
    whole, _ = make_cluster([first, *others])
    assert summary_of(whole)["drive_energy"]["energy_for_work_j"] == pytest.approx(
        sum(energy.work_j or 0.0 for energy in whole.power.energy)
    )
    part, _ = make_cluster([replace(first, power="none"), *others])
    found = summary_of(part)["drive_energy"]
    assert found["energy_for_work_j"] is None
    assert found["missing"]["energy_for_work_j"] == f"no energy figure for {first.serial} of ada"


def test_the_summary_names_both_energies_of_each_chosen_source() -> None:
    record = with_energy(record_of(), energy_j=50.0, tail_j=-0.25)
    (found,) = summary_of(record)["energy"]
    assert (found["energy_in_window_j"], found["energy_for_work_j"]) == (50.0, 49.75)
    assert math.isclose(found["mean_w"], record.power.energy[0].mean_w or 0)
    assert found["missing"] == {}
    assert summary_of(with_energy(record, chosen=False))["energy"] == []


@pytest.mark.parametrize("power", ["bounds", "upper", "declared"])
def test_what_was_not_measured_says_why(power: str) -> None:
    (found,) = summary_of(record_of(power=power))["energy"]
    gaps = {name for name, value in found.items() if value is None}
    assert gaps == set(found["missing"]) | ({"mean_w"} & gaps)
    assert all(found["missing"].values())
