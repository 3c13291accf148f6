"""The parts of the uncertainty of an energy, and the reason if it is unknown."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.power.energy_facts import facts, times_of, window
from tests.power.energy_traces import Floats, samples_of, traces
from wattload.core.power import Accuracy, Counter, SourceFacts
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.round(np.arange(-50, 250) / 10, 6)
STEP_W = np.where((TIMES_S >= 0) & (TIMES_S < 10), 20.0, 8.0)
PARTS = {"gain", "offset", "noise", "edges", "gap"}


def record_of(
    watts: Floats, source: SourceFacts, times_s: Floats = TIMES_S, *, spread_ns: int = 0
) -> EnergyRecord:
    phase = window("write", 0, 10)
    samples = samples_of(times_s, watts, channel=source.figure_channel, spread_ns=spread_ns)
    ledger = EnergyLedger(traces(samples), [source], host="host1", times=times_of(phase))
    (record,) = ledger.phase_records([phase])
    return record


def test_total_has_every_part() -> None:
    record = record_of(STEP_W, facts("meter", accuracy_percent=1.0))
    assert set(record.uncertainty_parts_j) == PARTS
    assert record.uncertainty_j == pytest.approx(math.hypot(*record.uncertainty_parts_j.values()))
    assert record.energy_j == pytest.approx(200, rel=0.005)


@pytest.mark.parametrize(
    ("accuracy", "gain_j", "offset_j"),
    [
        (Accuracy(reading_percent=1.0), 2.0, 0.0),
        (Accuracy(reading_percent=1.0, watts=0.3), 2.0, 3.0),
        (Accuracy(range_percent=0.5, watts=0.1), 0.0, 3.0),
    ],
)
def test_gain_is_of_the_energy_and_offset_of_the_time(
    accuracy: Accuracy, gain_j: float, offset_j: float
) -> None:
    source = facts("meter", range_w=40.0).model_copy(update={"accuracy": accuracy})
    parts_j = record_of(STEP_W, source).uncertainty_parts_j
    assert parts_j["gain"] == pytest.approx(gain_j, rel=0.005)
    assert parts_j["offset"] == pytest.approx(offset_j, rel=0.005)


@pytest.mark.parametrize(
    ("accuracy", "reason"),
    [
        (None, "the gain uncertainty of meter is unknown"),
        (
            Accuracy(range_percent=0.5),
            "the accuracy of meter is a share of its range, which is unknown",
        ),
    ],
)
def test_unknown_accuracy_leaves_the_total_unknown_and_the_parts_known(
    accuracy: Accuracy | None, reason: str
) -> None:
    record = record_of(STEP_W, facts("meter").model_copy(update={"accuracy": accuracy}))
    assert record.uncertainty_j is None
    assert set(record.uncertainty_parts_j) == PARTS - {"gain", "offset"}
    assert record.missing["uncertainty_j"] == reason


def test_times_that_are_uncertain_make_the_edges_uncertain() -> None:
    """A shift of all readings by the spread, over a step of 12 W at each edge."""
    source = facts("meter", accuracy_percent=1.0)
    exact, unsure = (record_of(STEP_W, source, spread_ns=each) for each in (0, 400_000_000))
    assert unsure.uncertainty_parts_j["edges"] > 2 * exact.uncertainty_parts_j["edges"]
    late = record_of(STEP_W, source, TIMES_S + 0.4)
    assert late.energy_j is not None
    assert exact.energy_j is not None
    assert abs(late.energy_j - exact.energy_j) <= unsure.uncertainty_parts_j["edges"]


def test_the_times_of_a_clock_that_drifts_are_as_uncertain_as_late_in_the_run() -> None:
    source = facts("meter", accuracy_percent=0.1)
    samples = [
        dataclasses.replace(each, spread_ns=round(4e8 * number / TIMES_S.size))
        for number, each in enumerate(samples_of(TIMES_S, STEP_W, channel=source.figure_channel))
    ]
    phase = window("write", 0, 10)
    ledger = EnergyLedger(traces(samples), [source], host="host1", times=times_of(phase))
    (drifting,) = ledger.phase_records([phase])
    unsure = record_of(STEP_W, source, spread_ns=360_000_000)
    assert drifting.uncertainty_parts_j["edges"] >= unsure.uncertainty_parts_j["edges"]


def test_rounding_of_one_power_is_that_of_one_reading() -> None:
    flat_w = np.full(TIMES_S.size, 20.0)
    found = record_of(flat_w, facts("meter", resolution_w=1.0)).uncertainty_parts_j
    assert found["noise"] == pytest.approx(2 / math.sqrt(12) * 10, rel=0.01)


def test_noise_of_more_than_a_step_averages_the_rounding() -> None:
    noisy_w = np.round(20 + np.random.default_rng(1).normal(0, 1.0, STEP_W.size))
    found = record_of(noisy_w, facts("meter", resolution_w=1.0)).uncertainty_parts_j
    # Of a hundred readings of 1.04 W: 2 x 1.04 / sqrt(100) W for ten seconds.
    assert found["noise"] == pytest.approx(2 * 1.04, rel=0.4)


def test_no_energy_has_no_uncertainty() -> None:
    record = record_of(STEP_W[:51], facts("meter", accuracy_percent=1.0), TIMES_S[:51])
    assert (record.energy_j, record.uncertainty_j) == (None, None)
    assert record.uncertainty_parts_j == {}
    assert record.missing["uncertainty_j"] == record.missing["energy_j"]


def test_counter_is_uncertain_by_its_step_at_each_edge() -> None:
    counts_j = 1000 + np.cumsum(np.full(TIMES_S.size, 10.0)) * 0.1
    source = facts("meter", sensor=Counter(quantum_j=0.3))
    parts_j = record_of(counts_j, source).uncertainty_parts_j
    assert parts_j["edges"] == pytest.approx(2 * 0.3 / math.sqrt(6), rel=0.1)
    source = facts("meter", sensor=Counter(quantum_j=0.001, update_period_s=0.04))
    parts_j = record_of(counts_j, source).uncertainty_parts_j
    assert parts_j["edges"] == pytest.approx(2 * 0.4 / math.sqrt(6), rel=0.1)
