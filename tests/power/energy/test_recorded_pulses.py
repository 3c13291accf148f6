"""Energies of a real GPU under eight irregular pulses of load, by two of NVML's ways of measuring.

``nvml_pulses.json`` was recorded on an H200 (driver 580): matrix products for 2 to 3 s with idle
times of 3 to 4 s between, reads 20 times a second. The count of energy and the mean power are made
apart, and both are updated ten times a second.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.power.energy_facts import facts, window
from tests.power.energy_traces import ns, samples_of
from wattload.core.power import Boxcar, Scope
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import Activity
from wattload.power.energy.ledger import EnergyLedger

FILE = Path(__file__).parent / "data" / "nvml_pulses.json"
SETTLED_S = 2.5
"""So long after a pulse, both ways of measuring are back at idle."""
MEAN = facts(
    "nvml_power",
    sensor=Boxcar(window_s=1.0),
    device="GPU-1",
    scope=Scope.GPU,
    resolution_w=0.001,
)


@functools.cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def pulses_s() -> list[tuple[float, float]]:
    return [(start / NS_PER_S, end / NS_PER_S) for start, end in recorded()["pulses"]]


def counted_j(start_s: float, end_s: float) -> float:
    """Return the growth of NVML's count of energy between two idle moments."""
    times_s = np.array(recorded()["counter"]["time_ns"]) / NS_PER_S
    start_j, end_j = np.interp([start_s, end_s], times_s, recorded()["counter"]["value"])
    return float(end_j - start_j)


def measured_j(windows_s: list[tuple[float, float]]) -> list[float]:
    """Return the energy of some windows by the readings of mean power."""
    reads = recorded()["average"]
    ledger = EnergyLedger(
        samples_of(
            np.array(reads["time_ns"]) / NS_PER_S,
            reads["value"],
            source=MEAN.name,
            device=MEAN.device,
        ),
        [MEAN],
        host="host1",
        activity=[
            Activity(start_ns=ns(start_s), end_ns=ns(end_s), name="pulse")
            for start_s, end_s in pulses_s()
        ],
    )
    records = ledger.phase_records(
        [window(f"pulse {number}", *each) for number, each in enumerate(windows_s)]
    )
    return [each.energy_j or 0.0 for each in records]


def test_mean_power_and_counted_energy_agree_over_each_pulse_and_its_end() -> None:
    windows_s = [(start_s, end_s + SETTLED_S) for start_s, end_s in pulses_s()]
    measured = measured_j(windows_s)
    counted = [counted_j(*each) for each in windows_s]
    assert len(counted) == 8
    for number, (energy_j, count_j) in enumerate(zip(measured, counted, strict=True)):
        assert energy_j == pytest.approx(count_j, rel=0.01), number
    assert sum(measured) == pytest.approx(sum(counted), rel=0.003)


def test_a_pulse_has_its_energy_although_its_readings_come_late() -> None:
    """What is counted until the readings have settled, less the idle energy behind the pulse."""
    before_s = pulses_s()[0][0]
    idle_w = counted_j(before_s - 3, before_s) / 3
    for (start_s, end_s), energy_j in zip(pulses_s(), measured_j(pulses_s()), strict=True):
        counted = counted_j(start_s, end_s + SETTLED_S) - SETTLED_S * idle_w
        assert energy_j == pytest.approx(counted, rel=0.01)
