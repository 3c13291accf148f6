"""A fast meter that counts energy shows by its greatest readings that it was at its maximum."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import samples_of
from wattload.core.power import Channel, Counter
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.arange(0, 60, 0.1)


@pytest.mark.parametrize(("range_w", "is_refused"), [(25.0, True), (26.0, False), (None, False)])
def test_a_phase_with_a_reading_at_the_end_of_the_range_has_no_energy(
    range_w: float | None, is_refused: bool
) -> None:
    """20 W with a peak of 25 W in one period, which is in the second of two phases."""
    meter = facts("meter", sensor=Counter(quantum_j=1e-6), accuracy_percent=1.0, range_w=range_w)
    middle_s = TIMES_S - 0.05
    samples = samples_of(
        TIMES_S, 20 * TIMES_S, source="meter", channel=Channel.ENERGY_J
    ) + samples_of(
        middle_s,
        np.where(np.abs(middle_s - 40) < 0.06, 25.0, 21.0),
        source="meter",
        channel=Channel.MAX_W,
    )
    phases = window("first", 10, 30), window("second", 35, 50)
    ledger = EnergyLedger(samples, [meter], host="host1", activity=activity_of(*phases))
    first, second = ledger.phase_records(phases)
    assert first.energy_j == pytest.approx(20 * 20)
    assert (second.energy_j is None) == is_refused
    if is_refused:
        reason = "readings are pinned at the meter's maximum of 25 W"
        assert second.missing["energy_j"] == reason
