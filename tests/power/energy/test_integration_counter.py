from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Floats, ns, trace_of
from wattload.core.power import Channel, Counter
from wattload.power.energy.integration import WindowResult, integrate
from wattload.power.energy.profile import fall_count
from wattload.power.energy.trace import Trace

EXACT = 1e-9
MILLIJOULE = Counter(quantum_j=0.001)


def counter(times_s: Floats, joules: Floats) -> Trace:
    return trace_of(times_s, joules, channel=Channel.ENERGY_J)


def result_of(
    trace: Trace, sensor: Counter, start_s: float, end_s: float, resets_s: tuple[float, ...] = ()
) -> WindowResult:
    resets_ns = [ns(time_s) for time_s in resets_s]
    return integrate(trace, sensor, ns(start_s), ns(end_s), period_s=0.1, resets_ns=resets_ns)


def steady(watts: float = 12.5, wrap_j: float | None = None, last_s: float = 64) -> Trace:
    times_s = np.round(np.arange(-2, last_s, 0.1), 6)
    joules = 300 + watts * times_s
    return counter(times_s, joules if wrap_j is None else np.mod(joules, wrap_j))


def test_difference_of_a_counter_with_both_edges_interpolated() -> None:
    result = result_of(steady(), MILLIJOULE, 0.033, 60.077)
    assert result.energy_j == pytest.approx(12.5 * 60.044, rel=EXACT)
    assert result.coverage == pytest.approx(1, abs=1e-12)


def test_wrap_adds_the_range_once_per_fall() -> None:
    sensor = Counter(quantum_j=0.001, wrap_j=65.5)
    trace = steady(wrap_j=65.5)
    assert np.count_nonzero(np.diff(trace.value) < 0) > 10
    assert result_of(trace, sensor, 0, 60).energy_j == pytest.approx(750, rel=EXACT)


def test_counter_that_stands_still_has_not_wrapped() -> None:
    times_s = np.arange(-1, 12, 0.1)
    trace = counter(times_s, np.where(times_s < 5.05, 10.0, 20.0))
    sensor = Counter(quantum_j=0.001, wrap_j=100)
    assert result_of(trace, sensor, 0, 10).energy_j == pytest.approx(10, rel=EXACT)


def test_fall_at_a_declared_reset_is_a_hole_not_a_wrap() -> None:
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = np.where(times_s < 30.05, 300 + 10 * times_s, 10 * (times_s - 30.05))
    sensor = Counter(quantum_j=0.001, wrap_j=262_144)
    known = result_of(counter(times_s, joules), sensor, 0, 60, resets_s=(30.04,))
    assert known.covered_s == pytest.approx(59.9, rel=EXACT)
    assert known.energy_j == pytest.approx(600, rel=EXACT)


def test_rise_across_a_declared_reset_is_a_hole() -> None:
    known = result_of(steady(), MILLIJOULE, 0, 60, resets_s=(30.04,))
    assert known.covered_s == pytest.approx(59.9, rel=EXACT)


def test_fall_without_a_range_is_a_hole() -> None:
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = np.where(times_s < 30.05, 300 + 10 * times_s, 10 * (times_s - 30.05))
    result = result_of(counter(times_s, joules), MILLIJOULE, 0, 60)
    assert result.covered_s == pytest.approx(59.9, rel=EXACT)
    assert result.energy_j == pytest.approx(600, rel=EXACT)


def test_fall_of_less_than_half_the_range_is_no_wrap() -> None:
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = 300 + 10 * times_s
    joules[300] -= 5
    sensor = Counter(quantum_j=0.001, wrap_j=1e6)
    result = result_of(counter(times_s, joules), sensor, 0, 60)
    assert result.energy_j is not None
    assert result.energy_j < 610


def test_fall_that_would_be_a_power_beyond_all_others_is_no_wrap() -> None:
    """The device restarted near the end of its range: 10 kJ in a tenth of a second never were."""
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = np.where(times_s < 30.05, 50_000 + 10 * times_s, 10 * (times_s - 30.05))
    sensor = Counter(quantum_j=0.001, wrap_j=60_000)
    result = result_of(counter(times_s, joules), sensor, 0, 60)
    assert result.covered_s == pytest.approx(59.9, rel=EXACT)
    assert result.energy_j == pytest.approx(600, rel=EXACT)


@pytest.mark.parametrize("wrong_j", [-50.0, 0.0, 1e9])
def test_one_count_that_was_read_wrong_does_no_harm(wrong_j: float) -> None:
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = 300 + 10 * times_s
    joules[300] = wrong_j
    result = result_of(counter(times_s, joules), MILLIJOULE, 0, 60)
    assert result.energy_j == pytest.approx(600, rel=EXACT)
    assert result.coverage == pytest.approx(1, abs=1e-12)


def test_falls_are_counted_and_wraps_are_not() -> None:
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = np.where(times_s < 30.05, 300 + 10 * times_s, 10 * (times_s - 30.05))
    assert fall_count(counter(times_s, joules), MILLIJOULE) == 1
    assert fall_count(steady(wrap_j=65.5), Counter(quantum_j=0.001, wrap_j=65.5)) == 0
    assert fall_count(counter(np.array([]), np.array([])), MILLIJOULE) == 0


def test_step_that_reaches_half_a_percent_is_refused() -> None:
    result = result_of(steady(watts=10), Counter(quantum_j=3.0), 0, 60)
    assert result.energy_j is None
    assert result.reason == (
        "the counter's step of 3 J is too coarse for 600 J; it must be under 0.5 % of the energy"
    )
    assert result_of(steady(watts=10), Counter(quantum_j=2.999), 0, 60).energy_j is not None


def test_counter_in_watt_hours_is_refused_for_ten_minutes() -> None:
    times_s = np.arange(-2, 604, 1.0)
    watt_hours = np.ceil((20 * times_s + 40) / 3600)
    result = result_of(counter(times_s, watt_hours * 3600), Counter(quantum_j=3600), 0, 600)
    assert result.energy_j is None


def test_counter_that_never_moved_is_refused() -> None:
    result = result_of(steady(watts=0), MILLIJOULE, 0, 60)
    assert result.energy_j is None


def test_failed_read_loses_nothing_of_a_counter() -> None:
    trace = steady()
    values: list[float | None] = list(trace.value)
    values[300] = None
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    broken = trace_of(times_s, values, channel=Channel.ENERGY_J)
    result = result_of(broken, MILLIJOULE, 0, 60)
    assert result.coverage == pytest.approx(1, abs=1e-12)
    assert result.energy_j == pytest.approx(750, rel=EXACT)


def without(first_s: float, last_s: float, wrap_j: float | None = None) -> Trace:
    trace = steady(wrap_j=wrap_j)
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    kept = (times_s <= first_s) | (times_s >= last_s)
    return counter(times_s[kept], trace.value[kept])


def test_long_gap_is_a_hole() -> None:
    result = result_of(without(20, 40), MILLIJOULE, 0, 60)
    assert result.covered_s == pytest.approx(40, rel=EXACT)
    assert result.energy_j is None


def test_reset_in_a_long_gap_that_has_grown_beyond_is_no_progress() -> None:
    """5 J at its start, reset at 20 s, not read until 50 s: 300 J then are not 300 J more."""
    times_s = np.round(np.arange(-2, 64, 0.1), 6)
    joules = np.where(times_s < 20, 10 * (times_s + 2) + 5, 10 * (times_s - 20))
    kept = (times_s < 20) | (times_s >= 50)
    result = result_of(counter(times_s[kept], joules[kept]), MILLIJOULE, 0, 60)
    assert result.energy_j is None
    assert result.covered_s == pytest.approx(30, abs=0.2)
    assert result.covered_j == pytest.approx(300, rel=0.01)


def test_edge_in_a_long_gap_is_not_interpolated() -> None:
    result = result_of(without(20, 40), MILLIJOULE, 0, 30)
    assert result.energy_j is None
    assert result.covered_s == pytest.approx(20, rel=EXACT)


def test_long_gap_of_a_counter_that_wraps_is_a_hole() -> None:
    sensor = Counter(quantum_j=0.001, wrap_j=500)
    result = result_of(without(20, 40, wrap_j=500), sensor, 0, 60)
    assert result.energy_j is None
    assert result.covered_s == pytest.approx(40, rel=EXACT)
