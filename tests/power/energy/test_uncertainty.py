"""The parts of the uncertainty of an energy, and what is said of those that are unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import Floats, samples_of
from wattload.core.power import Counter, SourceFacts
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.round(np.arange(-50, 250) / 10, 6)
STEP_W = np.where((TIMES_S >= 0) & (TIMES_S < 10), 20.0, 8.0)
PARTS = {"gain", "quantisation", "fit", "sensor"}


def record_of(
    watts: Floats, source: SourceFacts, times_s: Floats = TIMES_S, *, spread_ns: int = 0
) -> EnergyRecord:
    phase = window("write", 0, 10)
    samples = samples_of(times_s, watts, channel=source.figure_channel, spread_ns=spread_ns)
    ledger = EnergyLedger(samples, [source], host="host1", activity=activity_of(phase))
    (record,) = ledger.phase_records([phase])
    return record


def test_total_has_every_part() -> None:
    record = record_of(STEP_W, facts("meter", accuracy_percent=1.0))
    assert set(record.uncertainty_parts_j) == PARTS
    assert record.uncertainty_j == pytest.approx(math.hypot(*record.uncertainty_parts_j.values()))
    assert record.energy_j == pytest.approx(200, rel=0.005)
    assert record.uncertainty_parts_j["gain"] == pytest.approx(2.0, rel=0.005)


def test_quantisation_of_one_power_is_that_of_one_reading() -> None:
    record = record_of(STEP_W, facts("meter", resolution_w=1.0))
    assert record.uncertainty_parts_j["quantisation"] == pytest.approx(
        2 / math.sqrt(12) * 10, rel=0.01
    )


def test_noise_of_more_than_a_step_averages_the_rounding() -> None:
    noisy_w = np.round(STEP_W + np.random.default_rng(1).normal(0, 1.0, STEP_W.size))
    record = record_of(noisy_w, facts("meter", resolution_w=1.0))
    assert record.uncertainty_parts_j["quantisation"] < 0.01


def test_unknown_accuracy_leaves_the_total_unknown_and_the_parts_known() -> None:
    record = record_of(STEP_W, facts("meter"))
    assert record.uncertainty_j is None
    assert set(record.uncertainty_parts_j) == PARTS - {"gain"}
    assert record.missing["uncertainty_j"] == "the gain uncertainty of meter is unknown"
    record = record_of(STEP_W, facts("meter", resolution_w=None))
    assert (
        record.missing["uncertainty_j"]
        == "the gain and quantisation uncertainty of meter is unknown"
    )


def test_no_energy_has_no_uncertainty() -> None:
    record = record_of(STEP_W[:51], facts("meter", accuracy_percent=1.0), TIMES_S[:51])
    assert record.energy_j is None
    assert record.uncertainty_j is None
    assert record.uncertainty_parts_j == {}
    assert record.missing["uncertainty_j"] == record.missing["energy_j"]


def test_hole_widens_the_fit() -> None:
    watts = STEP_W + np.random.default_rng(2).normal(0, 0.5, STEP_W.size)
    kept = (TIMES_S < 4) | (TIMES_S > 4.4)
    source = facts("meter", accuracy_percent=0.0)
    whole = record_of(watts, source)
    holed = record_of(watts[kept], source, TIMES_S[kept])
    assert whole.uncertainty_parts_j["fit"] < holed.uncertainty_parts_j["fit"]


def test_counter_is_uncertain_by_its_step_at_each_end() -> None:
    counts_j = 1000 + np.cumsum(np.full(TIMES_S.size, 10.0)) * 0.1
    source = facts("meter", sensor=Counter(quantum_j=0.3))
    parts_j = record_of(counts_j, source).uncertainty_parts_j
    assert parts_j["quantisation"] == pytest.approx(2 * 0.3 / math.sqrt(6))
    source = facts("meter", sensor=Counter(quantum_j=0.001, update_period_s=0.04))
    parts_j = record_of(counts_j, source).uncertainty_parts_j
    assert parts_j["quantisation"] == pytest.approx(2 * 0.4 / math.sqrt(6), rel=0.01)
