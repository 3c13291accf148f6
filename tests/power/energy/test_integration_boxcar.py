"""Energy of sensors that average: steps at a phase's edges, and what readings do not cover."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import Floats, boxcar, ns, samples_of
from wattload.core.power import Boxcar, Instant, Sensor
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

LOW_W, HIGH_W = 5.0, 21.0
START_S, LENGTH_S = 5.0, 6.0
READS_S = np.round(np.arange(0, 180) / 10 + 0.003, 6)
ALIGNED_S = (ns(0) % 10**9) / 1e9
"""The phase on CLOCK_MONOTONIC of updates at the test's whole seconds."""
SLIDING = Boxcar(window_s=1.0, update_period_s=0.0)
TUMBLING = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=ALIGNED_S)


def readings(sensor: Sensor, step_s: float, reads_s: Floats) -> Floats:
    """Return readings of one save between idle times."""

    def energy_j(time_s: Floats) -> Floats:
        return LOW_W * time_s + (HIGH_W - LOW_W) * np.clip(time_s - step_s, 0, LENGTH_S)

    if isinstance(sensor, Instant):
        return np.where((reads_s >= step_s) & (reads_s < step_s + LENGTH_S), HIGH_W, LOW_W)
    updates_s = np.floor(reads_s) if sensor is TUMBLING else reads_s
    return boxcar(energy_j, 1.0, updates_s)


def record_of(sensor: Sensor, step_s: float, reads_s: Floats = READS_S) -> EnergyRecord:
    source = facts("meter", sensor=sensor, accuracy_percent=0.0)
    source = source.model_copy(update={"period_s": float(np.median(np.diff(reads_s)))})
    phase = window("write", step_s, step_s + LENGTH_S)
    samples = samples_of(reads_s, readings(sensor, step_s, reads_s))
    ledger = EnergyLedger(samples, [source], host="host1", activity=activity_of(phase))
    (record,) = ledger.phase_records([phase])
    return record


@pytest.mark.parametrize("step_s", [5.0, 5.1, 5.35, 5.5, 5.93])
@pytest.mark.parametrize(
    "sensor", [SLIDING, TUMBLING, Instant()], ids=["sliding", "tumbling", "instant"]
)
def test_step_at_an_edge_belongs_to_its_side(sensor: Sensor, step_s: float) -> None:
    record = record_of(sensor, step_s)
    assert record.energy_j == pytest.approx(HIGH_W * LENGTH_S, rel=0.001)
    assert record.coverage == pytest.approx(1)
    assert record.uncertainty_j is not None


def test_reads_rarer_than_the_window_do_not_cover() -> None:
    reads_s = np.arange(0, 20, 2.0)
    record = record_of(SLIDING, START_S, reads_s)
    assert record.coverage == pytest.approx(0.5, abs=0.1)
    assert record.energy_j is None
