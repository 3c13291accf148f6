"""When a sensor updates, as inferred from the times at which its readings change."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import Bursts, Floats, boxcar, ns, trace_of
from wattload.core.power import Boxcar, Instant, Sensor
from wattload.power.energy.observations import Clock, observe
from wattload.power.energy.trace import Trace

UNKNOWN = Boxcar(window_s=1.0)
HALF_A_READ_S = 0.05
"""Reads 0.1 s apart do not place an update better than this."""


def jittered_s(rate_hz: float, last_s: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    times_s = np.arange(-3, last_s, 1 / rate_hz)
    return np.round(times_s + rng.uniform(-0.1, 0.1, times_s.size) / rate_hz, 7)


def held(reads_s: Floats, period_s: float, phase_s: float, seed: int = 0) -> Trace:
    """Return readings of a sensor whose value is drawn again at each update."""
    index = np.floor((reads_s - phase_s) / period_s).astype(int)
    index -= index.min()
    drawn = np.random.default_rng(seed).uniform(5, 20, index.max() + 1)
    return trace_of(reads_s, drawn[index])


def clock_of(trace: Trace, sensor: Sensor) -> Clock | None:
    return observe(trace, facts("meter", sensor=sensor))[1]


def phase_error_s(clock: Clock, phase_s: float) -> float:
    """Return how far the inferred updates are from the true ones, in seconds."""
    moment_ns = ns(phase_s) + 30 * clock.period_ns
    off_ns = (moment_ns - clock.phase_ns) % clock.period_ns
    return min(off_ns, clock.period_ns - off_ns) / 1e9


@pytest.mark.parametrize("sensor", [UNKNOWN, Instant()], ids=["mean", "instant"])
@pytest.mark.parametrize(
    ("period_s", "phase_s"), [(1.0, 0.37), (0.25, 0.11), (0.9993, 0.5), (1.00005, 0.2)]
)
def test_clock_of_updates_follows_from_the_changes(
    sensor: Sensor, period_s: float, phase_s: float
) -> None:
    clock = clock_of(held(jittered_s(10, 63, 1), period_s, phase_s), sensor)
    assert clock is not None
    assert clock.period_ns / 1e9 == pytest.approx(period_s, abs=0.002)
    assert phase_error_s(clock, phase_s) < 2 * HALF_A_READ_S
    assert clock.slack_s <= 2 * HALF_A_READ_S


def test_each_update_is_one_observation() -> None:
    reads_s = jittered_s(10, 63, 1)
    observed, clock = observe(held(reads_s, 1.0, 0.37), facts("meter", sensor=UNKNOWN))
    assert clock is not None
    assert observed.time_ns.size == pytest.approx(66, abs=1)
    assert np.diff(observed.time_ns) == pytest.approx(1e9, abs=2e6)


def test_failed_reads_are_no_observations() -> None:
    reads_s = jittered_s(10, 63, 1)
    watts = held(reads_s, 0.1, 0.0).value.copy()
    watts[100:120] = np.nan
    values = [None if np.isnan(each) else each for each in watts.tolist()]
    observed, _ = observe(trace_of(reads_s, values), facts("meter"))
    assert observed.time_ns.size == reads_s.size - 20
    assert not np.isnan(observed.watts).any()


def test_updates_without_a_change_do_not_mislead() -> None:
    load = Bursts(low_w=5, high_w=21, on_s=9.3, cycle_s=21)
    reads_s = jittered_s(10, 300, 2)
    updates_s = np.floor(reads_s - 0.37) + 0.37
    clock = clock_of(trace_of(reads_s, boxcar(load.energy_j, 1.0, updates_s)), UNKNOWN)
    assert clock is not None
    assert clock.period_ns / 1e9 == pytest.approx(1.0, abs=0.001)
    assert phase_error_s(clock, 0.37) < HALF_A_READ_S


def test_value_that_changes_at_every_read_has_no_clock() -> None:
    load = Bursts(low_w=8, high_w=14, on_s=0.18, cycle_s=0.59)
    reads_s = jittered_s(10, 63, 3)
    assert clock_of(trace_of(reads_s, boxcar(load.energy_j, 1.0, reads_s)), UNKNOWN) is None


@pytest.mark.parametrize("sensor", [UNKNOWN, Instant()], ids=["mean", "instant"])
def test_flat_power_has_no_clock(sensor: Sensor) -> None:
    reads_s = jittered_s(10, 63, 5)
    assert clock_of(trace_of(reads_s, np.full(reads_s.size, 9.0)), sensor) is None


def test_changes_without_a_period_have_no_clock() -> None:
    rng = np.random.default_rng(6)
    reads_s = jittered_s(10, 300, 6)
    changes_s = np.cumsum(rng.exponential(2.0, 200))
    trace = trace_of(reads_s, np.searchsorted(changes_s, reads_s).astype(np.float64))
    assert clock_of(trace, UNKNOWN) is None


def test_sliding_mean_has_no_clock() -> None:
    sliding = Boxcar(window_s=1.0, update_period_s=0.0)
    assert clock_of(held(jittered_s(10, 63, 1), 1.0, 0.37), sliding) is None


def test_phase_of_a_declared_period_is_found() -> None:
    declared = Boxcar(window_s=1.0, update_period_s=1.0)
    clock = clock_of(held(jittered_s(10, 63, 1), 1.0, 0.37), declared)
    assert clock is not None
    assert clock.period_ns / 1e9 == pytest.approx(1.0, abs=0.001)
    assert phase_error_s(clock, 0.37) < HALF_A_READ_S
