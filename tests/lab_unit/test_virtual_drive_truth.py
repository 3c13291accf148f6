"""What integration makes of the virtual drive's own readings, against its truth."""

from __future__ import annotations

import pytest

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.loads import LOADS, SOURCE, record
from tests.lab_unit.reckoned import MEASURED_S, MINUTE_S, UPDATES, account, measure


@pytest.mark.parametrize(("state", "updates"), [*enumerate(UPDATES)])
@pytest.mark.parametrize("load", LOADS)
def test_a_minute_by_interval_power_is_within_half_a_percent(
    load: str, state: int, updates: Updates
) -> None:
    recorded = record(LOADS[load], MINUTE_S, updates, state=state)
    found = account(recorded)
    energy = found[SOURCE]
    assert energy.energy_j == pytest.approx(recorded.truth_j, rel=0.005)
    assert energy.tail_j == pytest.approx(recorded.true_tail_j, abs=energy.tail_uncertainty_j)
    bounds = found["bounds"]
    assert bounds.lower_j is not None
    assert bounds.upper_j is not None
    assert bounds.lower_j <= recorded.truth_j <= bounds.upper_j


@pytest.mark.parametrize("load", LOADS)
def test_five_minutes_by_the_drive_s_own_mean_are_within_half_a_percent(load: str) -> None:
    measured = measure(LOADS[load])
    assert measured.log.count == MEASURED_S
    assert measured.energy_j == pytest.approx(measured.truth_j, rel=0.005)


def test_state_1_is_slower_cooler_and_needs_less_power() -> None:
    fast = record(LOADS["unet3d_unpaced"], MINUTE_S, "sliding", state=0)
    slow = record(LOADS["unet3d_unpaced"], MINUTE_S, "sliding", state=1)
    assert slow.bench.engine.read_bytes < 0.7 * fast.bench.engine.read_bytes
    assert slow.truth_j < 0.75 * fast.truth_j
    assert slow.bench.engine.thermal.highest_k < fast.bench.engine.thermal.highest_k - 5
