from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Bursts, Floats, boxcar, ns, trace_of
from wattload.core.power import Boxcar
from wattload.power.energy.integration import integrate
from wattload.power.energy.trace import Trace

EXACT = 1e-9
SLIDING = Boxcar(window_s=1.0, update_period_s=0.0)
LOAD = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7, first_s=0.7)


def tumbling(load: Bursts, period_s: float, reads_s: Floats, phase_s: float = 0.0) -> Trace:
    """Return what a sensor reads that updates every ``period_s`` with the mean since the last."""
    updates_s = np.floor((reads_s - phase_s) / period_s + 1e-9) * period_s + phase_s
    return trace_of(reads_s, boxcar(load.energy_j, period_s, updates_s))


def aligned_phase_s(period_s: float) -> float:
    """Return the phase on CLOCK_MONOTONIC of updates that fall on the test's second 0."""
    return (ns(0) % round(period_s * 1e9)) / 1e9


def energy_j(trace: Trace, sensor: Boxcar, start_s: float, end_s: float) -> float:
    result = integrate(trace, sensor, ns(start_s), ns(end_s), period_s=0.1)
    assert result.energy_j is not None, result.reason
    assert result.coverage == pytest.approx(1, abs=1e-9)
    return result.energy_j


def test_sliding_mean_of_a_ramp_is_centred() -> None:
    times_s = np.round(np.arange(-2, 14, 0.1), 6)
    trace = trace_of(times_s, 5 + 0.2 * (times_s - 0.5))
    assert energy_j(trace, SLIDING, 1, 11) == pytest.approx(5 * 10 + 0.1 * 120, rel=EXACT)


def test_sliding_mean_of_bursts_is_exact_away_from_their_steps() -> None:
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    trace = trace_of(times_s, boxcar(LOAD.energy_j, 1.0, times_s))
    assert energy_j(trace, SLIDING, 5, 61) == pytest.approx(LOAD.between_j(5, 61), rel=EXACT)


@pytest.mark.parametrize("step_s", [0.7, 0.72, 0.75, 0.79])
def test_sliding_mean_is_exact_where_a_step_is_on_the_edge(step_s: float) -> None:
    load = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7, first_s=step_s)
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    trace = trace_of(times_s, boxcar(load.energy_j, 1.0, times_s))
    true_j = load.between_j(step_s, step_s + 58.3)
    assert energy_j(trace, SLIDING, step_s, step_s + 58.3) == pytest.approx(true_j, rel=EXACT)


@pytest.mark.parametrize("step_s", [0.0, 0.1, 0.35, 0.5, 0.93])
def test_tumbling_mean_is_exact_where_a_step_is_on_the_edge(step_s: float) -> None:
    load = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7, first_s=step_s)
    reads_s = np.round(np.arange(-1.95, 64, 0.1), 6)
    sensor = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=aligned_phase_s(1.0))
    true_j = load.between_j(step_s, step_s + 58.3)
    found_j = energy_j(tumbling(load, 1.0, reads_s), sensor, step_s, step_s + 58.3)
    assert found_j == pytest.approx(true_j, rel=EXACT)


def test_tumbling_mean_between_its_updates_is_exact() -> None:
    reads_s = np.round(np.arange(-1.95, 64, 0.1), 6)
    sensor = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=aligned_phase_s(1.0))
    trace = tumbling(LOAD, 1.0, reads_s)
    assert energy_j(trace, sensor, 0, 60) == pytest.approx(LOAD.between_j(0, 60), rel=EXACT)
    assert energy_j(trace, sensor, 3, 4) == pytest.approx(LOAD.between_j(3, 4), rel=EXACT)


def test_tumbling_mean_read_at_the_edge_of_an_update_is_still_exact() -> None:
    reads_s = np.round(np.arange(-2, 64, 0.1) + 0.0004, 6)
    sensor = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=aligned_phase_s(1.0))
    late = tumbling(LOAD, 1.0, reads_s, phase_s=0.002)
    assert energy_j(late, sensor, 0, 60) == pytest.approx(LOAD.between_j(0.002, 60.002), rel=EXACT)


def test_unread_update_of_a_tumbling_sensor_is_a_hole() -> None:
    reads_s = np.round(np.arange(-1.5, 64, 1.0), 6)
    kept = np.delete(reads_s, 30)
    sensor = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=aligned_phase_s(1.0))
    result = integrate(tumbling(LOAD, 1.0, kept), sensor, ns(0), ns(60), period_s=1.0)
    assert result.coverage == pytest.approx(59 / 60, rel=EXACT)


def test_update_with_only_failed_reads_is_a_hole() -> None:
    reads_s = np.round(np.arange(-1.95, 64, 0.1), 6)
    trace = tumbling(LOAD, 1.0, reads_s)
    values = trace.value.copy()
    values[(reads_s > 30) & (reads_s < 31)] = np.nan
    values[(reads_s > 40) & (reads_s < 40.8)] = np.nan
    sensor = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=aligned_phase_s(1.0))
    broken = trace_of(reads_s, [None if np.isnan(v) else v for v in values])
    result = integrate(broken, sensor, ns(0), ns(60), period_s=0.1)
    assert result.covered_s == pytest.approx(59, rel=EXACT)


def test_mean_over_a_window_longer_than_the_update_period_is_centred_on_the_update() -> None:
    reads_s = np.round(np.arange(-2, 64, 0.03), 6)
    updates_s = np.floor(reads_s / 0.1 + 1e-9) * 0.1
    trace = trace_of(reads_s, boxcar(LOAD.energy_j, 1.0, updates_s))
    sensor = Boxcar(window_s=1.0, update_period_s=0.1, phase_s=aligned_phase_s(0.1))
    assert energy_j(trace, sensor, 5, 61) == pytest.approx(LOAD.between_j(5, 61), rel=EXACT)


def test_reads_farther_apart_than_the_window_do_not_cover() -> None:
    reads_s = np.arange(-10, 120, 2.0)
    trace = trace_of(reads_s, np.full(reads_s.shape, 10.0))
    result = integrate(trace, SLIDING, ns(0), ns(100), period_s=2)
    assert result.coverage == pytest.approx(0.5, rel=EXACT)
    assert result.energy_j is None


def test_sensor_that_watches_a_quarter_of_the_time_covers_a_quarter() -> None:
    reads_s = np.round(np.arange(-2, 64, 0.05), 6)
    trace = trace_of(reads_s, 10 + np.floor(reads_s / 0.1 + 1e-9) % 5)
    sensor = Boxcar(window_s=0.025, update_period_s=0.1, phase_s=aligned_phase_s(0.1))
    result = integrate(trace, sensor, ns(0), ns(60), period_s=0.05)
    assert result.coverage == pytest.approx(0.25, rel=1e-6)
