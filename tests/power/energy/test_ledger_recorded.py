"""The account on a trace that was recorded on a real GPU, beside the closed forms."""

from __future__ import annotations

import csv
import functools
import re
from pathlib import Path

import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import ns, samples_of
from wattload.core.power import (
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    Sample,
    Scope,
    SourceFacts,
)
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

FILE = Path(__file__).parents[2] / "data" / "power" / "h100_bursts.csv"
ENERGY = facts(
    "nvml_energy",
    sensor=Counter(quantum_j=0.001, update_period_s=0.1),
    device="GPU-1",
    scope=Scope.GPU,
)
POWER = facts(
    "nvml_power",
    sensor=Boxcar(window_s=1.0),
    device="GPU-1",
    scope=Scope.GPU,
    resolution_w=0.001,
)


def recorded() -> tuple[list[Sample], float, float]:
    """Return the samples, and the seconds at which the load began and ended."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    marks = dict(re.findall(r"(load_\w+)_us=(\d+)", "\n".join(lines[:3])))
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    samples = samples_of(
        [int(row["power_time_us"]) / 1e6 for row in rows],
        [int(row["power_mw"]) / 1e3 for row in rows],
        source="nvml_power",
        device="GPU-1",
    ) + samples_of(
        [int(row["energy_time_us"]) / 1e6 for row in rows],
        [int(row["energy_mj"]) / 1e3 for row in rows],
        source="nvml_energy",
        device="GPU-1",
        channel=Channel.ENERGY_J,
    )
    return samples, int(marks["load_start"]) / 1e6, int(marks["load_end"]) / 1e6


@functools.cache
def ledger_of(*sources: SourceFacts) -> EnergyLedger:
    """Return the ledger of the whole recording; its fit takes seconds."""
    samples, start_s, end_s = recorded()
    return EnergyLedger(
        samples,
        sources,
        host="host1",
        activity=activity_of(window("load", start_s, end_s)),
        baseline=(ns(1), ns(start_s - 0.6)),
    )


def account(*sources: SourceFacts, length_s: float | None = None) -> tuple[EnergyRecord, ...]:
    _, start_s, end_s = recorded()
    until_s = end_s if length_s is None else start_s + length_s
    return ledger_of(*sources).phase_records([window("load", start_s, until_s)])


def test_counter_and_power_of_a_gpu_agree_within_their_known_uncertainty() -> None:
    by_counter, by_power = account(ENERGY, POWER)
    assert by_counter.energy_j is not None
    assert by_power.energy_j is not None
    known_j = sum(by_counter.uncertainty_parts_j.values()) + sum(
        by_power.uncertainty_parts_j.values()
    )
    assert abs(by_counter.energy_j - by_power.energy_j) < known_j
    # The counter moves every 0.1 s: at 440 W that is 44 J, or 0.0022 of all.
    assert by_power.energy_j == pytest.approx(by_counter.energy_j, rel=0.0025)
    # Both sensors are as declared, and the means of a second have the smaller known uncertainty.
    assert by_power.chosen
    assert sum(by_power.uncertainty_parts_j.values()) < sum(by_counter.uncertainty_parts_j.values())
    assert by_counter.evidence is Evidence.SELF_REPORTED


def test_power_stands_in_where_the_counter_moves_too_seldom() -> None:
    by_counter, by_power = account(ENERGY, POWER, length_s=10)
    assert by_counter.energy_j is None
    assert "too coarse" in by_counter.missing["energy_j"]
    assert by_power.chosen


def test_power_agrees_with_the_counter_whatever_its_sensor_declares() -> None:
    late = POWER.model_copy(update={"sensor": Instant()})
    by_counter, centred = account(ENERGY, POWER, length_s=22.4)
    _, uncentred = account(ENERGY, late, length_s=22.4)
    assert by_counter.energy_j is not None
    assert centred.energy_j is not None
    assert uncentred.energy_j is not None
    assert centred.energy_j == pytest.approx(by_counter.energy_j, rel=0.002)
    assert uncentred.energy_j == pytest.approx(by_counter.energy_j, rel=0.002)


def test_counter_and_power_of_a_gpu_show_the_same_peak_and_percentile() -> None:
    """The counter's readings are made into means over 1 s; the power's are that by themselves."""
    by_counter, by_power = (each.statistics for each in account(ENERGY, POWER))
    assert by_counter is not None
    assert by_power is not None
    samples, start_s, end_s = recorded()
    highest_w = max(sample.value or 0.0 for sample in samples if sample.channel is Channel.POWER_W)
    assert by_power.peak_1s_w == highest_w
    assert by_counter.peak_1s_w == pytest.approx(highest_w, rel=0.005)
    assert by_counter.p99_w == pytest.approx(by_power.p99_w, rel=0.005)
    assert by_counter.slew_w_per_s == pytest.approx(by_power.slew_w_per_s, rel=0.02)
    assert by_counter.peak_100ms_w is by_power.peak_100ms_w is None
    assert by_power.missing["peak_100ms_w"].startswith("its readings resolve 1")
    assert by_power.reading_count == pytest.approx(10 * (end_s - start_s - 1), abs=3)
