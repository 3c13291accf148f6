"""Readings that no meter can have give no energy and one reason, never a traceback."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import ns, samples_of
from wattload.core.power import Counter, Evidence, Sample, SourceFacts, WindowEnergy
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.round(np.arange(-100, 160) / 10, 6)
READ = window("read", 0, 10)
BASELINE = (ns(-9), ns(-1))
METER = facts("meter", Evidence.MEASURED)
IMPOSSIBLE = [-5.0, 1e308, -1e308, 2e6, float("inf"), float("-inf")]


def readings(watts: float, *, only_at: float | None = None) -> list[Sample]:
    is_bad = np.ones(TIMES_S.size, bool) if only_at is None else np.isclose(TIMES_S, only_at)
    values = np.where(is_bad, watts, 5.0)
    return samples_of(TIMES_S, values, source="meter", evidence=Evidence.MEASURED)


def energy(samples: Sequence[Sample], source: SourceFacts = METER) -> EnergyRecord:
    ledger = EnergyLedger(
        samples, [source], host="host1", activity=activity_of(READ), baseline=BASELINE
    )
    ledger.whole_run_records()
    (record,) = ledger.phase_records([READ])
    return record


@pytest.mark.parametrize("watts", IMPOSSIBLE)
def test_impossible_watts_give_no_energy_but_a_reason(watts: float) -> None:
    found = energy(readings(watts))
    assert (found.energy_j, found.mean_w, found.net_j, found.uncertainty_j) == (None,) * 4
    assert found.coverage == 0
    assert f"meter reported {watts:g} W" in found.missing["energy_j"]
    assert "meter reported" in found.missing["idle_w"]


def test_an_impossible_reading_elsewhere_does_not_matter() -> None:
    assert energy(readings(-5.0, only_at=14.0)).energy_j == pytest.approx(50.0)


def test_a_source_may_declare_that_it_reads_below_zero() -> None:
    source = METER.model_copy(update={"may_be_negative": True})
    assert energy(readings(-5.0), source).energy_j == pytest.approx(-50.0)
    assert energy(readings(-1e308), source).energy_j is None


@pytest.mark.parametrize("joules", [1e308, -5.0])
def test_a_counter_of_impossible_joules_gives_no_energy(joules: float) -> None:
    source = facts("meter", Evidence.MEASURED, Counter(quantum_j=0.01))
    counts = np.where(TIMES_S < 5, 0.0, joules)
    samples = samples_of(
        TIMES_S, counts, source="meter", channel=source.figure_channel, evidence=Evidence.MEASURED
    )
    found = energy(samples, source)
    assert found.energy_j is None
    assert "meter reported" in found.missing["energy_j"]


@pytest.mark.parametrize("joules", [1e308, -1.0])
def test_a_device_that_integrates_the_impossible_gives_no_energy(joules: float) -> None:
    own = WindowEnergy(
        source="meter",
        device="SERIAL1",
        start_ns=0,
        end_ns=ns(10),
        energy_j=joules,
        evidence=Evidence.SELF_REPORTED,
    )
    ledger = EnergyLedger([], [METER], host="host1", baseline=None)
    record = ledger.whole_run_records([own])[0]
    assert record.energy_j is None
    assert "impossible" in record.missing["energy_j"]
