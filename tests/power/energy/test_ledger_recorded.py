"""Energies by readings that were recorded on GPUs: a mean against the GPU's own counter."""

from __future__ import annotations

import csv
import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.power.energy.simulated_runs import Spans, phase_window
from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import T0_NS, ns, samples_of
from wattload.core.power import (
    Boxcar,
    Channel,
    Counter,
    Instant,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.record.energy import CalibrationRecord, EnergyRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.calibration import calibrate
from wattload.power.energy.ledger import EnergyLedger

BURSTS = Path(__file__).parents[2] / "data" / "power" / "h100_bursts.csv"
PULSES = Path(__file__).parent / "data" / "nvml_pulses.json"
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


@functools.cache
def bursts() -> tuple[EnergyLedger, float, float]:
    """Return the ledger of an H100 under bursts, and the seconds of their begin and end."""
    lines = BURSTS.read_text(encoding="utf-8").splitlines()
    marks = dict(re.findall(r"(load_\w+)_us=(\d+)", "\n".join(lines[:3])))
    start_s, end_s = (int(marks[f"load_{name}"]) / 1e6 for name in ("start", "end"))
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
    ledger = EnergyLedger(
        samples,
        [ENERGY, POWER],
        host="host1",
        activity=activity_of(window("load", start_s, end_s)),
        baseline=(ns(1), ns(start_s - 0.6)),
    )
    return ledger, start_s, end_s


def test_counter_and_mean_of_a_gpu_agree() -> None:
    ledger, start_s, end_s = bursts()
    by_counter, by_power = ledger.phase_records([window("load", start_s, end_s)])
    assert by_power.energy_j == pytest.approx(by_counter.energy_j, rel=0.0025)
    assert (by_power.remarks, by_counter.remarks) == ((), ())


def test_mean_is_chosen_where_the_counter_is_too_coarse() -> None:
    ledger, start_s, _ = bursts()
    by_counter, by_power = ledger.phase_records([window("load", start_s, start_s + 10)])
    assert "too coarse" in by_counter.missing["energy_j"]
    assert by_power.chosen


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


def by_mean_and_counter(settled_s: float) -> list[tuple[EnergyRecord, EnergyRecord]]:
    """Return the energies of each pulse and a time behind it, and of all pulses together."""
    later = tuple((start_s, end_s + settled_s) for start_s, end_s in spans())
    phases = [phase_window(f"pulse{k}", (span,)) for k, span in enumerate(later)]
    phases.append(phase_window("all", later))
    fast = ENERGY.model_copy(update={"sensor": Counter(quantum_j=0.001)})
    ledger = EnergyLedger(
        read_of("average", POWER) + read_of("counter", fast),
        [POWER, fast],
        host="host1",
        activity=activity_of(phase_window("load", spans())),
    )
    records = ledger.phase_records(phases)
    return list(zip(records[::2], records[1::2], strict=True))


def test_mean_has_the_energy_of_each_pulse_by_the_counter() -> None:
    *each, (mean, count) = by_mean_and_counter(2.5)
    for by_mean, by_count in each:
        assert by_mean.energy_j == pytest.approx(by_count.energy_j, rel=0.004)
    assert mean.energy_j == pytest.approx(count.energy_j, rel=0.003)


def test_mean_has_the_energy_of_each_pulse_without_the_time_behind_it() -> None:
    """Not all of a pulse is shown when it ends: its mean is 0.5 s late."""
    for by_mean, by_count in by_mean_and_counter(0.0):
        assert by_mean.energy_j == pytest.approx(by_count.energy_j, rel=0.004)


@pytest.mark.parametrize("declared", [Boxcar(window_s=1.0), Instant()])
def test_mean_of_a_second_is_calibrated_whatever_it_declares(declared: Sensor) -> None:
    read, source = pulses()["average"], POWER.model_copy(update={"sensor": declared})
    found = calibrate(
        CalibrationRecord(
            host="host1",
            device="GPU-1",
            source=source.name,
            utc="2026-11-29T06:00:00Z",
            run_id="",
            key={},
            origin_ns=T0_NS,
            pulses=tuple((start_ns, end_ns) for start_ns, end_ns in pulses()["pulses"]),
            train=(),
            time_ns=tuple(read["time_ns"]),
            values=tuple(read["value"]),
        ),
        source,
    )
    assert found.basis == "calibrated"
    assert found.update_s == pytest.approx(0.1, rel=0.01)
    # A mean over 1 s that is updated every 0.1 s.
    assert found.tau_s == pytest.approx(0.55, abs=0.06)
    assert found.kappa_s == pytest.approx(0.125, abs=0.02)
