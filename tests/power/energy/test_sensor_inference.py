from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Bursts, Floats, boxcar, ns, trace_of
from wattload.core.power import Boxcar
from wattload.power.energy.integration import integrate
from wattload.power.energy.sensor_inference import resolve_boxcar
from wattload.power.energy.trace import Trace

UNKNOWN = Boxcar(window_s=1.0)
HALF_A_READ_S = 0.05
"""Reads 0.1 s apart can't place an update better than this."""


def jittered_s(rate_hz: float, last_s: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    times_s = np.arange(-3, last_s, 1 / rate_hz)
    return np.round(times_s + rng.uniform(-0.1, 0.1, times_s.size) / rate_hz, 7)


def tumbling(reads_s: Floats, period_s: float, phase_s: float, seed: int = 0) -> Trace:
    """Return readings of a sensor whose value is redrawn at each update."""
    index = np.floor((reads_s - phase_s) / period_s).astype(int)
    index -= index.min()
    drawn = np.random.default_rng(seed).uniform(5, 20, index.max() + 1)
    return trace_of(reads_s, drawn[index])


def phase_error_s(sensor: Boxcar, phase_s: float) -> float:
    """Return how far the inferred updates lie from the true ones, in seconds."""
    assert sensor.update_period_s is not None
    assert sensor.phase_s is not None
    period_ns = round(sensor.update_period_s * 1e9)
    moment_ns = ns(phase_s + 30 * sensor.update_period_s)
    off_ns = (moment_ns - round(sensor.phase_s * 1e9)) % period_ns
    return min(off_ns, period_ns - off_ns) / 1e9


@pytest.mark.parametrize(("period_s", "phase_s"), [(1.0, 0.37), (0.25, 0.11), (0.9993, 0.5)])
def test_update_period_and_phase_follow_from_the_changes(period_s: float, phase_s: float) -> None:
    found = resolve_boxcar(tumbling(jittered_s(10, 63, 1), period_s, phase_s), UNKNOWN)
    assert found.update_period_s == pytest.approx(period_s, abs=0.002)
    assert phase_error_s(found, phase_s) < HALF_A_READ_S


def test_updates_that_change_nothing_do_not_mislead() -> None:
    load = Bursts(low_w=5, high_w=21, on_s=9.3, cycle_s=21)
    reads_s = jittered_s(10, 300, 2)
    updates_s = np.floor(reads_s - 0.37) + 0.37
    trace = trace_of(reads_s, boxcar(load.energy_j, 1.0, updates_s))
    found = resolve_boxcar(trace, UNKNOWN)
    assert found.update_period_s == pytest.approx(1.0, abs=0.001)
    assert phase_error_s(found, 0.37) < HALF_A_READ_S


def test_value_that_changes_at_every_read_is_sliding() -> None:
    load = Bursts(low_w=8, high_w=14, on_s=0.18, cycle_s=0.59)
    reads_s = jittered_s(10, 63, 3)
    found = resolve_boxcar(trace_of(reads_s, boxcar(load.energy_j, 1.0, reads_s)), UNKNOWN)
    assert found.update_period_s == 0.0
    assert found.phase_s is None


def test_sliding_mean_with_flat_stretches_is_still_sliding() -> None:
    load = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7)
    reads_s = jittered_s(10, 63, 4)
    found = resolve_boxcar(
        trace_of(reads_s, np.round(boxcar(load.energy_j, 1.0, reads_s), 6)), UNKNOWN
    )
    assert found.update_period_s == 0.0


def test_flat_power_leaves_the_period_unknown() -> None:
    reads_s = jittered_s(10, 63, 5)
    assert resolve_boxcar(trace_of(reads_s, np.full(reads_s.size, 9.0)), UNKNOWN) == UNKNOWN


def test_changes_without_a_clock_leave_the_period_unknown() -> None:
    rng = np.random.default_rng(6)
    reads_s = jittered_s(10, 300, 6)
    changes_s = np.cumsum(rng.exponential(2.0, 200))
    trace = trace_of(reads_s, np.searchsorted(changes_s, reads_s).astype(np.float64))
    assert resolve_boxcar(trace, UNKNOWN) == UNKNOWN


def test_what_the_sensor_states_stays() -> None:
    stated = Boxcar(window_s=1.0, update_period_s=0.5, phase_s=0.2)
    assert resolve_boxcar(tumbling(jittered_s(10, 63, 1), 1.0, 0.37), stated) == stated
    sliding = Boxcar(window_s=1.0, update_period_s=0.0)
    assert resolve_boxcar(tumbling(jittered_s(10, 63, 1), 1.0, 0.37), sliding) == sliding


def test_phase_of_a_stated_period_is_found() -> None:
    stated = Boxcar(window_s=1.0, update_period_s=1.0)
    found = resolve_boxcar(tumbling(jittered_s(10, 63, 1), 1.0, 0.37), stated)
    assert found.update_period_s == pytest.approx(1.0, abs=0.001)
    assert phase_error_s(found, 0.37) < HALF_A_READ_S


def test_inferred_tumbling_sensor_beats_taking_it_for_sliding() -> None:
    load = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7, first_s=0.7)
    reads_s = jittered_s(10, 70, 8)
    updates_s = np.floor(reads_s - 0.37) + 0.37
    trace = trace_of(reads_s, boxcar(load.energy_j, 1.0, updates_s))
    true_j = load.between_j(2.37, 12.37)
    inferred = integrate(trace, UNKNOWN, ns(2.37), ns(12.37), period_s=0.1)
    sliding = integrate(
        trace, Boxcar(window_s=1.0, update_period_s=0.0), ns(2.37), ns(12.37), period_s=0.1
    )
    assert inferred.energy_j == pytest.approx(true_j, rel=0.005)
    assert sliding.energy_j is not None
    assert abs(sliding.energy_j / true_j - 1) > 0.01
