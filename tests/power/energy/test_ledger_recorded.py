"""Energies by readings recorded on a GPU: a mean of 1 s against the GPU's own counter."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.power.energy.simulated_runs import Spans, calibration_record, phase_window
from tests.power.energy_facts import facts, times_of
from tests.power.energy_traces import samples_of, traces
from wattload.core.power import (
    Boxcar,
    Counter,
    Instant,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.units import NS_PER_S
from wattload.power.energy.calibration import calibrate
from wattload.power.energy.ledger import EnergyLedger

PULSES = Path(__file__).parent / "data" / "nvml_pulses.json"
ENERGY = facts("nvml_energy", sensor=Counter(quantum_j=0.001), device="GPU-1", scope=Scope.GPU)
POWER = facts(
    "nvml_power",
    sensor=Boxcar(window_s=1.0),
    device="GPU-1",
    scope=Scope.GPU,
    resolution_w=0.001,
)


@functools.cache
def pulses() -> dict[str, Any]:
    """Return the readings of an H200 (driver 580) under eight matrix products of 2 to 3 s."""
    found: dict[str, Any] = json.loads(PULSES.read_text(encoding="utf-8"))
    return found


def read_of(name: str, source: SourceFacts) -> list[Sample]:
    return samples_of(
        [time_ns / NS_PER_S for time_ns in pulses()[name]["time_ns"]],
        pulses()[name]["value"],
        source=source.name,
        device="GPU-1",
        channel=source.figure_channel,
    )


def spans() -> Spans:
    return tuple(
        (start_ns / NS_PER_S, end_ns / NS_PER_S) for start_ns, end_ns in pulses()["pulses"]
    )


@pytest.mark.parametrize("settled_s", [0.0, 2.5])
def test_mean_has_the_energy_of_each_pulse_by_the_counter(settled_s: float) -> None:
    """Not all of a pulse is shown when it ends: its mean is 0.5 s late."""
    later = tuple((start_s, end_s + settled_s) for start_s, end_s in spans())
    phases = [phase_window(f"pulse{k}", (span,)) for k, span in enumerate(later)]
    ledger = EnergyLedger(
        traces(read_of("average", POWER) + read_of("counter", ENERGY)),
        [POWER, ENERGY],
        host="host1",
        times=times_of(phase_window("load", spans())),
    )
    *each, mean, count = ledger.phase_records([*phases, phase_window("all", later)])
    for by_mean, by_count in zip(each[::2], each[1::2], strict=True):
        assert by_mean.energy_j == pytest.approx(by_count.energy_j, rel=0.004)
    assert mean.energy_j == pytest.approx(count.energy_j, rel=0.003)


@pytest.mark.parametrize("declared", [Boxcar(window_s=1.0), Instant()])
def test_mean_of_a_second_is_calibrated_whatever_it_declares(declared: Sensor) -> None:
    read, source = pulses()["average"], POWER.model_copy(update={"sensor": declared})
    # No fast train was recorded. A mean would have shown half the load, half a second late.
    start_ns = read["time_ns"][-1]
    train = [
        (start_ns + k * NS_PER_S // 5, start_ns + (2 * k + 1) * NS_PER_S // 10) for k in range(25)
    ]
    low_w, high_w = np.percentile(read["value"], (5, 95))
    into_s = np.arange(1, 90) / 10
    train_w = np.where((into_s > 0.5) & (into_s <= 5.5), (low_w + high_w) / 2, low_w)
    made = calibration_record(
        source,
        pulses()["pulses"],
        train,
        [*read["time_ns"], *(start_ns + np.rint(into_s * NS_PER_S).astype(int)).tolist()],
        [*read["value"], *train_w.tolist()],
    )
    found = calibrate(made, source)
    assert found.basis == "calibrated"
    assert found.update_s == pytest.approx(0.1, rel=0.01)
    # A mean over 1 s that is updated every 0.1 s.
    assert found.tau_s == pytest.approx(0.55, abs=0.06)
    assert found.kappa_s == pytest.approx(0.125, abs=0.02)
